"""The steps of an upgrade on a node: what is kept, what is refused, what can be repeated."""

from __future__ import annotations

import errno
import os
import pwd
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from deepopsctl.node_programs._shared import slurm_output
from deepopsctl.node_programs.operations.slurm_upgrade import UpgradeError, copies, daemons, record, transaction
from deepopsctl.node_programs.operations.slurm_upgrade.main import main
from deepopsctl.node_programs.operations.slurm_upgrade.nodes import unregistered_in
from deepopsctl.node_programs.operations.slurm_upgrade.transaction import removed_in, replaced_in
from tests.support.files import write_files, write_program

# apt-get --simulate on Debian 13, with libhwloc15 of sid and without libhwloc-plugins
SIMULATED = """\
Remv libpmix2t64 [5.0.7-1]
Remv libslurm42t64 [24.11.5-4+deb13u1]
Inst slurmd [24.11.5-4+deb13u1] (26.05.5-1 deepopsctl:trixie-slurm-wlm-26.05 [amd64]) []
Inst libhwloc15 [2.12.0-4] (2.15.0-2 deepopsctl:trixie-slurm-wlm-26.05 [amd64])
Inst libllhttp9.4 (9.4.3 deepopsctl:trixie-slurm-wlm-26.05 [amd64])
Conf slurmd (26.05.5-1 deepopsctl:trixie-slurm-wlm-26.05 [amd64])
"""
REASON = "deepopsctl: node upgrade"
NODES = """\
NodeName=cn01 Arch=x86_64 State=IDLE ThreadsPerCore=1 Version=26.05.5
NodeName=cn02 Arch=x86_64 State=MIXED+DRAIN ThreadsPerCore=1 Version=24.11.5
NodeName=cn03 State=DOWN*+DRAIN ThreadsPerCore=1 Reason=Not responding [slurm@2026-11-25T22:00:00]
NodeName=cn05 State=DOWN ThreadsPerCore=1 Version=26.05.5 Reason=bad DIMM [alice@2026-11-25T22:00:00]
NodeName=cn06 State=DOWN ThreadsPerCore=1 Version=26.05.5 Reason=Low RealMemory [slurm@2026-11-25T22:00:00]
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    of_copies = ("SAVED", "MANIFEST", "CONFIGURATION", "CONVERTING")
    for module, names in ((record, ("RECORD",)), (copies, of_copies)):
        for name in names:
            monkeypatch.setattr(module, name, str(tmp_path / "upgrade" / getattr(module, name).rpartition("/")[2]))
        monkeypatch.setattr(module, "DIRECTORY", str(tmp_path / "upgrade"))
    return tmp_path / "upgrade"


def test_a_package_that_would_go_is_named_but_for_libraries_of_the_old_release() -> None:
    assert removed_in(SIMULATED) == ["libpmix2t64"]


def test_everything_that_is_replaced_is_kept_libraries_as_well() -> None:
    assert replaced_in(SIMULATED) == {"slurmd": "24.11.5-4+deb13u1", "libhwloc15": "2.12.0-4"}


def test_a_node_counts_once_it_serves_in_the_new_version() -> None:
    nodes = {node["name"]: node for node in slurm_output.nodes(NODES)}
    assert unregistered_in(nodes, [f"cn0{n}" for n in range(1, 7)], "26.05.5") == {
        "cn02": "its slurmd is 24.11.5",
        "cn03": "slurmctld has it as DOWN*+DRAIN (Not responding)",
        "cn04": "slurmctld does not know it",
        # cn05 has registered, and stays down because alice wants that
        "cn06": "slurmctld has it as DOWN (Low RealMemory)",
    }


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """scontrol, which notes what it is to change, and squeue: each query removes the first line of the queue."""
    (tmp_path / "nodes").write_text(NODES)
    (tmp_path / "queue").touch()
    write_program(tmp_path / "scontrol", f'[ "$1" = update ] && echo "$@" >> {tmp_path}/done || cat {tmp_path}/nodes')
    write_program(tmp_path / "squeue", f"cat {tmp_path}/queue && sed -i 1d {tmp_path}/queue")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("time.sleep", lambda _: None)
    return tmp_path


def drain(names: list[str], timeout: float = 60) -> dict[str, str]:
    request = {"phase": "drain", "nodes": names, "reason": REASON, "timeout": timeout}
    starting: dict[str, str] = main(request)["deepops"]["starting"]
    return starting


def test_only_nodes_in_service_are_drained_and_a_job_that_has_just_got_its_node_may_begin(slurm: Path) -> None:
    (slurm / "queue").write_text("7|RUNNING|Prolog|cn[01,09]\n8|CONFIGURING|None|cn07\n9|RUNNING|None|cn01\n")
    (slurm / "nodes").write_text(f"{NODES}NodeName=cn07 State=MIXED+DRAIN Reason={REASON} [root@2026-11-25T22:00:00]\n")

    # cn07 is what an interrupted call has left, the others are out of service for other reasons
    assert drain(["cn01", "cn02", "cn03", "cn05", "cn07"]) == {}
    assert (slurm / "done").read_text() == f"update nodename=cn01 state=drain reason={REASON}\n"
    # asked three times, for cn07 as well: job 9 runs
    assert (slurm / "queue").read_text() == ""


def test_a_node_where_a_job_does_not_begin_in_time_takes_jobs_again(slurm: Path) -> None:
    (slurm / "queue").write_text("7|RUNNING|Prolog|cn[01,09]\n")
    own = f"NodeName=cn01 State=MIXED+DRAIN Reason={REASON} [root@2026-11-25T22:00:00]"
    write_program(slurm / "squeue", f"cat {slurm}/queue && echo '{own}' > {slurm}/nodes")

    assert drain(["cn01"], timeout=0) == {"cn01": "job 7 has been starting there for 0 s"}
    assert (slurm / "done").read_text().splitlines()[1:] == ["update nodename=cn01 state=resume"]


def test_a_node_that_somebody_drains_while_a_job_begins_there_stays_drained(slurm: Path) -> None:
    (slurm / "queue").write_text("7|RUNNING|Prolog|cn[01,09]\n")
    theirs = "NodeName=cn01 State=MIXED+DRAIN Reason=bad DIMM [alice@2026-11-25T22:00:00]"
    write_program(slurm / "squeue", f"cat {slurm}/queue && echo '{theirs}' > {slurm}/nodes")

    drain(["cn01"], timeout=0)

    assert (slurm / "done").read_text().splitlines() == [f"update nodename=cn01 state=drain reason={REASON}"]


def test_nodes_that_serve_again_are_resumed_unless_somebody_else_has_drained_them(slurm: Path) -> None:
    (slurm / "nodes").write_text(
        f"NodeName=cn01 State=IDLE+DRAIN Version=26.05.5 Reason={REASON} [root@2026-11-25T22:00:00]\n"
        "NodeName=cn02 State=IDLE+DRAIN Version=26.05.5 Reason=bad DIMM [alice@2026-11-25T22:00:00]\n"
        f"NodeName=cn03 State=IDLE+DRAIN Version=24.11.5 Reason={REASON} [root@2026-11-25T22:00:00]\n"
    )
    request = {"phase": "registered", "nodes": ["cn01", "cn02", "cn03"], "version": "26.05.5", "timeout": 0}

    answer = {"left": {"cn03": "its slurmd is 24.11.5"}, "resumed": ["cn01"]}
    assert main({**request, "reason": REASON}) == {"deepops": {"registered": answer}}
    assert (slurm / "done").read_text() == "update nodename=cn01 state=resume\n"


def test_a_node_that_does_not_register_keeps_no_other_out_of_service(slurm: Path) -> None:
    (slurm / "nodes").write_text(
        f"NodeName=cn01 State=IDLE+DRAIN Version=26.05.5 Reason={REASON} [root@2026-11-25T22:00:00]\n"
        f"NodeName=cn03 State=IDLE+DRAIN Version=24.11.5 Reason={REASON} [root@2026-11-25T22:00:00]\n"
    )
    # cn03 registers when cn01 is in service
    update = f'echo "$@" >> {slurm}/done; sed -i s/24.11.5/26.05.5/ {slurm}/nodes'
    write_program(slurm / "scontrol", f'[ "$1" = update ] && {{ {update}; }} || cat {slurm}/nodes')
    request = {"phase": "registered", "nodes": ["cn01", "cn03"], "reason": REASON, "version": "26.05.5", "timeout": 10}

    assert main(request) == {"deepops": {"registered": {"left": {}, "resumed": ["cn01", "cn03"]}}}


def test_a_new_slurmdbd_that_runs_is_known_when_the_upgrade_goes_on(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(place.parent / "systemctl", "echo ActiveState=active")
    monkeypatch.setenv("PATH", f"{place.parent}:{os.environ['PATH']}")
    # the old one runs as well, before anything was started
    before = main({"phase": "converting"})
    (place / "saved").mkdir(parents=True)

    main({"phase": "going", "step": "accounting"})

    answers = before, main({"phase": "converting"})
    assert answers == ({"deepops": {"converting": False}}, {"deepops": {"converting": True}})


def test_the_record_grows_and_goes_with_what_was_kept(place: Path) -> None:
    assert record.update({"to": "26.05", "phase": "prepare"})
    assert record.update({"phase": "controller"})
    assert not record.update({"phase": "controller"})
    assert record.read() == {"to": "26.05", "phase": "controller"}
    assert record.end()
    assert (record.read(), place.exists(), record.end()) == ({}, False, False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ClusterName=hpc\nSlurmdTimeout=300\nTreeWidth=16\n", "ClusterName=hpc\nSlurmdTimeout=3600\nTreeWidth=16\n"),
        ("ClusterName=hpc\n", "ClusterName=hpc\nSlurmdTimeout=3600\n"),
        # longer already, or never
        ("SlurmdTimeout=7200\n", "SlurmdTimeout=7200\n"),
        ("SlurmdTimeout=0\n", "SlurmdTimeout=0\n"),
    ],
)
def test_timeouts_are_raised_and_nothing_else_changes(place: Path, before: str, after: str) -> None:
    place.mkdir()
    configuration = place / "slurm.conf"
    configuration.write_text(before, encoding="utf-8")
    assert copies.raise_timeouts({"SlurmdTimeout": 3600}) == (before != after)
    assert configuration.read_text(encoding="utf-8") == after


def test_once_a_new_package_is_there_nothing_is_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "installed", lambda: {"slurmctld": "26.05.5-1"})
    with pytest.raises(UpgradeError, match="nothing was saved before"):
        copies.save({"version": "26.05.5-1", "parts": []})
    Path(copies.MANIFEST).write_text("{}", encoding="utf-8")
    assert not copies.save({"version": "26.05.5-1", "parts": []})


def test_a_full_disk_does_not_keep_the_state_from_going_back(
    place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(_: str, target: str, **__: bool) -> None:
        Path(target, "jobs").mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    state = tmp_path / "state"
    write_files(tmp_path, {"state/job_state": "new", "saved/job_state": "old"})
    monkeypatch.setattr(copies, "FAILED", str(tmp_path / "failed"))
    monkeypatch.setattr(copies, "_STATE", str(tmp_path / "saved"))
    monkeypatch.setattr(shutil, "copytree", full)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="slurm"))

    copies._put_state(str(state))

    assert (state / "job_state").read_text() == "old"
    assert not (tmp_path / "failed").exists()


def test_a_slurmdbd_that_gives_up_in_its_conversion_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(_version: str) -> str:
        raise UpgradeError("slurmdbd does not run: fatal: no space left")

    monkeypatch.setattr(daemons, "accounting", give_up)

    result = main({"phase": "accounting", "version": "26.05.5"})

    # a second call that only failed would be repeated, and end as a host that does not answer: without the way back
    assert (result["failed"], result["final"]) == (True, True)
    assert "no space left" in result["msg"]


def test_the_way_back_leads_to_the_version_that_was_installed_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "packages"
    write_files(packages, {"slurmctld_26.05.9_amd64.deb": "of an earlier upgrade"})
    monkeypatch.setattr(transaction, "PACKAGES", str(packages))
    write_program(tmp_path / "bin" / "dpkg-deb", "for last; do :; done; basename $last | tr _ ' ' | cut -d' ' -f1,2")
    write_program(tmp_path / "bin" / "apt-get", "touch slurmctld_26.05.10_amd64.deb")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")

    transaction._keep({"slurmctld": "26.05.10"})

    assert transaction.kept() == {"slurmctld": (str(packages / "slurmctld_26.05.10_amd64.deb"), "26.05.10")}


def test_the_way_back_from_one_release_of_the_clusters_repository_to_the_next_is_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, pool = tmp_path / "packages", "trixie-slurm-wlm-26.05-0123/pool/main/s/slurm-wlm"
    write_files(tmp_path / "repositories", {f"{pool}/slurmctld_26.05.5-1+deepopsctl1_amd64.deb": ""})
    monkeypatch.setattr(transaction, "PACKAGES", str(packages))
    monkeypatch.setattr(transaction, "REPOSITORIES", str(tmp_path / "repositories"))
    write_program(tmp_path / "bin" / "dpkg-deb", "for last; do :; done; basename $last | tr _ ' ' | cut -d' ' -f1,2")
    # as apt does, which knows the repository of the new release by now
    write_program(tmp_path / "bin" / "apt-get", "case $* in *slurmctld*) exit 100; esac; touch munge_0.5_amd64.deb")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")

    transaction._keep({"slurmctld": "26.05.5-1+deepopsctl1", "munge": "0.5"})

    assert {name: version for name, (_, version) in transaction.kept().items()} == {
        "slurmctld": "26.05.5-1+deepopsctl1",
        "munge": "0.5",
    }
