"""What a login does about spaces: variables and links, by the rendered shell script itself."""

from __future__ import annotations

import getpass
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.role_templates import render

SPACES = [
    {"name": "home", "path": "/home", "by": "user", "variable": "HOME", "link": ""},
    {"name": "scratch", "path": "/scratch", "by": "user", "variable": "SCRATCH", "link": "scratch"},
    {"name": "project", "path": "/project", "by": "group", "variable": "PROJECT", "link": "projects"},
    {"name": "work", "path": "/w", "by": "user", "variable": "WORK", "link": ""},
]
ME = getpass.getuser()
SHOW = 'echo "$SCRATCH $PROJECT $WORK"; set -- deepops_*; env | grep -i deepops | grep -v DEEPOPSCTL_SPACES=1 || true'


@pytest.fixture(params=["dash", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home with a blank"
    path.mkdir()
    return path


def login(
    shell: str,
    home: Path,
    groups: str = "def-curie rrg-curie",
    user: str = ME,
    directory: Mapping[str, object] | None = None,
    **environment: str,
) -> str:
    people = [{"name": "root2", "groups": ["other"]}, {"name": user, "groups": groups.split()}]
    listed, profile = home.parent / "groups", home.parent / "profile.sh"
    values = {"ansible_managed": "managed", "user_environment_spaces": SPACES, "user_environment_people": people,
              "user_environment_directory": directory or {}, "__user_environment_groups_of": str(listed)}  # fmt: skip
    listed.write_text(render("user_environment", "groups-of-users.j2", **values))
    profile.write_text(render("user_environment", "spaces.sh.j2", **values))
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), **environment}
    done = subprocess.run([shell, "-euc", f". '{profile}'; {SHOW}"], env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_variables_name_directories_of_the_user_and_of_the_default_group(shell: str, home: Path) -> None:
    assert login(shell, home) == f"/scratch/{ME} /project/def-curie /w/{ME}\n"


def test_what_the_user_has_set_stays(shell: str, home: Path) -> None:
    assert login(shell, home, SCRATCH="/mine").startswith("/mine /project/def-curie")


def test_somebody_who_is_neither_in_people_yml_nor_in_a_group_of_the_directory_gets_nothing(
    shell: str, home: Path
) -> None:
    variables = {"SCRATCH": "", "PROJECT": "", "WORK": ""}
    directory = {"groups": ["all"], "accounts": [{"group": "curie-lab"}]}

    assert login(shell, home, user=f"{ME}x", directory=directory, **variables) == "  \n"
    assert list(home.iterdir()) == []


def test_members_of_the_directorys_groups_get_theirs(shell: str, home: Path) -> None:
    mine = subprocess.run(["id", "-gn"], capture_output=True, text=True, check=True).stdout.strip()
    accounts = [{"group": name} for name in ("curie-lab", "a lab", mine)]

    with_account = login(shell, home, user=f"{ME}x", directory={"groups": ["all", mine], "accounts": accounts})
    link = (home / "projects" / mine).readlink()
    without = login(shell, home, user=f"{ME}x", directory={"groups": [mine], "accounts": accounts[:2]}, PROJECT="")

    assert (with_account, str(link)) == (f"/scratch/{ME} /project/{mine} /w/{ME}\n", f"/project/{mine}")
    assert without == f"/scratch/{ME}  /w/{ME}\n"


def test_links_lead_to_the_directories(shell: str, home: Path) -> None:
    login(shell, home)
    login(shell, home)

    links = {str(path.relative_to(home)): str(path.readlink()) for path in home.rglob("*") if path.is_symlink()}
    assert links == {
        "scratch": f"/scratch/{ME}",
        "projects/def-curie": "/project/def-curie",
        "projects/rrg-curie": "/project/rrg-curie",
    }


def test_the_link_of_a_group_goes_with_the_membership_and_nothing_else_does(shell: str, home: Path) -> None:
    login(shell, home)
    (home / "projects" / "mine").mkdir()
    (home / "projects" / "old").symlink_to("/elsewhere/old")

    login(shell, home, groups="def-curie")

    assert sorted(path.name for path in (home / "projects").iterdir()) == ["def-curie", "mine", "old"]


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
    values = {"ansible_managed": "managed", "user_environment_spaces": SPACES,
              "__user_environment_profile_of_spaces": f"'{home.parent}/profile.sh'"}  # fmt: skip
    piece = render("user_environment", "spaces-of-task.j2", **values)

    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "SLURM_JOB_ID": "7", "WORK": "/mine"}
    done = subprocess.run(["sh"], input=piece, env=variables, capture_output=True, text=True, check=True)

    assert done.stdout == f"export SCRATCH=/scratch/{ME}\nexport PROJECT=/project/def-curie\n"
