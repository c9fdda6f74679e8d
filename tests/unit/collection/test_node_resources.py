"""What node_state remembers while it works, so that a run that is cut off loses nothing."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_program

node_record = nodeside.load("node.record")
removal = nodeside.load("node.removal")
resources = nodeside.load("node.resources")
node_step = nodeside.load("node.step")
services = nodeside.load("node.services")

UNIT = {"name": "a.service", "optional": False, "running": True, "restart_on": [], "port": None}
FILE: dict[str, Any] = {
    "mode": "0644", "owner": "root", "group": "root", "validate": [], "content": "new\n",
    "block": None, "secret_base64": None,
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("state")


def step_of(**wanted: object) -> Any:
    """A step that wants these, and nothing else."""
    nothing: dict[str, Any] = {key: [] for key in ("packages", "units", "files", "kernel_modules", "directories")}
    params = {**nothing, "component": "test", "step": "test", **wanted}
    return node_step.Step(SimpleNamespace(check_mode=False, params=params))


def test_a_restart_is_noted_before_the_file_that_asks_for_it_changes_and_done_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.conf")
    unit = {**UNIT, "restart_on": [path]}

    with monkeypatch.context() as patched:
        patched.setattr(resources, "apply_file", nodeside.raising(KeyboardInterrupt()))
        patched.setattr(resources.node_files, "owner_ids", lambda _owner, _group: (0, 0))
        with pytest.raises(KeyboardInterrupt):
            resources.ensure_file(step_of(), {**FILE, "path": path}, [unit])
    assert (node_record.is_pending("a.service"), node_record.is_pending("b.service")) == (True, False)

    # nothing differs by now
    step = step_of()
    monkeypatch.setattr(resources, "start_or_restart", lambda _step, _unit: True)
    resources.ensure_running(step, unit, {"ActiveState": "active", "UnitFileState": "enabled"}, [], False)
    assert step.actions == ["restarted a.service"]


def test_a_daemon_that_ran_before_its_drop_in_came_is_restarted_by_the_call_that_has_its_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a host engine of DCGM in the wanted version, which listens where its package says
    drop_in = tmp_path / "a.service.d" / "deepopsctl.conf"
    states = {"a.service": "active", "b.service": "inactive"}
    monkeypatch.setattr(resources, "UNIT_DIRECTORY", f"{tmp_path}/")
    monkeypatch.setattr(resources.node_files, "owner_ids", lambda _owner, _group: (os.getuid(), os.getgid()))
    monkeypatch.setattr(
        resources.node_services, "show", lambda names: {name: {"ActiveState": states[name]} for name in names}
    )
    step = step_of(restart_on_upgrade=list(states))

    resources.ensure_file(step, {**FILE, "path": str(drop_in)}, [])
    resources.ensure_file(step, {**FILE, "path": str(tmp_path / "b.service.d" / "deepopsctl.conf")}, [])

    assert (node_record.is_pending("a.service"), node_record.is_pending("b.service")) == (True, False)


@pytest.mark.parametrize(("other", "restarts"), [(["plugin"], False), (["daemon", "plugin"], True)])
def test_another_version_of_a_plugin_that_jobs_load_restarts_no_daemon(
    monkeypatch: pytest.MonkeyPatch, other: list[str], restarts: bool
) -> None:
    monkeypatch.setattr(
        resources.node_services, "show", lambda names: {name: {"ActiveState": "active"} for name in names}
    )
    step = step_of(restart_on_upgrade=["a.service"], restart_except=["plugin"])

    resources.mark_restarts(step, other)

    assert node_record.is_pending("a.service") is restarts


def test_a_systemd_that_does_not_answer_is_an_error_and_no_unit_counts_as_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(tmp_path / "systemctl", "echo 'Failed to connect to bus: Connection refused' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    step, silent = step_of(), pytest.raises(removal.node_errors.HintedError, match="systemd does not answer about")

    assert services.show(["a.service"]) == {}
    with silent as raised:
        resources.ensure_units(step, [{**UNIT, "running": False}], [], [])
    assert str(raised.value).endswith("a.service: systemctl: Failed to connect to bus: Connection refused")
    assert "`systemctl show a.service`" in raised.value.hint
    with silent:
        removal.stop(step.noted, ["a.service"])
    assert step.noted.changes == []


def test_an_optional_unit_that_a_person_masked_stays_masked_and_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = "LoadState=masked\\nActiveState=inactive\\nUnitFileState=masked\\n"
    program = f"case $1 in show) printf '{shown}';; *) echo \"Unit $3 is masked\" >&2; exit 1;; esac"
    write_program(tmp_path / "systemctl", program)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    warnings: list[str] = []
    step = step_of()
    step.module.warn = warnings.append
    optional = {**UNIT, "optional": True, "restart_on": ["/etc/a.conf"]}

    node_record.mark_pending("a.service", "/etc/a.conf")
    for changed in (["/etc/a.conf"], []):
        resources.ensure_units(step, [optional], changed, [])

    assert (step.actions, step.record["units"], node_record.is_pending("a.service")) == ([], {}, False)
    assert [text.split(":")[0] for text in warnings] == ["a.service is masked"]


def test_what_was_there_already_is_not_managed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = step_of(packages=["old", "new"], units=[UNIT, {**UNIT, "name": "b.service"}])
    monkeypatch.setattr(removal.node_packages, "installed", lambda _names: {"old": "1"})
    states = {"a.service": {"LoadState": "loaded"}, "b.service": {"LoadState": "not-found"}}
    monkeypatch.setattr(removal.node_services, "show", lambda _names: states)

    removal.Ownership(step).record_additions()

    assert (step.owned["packages"], step.owned["units"]) == (["new"], ["b.service"])


AHEAD = [
    {"step": "second", "packages": ["b", "old", "a"]},
    {"step": "third", "packages": ["c", "b"]},
]


def package_manager(monkeypatch: pytest.MonkeyPatch, refused: str = "", reason: str = "") -> list[list[str]]:
    """The transactions of one that has `old`, and refuses those with a package."""
    transactions: list[list[str]] = []
    there = {"old"}

    def install(names: list[str], *_: object) -> None:
        transactions.append(list(names))
        if refused in names:
            raise resources.node_packages.PackageError(reason, "look")
        there.update(names)

    monkeypatch.setattr(resources, "run_systemctl", lambda *_: None)
    monkeypatch.setattr(resources.node_services, "show", lambda _names: {})
    monkeypatch.setattr(resources.node_packages, "install", install)
    monkeypatch.setattr(
        resources.node_packages, "installed", lambda names: {name: "1" for name in names if name in there}
    )
    return transactions


def step_with_packages(**wanted: object) -> Any:
    """A step that wants package `a`."""
    options = {"hold_units": [], "stop_units": [], "archives": {}, "upstream": "", "restart_on_upgrade": []}
    step = step_of(packages={"a": ""}, lock_wait=0, hint="", name_prefix="", **options, **wanted)
    step.fail = nodeside.raising(removal.node_errors.HintedError("failed", ""))
    return step


def test_packages_of_later_steps_come_in_one_transaction_and_belong_to_the_first_that_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transactions = package_manager(monkeypatch)
    step = step_with_packages(ahead=AHEAD)

    assert resources.ensure_packages(step) == {"a": "1"}

    assert transactions == [["a", "b", "c"]]
    assert step.actions == ["installed b 1", "installed c 1", "installed a 1"]
    owned = {name: resources.node_ownership.load("test", name)["packages"] for name in ("second", "third")}
    assert owned == {"second": ["b"], "third": ["c"]}
    # neither has come yet: a deploy without them removes what is theirs
    assert node_record.unfinished("test", ()) == ["second", "third"]
    # the step of their own finds them, and still knows that they are its own
    later = step_with_packages(step="third")
    later.wanted["packages"] = {"c": "", "b": ""}
    removal.Ownership(later).record_additions()
    resources.ensure_packages(later)
    assert (transactions[1:], later.actions, later.owned["packages"]) == ([], [], ["c"])


def test_a_package_of_a_later_step_that_is_refused_is_left_to_that_step(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = package_manager(monkeypatch, "c", "E: Unable to locate package c")
    step = step_with_packages(ahead=AHEAD)

    assert resources.ensure_packages(step) == {"a": "1"}

    assert (transactions, step.actions) == ([["a", "b", "c"], ["a"]], ["installed a 1"])


def test_a_package_manager_that_is_busy_is_not_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    transactions = package_manager(monkeypatch, "c", "E: Could not get lock /var/lib/dpkg/lock-frontend")

    with pytest.raises(removal.node_errors.HintedError):
        resources.ensure_packages(step_with_packages(ahead=AHEAD))

    assert transactions == [["a", "b", "c"]]


def test_a_unit_that_a_killed_installation_left_masked_is_unmasked_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.service").symlink_to("/dev/null")
    # what a generator or a person has there
    (tmp_path / "b.service").write_text("[Service]\n")
    calls: list[list[str]] = []
    monkeypatch.setattr(resources, "RUNTIME_UNITS", str(tmp_path))
    monkeypatch.setattr(resources, "run_systemctl", lambda _step, words, _unit: calls.append(words))
    # nothing is left to install
    monkeypatch.setattr(resources.node_packages, "installed", lambda names: dict.fromkeys(names, "1"))
    nothing: dict[str, Any] = {"upstream": "", "restart_on_upgrade": [], "restart_except": []}

    units = {"hold_units": ["c.service"], "stop_units": ["a.service", "b.service"]}
    resources.ensure_packages(step_of(packages={"a": ""}, **units, **nothing))

    assert calls == [["unmask", "--runtime", "--quiet", "a.service"]]


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (None, ["stop a.service", "mask a.service", "install", "unmask a.service"]),
        ("no space", ["stop a.service", "mask a.service", "install", "unmask a.service", "start a.service"]),
    ],
)
def test_a_unit_is_stopped_while_its_packages_are_replaced_and_runs_again_where_that_fails(
    monkeypatch: pytest.MonkeyPatch, error: str | None, calls: list[str]
) -> None:
    happened: list[str] = []
    states = {"a.service": "active", "b.service": "inactive"}

    def systemctl(_step: object, words: list[str], _unit: str) -> None:
        named = [word for word in words if not word.startswith("--")]
        happened.append(" ".join(named))
        states.update({name: "inactive" for name in named[1:] if named[0] == "stop"})

    def install(*_: object) -> None:
        happened.append("install")
        if error:
            raise resources.node_packages.PackageError(error, "make room")

    monkeypatch.setattr(resources, "run_systemctl", systemctl)
    monkeypatch.setattr(resources.node_packages, "install", install)
    monkeypatch.setattr(
        resources.node_services, "show", lambda names: {name: {"ActiveState": states[name]} for name in names}
    )
    step = step_of(hold_units=[], stop_units=["a.service", "b.service"], lock_wait=0)
    step.fail = nodeside.raising(removal.node_errors.HintedError("failed", ""))

    with pytest.raises(removal.node_errors.HintedError) if error else nullcontext():
        resources.install_packages(step, ["slurmd=2"])

    assert happened == calls


@pytest.mark.parametrize(
    ("policy", "masked"),
    [
        (False, "grafana-server.service"),
        # which may start everything
        (True, "slurmctld.service grafana-server.service"),
    ],
)
def test_what_the_policy_keeps_from_starting_is_not_masked(
    monkeypatch: pytest.MonkeyPatch, policy: bool, masked: str
) -> None:
    """A mask has systemd read all of its units twice."""
    calls: list[str] = []
    held: list[str] = []
    monkeypatch.setattr(resources, "run_systemctl", lambda _step, words, _unit: calls.append(" ".join(words)))
    monkeypatch.setattr(resources.node_packages, "install", lambda *arguments: held.extend(arguments[-1]))
    monkeypatch.setattr(resources.node_packages, "has_foreign_policy", lambda: policy)
    states = {"slurmctld.service": "inactive", "grafana-server.service": "inactive", "munge.service": "active"}
    monkeypatch.setattr(
        resources.node_services, "show", lambda names: {name: {"ActiveState": states[name]} for name in names}
    )

    resources.install_packages(step_of(hold_units=list(states), stop_units=[], lock_wait=0), ["slurmctld"])

    assert held == ["slurmctld.service", "grafana-server.service"]
    assert calls == [f"mask --runtime --quiet {masked}", f"unmask --runtime --quiet {masked}"]


def test_lines_of_others_in_another_encoding_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login_access = nodeside.plugin("modules", "login_access")
    sshd = tmp_path / "sshd"
    sshd.write_bytes("# für alle\n".encode("latin-1") + b"@include common-session\n")
    monkeypatch.setattr(login_access, "SSHD", str(sshd))
    monkeypatch.setattr(resources.node_files, "owner_ids", lambda _owner, _group: (os.getuid(), os.getgid()))
    step = step_of()

    login_access.write(step, str(sshd), "account required pam_x.so\n" + login_access.text_of(str(sshd)))

    lines = sshd.read_bytes().splitlines()
    assert lines == [b"account required pam_x.so", b"# f\xfcr alle", b"@include common-session"]
