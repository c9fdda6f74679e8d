"""From what the modules say they would change to a plan: who, what, which jobs, and one line that says it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import click
import pytest

from deepopsctl.cli.options import DIRECTORY
from deepopsctl.cli.views.plan import plan_lines
from deepopsctl.errors import ExitCode
from deepopsctl.run.events import Change, Totals, parse_changes
from deepopsctl.run.outcome import Failure, Problem, RunOutcome, RunSummary, SameNodes, TaskResult
from deepopsctl.run.plan import Plan, examine, group, save
from deepopsctl.run.workspace import RunDir

LONG = "".join(f"+line {number}\n" for number in range(40))
SLURMD = [
    Change(host, "slurm", "file", "/etc/default/slurmd", "write", diff=f"@@ -1 +1 @@\n-{old}\n+-N {host}\n")
    for host, old in (("gpu01", "old"), ("gpu02", "older"))
] + [Change(host, "slurm", "unit", "slurmd.service", "restart") for host in ("gpu01", "gpu02")]
CONF = [
    Change("ctl1", "slurm", "file", "/etc/slurm/slurm.conf", "write", diff=f"@@ -1,2 +1,42 @@\n{LONG}"),
    Change(
        "ctl1", "slurm", "key", "ProctrackType", "modify", "proctrack/linuxproc -> proctrack/cgroup", "restart slurmd"
    ),
    Change("ctl1", "slurm", "unit", "slurmctld.service", "restart"),
]
JOBS = [
    {"id": "41", "user": "ada", "name": "train", "state": "RUNNING", "partition": "gpu", "nodes": ["gpu01", "gpu02"]},
    {"id": "42", "user": "ada", "name": "train", "state": "RUNNING", "partition": "gpu", "nodes": ["gpu03"]},
    {"id": "43", "user": "ada", "name": "train", "state": "PENDING", "partition": "gpu", "nodes": []},
]


def slurm(*, up: bool = True) -> dict[str, object]:
    """node_info's answer."""
    nodes = [{"name": name, "state": "MIXED"} for name in ("gpu01", "gpu02", "gpu03")]
    return {"slurm": {"installed": True, "controller_up": up, "nodes": nodes, "jobs": JOBS if up else []}}


def made(
    changes: list[Change],
    *data: Mapping[str, object],
    failures: tuple[Failure, ...] = (),
    run_dir: Path = Path("runs/20261121-100000-plan"),
) -> Plan:
    """The plan of a run over four nodes."""
    hosts = {name: Totals(ok=3) for name in ("ctl1", "gpu01", "gpu02", "gpu03")}
    hosts |= {failure.host: Totals(unreachable=1) for failure in failures if failure.unreachable}
    results = tuple(TaskResult("ctl1", "task", entry) for entry in data)
    summary = RunSummary(hosts, failures, (), (), results, tuple(changes))
    code = 0 if not failures else 4
    return examine(RunOutcome(RunDir(run_dir), "plan", summary, 2.0, code))


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the terminal that the tests are started from."""
    monkeypatch.setenv("COLUMNS", "100")


def text(plan: Plan, *, whole: bool = False) -> str:
    """What a person sees, without colour."""
    return click.unstyle("\n".join(plan_lines(plan, whole=whole, record="plan.json")))


def test_packages_that_go_are_not_shown_as_ones_that_come() -> None:
    changes = [
        Change("gpu01", "environment", "package", "crun", "remove"),
        Change("gpu01", "environment", "package", "podman", "remove", "and 25 that came with them"),
        Change("gpu01", "environment", "package", "lmod", "install", "8.7"),
    ]

    shown = text(made(changes)).splitlines()

    assert "  packages     + lmod 8.7" in shown
    assert "               - crun, podman and 25 that came with them" in shown


def test_a_long_line_is_cut_where_it_is_the_same_and_nothing_in_it_is_rewritten() -> None:
    same = "Plugins=" + "a-plugin-with-a-long-name," * 6
    diff = f"@@ -1,2 +1,2 @@\n-{same}old\n-`deepopsctl deploy` docs/a.md\n+{same}new\n+next: deepopsctl deploy\n"
    token = DIRECTORY.set("hpc")
    try:
        shown = text(made([Change("ctl1", "slurm", "file", "/etc/x", "write", diff=diff)], slurm()))
    finally:
        DIRECTORY.reset(token)

    assert "-...in-with-a-long-name,old" in shown
    assert "+...in-with-a-long-name,new" in shown
    assert "-`deepopsctl deploy` docs/a.md" in shown
    assert "+next: deepopsctl deploy" in shown


def test_deepopsctls_own_programs_are_one_line() -> None:
    names = [f"/usr/local/lib/deepopsctl/{program}/{part}.py" for program in ("job_report", "logs") for part in "ab"]
    files = [
        Change("ctl1", "slurm", "file", name, "write", diff="@@ -0,0 +1,2 @@\n+a\n+b\n", new=True) for name in names
    ]

    shown = text(made(files, slurm()))
    assert "+ /usr/local/lib/deepopsctl/  deepopsctl's own programs; 4 new files, 8 lines" in shown
    assert "job_report, logs" in shown
    assert ".py" not in shown
    assert all(name in text(made(files, slurm()), whole=True) for name in names)


class TestWhatModulesSay:
    def test_a_task_without_a_list_counts_as_one_change_by_its_name(self) -> None:
        (result,) = parse_changes({}, "gpu01", "slurm", "role : Do it", changed=True)
        assert result.what == ("task", "Do it", "change")

    def test_a_task_that_changes_nothing_has_no_changes(self) -> None:
        assert parse_changes({"changes": [{"kind": "file"}]}, "gpu01", "slurm", "Do it", changed=False) == ()

    def test_a_file_of_the_cluster_directory_is_on_no_host(self) -> None:
        entry = {"kind": "file", "name": "hardware.yml", "action": "write", "local": True}
        (result,) = parse_changes({"changes": [entry]}, "ctl1", "slurm", "Keep it", changed=True)
        assert result.as_object() == {
            "host": "", "component": "slurm", "kind": "file", "name": "hardware.yml", "action": "write",
        }  # fmt: skip


class TestGroups:
    def test_nodes_with_the_same_changes_stand_together_whatever_their_differences(self) -> None:
        (gpus,) = group(SLURMD)
        assert gpus.hosts == ("gpu01", "gpu02")
        assert len(gpus.variants["file", "/etc/default/slurmd", "write"]) == 2

    def test_its_own_name_makes_no_node_different(self) -> None:
        files = [Change(host, "slurm", "file", "/etc/x", "write", diff=f"+{host}\n") for host in ("gpu01", "gpu02")]
        assert group(files)[0].variants["file", "/etc/x", "write"] == ("+gpu01\n",)

    def test_the_same_difference_with_the_names_of_all_nodes_is_one(self) -> None:
        hosts = "+192.0.2.1 gpu01\n+192.0.2.2 gpu02\n"
        files = [Change(host, "slurm", "file", "/etc/hosts", "write", diff=hosts) for host in ("gpu01", "gpu02")]
        assert group(files)[0].variants["file", "/etc/hosts", "write"] == (hosts,)

    def test_a_node_with_one_change_more_stands_alone(self) -> None:
        more = Change("gpu02", "slurm", "package", "chrony", "install")
        assert [entry.hosts for entry in group([*SLURMD, more])] == [("gpu01",), ("gpu02",)]


class TestSameNodes:
    def test_a_node_that_was_not_checked_has_the_changes_of_the_one_that_was(self) -> None:
        name = Change("gpu01", "slurm", "hostname", "gpu01", "set", "was localhost")
        file = Change("gpu01", "slurm", "file", "/etc/x", "write", diff="+gpu01\n", new=True)
        blocked = (Problem(("gpu02", "gpu03"), "/var is read-only", "make room there"),)
        same = SameNodes({"gpu02": "gpu01", "gpu03": "gpu01"}, {"gpu02": "vm2", "gpu03": "vm3"}, blocked)
        outcome = replace(made([name, file]).outcome, same=same)

        plan = examine(outcome)

        assert plan.document()["same_as"] == {"gpu01": "gpu[02-03]"}
        assert Change("gpu03", "slurm", "hostname", "gpu03", "set", "was vm3", same_as="gpu01") in plan.changes
        # its difference would have the other node's name
        assert Change("gpu02", "slurm", "file", "/etc/x", "write", new=True, same_as="gpu01") in plan.changes
        assert [entry.hosts for entry in plan.groups] == [("gpu01", "gpu02", "gpu03")]
        assert plan.groups[0].variants["file", "/etc/x", "write"] == ("+gpu01\n",)
        assert plan.exit_code is ExitCode.FAILED
        assert "blocked: gpu[02-03]: /var is read-only" in text(plan)
        assert "(--every-node): gpu[02-03] (2 nodes), by what they report the same as gpu01" in text(plan)

    def test_of_one_that_is_silent_the_others_are_unknown_too(self) -> None:
        failure = Failure("gpu01", "slurm", "Compare", "no route to host", "", unreachable=True)
        outcome = made([], failures=(failure,)).outcome

        plan = examine(replace(outcome, same=SameNodes({"gpu02": "gpu01"}, {"gpu02": "gpu02"})))

        assert plan.unknown == ("gpu01", "gpu02")


class TestVerdict:
    def test_nothing_to_do(self) -> None:
        plan = made([], slurm())
        assert plan.verdict == "nothing to do"
        assert plan.exit_code is ExitCode.OK

    def test_changes_restarts_and_jobs_are_counted(self) -> None:
        plan = made([*CONF, *SLURMD], slurm())
        assert plan.verdict == "7 changes on 3 nodes; 3 services restart; no job is killed"
        assert plan.exit_code is ExitCode.OK

    def test_before_the_first_deploy_there_are_no_jobs(self) -> None:
        bare = {"slurm": {"installed": False, "controller_up": False}}
        assert made(SLURMD[:1], bare).verdict == "1 change on 1 node; no job is killed"

    def test_nothing_is_claimed_of_jobs_that_nobody_knows(self) -> None:
        assert made(SLURMD[:1], slurm(up=False)).verdict.endswith("; jobs unknown: slurmctld does not answer")

    def test_what_would_be_refused_blocks(self) -> None:
        plan = made(CONF, slurm(), {"blocked": [{"message": "changing X would end jobs", "hint": "wait"}]})
        assert plan.verdict == "blocked: changing X would end jobs"
        assert plan.exit_code is ExitCode.FAILED
        assert plan.document()["ok"] is False
        assert "none is killed" not in text(plan)

    def test_what_would_fail_blocks(self) -> None:
        failure = Failure("ctl1", "slurm", "Refuse", "slurm_config: ClusterName is not yours", "")
        assert made([], failures=(failure,)).verdict == "blocked: slurm_config: ClusterName is not yours"

    def test_nodes_that_do_not_answer_are_unknown(self) -> None:
        failure = Failure("gpu03", "slurm", "Compare", "no route to host", "", unreachable=True)
        plan = made(SLURMD[:1], slurm(), failures=(failure,))
        assert plan.verdict.endswith("; 1 node unknown: gpu03")
        assert plan.exit_code is ExitCode.UNREACHABLE
        assert "no route to host" in text(plan)


class TestJobs:
    def test_those_on_nodes_that_change_are_named(self) -> None:
        plan = made(SLURMD, slurm())
        assert [job.id for job in plan.jobs] == ["41"]
        assert plan.jobs_line == "1 job on gpu[01-02]; none is killed"

    def test_all_that_run_are_slurmctlds(self) -> None:
        assert made(CONF, slurm()).jobs_line == "2 jobs on gpu[01-03]; none is killed"


class TestView:
    def test_long_differences_are_cut_unless_they_are_asked_for(self) -> None:
        plan = made(CONF, slurm())
        assert "line 39" not in text(plan)
        assert "... 25 lines more (--diff shows them)" in text(plan)
        assert "+line 39" in text(plan, whole=True)

    def test_a_long_line_of_a_difference_is_cut_unless_it_is_asked_for(self) -> None:
        line = Change("ctl1", "slurm", "file", "/etc/x", "write", diff=f"@@ -1 +1 @@\n-a\n+{'b' * 300}\n")
        assert max(map(len, text(made([line])).splitlines())) <= 100
        assert "b" * 300 in text(made([line]), whole=True)

    def test_many_new_files_of_a_directory_are_one_line_unless_all_is_asked_for(self) -> None:
        def file(name: str, diff: str = "@@ -0,0 +1,2 @@\n+a\n+b\n") -> Change:
            return Change("gpu01", "monitoring", "file", name, "write", diff=diff, new=True)

        program = [file(f"/usr/lib/x/{number}.py") for number in range(5)]
        plan = made([*program, file("/usr/lib/x/key", "(secret)"), file("/etc/x")])

        assert "+ /usr/lib/x/  5 new files, 10 lines" in text(plan)
        assert "/usr/lib/x/3.py" not in text(plan)
        assert "+ /usr/lib/x/key  secret: not shown" in text(plan)
        assert "+ /etc/x  new, 2 lines" in text(plan)
        assert "+ /usr/lib/x/3.py  new, 2 lines" in text(plan, whole=True)

    def test_a_secret_is_never_shown(self) -> None:
        secret = Change("gpu01", "slurm", "file", "/etc/munge/munge.key", "write", diff="(secret)\n")
        assert "~ /etc/munge/munge.key  secret: not shown" in text(made([secret]), whole=True)

    def test_a_key_has_its_policy_and_its_values(self) -> None:
        assert "~ ProctrackType  restart slurmd  proctrack/linuxproc -> proctrack/cgroup" in text(made(CONF))

    def test_a_long_value_is_wrapped_and_not_cut(self) -> None:
        value = " ".join(f"CPUs{number}=64" for number in range(20))
        key = Change("ctl1", "slurm", "key", "NodeName=gpu[01-16]", "add", value, "restart slurmctld")
        shown = text(made([key], slurm()))
        assert max(map(len, shown.splitlines())) <= 100
        assert shown.count("=64") == 20

    def test_differences_that_differ_by_node_are_reported(self) -> None:
        assert "(gpu01's; the other node differs in its own way)" in text(made(SLURMD))


@pytest.mark.parametrize(("blocked", "verdict"), [(False, "ok"), (True, "failed")])
def test_the_plan_is_kept_with_the_run(tmp_path: Path, blocked: bool, verdict: str) -> None:
    data = [{"blocked": [{"message": "no", "hint": ""}]}] if blocked else []
    plan = made(CONF, *data, run_dir=tmp_path)

    save(plan)

    run_dir = plan.outcome.run_dir
    assert run_dir.read(tmp_path / "plan.json")["changes"] == [change.as_object() for change in CONF]
    assert run_dir.read(run_dir.summary)["verdict"] == verdict


def test_a_plan_of_several_parts_begins_with_a_summary() -> None:
    lines = text(made([*CONF, *SLURMD], slurm())).splitlines()

    assert lines[0].startswith("plan: 7 changes on 3 nodes")
    assert lines[1] == "  slurm on ctl1: 1 file, 1 key of slurm.conf, 1 service"
    assert lines[2] == "  slurm on gpu[01-02] (2 nodes): 1 file, 1 service"
    assert lines[-1] == lines[0]
