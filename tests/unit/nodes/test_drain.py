"""What a run of `node drain` or `node resume` becomes: nodes, failures, document."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import ExitCode
from deepopsctl.nodes.drain import DrainAction, DrainResult, drain_request, read_drain_result
from deepopsctl.nodes.wait_for_jobs import wait_for_jobs
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import TaskResult, Verdict
from deepopsctl.run.request import RunRequest
from tests.support.runs import run_of

BASE = RunRequest(ClusterDir(Path("/hpc")), "")

THEIRS = "drained by root since 2026-01-01 10:00:00: bad DIMM"
JOB = {"id": "41", "user": "u", "name": "j", "state": "RUNNING", "partition": "gpu", "nodes": ["gpu01", "gpu02"]}


def done(run_dir: Path, action: DrainAction, verdicts: dict[str, tuple[str, str]]) -> DrainResult:
    """What slurm_node_state answered: name -> (action, message)."""
    slurm = {
        "installed": True,
        "controller_up": True,
        "nodes": [{"name": name, "state": "MIXED+DRAIN", "reason": "deepopsctl: x"} for name in verdicts],
        "jobs": [JOB],
    }
    drain = [{"name": name, "action": action, "message": text} for name, (action, text) in verdicts.items()]
    answer = TaskResult("ctl1", "Drain", {"drain": drain, "slurm": slurm})
    return read_drain_result(run_of(answer, directory=run_dir, hosts={"ctl1": Totals(ok=1, changed=1)}), action)


def test_drained_nodes_have_their_jobs_and_the_state_after(tmp_path: Path) -> None:
    result = done(
        tmp_path, DrainAction.DRAIN, {"gpu01": ("drain", "deepopsctl: x"), "gpu02": ("none", "deepopsctl: x")}
    )

    document = json.loads(json.dumps(result.document()))
    assert (document["command"], document["ok"], document["run"]) == ("node drain", True, tmp_path.name)
    assert document["nodes"][0] == {
        "name": "gpu01", "action": "drained", "message": "deepopsctl: x", "state": "draining",
        "reason": "deepopsctl: x", "jobs": ["41"],
    }  # fmt: skip
    assert document["nodes"][1]["action"] == "unchanged"
    assert [job.id for job in result.jobs] == ["41"]
    assert result.without_jobs().jobs == ()


def test_refused_nodes_are_failures_with_what_to_do_and_the_run_remembers(tmp_path: Path) -> None:
    result = done(
        tmp_path,
        DrainAction.RESUME,
        {
            "gpu01": ("resume", ""),
            "gpu02": ("refused", THEIRS),
            "gpu03": ("refused", THEIRS),
            "gpu04": ("refused", "Slurm has it as down*"),
            "gpu05": ("refused", "Slurm has no node of that name"),
        },
    )

    assert result.outcome.exit_code is ExitCode.FAILED
    assert [failure.host for failure in result.outcome.summary.failures] == ["gpu02", "gpu03", "gpu04", "gpu05"]
    hints = [failure.hint for failure in result.outcome.summary.failures]
    assert hints[0] == hints[1]
    assert "scontrol update nodename=gpu[02-03] state=resume" in hints[0]
    assert "`deepopsctl status`" in hints[2]
    assert "`deepopsctl deploy`" in hints[3]
    assert json.loads((tmp_path / "summary.json").read_text())["verdict"] == "failed"


@pytest.mark.parametrize("reason", ["new fan", "{{ lookup('pipe', 'id') }}", "ä \" ' | [x]"])
def test_a_reason_reaches_ansible_in_a_form_that_is_no_template(tmp_path: Path, reason: str) -> None:
    sent = str(drain_request(BASE, DrainAction.DRAIN, ["gpu01"], reason).extra_vars["deepops_drain_reason"])
    assert sent.isascii()
    assert "{" not in sent
    assert b64decode(sent).decode() == reason


def test_gpus_are_compared_before_a_resume_and_not_before_a_drain(tmp_path: Path) -> None:
    resume = drain_request(BASE, DrainAction.RESUME, ["gpu01", "cn01"], "", ["gpu01"])
    assert resume.playbooks == ("operate/nodes/gpu-check", "operate/nodes/slurm-node-state")
    assert resume.extra_vars["deepops_gpu_nodes"] == ["gpu01"]
    assert drain_request(BASE, DrainAction.RESUME, ["cn01"]).playbooks == ("operate/nodes/slurm-node-state",)
    assert drain_request(BASE, DrainAction.DRAIN, ["gpu01"], "x", ["gpu01"]).playbooks == (
        "operate/nodes/slurm-node-state",
    )


def test_gpus_that_differ_have_a_hint_of_their_own(tmp_path: Path) -> None:
    differs = "its GPUs are not what they should be: cluster.yml says a100:2, the driver 1 x NVIDIA A100-SXM4-40GB"
    result = done(tmp_path, DrainAction.RESUME, {"gpu01": ("refused", differs)})
    (failure,) = result.outcome.summary.failures
    assert "fell off the bus" in failure.hint


def test_ctrl_c_during_a_query_ends_the_wait_for_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepopsctl.run.runner.run_readonly", lambda _: run_of(stopped=Verdict.INTERRUPTED))

    with pytest.raises(KeyboardInterrupt):
        wait_for_jobs(BASE, ["gpu01"], 0.001, lambda _: None)
