"""What a login does about spaces: variables and links, by the rendered shell script itself."""

from __future__ import annotations

import getpass
import grp
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.support.role_templates import render

ME = getpass.getuser()
# groups that every system has
GROUPS = ("games", "users")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes the directories of groups")


def spaces(at: Path) -> list[dict[str, str]]:
    return [
        {"name": "home", "path": "/home", "by": "user", "variable": "HOME", "link": ""},
        {"name": "scratch", "path": f"{at}/scratch", "by": "user", "variable": "SCRATCH", "link": "scratch"},
        {"name": "project", "path": f"{at}/project", "by": "group", "variable": "PROJECT", "link": "projects"},
        {"name": "work", "path": f"{at}/w", "by": "user", "variable": "WORK", "link": ""},
    ]


SHOW = 'echo "$SCRATCH $PROJECT $WORK"; set -- deepops_*; env | grep -i deepops | grep -v DEEPOPSCTL_SPACES=1 || true'


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home with a blank"
    path.mkdir()
    for each in (f"scratch/{ME}", f"w/{ME}", *(f"project/{group}" for group in GROUPS)):
        (tmp_path / each).mkdir(parents=True)
    for group in GROUPS:
        os.chown(tmp_path / "project" / group, 0, grp.getgrnam(group).gr_gid)
    return path


def login(
    shell: str,
    home: Path,
    groups: str = " ".join(GROUPS),
    user: str = ME,
    directory: Mapping[str, object] | None = None,
    **environment: str,
) -> str:
    people = [{"name": "root2", "groups": ["other"]}, {"name": user, "groups": groups.split()}]
    listed, profile = home.parent / "groups", home.parent / "profile.sh"
    values = {"ansible_managed": "managed", "user_environment_spaces": spaces(home.parent),
              "user_environment_people": people, "user_environment_directory": directory or {},
              "__user_environment_groups_of": str(listed)}  # fmt: skip
    listed.write_text(render("user_environment", "groups-of-users.j2", **values))
    profile.write_text(render("user_environment", "spaces.sh.j2", **values))
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), **environment}
    done = subprocess.run([shell, "-euc", f". '{profile}'; {SHOW}"], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.replace(f"{home.parent}/", "/")


def test_variables_name_directories_of_the_user_and_of_the_default_group(shell: str, home: Path) -> None:
    assert login(shell, home) == f"/scratch/{ME} /project/games /w/{ME}\n"


def of_somebody_else(path: Path) -> None:
    os.chown(path, 60011, path.stat().st_gid)


def link_elsewhere(path: Path) -> None:
    path.rmdir()
    path.symlink_to(path.parent.parent)


def of_another_group(path: Path) -> None:
    os.chown(path, path.stat().st_uid, 60011)


def nothing(path: Path) -> None:
    path.rmdir()


@pytest.mark.parametrize("squat", [of_somebody_else, link_elsewhere, nothing])
def test_nothing_leads_to_a_directory_that_somebody_else_made(
    shell: str, home: Path, squat: Callable[[Path], None]
) -> None:
    for place in (f"scratch/{ME}", "project/games"):
        squat(home.parent / place)

    assert login(shell, home, SCRATCH="", PROJECT="") == f"  /w/{ME}\n"
    assert sorted(path.name for path in home.rglob("*") if path.is_symlink()) == ["users"]


def test_a_groups_directory_of_another_group_is_not_theirs(shell: str, home: Path) -> None:
    of_another_group(home.parent / "project" / "games")

    assert login(shell, home, PROJECT="") == f"/scratch/{ME}  /w/{ME}\n"
    assert not (home / "projects" / "games").is_symlink()


def test_what_the_user_has_set_stays(shell: str, home: Path) -> None:
    assert login(shell, home, SCRATCH="/mine").startswith("/mine /project/games")


def test_somebody_who_is_neither_in_people_yml_nor_in_a_group_of_the_directory_gets_nothing(
    shell: str, home: Path
) -> None:
    variables = {"SCRATCH": "", "PROJECT": "", "WORK": ""}
    directory = {"groups": ["all"], "accounts": [{"group": "curie-lab"}]}

    assert login(shell, home, user=f"{ME}x", directory=directory, **variables) == "  \n"
    assert list(home.iterdir()) == []


def test_members_of_the_directorys_groups_get_theirs(shell: str, home: Path) -> None:
    mine = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    (home.parent / "project" / mine).mkdir()
    accounts = [{"group": name} for name in ("curie-lab", "a lab", mine)]

    with_account = login(shell, home, user=f"{ME}x", directory={"groups": ["all", mine], "accounts": accounts})
    link = str((home / "projects" / mine).readlink()).replace(f"{home.parent}/", "/")
    without = login(shell, home, user=f"{ME}x", directory={"groups": [mine], "accounts": accounts[:2]}, PROJECT="")

    assert (with_account, link) == (f"/scratch/{ME} /project/{mine} /w/{ME}\n", f"/project/{mine}")
    assert without == f"/scratch/{ME}  /w/{ME}\n"


def test_links_lead_to_the_directories(shell: str, home: Path) -> None:
    login(shell, home)
    login(shell, home)

    links = {str(path.relative_to(home)): str(path.readlink()) for path in home.rglob("*") if path.is_symlink()}
    links = {name: target.replace(f"{home.parent}/", "/") for name, target in links.items()}
    assert links == {
        "scratch": f"/scratch/{ME}",
        "projects/games": "/project/games",
        "projects/users": "/project/users",
    }


def test_the_link_of_a_group_goes_with_the_membership_and_nothing_else_does(shell: str, home: Path) -> None:
    login(shell, home)
    (home / "projects" / "mine").mkdir()
    (home / "projects" / "old").symlink_to("/elsewhere/old")

    login(shell, home, groups="games")

    assert sorted(path.name for path in (home / "projects").iterdir()) == ["games", "mine", "old"]


def test_what_a_user_has_under_the_name_of_a_link_stays(shell: str, home: Path) -> None:
    (home / "scratch").write_text("notes")
    (home / "projects").write_text("a file")

    login(shell, home)

    assert (home / "scratch").read_text() == "notes"
    assert (home / "projects").read_text() == "a file"


def test_a_job_gets_variables_and_makes_no_links(shell: str, home: Path) -> None:
    assert login(shell, home, SLURM_JOB_ID="7").startswith(f"/scratch/{ME} ")
    assert list(home.iterdir()) == []


def test_a_task_without_them_is_given_the_variables(home: Path) -> None:
    login("bash", home)
    values = {"ansible_managed": "managed", "user_environment_spaces": spaces(home.parent),
              "__user_environment_profile_of_spaces": f"'{home.parent}/profile.sh'"}  # fmt: skip
    piece = render("user_environment", "spaces-of-task.j2", **values)

    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "SLURM_JOB_ID": "7", "WORK": "/mine"}
    done = subprocess.run(["sh"], input=piece, env=variables, capture_output=True, text=True, check=True)

    at = home.parent
    assert done.stdout == f"export SCRATCH={at}/scratch/{ME}\nexport PROJECT={at}/project/games\n"
