"""What Slurm says now, parsed from recorded output of Slurm 22.05 and 24.11."""

from __future__ import annotations

import re

import pytest

from deepopsctl.node_programs._shared.node_states import PREFIX
from deepopsctl.slurm.state import SlurmJob, SlurmNode, SlurmState, jobs_sentence, parse_slurm_state
from tests.support import node_modules as nodeside
from tests.support.paths import ROOT, TESTS

DATA = TESTS / "data" / "slurm"
READING = nodeside.load("slurm.slurm_output")


@pytest.fixture(params=["22.05", "24.11"])
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def recorded(release: str, what: str) -> str:
    return (DATA / f"{release}-{what}.txt").read_text(encoding="utf-8")


def state(release: str, nodes: str = "node") -> SlurmState:
    return parse_slurm_state({
        "installed": True,
        "controller_up": True,
        "nodes": READING.nodes(recorded(release, nodes)),
        "jobs": READING.jobs(recorded(release, "squeue")),
    })  # fmt: skip


def test_reads_what_a_node_has_and_what_is_used_of_it(release: str) -> None:
    node = state(release).nodes["gpu01"]

    assert (node.state, node.cpus, node.alloc_cpus) == ("ALLOCATED", 2, 2)
    assert (node.memory_mb, node.alloc_memory_mb) == (23622, 150)
    assert (node.gres, node.gpus, node.alloc_gpus) == ("gpu:a100:2", 2, 1)
    assert node.partitions == ("gpu",)
    assert node.version.startswith(release)
    assert (node.reason, node.reason_user) == ("", "")


def test_a_reason_is_taken_whole_and_nothing_in_it_is_a_field(release: str) -> None:
    node = state(release).nodes["gpu02"]

    assert node.reason == "fan 3 = loud [see ticket] Comment=no"
    assert node.reason_user == "root"
    assert node.reason_since.startswith("2026-")


def test_jobs_know_their_nodes(release: str) -> None:
    jobs = {job.id: job for job in state(release).jobs}

    assert jobs["1"] == SlurmJob("1", "ubuntu", "RUNNING", "gpu", ("gpu01",))
    assert jobs["2"].nodes == ("gpu01", "gpu02")
    assert jobs["3_[1-5]"].nodes == ()


def test_jobs_on_a_node_are_those_that_run_there(release: str) -> None:
    snapshot = state(release)

    assert [job.id for job in snapshot.jobs_on(["gpu01", "gpu02"])] == ["1", "2"]
    assert [job.id for job in snapshot.jobs_on(["gpu02"])] == ["2"]
    assert {name: len(jobs) for name, jobs in snapshot.jobs_by_node.items()} == {"gpu01": 2, "gpu02": 1}
    assert [job.id for job in snapshot.pending] == ["3_[1-5]"]
    assert jobs_sentence(snapshot.jobs_on(["gpu01", "gpu02"]), ["gpu01", "gpu02"]) == "2 jobs on gpu[01-02]"
    assert jobs_sentence((), ["gpu01"]) == ""


def test_a_node_that_is_down_is_faulty_and_a_drained_one_is_not(release: str) -> None:
    nodes = state(release, "node-down").nodes

    assert (nodes["gpu01"].word, nodes["gpu01"].is_faulty, nodes["gpu01"].is_drained) == ("down", True, False)
    assert (nodes["gpu02"].word, nodes["gpu02"].is_faulty, nodes["gpu02"].is_drained) == ("drained", False, True)
    assert nodes["gpu01"].reason == "broken, root said"


def test_the_version_that_runs_is_read_from_the_configuration(release: str) -> None:
    assert READING.running_version(recorded(release, "config")).startswith(release)
    assert READING.running_version(recorded(release, "dead")) == ""


def test_no_answer_gives_no_nodes(release: str) -> None:
    assert READING.nodes(recorded(release, "dead")) == []
    assert parse_slurm_state({"installed": False, "controller_up": False, "error": "x"}) == SlurmState(error="x")


@pytest.mark.parametrize(
    ("state", "word", "faulty"),
    [
        ("IDLE", "idle", False),
        ("MIXED+DRAIN", "draining", False),
        ("IDLE+DRAIN", "drained", False),
        ("DOWN*+DRAIN", "down", True),
        ("DOWN+NOT_RESPONDING", "down", True),
        ("IDLE*", "idle*", True),
        ("IDLE+DRAIN+INVALID_REG", "drained", True),
        ("IDLE+INVALID_REG", "invalid", True),
        ("IDLE+COMPLETING+DRAIN", "draining", False),
        ("IDLE+CLOUD+POWERED_DOWN", "idle", False),
        ("ALLOCATED+MAINTENANCE+RESERVED", "allocated", False),
        ("UNKNOWN", "unknown", True),
        ("", "unknown", False),
    ],
)
def test_a_state_becomes_a_word_of_sinfos(state: str, word: str, faulty: bool) -> None:
    node = SlurmNode("n", state)

    assert (node.word, node.is_faulty) == (word, faulty)


def test_only_a_drain_with_our_prefix_is_ours() -> None:
    assert SlurmNode("n", "IDLE+DRAIN", "deepopsctl: new fan").is_drained_by_deepopsctl
    assert not SlurmNode("n", "IDLE+DRAIN", "new fan, says deepopsctl: no").is_drained_by_deepopsctl
    assert not SlurmNode("n", "IDLE", "deepopsctl: new fan").is_drained_by_deepopsctl


@pytest.mark.parametrize(
    "line",
    [
        "--all|root|RUNNING|p|n1",
        "1|root|RUNNING|p|n[x]",
        "1|root|RUNNING|p|n1|x",
        "1|root|running|p|n1",
        "1",
        "1||A|p|n1",
    ],
)
def test_a_line_that_is_no_job_is_an_error_and_never_left_out(line: str) -> None:
    with pytest.raises(READING.UnreadableError):
        READING.jobs(line)


@pytest.mark.parametrize("job", ["7", "7_3", "7_[1-5]", "7_[1-5%2]", "7_[1,3,5-...", "7+1", "7_[1-9:2]"])
def test_every_form_of_a_job_id_is_known(job: str) -> None:
    assert READING.jobs(f"{job}|u|PENDING|a,b|")[0]["id"] == job
    assert READING.jobs(f"{job}|u|?|(null)|(null)")[0]["nodes"] == []


def test_nodes_that_only_a_validation_may_use_are_known() -> None:
    assert parse_slurm_state({"controller_up": True, "reserved": ["gpu03", "gpu04"]}).reserved == {"gpu03", "gpu04"}
    assert parse_slurm_state({"controller_up": True}).reserved == frozenset()


def test_what_is_not_python_here_knows_our_drains_by_the_same_prefix() -> None:
    """Rules of Prometheus, the node check that Slurm runs, and the prolog's: they can't import the constant."""
    rules = [path.read_text() for path in (ROOT / "roles/prometheus/files/rules").glob("*nodes.yml")]
    matchers = [match for text in rules for match in re.findall(r'reason=~"(?:\(\?i\)\()?([^(|]*)', text)]
    programs = (ROOT / "roles/storage/files/deepops-nodecheck", ROOT / "roles/node_common/templates/pieces.j2")

    assert matchers
    assert {match.strip() for match in matchers} == {PREFIX.strip()}
    assert all(f'"{PREFIX}' in path.read_text() or f"reason={PREFIX}" in path.read_text() for path in programs)
