"""From what the nodes and Slurm said to the status: states, findings, exit code, document, text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.errors import DeepOpsError, ExitCode, InterruptedRunError
from deepopsctl.model.cluster import Access, Cluster, Gpus, Node, Role
from deepopsctl.run.events import Totals
from deepopsctl.run.late import late_nodes, more_time
from deepopsctl.run.lock import cluster_lock
from deepopsctl.run.outcome import Failure, RunOutcome, RunSummary, TaskResult, Verdict
from deepopsctl.run.workspace import RunDir, Workspace
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.status.cluster import ClusterStatus, LastRuns, examine, last_runs
from deepopsctl.status.findings import Severity
from deepopsctl.status.nodes import Amount, Answer, Deploy
from deepopsctl.status.table import (
    component_rows,
    finding_lines,
    head,
    last_lines,
    node_rows,
    summary_line,
    version_lines,
)

IN_STEP = {
    "wanted": True, "left": False, "deployed": True,
    "missing": [], "stale": [], "digests": ["a" * 64], "differences": [],
}  # fmt: skip
NOT_WANTED = {**IN_STEP, "wanted": False, "deployed": False, "digests": []}
NEVER = {**IN_STEP, "deployed": False, "missing": ["node"], "digests": []}
VERSIONS = {"os": "Debian 13", "kernel": "6.12.48", "slurm": "24.11.5"}
IDLE = {"state": "IDLE", "cpus": 8, "memory_mb": 32768, "gpus": 2, "gres": "gpu:a100:2", "version": "24.11.5"}
GPUS = tuple(f"gpu{number:02d}" for number in range(1, 5))
NAMES = ("ctl1", *GPUS)
CLUSTER = Cluster(
    "hpc",
    Access("ubuntu"),
    (
        Node("ctl1", frozenset({Role.CONTROLLER})),
        *(Node(name, frozenset({Role.COMPUTE}), gpus=Gpus("a100", 2)) for name in GPUS),
    ),
    (),
)
HARDWARE = {name: NodeHardware(8, 1, 1, 8, 1, 32768) for name in NAMES}


def slurm(
    changes: Mapping[str, Mapping[str, object]] | None = None, jobs: list[object] | None = None, **more: object
) -> dict[str, Any]:
    """node_info's answer: idle nodes, with changes by name, and more of it."""
    nodes = [{"name": name, **IDLE, **(changes or {}).get(name, {})} for name in GPUS]
    versions = {"slurm": "24.11.5", "slurmctld": "24.11.5"}
    base = {"installed": True, "controller_up": True, "nodes": nodes, "jobs": jobs or [], "versions": versions}
    return {**base, **more}


def with_controllers(**more: object) -> RunOutcome:
    """All is well, and the controller says more of itself."""
    options = outcome()
    answer = options.summary.results[0].data["node"]
    assert isinstance(answer, dict)
    answer.update(more)
    return options


def node_facts(
    versions: Mapping[str, str] = VERSIONS, others: Mapping[str, object] | None = None, **change: object
) -> object:
    """node_info's answer: Slurm in step but for a change, and other components as they are given."""
    return {"components": {**(others or {}), "slurm": {**IN_STEP, **change}}, "versions": versions}


def outcome(
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    answer: object = None,
    failures: tuple[Failure, ...] = (),
) -> RunOutcome:
    """A status run: every node in step, with changes of Slurm by name; those that failed gave no answer.

    Other components stand under their own names.
    """
    lost = {failure.host for failure in failures}
    data = {name: {"node": node_facts(**(nodes or {}).get(name, {}))} for name in NAMES if name not in lost}
    if "ctl1" in data:
        data["ctl1"]["slurm"] = answer or slurm()
    hosts = {name: Totals(unreachable=1) if name in lost else Totals(ok=1) for name in NAMES}
    results = tuple(TaskResult(name, "Query every node", result) for name, result in data.items())
    return RunOutcome(RunDir(Path("x")), "status", RunSummary(hosts, failures, (), (), results), 1.0, 0)


def status(options: RunOutcome) -> ClusterStatus:
    return examine(options, CLUSTER, HARDWARE, LastRuns())


def silent(host: str) -> Failure:
    return Failure(host, "status", "Query every node", "ssh: No route to host", "is it up?", unreachable=True)


def kinds(result: ClusterStatus) -> list[tuple[str, str]]:
    return [(str(finding.severity), finding.where) for finding in result.findings]


class TestWell:
    def test_nodes_that_are_as_wanted_give_0_and_no_finding(self) -> None:
        result = status(outcome())

        assert (result.exit_code, result.findings) == (ExitCode.OK, ())
        assert {node.deploy for node in result.nodes} == {Deploy.IN_STEP}
        assert summary_line(result) == "no problems"

    def test_identical_nodes_share_a_row_with_their_sums(self) -> None:
        jobs: list[object] = [
            {"id": "7", "user": "u", "name": "j", "state": "RUNNING", "partition": "gpu", "nodes": ["gpu01", "gpu02"]},
            {"id": "8", "user": "u", "name": "j", "state": "PENDING", "partition": "gpu", "nodes": []},
        ]
        mixed = {
            name: {"state": "MIXED", "alloc_cpus": 4, "alloc_gpus": 1, "alloc_memory_mb": 8192} for name in GPUS[:2]
        }
        result = status(outcome(answer=slurm(mixed, jobs)))

        assert node_rows(result.nodes) == [
            ("ctl1", "controller", "-", "-", "-", "-", "-", "in step"),
            ("gpu[01-02]", "compute", "mixed", "1", "8/16", "16/64", "2/4", "in step"),
            ("gpu[03-04]", "compute", "idle", "0", "0/16", "0/64", "0/4", "in step"),
        ]
        assert head(result) == "hpc: 5 nodes, Slurm 24.11.5, 1 job runs, 1 waits"

    def test_the_document_has_what_the_contract_names(self) -> None:
        document = json.loads(json.dumps(status(outcome()).document()))

        assert set(document) == {
            "schema", "command", "ok", "cluster", "slurm", "nodes", "listed_components", "components", "versions",
            "last_run", "last_deploy", "last_upgrade", "last_restore", "last_validation", "last_backup",
            "last_backup_of_monitoring", "findings",
        }  # fmt: skip
        assert document["command"] == "status"
        assert document["slurm"] == {
            "installed": True, "up": True, "error": "", "controllers": {}, "in_control": "",
            "jobs": {"running": 0, "pending": 0},
        }  # fmt: skip
        assert {"name", "roles", "state", "reason", "cpus", "memory_mb", "gpus", "jobs"} <= set(document["nodes"][0])
        assert document["versions"]["slurm"] == {"24.11.5": "ctl1,gpu[01-04]"}


class TestFindings:
    def test_before_the_first_deploy_there_is_one_note_and_nothing_wrong(self) -> None:
        bare = {"deployed": False, "missing": ["common"], "digests": []}
        answer = {"installed": False, "controller_up": False, "error": "scontrol is not installed"}
        result = status(outcome(dict.fromkeys(NAMES, bare), answer))

        assert result.exit_code is ExitCode.OK
        assert [finding.message for finding in result.findings] == ["nothing is deployed yet"]
        assert head(result) == "hpc: 5 nodes, no Slurm yet"
        # from cluster.yml and hardware.yml
        assert (result.nodes[1].gpus, result.nodes[1].cpus) == (Amount(None, 2), Amount(None, 8))

    def test_a_controller_that_was_lost_is_restored_first(self) -> None:
        answer = {"installed": False, "controller_up": False, "error": "scontrol is not installed"}

        result = status(outcome({"ctl1": NEVER, "gpu01": {"stale": ["slurmd"]}}, answer))

        assert (kinds(result)[0], result.exit_code) == (("problem", "ctl1"), ExitCode.FAILED)
        assert result.findings[0].message == "it has nothing of a controller, and nodes have its Slurm"
        assert {finding.hint.partition("`")[2].partition("`")[0] for finding in result.findings} == {
            "deepopsctl restore"
        }

    def test_an_upgrade_that_is_under_way_is_a_note_with_the_command_that_goes_on(self) -> None:
        upgrade = {"from": "24.11", "to": "26.05", "phase": "nodes", "since": "2026-11-25 22:00 UTC"}

        (finding,) = status(with_controllers(upgrade=upgrade)).findings
        assert (finding.severity, finding.where) == (Severity.NOTE, "")
        assert finding.message == (
            "an upgrade of Slurm from 24.11 to 26.05 is under way since 2026-11-25 22:00 UTC (phase nodes)"
        )
        assert finding.hint == "`deepopsctl upgrade slurm --to 26.05` continues with it"

    @pytest.mark.parametrize(
        ("more", "command"),
        [
            (
                {"upgrade": {"from": "24.11", "to": "26.05", "phase": "controller", "since": "x"}},
                "`deepopsctl upgrade slurm --to 26.05`",
            ),
            ({"restore": True}, "`deepopsctl restore`"),
        ],
    )
    @pytest.mark.parametrize(
        "answer",
        [
            slurm({"gpu01": {"state": "DOWN*", "reason": "Not responding", "reason_user": "slurm"}}),
            slurm({"gpu01": {"state": "IDLE+DRAIN", "reason": "deepopsctl: node upgrade", "reason_user": "root"}}),
            {"installed": True, "controller_up": False, "error": "Connection refused"},
            {**slurm(), "nodes": [{"name": "gpu01", **IDLE}]},
        ],
    )
    def test_no_other_command_is_named_while_an_upgrade_or_a_restore_is_under_way(
        self, more: dict[str, object], command: str, answer: dict[str, Any]
    ) -> None:
        options = outcome({"gpu02": {"stale": ["slurmd"]}}, answer)
        facts = options.summary.results[0].data["node"]
        assert isinstance(facts, dict)
        facts.update({"backup": {"configured": True}, **more})

        findings = status(options).findings

        assert findings[0].hint == f"{command} continues with it"
        assert len(findings) > 1
        assert not [each.hint for each in findings if re.search("deepopsctl deploy|resume|backup run", each.hint)]

    @pytest.mark.parametrize(
        ("entry", "message", "hint"),
        [
            (
                {"path": "/srv/state", "what": "Slurm's state", "free_mb": 0, "why": "space"},
                "/srv/state (Slurm's state) has 0 MiB left: slurmctld can't save jobs, and refuses new ones",
                "make room there (`df -h /srv/state`, `df -i /srv/state`), or enlarge it",
            ),
            (
                {"path": "/var/lib/mysql", "what": "the accounting database", "free_mb": 900, "why": "files"},
                "/var/lib/mysql (the accounting database) has no inodes left: jobs that end are not recorded",
                "make room there (`df -h /var/lib/mysql`, `df -i /var/lib/mysql`), or enlarge it",
            ),
            (
                {"path": "/var", "what": "the system", "free_mb": 9000, "why": "read-only"},
                "/var (the system) is read-only: daemons can't write logs and state",
                "`dmesg` says why /var is read-only",
            ),
        ],
    )
    def test_a_file_system_without_room_is_a_problem(self, entry: dict[str, object], message: str, hint: str) -> None:
        result = status(with_controllers(full=[entry]))

        (finding,) = result.findings
        assert (finding.severity, finding.nodes, finding.message, finding.hint) == (
            Severity.PROBLEM, ("ctl1",), message, hint,
        )  # fmt: skip
        assert result.exit_code == 1

    def test_a_restore_that_has_not_ended_is_a_problem(self) -> None:
        (finding,) = status(with_controllers(restore=True)).findings
        assert (finding.severity, finding.nodes) == (Severity.PROBLEM, ("ctl1",))
        assert finding.hint == "`deepopsctl restore` continues with it"

    @pytest.mark.parametrize(
        ("key", "days", "message"),
        [
            ("backup", 2, "the last backup is 2 days old"),
            ("backup_of_monitoring", 1, ""),
            ("backup_of_monitoring", 3, "the last backup of monitoring is 3 days old"),
        ],
    )
    def test_a_backup_is_late_by_how_often_one_is_made(self, key: str, days: int, message: str) -> None:
        finished = int((datetime.now(UTC) - timedelta(days=days, hours=1)).timestamp())
        backup = {"configured": True, "last_good": {"finished": finished, "snapshot": "ab12"}}

        result = status(with_controllers(**{key: backup})).findings
        assert [finding.message for finding in result] == [message] * bool(message)

    def test_a_slurmctld_that_does_not_answer_is_a_problem(self) -> None:
        result = status(outcome(answer={"installed": True, "controller_up": False, "error": "connect failure"}))

        assert result.exit_code is ExitCode.FAILED
        assert [finding.message for finding in result.findings] == ["slurmctld does not answer: connect failure"]
        assert head(result) == "hpc: 5 nodes, slurmctld does not answer"
        assert node_rows(result.nodes)[1][2:7] == ("-", "-", "-/32", "-/128", "-/8")

    @pytest.mark.parametrize(
        ("state", "reason", "user", "kind", "text"),
        [
            ("DOWN*", "Not responding", "slurm", Severity.PROBLEM, "down: Not responding"),
            ("IDLE+DRAIN", "Kill task failed", "slurm", Severity.PROBLEM, "drained by Slurm: Kill task failed"),
            ("MIXED+DRAIN", "bad DIMM", "alice", Severity.NOTE, "draining by alice: bad DIMM"),
            ("IDLE+DRAIN", "deepopsctl: new fan", "root", Severity.NOTE, "drained: deepopsctl: new fan"),
        ],
    )
    def test_a_node_out_of_service_is_reported_with_who_and_why(
        self, state: str, reason: str, user: str, kind: Severity, text: str
    ) -> None:
        result = status(outcome(answer=slurm({"gpu03": {"state": state, "reason": reason, "reason_user": user}})))

        (finding,) = result.findings
        assert (finding.severity, finding.where, finding.message) == (kind, "gpu03", text)

    def test_nodes_out_of_service_share_a_hint_that_names_them_all_and_says_what_ends_it(self) -> None:
        drained = {"state": "IDLE+DRAIN", "reason": "deepopsctl: new fan", "reason_user": "root"}
        down = {"state": "DOWN", "reason": "burnt", "reason_user": "alice"}
        rebooted = {"state": "DOWN", "reason": "Node unexpectedly rebooted", "reason_user": "slurm"}
        states = {"gpu01": down, "gpu02": drained, "gpu03": drained, "gpu04": rebooted}

        assert [finding.hint for finding in status(outcome(answer=slurm(states))).findings] == [
            "a user set it down; after the repair: scontrol update nodename=gpu01 state=resume",
            "`deepopsctl deploy` verifies it and returns it to service",
            "`deepopsctl node resume gpu[02-03]` resumes it",
        ]

    def test_nodes_that_only_slurm_or_only_the_deploy_has_are_named(self) -> None:
        nodes = slurm()["nodes"]
        more = status(outcome(answer=slurm(nodes=[*nodes, {"name": "gpu09", **IDLE}])))
        fewer = status(outcome(answer=slurm(nodes=nodes[:3])))

        assert (more.exit_code, kinds(more)) == (ExitCode.OK, [("note", "gpu09")])
        assert kinds(fewer) == [("problem", "gpu04")]

    def test_a_standby_that_is_away_is_a_problem_and_control_that_moved_a_note(self) -> None:
        def of(standby: bool, in_control: str) -> ClusterStatus:
            return status(outcome(answer=slurm(controllers={"ctl1": True, "ctl2": standby}, in_control=in_control)))

        away, moved, well = of(False, "ctl1"), of(True, "ctl2"), of(True, "ctl1")

        assert (kinds(away), away.exit_code) == ([("problem", "ctl2")], ExitCode.FAILED)
        assert [finding.message for finding in moved.findings] == ["ctl2 is in control of Slurm, not ctl1"]
        assert (well.findings, "ctl1 in control" in head(well)) == ((), True)

    def test_the_worst_comes_first_and_nodes_with_the_same_share_it(self) -> None:
        drifted = {"differences": ["slurmd.service is inactive"]}
        result = status(
            outcome(
                {"gpu01": drifted, "gpu02": drifted, "ctl1": {"stale": ["common"]}},
                failures=(silent("gpu03"), silent("gpu04")),
            )
        )

        assert kinds(result) == [("problem", "gpu[01-02]"), ("no answer", "gpu[03-04]"), ("note", "ctl1")]
        assert summary_line(result) == "1 problem, 2 of 5 nodes did not answer"


class TestComponents:
    def with_others(self, **components: Mapping[str, object]) -> dict[str, object]:
        return {"others": components}

    def test_each_says_which_nodes_run_what_was_deployed_and_which_do_not(self) -> None:
        driver = {"differences": ["package nvidia-open is missing, was 580"], "stale": ["driver"]}
        result = status(
            outcome(
                {
                    "ctl1": self.with_others(nvidia=NOT_WANTED),
                    "gpu01": self.with_others(nvidia=IN_STEP),
                    "gpu02": self.with_others(nvidia={**IN_STEP, **driver}),
                    "gpu03": self.with_others(nvidia={**IN_STEP, "missing": ["driver"]}),
                },
                failures=(silent("gpu04"),),
            )
        )

        assert component_rows(result) == [
            ("nvidia", "in step", "gpu01"),
            ("", "behind", "gpu03"),
            ("", "drifted", "gpu02"),
            ("", "unknown", "gpu04"),
            ("slurm", "in step", "ctl1,gpu[01-03]"),
            ("", "unknown", "gpu04"),
        ]
        assert [str(node.deploy) for node in result.nodes] == ["in step", "in step", "drifted", "behind", "unknown"]
        assert result.findings[0].message == "nvidia drifted: package nvidia-open is missing, was 580"
        assert "`deepopsctl deploy nvidia`" in result.findings[0].hint
        assert kinds(result) == [("problem", "gpu02"), ("no answer", "gpu04"), ("note", "gpu03")]
        assert result.findings[-1].message == "nvidia behind: the desired state changed since the last deploy"
        assert result.exit_code is ExitCode.FAILED

    def test_the_document_has_them_of_the_cluster_and_of_each_node(self) -> None:
        drifted = {**IN_STEP, "differences": ["/etc/x was removed"]}
        document = json.loads(json.dumps(status(outcome({"ctl1": self.with_others(monitoring=drifted)})).document()))

        assert document["components"]["slurm"] == {"in step": "ctl1,gpu[01-04]"}
        assert document["components"]["monitoring"] == {"drifted": "ctl1"}
        assert document["nodes"][0]["components"]["monitoring"] == {
            "deploy": "drifted",
            "differences": ["/etc/x was removed"],
            "digests": ["a" * 64],
            "left_out": [],
        }
        assert document["nodes"][0]["differences"] == ["/etc/x was removed"]

    def test_exporters_without_tls_wait_for_the_monitoring_host_and_nothing_has_changed(self) -> None:
        clear = {**IN_STEP, "stale": ["exporters"], "digests": ["a" * 64, "in clear"]}
        (note,) = status(outcome({"gpu01": self.with_others(monitoring=clear)})).findings

        assert note.message.startswith("monitoring: exporters without TLS until the monitoring host")

    def test_what_a_deploy_left_out_is_a_note_and_no_fault(self) -> None:
        without = {**IN_STEP, "left_out": [{"what": "Grafana", "message": "cannot fetch x"}]}
        result = status(outcome({"ctl1": self.with_others(monitoring=without)}))

        (note,) = result.findings
        assert (result.exit_code, note.severity, note.nodes) == (ExitCode.OK, Severity.NOTE, ("ctl1",))
        assert note.message == "Grafana is left out: cannot fetch x"
        assert "`deepopsctl deploy monitoring`" in note.hint

    def test_a_list_in_cluster_yml_is_compared_with_what_is_deployed(self) -> None:
        listed = replace(CLUSTER, components=("nvidia", "slurm"))
        here = {name: self.with_others(nvidia=NEVER, monitoring=NEVER, storage=IN_STEP) for name in GPUS}
        result = examine(outcome(here), listed, HARDWARE, LastRuns())

        assert [finding.message for finding in result.findings] == [
            "nvidia is listed in `components:`, but not deployed yet",
            "storage is deployed, but `components:` of cluster.yml does not list it",
        ]
        assert result.exit_code is ExitCode.OK
        assert [row[0] for row in component_rows(result)] == ["nvidia", "storage", "slurm"]
        assert result.document()["listed_components"] == ["nvidia", "slurm"]

    def test_one_that_only_some_nodes_have_is_a_note_on_the_others(self) -> None:
        result = status(outcome({"gpu01": self.with_others(nvidia=IN_STEP), "gpu02": self.with_others(nvidia=NEVER)}))

        assert result.exit_code is ExitCode.OK
        (finding,) = result.findings
        assert (finding.where, finding.message) == ("gpu02", "nvidia is not deployed here yet")
        assert result.nodes[2].deploy is Deploy.BEHIND

    def test_what_is_still_there_though_nothing_wants_it_is_a_note(self) -> None:
        left = {**NOT_WANTED, "left": True}
        result = status(outcome({"gpu01": self.with_others(monitoring=left, nvidia=left)}))

        # a driver stays where no GPUs are declared any more
        (finding,) = result.findings
        assert (finding.where, finding.message) == ("gpu01", "monitoring is still there, but no longer wanted")

    def test_a_silent_node_without_gpus_is_not_counted_among_the_gpu_nodes(self) -> None:
        result = status(outcome({"gpu01": self.with_others(nvidia=IN_STEP)}, failures=(silent("ctl1"),)))

        assert component_rows(result) == [
            ("nvidia", "in step", "gpu01"),
            ("slurm", "in step", "gpu[01-04]"),
            ("", "unknown", "ctl1"),
        ]


class TestSilence:
    def test_nodes_that_do_not_answer_alone_give_4(self) -> None:
        result = status(outcome(answer=slurm({"gpu04": {"state": "DOWN*"}}), failures=(silent("gpu04"),)))

        assert result.exit_code is ExitCode.UNREACHABLE
        assert result.nodes[4].answer is Answer.NONE
        assert result.nodes[4].deploy is Deploy.UNKNOWN
        assert result.findings[0].message == "ssh: No route to host; Slurm has it as down"
        assert not result.document()["ok"]

    def test_nodes_that_are_silent_for_one_reason_share_it_though_each_has_its_own_address(self) -> None:
        def lost(number: int) -> Failure:
            text = f"ssh: connect to host 10.0.1.{number} port 22: No route to host\nmore"
            return replace(silent(f"gpu0{number}"), message=text)

        result = status(outcome(failures=(lost(3), lost(4))))

        assert kinds(result) == [("no answer", "gpu[03-04]")]
        assert result.findings[0].message.startswith("ssh: connect to host ADDRESS port 22: No route to host; Slurm")

    @pytest.mark.parametrize(
        ("message", "code", "cell"),
        [
            ("Task failed: Timed out after 10 second(s).", ExitCode.UNREACHABLE, "no answer"),
            ("Missing sudo password", ExitCode.FAILED, "failed"),
        ],
    )
    def test_a_node_that_hangs_did_not_answer_and_one_that_refuses_is_a_problem(
        self, message: str, code: ExitCode, cell: str
    ) -> None:
        result = status(outcome(failures=(Failure("gpu04", "status", "Query every node", message, ""),)))

        assert (result.exit_code, node_rows(result.nodes)[-1][-1]) == (code, cell)

    @pytest.mark.parametrize(
        ("message", "late"),
        [
            ("Task failed: Timed out after 10 second(s).", True),
            ("Connection timed out during banner exchange\nConnection to 192.0.2.1 port 22 timed out", True),
            ("Timeout, server 192.0.2.1 not responding.", True),
            ("ssh: connect to host 192.0.2.1 port 22: Connection timed out", False),
            ("ssh: connect to host 192.0.2.1 port 22: No route to host", False),
            ("ssh: connect to host 192.0.2.1 port 22: Connection refused", False),
            ("Missing sudo password", False),
        ],
    )
    def test_a_node_that_took_the_connection_is_late_and_one_that_is_off_is_silent(
        self, message: str, late: bool
    ) -> None:
        summary = outcome(failures=(replace(silent("gpu04"), message=message),)).summary

        assert late_nodes(summary) == (("gpu04",) if late else ())

    @pytest.mark.parametrize(("busy", "times"), [(0.1, 3), (1.2, 3), (2.4, 6), (40.0, 12)])
    def test_a_late_node_has_more_time_where_the_control_machine_is_busy(self, busy: float, times: int) -> None:
        assert more_time(busy) == times

    def test_a_silent_controller_leaves_slurm_unknown(self) -> None:
        result = status(outcome(failures=(silent("ctl1"),)))

        assert result.exit_code is ExitCode.UNREACHABLE
        assert head(result) == "hpc: 5 nodes, Slurm could not be asked"
        assert kinds(result) == [("no answer", "ctl1")]

    def test_an_error_of_ansible_itself_is_raised(self) -> None:
        broken = replace(outcome(), summary=RunSummary({}, (Failure("", "", "", "no vault", "hint"),), (), (), ()))

        with pytest.raises(DeepOpsError, match="no vault"):
            status(broken)

    def test_a_look_that_was_stopped_is_no_status(self) -> None:
        with pytest.raises(InterruptedRunError):
            status(replace(outcome(), stopped=Verdict.INTERRUPTED))


class TestText:
    def test_versions_that_differ_name_their_nodes_and_those_that_agree_do_not(self) -> None:
        old = {"versions": {"os": "Debian 12", "kernel": "6.12.48", "slurm": "22.05.8"}}

        assert list(version_lines(status(outcome({"gpu04": old})))) == [
            "slurm     24.11.5 on ctl1,gpu[01-03]; 22.05.8 on gpu04",
            "slurmctld 24.11.5 on ctl1",
            "os        Debian 13 on ctl1,gpu[01-03]; Debian 12 on gpu04",
            "kernel    6.12.48",
        ]

    def test_a_long_finding_is_wrapped_below_its_beginning(self) -> None:
        (finding,) = status(outcome({"gpu01": {"differences": ["word " * 30]}})).findings
        first, *more = list(finding_lines([finding], 60))

        assert first.severity is Severity.PROBLEM
        assert first.text.startswith("problem: gpu01: slurm drifted: word")
        assert all(len(line.text) <= 60 for line in more[:-1])
        assert all(line.text.startswith("    ") for line in more)

    def test_no_runs_are_said_to_be_none(self, tmp_path: Path) -> None:
        none = last_runs(Workspace(tmp_path))
        lines = list(last_lines(none, datetime.now(UTC)))

        assert lines[0] == "last run         none yet"
        assert lines[1].startswith("last validation  none yet; run `deepopsctl validate`")
        assert set(none.as_object()) == {"last_run", "last_deploy", "last_upgrade", "last_restore", "last_validation"}
        assert not any(none.as_object().values())


class TestLastRuns:
    NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def run(self, runs: Path, name: str, ago: timedelta, **request: object) -> Path:
        path = runs / name
        path.mkdir(parents=True)
        command = name.split("-", 2)[2]
        asked = {"command": command, "started": (self.NOW - ago).isoformat(), **request}
        (path / "run.json").write_text(json.dumps(asked))
        (path / "summary.json").write_text(json.dumps({"ok": True, "verdict": "ok", "elapsed_s": 4.0, "hosts": {}}))
        return path

    def test_the_last_of_each_kind_is_found_and_a_check_is_no_deploy(self, tmp_path: Path) -> None:
        self.run(tmp_path, "20260301-090000-deploy", timedelta(hours=3))
        validation = self.run(tmp_path, "20260301-100000-validate", timedelta(hours=2))
        checks = [{"suite": "smoke", "name": "services", "target": "ctl1", "status": "pass"}]
        (validation / "checks.json").write_text(json.dumps({"checks": checks}))
        self.run(tmp_path, "20260301-103000-upgrade-slurm", timedelta(minutes=90))
        self.run(tmp_path, "20260301-104000-restore", timedelta(minutes=80))
        self.run(tmp_path, "20260301-110000-deploy", timedelta(hours=1), check=True)
        self.run(tmp_path, "20260301-115900-node-drain", timedelta(minutes=1))

        result = last_runs(Workspace(tmp_path))

        assert list(last_lines(result, self.NOW)) == [
            "last run         20260301-115900-node-drain: ok after 4.0 s, 1 min ago",
            "last deploy      20260301-090000-deploy: ok after 4.0 s, 3 h ago",
            "last upgrade     20260301-103000-upgrade-slurm: ok after 4.0 s, 90 min ago",
            "last restore     20260301-104000-restore: ok after 4.0 s, 80 min ago",
            "last validation  20260301-100000-validate: ok after 4.0 s, 2 h ago: 1 passed",
        ]
        document = result.as_object()
        validated = document["last_validation"]
        assert isinstance(validated, dict)
        assert validated["checks"] == {"passed": 1, "warned": 0, "failed": 0, "skipped": 0}

    @pytest.mark.parametrize(
        ("verdict", "code"),
        [("ok", 0), ("unreachable", 0), ("failed", 1), ("interrupted", 1), ("timeout", 1)],
    )
    def test_a_deploy_that_did_not_end_well_is_a_problem(self, tmp_path: Path, verdict: str, code: int) -> None:
        deploy = self.run(tmp_path, "20260301-090000-deploy", timedelta(hours=3))
        failure = {"host": "gpu01", "component": "slurm", "task": "Install", "message": "no\nroom", "hint": ""}
        failures = [failure] if code else []
        (deploy / "summary.json").write_text(json.dumps({"verdict": verdict, "hosts": {}, "failures": failures}))

        result = examine(outcome(), CLUSTER, HARDWARE, last_runs(Workspace(tmp_path)))

        assert int(result.exit_code) == code
        assert [finding.message for finding in result.findings] == (
            [f"the last deploy (20260301-090000-deploy) did not end well: {verdict} on gpu01: no room"] if code else []
        )

    @pytest.mark.parametrize(
        ("command", "verdict", "count"),
        [("restore", "ok", 0), ("restore", "failed", 1), ("upgrade-os", "ok", 1), ("node-add", "ok", 1)],
    )
    def test_a_restore_settles_a_deploy_that_was_refused_before_it(
        self, tmp_path: Path, command: str, verdict: str, count: int
    ) -> None:
        for name, ended in (("20260301-090000-deploy", "failed"), (f"20260301-100000-{command}", verdict)):
            run = self.run(tmp_path, name, timedelta(hours=3))
            (run / "summary.json").write_text(json.dumps({"verdict": ended, "hosts": {}, "failures": []}))

        result = examine(outcome(), CLUSTER, HARDWARE, last_runs(Workspace(tmp_path)))

        assert len(result.findings) == count

    def test_a_deploy_that_was_killed_is_a_problem_and_one_that_runs_is_none(self, tmp_path: Path) -> None:
        deploy = self.run(tmp_path, "20260301-090000-deploy", timedelta(hours=3), pid=os.getpid())
        (deploy / "summary.json").unlink()

        killed = examine(outcome(), CLUSTER, HARDWARE, last_runs(Workspace(tmp_path)))
        with cluster_lock(tmp_path, "deploy"):
            running = examine(outcome(), CLUSTER, HARDWARE, last_runs(Workspace(tmp_path)))

        assert (killed.exit_code, running.exit_code) == (ExitCode.FAILED, ExitCode.OK)
