"""Users and groups in a node's own files: created, adopted, changed and closed, all in one change."""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.node_modules import FailedError, Step, raising

node_errors = nodeside.load("node.errors")
node_people = nodeside.load("node.people")
node_files = nodeside.load("node.files")
node_identities = nodeside.load("node.identities")

PASSWD = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\n"
GROUP = "root:x:0:\ndaemon:x:1:\n"
SHADOW = "root:*:20000:0:99999:7:::\ndaemon:*:20000:0:99999:7:::\n"
GSHADOW = "root:*::\ndaemon:*::\n"
ALICE = {"name": "alice", "uid": 60010, "groups": ["def-curie"], "full_name": "Alice Ball", "shell": "/bin/zsh"}
BOB = {"name": "bob", "uid": 60011, "groups": ["def-curie"]}
GROUPS = [{"name": "def-curie", "gid": 60001}]
NOTHING: dict[str, list[str]] = {"people": [], "adopted": [], "groups": []}


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node's files with two system accounts, and none of this machine's people."""
    directory = tmp_path / "etc"
    directory.mkdir()
    for name, text in (("passwd", PASSWD), ("group", GROUP), ("shadow", SHADOW), ("gshadow", GSHADOW)):
        (directory / name).write_text(text)
    (tmp_path / "sshd_config").write_text("Include /etc/ssh/sshd_config.d/*.conf\n")
    monkeypatch.setattr(node_people, "ETC", str(directory))
    monkeypatch.setattr(node_people, "SKELETON", str(tmp_path / "skel"))
    monkeypatch.setattr(node_people, "SSHD_CONFIG", str(tmp_path / "sshd_config"))
    monkeypatch.setattr(node_people.node_command, "run", lambda _argv: type("Answer", (), {"output": ""})())
    monkeypatch.setattr(node_people.node_identities, "conflicts", lambda _people, _groups: [])
    return directory


def deploy(*people: dict[str, Any], step: Step | None = None, **more: Any) -> Step:
    step = step or Step(owned=deepcopy(NOTHING))
    wanted = {"people": list(people), "groups": GROUPS, "home": "/home", "homes_in": "", "homes_mounted": "",
              "name_left": True, "authorized_keys_files": [".ssh/authorized_keys"], **more}  # fmt: skip
    node_people.ensure_people(step, wanted)
    return step


def line(etc: Path, table: str, name: str) -> str:
    (text,) = [row for row in (etc / table).read_text().splitlines() if row.startswith(f"{name}:")]
    return text


def test_creates_users_with_their_groups_and_subordinate_ids(etc: Path) -> None:
    (etc / "shadow").chmod(0o600)

    step = deploy(ALICE, BOB)

    assert line(etc, "passwd", "alice") == "alice:x:60010:60010:Alice Ball:/home/alice:/bin/zsh"
    assert line(etc, "group", "alice") == "alice:x:60010:"
    assert line(etc, "group", "def-curie") == "def-curie:x:60001:alice,bob"
    assert line(etc, "gshadow", "def-curie") == "def-curie:!::alice,bob"
    # no password, and no expiry
    assert [line(etc, "shadow", "bob").split(":")[field] for field in (1, 7)] == ["*", ""]
    assert line(etc, "subuid", "alice") == f"alice:{671088640 + 10 * 65536}:65536"
    assert step.done[0] == "created the group def-curie"
    # everything that was there is as it was
    assert (etc / "passwd").read_text().startswith(PASSWD)
    assert (etc / "passwd-").read_text() == PASSWD
    modes = {name: (etc / name).stat().st_mode & 0o777 for name in ("passwd", "shadow", "subuid")}
    assert modes == {"passwd": 0o644, "shadow": 0o600, "subuid": 0o644}


def test_a_second_deploy_changes_nothing(etc: Path) -> None:
    step = deploy(ALICE, BOB)
    before = {path.name: path.stat().st_ino for path in etc.iterdir()}

    again = deploy(ALICE, BOB, step=Step(owned=step.owned))

    assert again.done == []
    assert {path.name: path.stat().st_ino for path in etc.iterdir()} == before


def test_a_users_own_words_break_no_line(etc: Path) -> None:
    lines = "".join(f"u{number}:x:{number}:{number}:room {mark}1:/home/u:/bin/sh\n"
                    for number, mark in enumerate("\x0b\x0c\x1c\x1e\x85\u2028\r", 1000))  # fmt: skip
    (etc / "passwd").write_text(PASSWD + lines, newline="")

    deploy(ALICE)

    assert (etc / "passwd").read_bytes().startswith((PASSWD + lines).encode())


def test_a_copy_of_hashes_is_never_readable_by_others(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (etc / "shadow").chmod(0o600)
    # no user can be quicker than a copy that never gets its mode
    monkeypatch.setattr("shutil.copystat", raising(PermissionError()))

    deploy(ALICE)

    assert (etc / "shadow-").read_text() == SHADOW
    assert (etc / "shadow-").stat().st_mode & 0o777 == 0o600


def test_an_account_is_known_as_created_before_it_is(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next run adopts what one that was cut off left: the shell would follow people.yml no more."""
    step = Step(owned=deepcopy(NOTHING))
    monkeypatch.setattr(node_people.Tables, "write", raising(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        deploy(ALICE, step=step)

    assert step.saved == {"people": ["alice"], "adopted": [], "groups": ["def-curie"]}


def test_check_mode_reports_and_writes_nothing(etc: Path) -> None:
    step = deploy(ALICE, step=Step(dry=True, owned=deepcopy(NOTHING)))

    assert "created the user alice" in step.done
    assert (etc / "passwd").read_text() == PASSWD
    assert not (etc / "subuid").exists()


def test_what_changed_in_people_yml_changes_on_the_node(etc: Path) -> None:
    step = deploy(ALICE, BOB)

    deploy({**ALICE, "shell": "/bin/bash", "expires": "2027-08-31"}, {**BOB, "groups": []}, step=step)

    assert line(etc, "passwd", "alice").endswith(":/bin/bash")
    assert line(etc, "shadow", "alice").split(":")[7] == "21061"
    assert line(etc, "group", "def-curie") == "def-curie:x:60001:alice"


def test_who_is_no_longer_declared_expires_and_loses_the_groups_and_nothing_else(etc: Path) -> None:
    step = deploy(ALICE, BOB)

    deploy(ALICE, step=step)

    assert line(etc, "shadow", "bob").split(":")[7] == "1"
    assert line(etc, "group", "def-curie") == "def-curie:x:60001:alice"
    assert line(etc, "passwd", "bob")
    assert step.warnings == ["no longer in people.yml, account expired, files left as they are: bob"]

    deploy(ALICE, BOB, step=step)
    assert line(etc, "shadow", "bob").split(":")[7] == ""


class TestAdoption:
    HERE = "alice:x:60010:100:Old Name:/data/alice:/bin/sh"

    @pytest.fixture
    def step(self, etc: Path) -> Step:
        (etc / "passwd").write_text(f"{PASSWD}{self.HERE}\n")
        (etc / "shadow").write_text(f"{SHADOW}alice:$y$hash:19000:0:99999:7:::\n")
        return deploy(ALICE)

    def test_keeps_name_group_home_shell_and_password(self, etc: Path, step: Step) -> None:
        assert line(etc, "passwd", "alice") == self.HERE
        assert line(etc, "shadow", "alice") == "alice:$y$hash:19000:0:99999:7:::"
        assert step.owned["adopted"] == ["alice"]
        # groups and expiry follow people.yml
        deploy({**ALICE, "expires": "2027-08-31"}, step=step)
        assert line(etc, "group", "def-curie") == "def-curie:x:60001:alice"
        assert line(etc, "shadow", "alice").split(":")[7] == "21061"

    def test_an_account_that_a_site_has_closed_is_not_opened(self, etc: Path) -> None:
        (etc / "passwd").write_text(f"{PASSWD}{self.HERE}\n")
        (etc / "shadow").write_text(f"{SHADOW}alice:*:19000:0:99999:7::1:\n")

        with pytest.raises(FailedError, match=r"alice expires on 1970-01-02 here, never in people\.yml"):
            deploy(ALICE)


def test_a_conflict_changes_nothing(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_people.node_identities, "conflicts", lambda _people, _groups: ["the id is taken"])

    with pytest.raises(FailedError, match="the id is taken"):
        deploy(ALICE)

    assert (etc / "passwd").read_text() == PASSWD


def test_lines_of_nis_comments_and_members_that_a_site_added_stay(etc: Path) -> None:
    strange = "# ours\n+@netgroup::::::\nbroken line\n"
    (etc / "passwd").write_text(PASSWD + strange)
    (etc / "group").write_text(f"{GROUP}def-curie:x:60001:daemon\n")

    deploy(ALICE)

    assert (etc / "passwd").read_text().startswith(PASSWD + strange)
    assert line(etc, "group", "def-curie") == "def-curie:x:60001:daemon,alice"


def test_a_place_of_keys_that_sshd_would_lose_is_refused(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = "authorizedkeysfile .ssh/authorized_keys /etc/keys/%u\n"
    monkeypatch.setattr(node_people.node_command, "run", lambda _argv: type("Answer", (), {"output": answer})())

    with pytest.raises(FailedError, match="sshd reads keys from /etc/keys/%u here"):
        deploy(ALICE)


def test_a_change_on_the_node_is_seen(etc: Path) -> None:
    step = deploy(ALICE, BOB)
    assert node_people.differences(step.record["people"]) == []

    (etc / "shadow").write_text((etc / "shadow").read_text().replace("99999:7:::\n", "99999:7::1:\n"))

    changed = [f"the account {name} was changed" for name in ("alice", "bob")]
    assert node_people.differences(step.record["people"]) == changed


class TestHomes:
    needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")

    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        (tmp_path / "skel").mkdir()
        (tmp_path / "skel" / ".bashrc").write_text("# bash\n")
        (tmp_path / "home").mkdir(mode=0o755)
        return tmp_path / "home"

    @needs_root
    def test_a_home_has_the_skeleton_and_is_its_owners_alone(self, etc: Path, home: Path) -> None:
        step = deploy(ALICE, homes_in=str(home))

        status = (home / "alice").stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (60010, 60010, 0o700)
        assert (home / "alice" / ".bashrc").stat().st_uid == 60010
        assert "created the home of alice" in step.done
        assert [path.name for path in home.iterdir()] == ["alice"]

    def test_one_that_is_there_stays_as_it_is_whatever_it_is(self, etc: Path, home: Path) -> None:
        (home / "alice").symlink_to("/nowhere")

        step = deploy(ALICE, homes_in=str(home))

        assert "created the home of alice" not in step.done
        assert (home / "alice").is_symlink()

    @needs_root
    def test_a_home_of_somebody_else_is_named_and_the_next_deploy_looks_again(self, etc: Path, home: Path) -> None:
        (home / "alice").mkdir()
        os.chown(home / "alice", 60099, 60099)

        step = deploy(ALICE, BOB, homes_in=str(home))

        (warning,) = step.warnings
        assert warning.startswith(
            f"homes with another owner: {home}/alice belongs to the user id 60099, not 60010; move"
        )
        assert step.wanted["digest"] == ""
        assert (home / "alice").stat().st_uid == 60099
        assert (home / "bob").stat().st_uid == 60011

    def test_an_adopted_account_with_its_home_elsewhere_gets_none(self, etc: Path, home: Path) -> None:
        (etc / "passwd").write_text(f"{PASSWD}{TestAdoption.HERE}\n")

        deploy(ALICE, homes_in=str(home))

        assert list(home.iterdir()) == []

    def test_none_is_made_where_its_file_system_is_not_mounted(self, etc: Path, home: Path) -> None:
        step = deploy(ALICE, homes_in=str(home), homes_mounted=str(home))

        assert list(home.iterdir()) == []
        assert step.warnings == [f"{home} is not mounted here: no home was made"]
        # the next deploy tries again
        assert step.wanted["digest"] == ""

    def test_a_file_system_that_is_mounted_at_its_first_use_is_used(
        self, etc: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = nodeside.load("storage.mount_table")
        mounted: list[str] = []
        monkeypatch.setattr(table.os, "statvfs", mounted.append)
        monkeypatch.setattr(table, "mounted", lambda: mounted)

        step = deploy(ALICE, homes_in=str(home), homes_mounted=str(home))

        assert (step.warnings, [path.name for path in home.iterdir()]) == ([], ["alice"])

    @needs_root
    def test_where_root_is_squashed_the_missing_ones_are_named_and_nothing_is_reported_as_made(
        self, etc: Path, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (home / "bob").mkdir()
        os.chown(home / "bob", 60011, 60011)
        monkeypatch.setattr(node_people, "make_home", raising(PermissionError()))

        step = deploy(ALICE, BOB, homes_in=str(home))

        assert step.warnings == [f"root may not make homes in {home} (root is squashed?): make on its server: alice"]
        assert not [sentence for sentence in step.done if "home" in sentence]
        assert step.wanted["digest"] == ""

    def test_a_directory_that_others_can_write_to_is_refused(self, etc: Path, home: Path) -> None:
        home.chmod(0o777)

        with pytest.raises(node_errors.HintedError, match="can be written by others than root"):
            deploy(ALICE, homes_in=str(home))


class TestConflicts:
    """With this machine's own accounts in the place of a node's."""

    @pytest.mark.parametrize(
        ("people", "groups", "sentences"),
        [
            ([{"name": "daemon", "uid": 60010}], [], ["the user daemon has the id 1 here, 60010 in people.yml",
                                                      "the group daemon has the id 1 here, 60010 in people.yml"]),
            ([{"name": "eve", "uid": 1}], [], ["the id 1 of the user eve is that of daemon here",
                                               "the id 1 of the group eve is that of daemon here"]),
            ([], [{"name": "lab", "gid": 1}], ["the id 1 of the group lab is that of daemon here"]),
            ([{"name": "daemon", "uid": 1}], [], []),
            ([{"name": "eve", "uid": 60010}], [{"name": "lab", "gid": 60001}], []),
        ],
    )  # fmt: skip
    def test_a_name_or_an_id_of_somebody_else_is_named_with_both_ids(
        self, people: list[dict[str, Any]], groups: list[dict[str, Any]], sentences: list[str]
    ) -> None:
        assert node_identities.conflicts(people, groups) == sentences

    def test_the_connecting_user_is_nobody_of_people_yml(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SUDO_USER", "eve")

        assert node_identities.conflicts([{"name": "eve", "uid": 60010}], []) == [
            "eve is the user that deepopsctl connects as"
        ]
