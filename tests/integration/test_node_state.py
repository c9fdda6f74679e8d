"""node_state and drift_check on files of this host: one story of many calls, each with what it returned."""

from __future__ import annotations

import base64
import grp
import json
import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_ansible import Played, TaskResult
from tests.support.node_modules import Call, FailedError, load, plugin

SECRET = "correct-horse-battery-staple"
OTHER_SECRET = "another-horse-and-another-staple"
KEY = "key-that-only-munge-may-read"
QUOTED = "sentence-that-a-parser-quotes"

is_root = os.getuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root can give a directory away")
needs_systemctl = pytest.mark.skipif(not shutil.which("systemctl"), reason="this machine has no systemctl")
needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg-query"), reason="this machine has no dpkg")


@dataclass(frozen=True)
class Node:
    """The node's directory, and Ansible's result of each task."""

    directory: Path
    played: Played

    def __getitem__(self, task: str) -> TaskResult:
        return self.played.result(task)

    def actions(self, task: str) -> list[str]:
        """The actions that a task reports, with paths below this node's directory."""
        return [action.replace(f"{self.directory}/", "") for action in self[task].data["actions"]]

    def changes(self, task: str) -> list[tuple[str, str, str]]:
        """The same for programs: type, name and action."""
        return [(entry["kind"], entry["name"], entry["action"]) for entry in self[task].data["changes"]]

    def diff(self, task: str) -> str:
        return json.dumps(self[task].data["diff"])

    def reasons(self, task: str) -> list[str]:
        """Why the gate is not clean, with paths below this node's directory."""
        gate = self[task].data
        assert gate["clean"] is (not gate["reasons"])
        return [reason.replace(f"{self.directory}/", "") for reason in gate["reasons"]]


def secret(text: str) -> dict[str, str]:
    return {"secret_base64": base64.b64encode(text.encode()).decode()}


def tasks_for(directory: Path) -> list[dict[str, Any]]:
    """The story: deploy, check, break, check, fix, refuse."""
    mine = {"owner": pwd.getpwuid(os.getuid()).pw_name, "group": grp.getgrgid(os.getgid()).gr_name}
    plain = {"path": f"{directory}/etc/plain.conf", "content": "one\ntwo\n", **mine}
    desired: dict[str, Any] = {
        "component": "test",
        "step": "files",
        "digest": "d1",
        "directories": [{"path": f"{directory}/var/spool", "mode": "0750", **mine}],
        "files": [
            plain,
            {"path": f"{directory}/etc/password", **secret(f"password={SECRET}\n"), "mode": "0600", **mine},
            {"path": f"{directory}/etc/key", **secret(KEY), "mode": "0400", **mine},
            {"path": f"{directory}/etc/hosts", "block": "192.0.2.1 n1", **mine},
        ],
        "probes": {
            "said": ["echo", "hello"],
            "failed": ["false"],
            "broken": ["sh", "-c", "echo wait; echo no such hardware >&2; exit 3"],
            "crashed": ["sh", "-c", "kill -SEGV $$"],
            "nameless": ["sh", "-c", "kill -40 $$"],
            "absent": ["no-such-command-anywhere"],
        },
    }

    def state(name: str, *, check: bool = False, **changes: object) -> dict[str, Any]:
        return {"name": name, "deepopsctl.cluster.node_state": {**desired, **changes}, "check_mode": check}

    def gate(
        name: str, digest: str = "d1", steps: tuple[str, ...] = ("files",), component: str = "test"
    ) -> dict[str, Any]:
        asked = {"component": component, "digests": {component: digest}, "steps": list(steps)}
        return {"name": name, "deepopsctl.cluster.drift_check": asked}

    def edit(name: str, **file: str) -> dict[str, Any]:
        return {"name": name, "ansible.builtin.copy": file}

    def one_file(**file: object) -> dict[str, Any]:
        return {"step": "one", "directories": [], "probes": {}, "files": [{**mine, **file}]}

    new_secret = {**desired["files"][1], **secret(f"password={OTHER_SECRET}\n")}
    unknown = {**plain, "owner": "nobody-has-this-name"}
    unit = {"name": "no-such-unit-anywhere.service", "restart_on": [plain["path"]]}
    in_check_mode = [
        state("first, in check mode", check=True),
        gate("gate, before any deploy"),
    ]
    deployed = [
        state("first"),
        state("second"),
        state("second, in check mode", check=True),
        gate("gate"),
        gate("gate, other digest", digest="d2"),
        gate("gate, full run", digest=""),
        gate("gate, step never done", steps=("files", "more")),
    ]
    broken = [
        edit("edit", content="one\nedited\n", dest=plain["path"]),
        edit("chmod", content=KEY, dest=f"{directory}/etc/key", mode="0444"),
        {"name": "rmdir", "ansible.builtin.file": {"path": f"{directory}/var/spool", "state": "absent"}},
        gate("gate, broken"),
        state("mend, in check mode", check=True),
        state("mend"),
        gate("gate, mended"),
    ]
    secrets = [
        state("new secret, in check mode", check=True, files=[new_secret]),
        state(
            "refused secret", **one_file(path=f"{directory}/etc/bad", **secret(QUOTED), validate=["cat", "%s", "/none"])
        ),
        state("no base64", **one_file(path=f"{directory}/etc/bad", secret_base64=f"{SECRET}!")),
    ]
    refused = [
        state("unknown owner", files=[unknown]),
        state("unknown owner, in check mode", check=True, files=[unknown]),
        state(
            "refused",
            files=[{**plain, "content": "three\n", "validate": ["sh", "-c", "echo line 1 is odd; exit 1"]}],
            units=[unit],
        ),
        state("file for a directory", directories=[{"path": plain["path"], **mine}]),
        state("directory for a file", **one_file(path=f"{directory}/etc", content="x")),
        # in check mode only: if the guard is broken, this host must not lose /tmp
        state("system's directory, in check mode", check=True, directories=[{"path": "/tmp", "mode": "0700", **mine}]),
        state(
            "link to one, in check mode",
            check=True,
            directories=[{"path": f"{directory}/link", "mode": "0700", **mine}],
        ),
        state("everybody's directory", directories=[{"path": f"{directory}/open", "mode": "0700", **mine}]),
        state("a user's directory", directories=[{"path": f"{directory}/users", "mode": "0700", **mine}]),
        gate("gate, after refusals"),
        state("no record", **{**one_file(path=f"{directory}/etc/x", content="x"), "digest": ""}),
        gate("gate, no record", steps=("one",)),
        state("other name, in check mode", check=True, hostname="other-name"),
    ]
    systemd = [
        state("unit, in check mode", check=True, units=[unit]),
        state("unit", step="unit", units=[unit]),
        gate("gate, unit never started", steps=("unit",)),
    ]
    packages = [
        state("package", step="package", packages=["dpkg"]),
        state("package of any version", step="package", packages={"dpkg": "1*"}),
        state("package of another version, in check mode", check=True, packages={"dpkg": "99.0"}),
        state(
            "installed manually",
            step="manual",
            packages={"no-such-package-anywhere": ""},
            manual_installs={"no-such-package-anywhere": f"{directory}/etc/plain.conf"},
        ),
        state("missing package, in check mode", check=True, packages=["dpkg", "no-such-package-anywhere"]),
        gate("gate, package", steps=("package",)),
    ]
    present, gone = ({"path": f"{directory}/own/{name}/file", "content": "x\n", **mine} for name in ("kept", "gone"))
    directories = [{"path": f"{directory}/own/{name}", **mine} for name in ("kept", "gone")]
    both: dict[str, Any] = {"directories": directories, "files": [present, gone]}

    block = {"block": "ours", "mode": "0600", "where_present": True, **mine}
    blocks = [{"path": f"{directory}/etc/{name}", **block} for name in ("shellrc", "absentrc")]

    def gate_of_owned(name: str, *steps: str) -> dict[str, Any]:
        return gate(name, steps=steps, component="owned")

    def owned(name: str, *, check: bool = False, **changes: object) -> dict[str, Any]:
        wanted = {"component": "owned", "step": "things", "digest": "d1", "owned": True, **changes}
        return {"name": name, "deepopsctl.cluster.node_state": wanted, "check_mode": check}

    owning = [
        {"name": "there before", "ansible.builtin.file": {"path": f"{directory}/own/kept", "state": "directory"}},
        owned("things, in check mode", check=True, **both),
        owned("things", **both),
        owned("fewer, in check mode", check=True, directories=directories[:1], files=[present]),
        owned("fewer", directories=directories[:1], files=[present]),
        edit("another user's", content="y", dest=f"{directory}/own/kept/other"),
        owned("none, in check mode", check=True),
        owned("none"),
        owned("none again"),
        owned("empty, for the gate", step="empty", record_empty=True),
        edit("a site's own file", content="theirs\n", dest=f"{directory}/etc/shellrc", mode="0600"),
        owned("block", step="block", files=blocks),
        gate_of_owned("gate, block", "block"),
        owned("no block, in check mode", check=True, step="block"),
        owned("no block", step="block"),
        owned("for later", step="later", files=[{**present, "path": f"{directory}/own/later"}]),
        owned("later, in check mode", check=True, step="later", keep_obsolete=True),
        owned("later", step="later", keep_obsolete=True),
        gate_of_owned("gate, not over yet", "later"),
        owned("now", step="later"),
        owned("forget, in check mode", check=True, step="any", owned=False, forget=True),
        gate_of_owned("gate, empty", "empty"),
        owned("forget", step="any", owned=False, forget=True),
        gate_of_owned("gate, forgotten", "empty"),
        gate_of_owned("gate, nothing left"),
    ]
    return [
        *in_check_mode,
        *deployed,
        *broken,
        *secrets,
        *refused,
        *owning,
        *(systemd if shutil.which("systemctl") else []),
        *(packages if shutil.which("dpkg-query") else []),
    ]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    directory = tmp_path_factory.mktemp("node")
    (directory / "etc").mkdir()
    (directory / "etc" / "hosts").write_text("127.0.0.1 localhost\n", encoding="utf-8")
    (directory / "link").symlink_to("/tmp")
    (directory / "open").mkdir()
    (directory / "open").chmod(0o1777)
    (directory / "users").mkdir()
    if is_root:
        shutil.chown(directory / "users", "nobody")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(load("node.record"), "STATE", str(directory / "state"))
        results = tuple(done(task) for task in tasks_for(directory))
    return Node(directory, Played(0, "", results))


def done(task: dict[str, Any]) -> TaskResult:
    """A task's result; files of this host are changed as another user would."""
    name, check = task["name"], task.get("check_mode", False)
    for module in ("node_state", "drift_check"):
        if arguments := task.get(f"deepopsctl.cluster.{module}"):
            try:
                data = Call(arguments, check=check).run(plugin("modules", module))
            except FailedError as error:
                return TaskResult(name, "n1", "failed", error.data)
            return TaskResult(name, "n1", "ok", data)
    if file := task.get("ansible.builtin.copy"):
        path = Path(file["dest"])
        path.write_text(file["content"])
        path.chmod(int(file["mode"], 8)) if "mode" in file else None
    else:
        file = task["ansible.builtin.file"]
        path = Path(file["path"])
        path.rmdir() if file["state"] == "absent" else path.mkdir(parents=True)
    return TaskResult(name, "n1", "ok", {})


class TestDeploy:
    def test_the_first_run_reports_all_it_did(self, node: Node) -> None:
        assert node["first"].changed
        assert node.actions("first") == [
            "created var/spool",
            "wrote etc/plain.conf",
            "wrote etc/password",
            "wrote etc/key",
            "wrote etc/hosts",
        ]

    def test_content_and_modes_are_as_wanted(self, node: Node) -> None:
        etc = node.directory / "etc"

        assert (etc / "plain.conf").read_text() == "one\ntwo\n"
        assert (etc / "password").read_text() == f"password={SECRET}\n"
        assert (etc / "key").read_text() == KEY
        assert (etc / "hosts").read_text() == (
            "# BEGIN deepopsctl\n192.0.2.1 n1\n# END deepopsctl\n127.0.0.1 localhost\n"
        )
        paths = etc / "plain.conf", etc / "password", etc / "key", node.directory / "var/spool"
        assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o644, 0o600, 0o400, 0o750]

    def test_the_second_run_changes_nothing(self, node: Node) -> None:
        assert not node["second"].changed
        assert node.actions("second") == []
        assert not node["second, in check mode"].changed

    def test_probes_that_work_are_returned_and_of_the_others_the_reason(self, node: Node) -> None:
        assert node["first"].data["probes"] == {"said": "hello\n"}
        assert node["first"].data["failed_probes"] == {
            "failed": "ended with 1",
            "broken": "ended with 3: no such hardware",
            "crashed": "was ended by SIGSEGV",
            "nameless": "was ended by signal 40",
            "absent": "no-such-command-anywhere is not installed",
        }


class TestCheckMode:
    @pytest.mark.parametrize("run", ["first", "mend", "things", "fewer", "none", "no block", "forget"])
    def test_it_reports_the_same_as_the_run_that_follows_and_leaves_it_all_to_do(self, node: Node, run: str) -> None:
        checked = f"{run}, in check mode"

        assert node.changes(run)
        assert (node[checked].changed, node[run].changed) == (True, True)
        assert node.changes(checked) == node.changes(run)
        assert node.actions(checked) == node.actions(run)

    def test_a_change_has_its_difference_and_a_secret_one_has_none(self, node: Node) -> None:
        diffs = {
            Path(change["name"]).name: change["diff"]
            for change in node["first, in check mode"].data["changes"]
            if change["kind"] == "file"
        }

        assert diffs["plain.conf"] == "@@ -0,0 +1,2 @@\n+one\n+two\n"
        assert diffs["password"] == diffs["key"] == "(secret)\n"
        assert "+192.0.2.1 n1\n" in diffs["hosts"]
        assert not any("diff" in change for change in node["first"].data["changes"])

    def test_an_owner_that_a_package_would_make_is_no_error(self, node: Node) -> None:
        assert node["unknown owner, in check mode"].status == "ok"

    def test_another_host_name_is_shown(self, node: Node) -> None:
        assert "set the hostname to other-name" in node.actions("other name, in check mode")
        assert "other-name" in node.diff("other name, in check mode")

    @needs_dpkg
    def test_packages_that_are_missing_are_listed(self, node: Node) -> None:
        assert "installed no-such-package-anywhere " in node.actions("missing package, in check mode")
        assert "no-such-package-anywhere" in node.diff("missing package, in check mode")

    @needs_dpkg
    def test_another_version_of_a_package_is_an_upgrade(self, node: Node) -> None:
        assert not node["package of any version"].changed
        assert node.changes("package of another version, in check mode") == [("package", "dpkg", "upgrade")]
        assert node.actions("package of another version, in check mode") == ["upgraded dpkg 99.0"]

    @needs_dpkg
    def test_what_was_installed_manually_stays_and_is_no_error(self, node: Node) -> None:
        result = node["installed manually"]

        assert (result.status, result.changed) == ("ok", False)
        assert "was installed manually" in json.dumps(result.data["warnings"])

    @needs_systemctl
    def test_units_that_do_not_run_would_be_started(self, node: Node) -> None:
        assert node.actions("unit, in check mode") == ["started no-such-unit-anywhere.service"]


class TestDirectoriesOfOthers:
    """A site that names the wrong directory, such as Slurm's old default StateSaveLocation=/tmp, loses nothing."""

    @pytest.mark.parametrize(
        "run", ["system's directory, in check mode", "link to one, in check mode", "everybody's directory"]
    )
    def test_owner_and_mode_of_a_shared_directory_do_not_change(self, node: Node, run: str) -> None:
        assert node[run].status == "failed"
        assert "is a system or shared directory" in node[run].data["msg"]
        assert stat.S_IMODE((node.directory / "open").stat().st_mode) == 0o1777

    @needs_root
    def test_the_owner_of_a_users_directory_does_not_change(self, node: Node) -> None:
        assert "belongs to nobody" in node["a user's directory"].data["msg"]
        assert pwd.getpwuid((node.directory / "users").stat().st_uid).pw_name == "nobody"


class TestOwned:
    def test_what_is_no_longer_wanted_is_removed_with_the_directory_made_for_it(self, node: Node) -> None:
        assert node.changes("fewer") == [("file", f"{node.directory}/own/gone/file", "remove")]
        assert not (node.directory / "own" / "gone").exists()

    def test_what_was_there_before_or_holds_somebody_elses_stays(self, node: Node) -> None:
        assert node.changes("none") == [("file", f"{node.directory}/own/kept/file", "remove")]
        assert [path.name for path in (node.directory / "own" / "kept").iterdir()] == ["other"]

    def test_it_goes_once_and_so_do_all_records_that_are_to_be_forgotten(self, node: Node) -> None:
        assert not node["none again"].changed
        assert not node["empty, for the gate"].changed
        assert node.changes("forget") == [("record", "owned", "remove")]

    def test_of_a_file_of_somebody_elses_only_the_block_goes(self, node: Node) -> None:
        shellrc = node.directory / "etc" / "shellrc"

        assert node.actions("block") == ["wrote etc/shellrc"]
        assert node.changes("no block") == [("file", str(shellrc), "write")]
        assert (shellrc.read_text(), stat.S_IMODE(shellrc.stat().st_mode)) == ("theirs\n", 0o600)
        # one that only a present file gets is not made
        assert not (node.directory / "etc" / "absentrc").exists()

    def test_what_is_kept_for_later_is_to_be_done_until_it_is_gone(self, node: Node) -> None:
        assert not node["later, in check mode"].changed
        assert not node["later"].changed
        assert node.changes("now") == [("file", f"{node.directory}/own/later", "remove")]


class TestSecrets:
    def test_a_changed_secret_is_reported_as_changed_and_not_shown(self, node: Node) -> None:
        assert node["new secret, in check mode"].changed
        assert node.actions("new secret, in check mode") == ["wrote etc/password"]
        assert "(secret)" in node.diff("new secret, in check mode")

    @pytest.mark.parametrize(
        "hidden",
        [SECRET, OTHER_SECRET, KEY, QUOTED, *(secret(text)["secret_base64"] for text in (KEY, f"password={SECRET}\n"))],
    )
    def test_no_secret_is_in_what_a_module_returns(self, node: Node, hidden: str) -> None:
        # that its arguments are hidden as well is for tests/integration/test_node_state_action.py
        assert not [result.task for result in node.played.results if hidden in json.dumps(result.data)]


class TestRefusals:
    @pytest.mark.parametrize(
        ("task", "message"),
        [
            ("unknown owner", "etc/plain.conf: user nobody-has-this-name or group "),
            ("file for a directory", "etc/plain.conf: Not a directory"),
            ("directory for a file", "etc: "),
            ("no base64", "etc/bad: its content is not base64"),
            # what a parser says of a secret is not quoted
            ("refused secret", "etc/bad: cat refuses the new content"),
        ],
    )
    def test_what_cannot_be_is_named_with_the_file(self, node: Node, task: str, message: str) -> None:
        assert node[task].status == "failed"
        assert node[task].data["msg"].startswith(f"{node.directory}/{message}")
        assert not (node.directory / "etc" / "bad").exists()

    def test_content_that_validate_refuses_changes_nothing_and_calls_for_no_restart(self, node: Node) -> None:
        failed = node["refused"]

        assert (failed.status, failed.changed, failed.data["actions"]) == ("failed", False, [])
        assert failed.data["msg"].endswith("the new content is not valid: line 1 is odd")
        assert failed.data["hint"] == "the old file is still in place"
        assert list((node.directory / "state").glob("pending/*")) == []

    @needs_systemctl
    def test_a_unit_that_does_not_exist_is_named_with_a_hint(self, node: Node) -> None:
        failed = node["unit"]

        assert failed.status == "failed"
        assert "systemctl enable --quiet no-such-unit-anywhere.service: " in failed.data["msg"]
        assert failed.data["hint"] == "see `journalctl -u no-such-unit-anywhere.service` on the node"


UNFINISHED = "the desired state changed, or the last deploy did not finish"


class TestGate:
    @pytest.mark.parametrize(
        ("task", "reasons"),
        [
            ("gate", []),
            ("gate, before any deploy", ["never deployed"]),
            ("gate, other digest", [f"{UNFINISHED}: files"]),
            ("gate, step never done", [f"{UNFINISHED}: more"]),
            ("gate, full run", ["a full run was asked for"]),
            ("gate, mended", []),
            ("gate, after refusals", []),
            # a step without a digest leaves no record
            ("gate, no record", ["never deployed"]),
            ("gate, block", []),
            ("gate, not over yet", [f"{UNFINISHED}: later"]),
            # an empty step may have a record
            ("gate, empty", []),
            ("gate, forgotten", ["never deployed"]),
            ("gate, nothing left", []),
            pytest.param("gate, unit never started", ["never deployed"], marks=needs_systemctl),
            pytest.param("gate, package", [], marks=needs_dpkg),
        ],
    )
    def test_it_has_the_reasons_for_a_run(self, node: Node, task: str, reasons: list[str]) -> None:
        assert node.reasons(task) == reasons

    def test_everything_that_was_broken_is_named(self, node: Node) -> None:
        assert sorted(node.reasons("gate, broken")) == [
            "etc/key has another owner or mode",
            "etc/plain.conf was changed",
            "var/spool has another owner or mode, or is gone",
        ]

    def test_what_was_broken_is_fixed_with_no_other_changes(self, node: Node) -> None:
        assert node.actions("mend") == ["created var/spool", "wrote etc/plain.conf", "set mode of etc/key"]

    @needs_dpkg
    def test_packages_are_part_of_the_record(self, node: Node) -> None:
        record = json.loads((node.directory / "state" / "records" / "test.package.json").read_text())

        assert record["items"]["packages"] == node["package"].data["packages"]

    def test_facts_that_roles_choose_by_come_along(self, node: Node) -> None:
        facts = node["gate"].data["ansible_facts"]

        assert facts["os_family"]
        assert facts["deepops_cgroup"] in ("v1", "v2")
        assert facts["deepops_cgroup_writable"] in (True, False)
