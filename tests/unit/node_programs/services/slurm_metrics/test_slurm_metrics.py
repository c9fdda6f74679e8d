"""What `deepops-slurmmetrics` makes of what three releases of Slurm really said."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deepopsctl.node_programs._shared.prometheus_text import Families
from deepopsctl.node_programs.services.slurm_metrics import own, statistics
from deepopsctl.node_programs.services.slurm_metrics.asking import FIELD, RECORD, AskingError, rows
from deepopsctl.node_programs.services.slurm_metrics.jobs import Job, tasks
from deepopsctl.node_programs.services.slurm_metrics.snapshot import LABEL_LIMIT, SlurmReader
from deepopsctl.node_programs.services.slurm_metrics.waits import Waits, quantile_of
from tests.data.slurm_metrics_samples import DATA, RELEASES, names, recorded, samples, snapshot_of, when

ENDPOINT = ("jobs", "nodes", "partitions", "scheduler")
# Where 26.05 itself says something else of the same moment, and why what is said here stays.
DIFFERENT = {
    # it counts a job that may run in several partitions with the one that the scheduler tried last, not the first
    'slurm_partition_jobs_pending{partition="all"}',
    'slurm_partition_jobs_pending{partition="gpu"}',
    # it counts an array as one job here, as many in slurm_jobs
    'slurm_partition_jobs{partition="all"}',
    'slurm_partition_jobs{partition="gpu"}',
    # a partition without nodes takes one more question
    "slurm_partitions",
    # the question itself
    "slurm_server_thread_cnt",
}


def endpoint() -> dict[str, float]:
    """What slurmctld 26.05 said at its own endpoint."""
    texts = [(DATA / "26.05" / f"metrics-{name}.txt").read_text(encoding="utf-8") for name in ENDPOINT]
    return samples("".join(texts))


def job(**changed: object) -> Job:
    known: dict[str, object] = {
        "id": "1", "state": "running", "partitions": ("gpu",), "account": "physics", "user": "alice", "nodes": 1,
        "placed": True, "cpus": 4, "memory": 1 << 30, "gpus": {"h100": 2}, "eligible": 1000, "start": 1060,
        "reason": "None",
    }  # fmt: skip
    return Job(**{**known, **changed})  # type: ignore[arg-type]  # a stand-in, or any of its fields


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_has_nodes_drains_gpus_jobs_by_user_the_queue_and_itself(release: str) -> None:
    result = samples(snapshot_of(release).text)

    assert result['deepops_slurm_node_state{node="n1",state="mixed"}'] == 1
    assert result['deepops_slurm_node_state{node="n4",state="drain"}'] == 1
    assert result['deepops_slurm_node_state{node="n4",state="idle"}'] == 1
    assert result['deepops_slurm_node_partition{node="n3",partition="gpu"}'] == 1
    assert result['deepops_slurm_node_gpus{node="n3",gpu_type="a100"}'] == 2
    assert result['deepops_slurm_node_gpus_allocated{node="n1",gpu_type="h100"}'] == 2
    assert result['deepops_slurm_node_memory_bytes{node="n1"}'] == 16000 << 20
    reason = r"disk \"sda\" | bad, see ticket=4711 \\ weiß {x}"
    since = result[f'deepops_slurm_node_drain{{node="n4",reason="{reason}",by="root"}}']
    assert 0 < when(release) - since < 60
    # a reason of two lines is a label of one
    assert any('node="n2",reason="two lines"' in name for name in result)

    alice = 'partition="gpu",account="physics",user="alice"'
    bob = 'partition="all",account="chem",user="bob"'
    assert result[f'deepops_slurm_jobs{{state="running",{alice}}}'] == 1
    # an array of 45 tasks, a held job and one for later
    assert result[f'deepops_slurm_jobs{{state="pending",{bob}}}'] == 47
    assert result[f"deepops_slurm_cpus_allocated{{{alice}}}"] == 4
    assert result[f"deepops_slurm_memory_allocated_bytes{{{alice}}}"] == 2000 << 20
    assert result[f'deepops_slurm_gpus_allocated{{gpu_type="h100",{alice}}}'] == 2
    assert result[f'deepops_slurm_gpus_pending{{gpu_type="h100",{alice}}}'] == 8
    # asked for without a type
    assert result[f'deepops_slurm_gpus_pending{{gpu_type="",{alice}}}'] == 3

    assert 40 < result['deepops_slurm_queue_oldest_seconds{partition="gpu"}'] < 60
    assert result['deepops_slurm_queue_wait_seconds{partition="all",quantile="0.9"}'] < 10
    # what was cancelled before it started has no wait for its start
    assert result['deepops_slurm_queue_wait_seconds_count{partition="all"}'] == 3
    assert result["deepops_slurm_up"] == 1
    assert result["deepops_slurmdbd_up"] == 1
    assert result["deepops_slurmdbd_queue_size"] == 0
    assert result["deepops_slurm_unreadable_records"] == 0
    assert result[f'deepops_slurm_version_info{{version="{release}.8"}}'] == 1


@pytest.mark.parametrize("release", RELEASES)
def test_all_releases_have_the_same_names(release: str) -> None:
    # 22.05's sdiag does not say yet why the scheduler stopped
    later = {name for name in statistics.NAMES if "_exit_" in name}

    assert names(snapshot_of(release).text) | later == names(snapshot_of("26.05").text) | later


def test_native_names_and_values_are_those_of_slurm_26_05_at_the_same_moment() -> None:
    theirs = endpoint()
    managed = {name: value for name, value in samples(snapshot_of("26.05").text).items() if name.startswith("slurm_")}

    assert len({name.partition("{")[0] for name in managed}) > 130
    assert {name for name, value in managed.items() if theirs.get(name) != value} == DIFFERENT


def test_a_slurm_that_does_not_answer_leaves_nothing_but_that() -> None:
    seen = snapshot_of("24.11", but={"squeue": AskingError("squeue: no answer in 20 s")})

    assert not seen.up
    assert seen.problems == ("squeue: no answer in 20 s",)
    assert names(seen.text) == {"deepops_slurm_up", "deepops_slurm_collect_seconds", "deepops_slurmdbd_up"}
    assert samples(seen.text)["deepops_slurm_up"] == 0
    assert not snapshot_of("24.11", but={"sdiag": ""}).up


def test_a_slurmdbd_that_does_not_answer_takes_nothing_else_along() -> None:
    seen = snapshot_of("24.11", but={"sacctmgr": AskingError("sacctmgr: Connection refused")})

    assert seen.up
    assert seen.problems == ("sacctmgr: Connection refused",)
    assert samples(seen.text)["deepops_slurmdbd_up"] == 0
    assert samples(seen.text)["slurm_nodes"] == 5


def test_a_record_with_a_separator_in_it_is_counted_and_left_out() -> None:
    result, unreadable = rows(f"a{FIELD}b{RECORD}\nc{FIELD}d{FIELD}e{RECORD}\n", 2)

    assert result == [["a", "b"]]
    assert unreadable == 1
    assert rows("", 2) == ([], 0)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("6_[1-20%2]", 20),
        ("6_[1-9:4,20]", 4),
        ("6_7", 1),
        ("6_[1-5,...]", 1),
        ("6_[5-1]", 1),
    ],
)
def test_tasks_of_an_array_are_counted(text: str, count: int) -> None:
    assert tasks(text) == count


def test_a_start_is_counted_once_and_for_an_hour() -> None:
    waits = Waits()

    for now in (1100.0, 1130.0, 1160.0):
        waits.see([job(), job(id="2", state="completed")], now)
    # started once more after it was requeued
    waits.see([job(eligible=1200, start=1210)], 1220.0)

    assert waits.by_partition() == {"gpu": [10.0, 60.0, 60.0]}
    # these have not started
    never = [job(id="3", state="cancelled", placed=False), job(id="4", state="pending", placed=False)]
    waits.see(never, 1061.0 + 3600)
    assert waits.by_partition() == {"gpu": [10.0]}


def test_quantiles_are_waits_that_some_job_had() -> None:
    ordered = [float(number) for number in range(1, 11)]

    assert quantile_of(ordered, 0.5) == 5
    assert quantile_of(ordered, 0.9) == 9
    assert quantile_of([7.0], 0.9) == 7


def test_held_jobs_and_those_for_later_are_not_waiting() -> None:
    result = Families()
    jobs = [
        job(id="1", state="pending", reason="JobHeldUser", eligible=100),
        job(id="2", state="pending", reason="BeginTime", eligible=9000),
        job(id="3", state="pending", reason="Priority", eligible=900, partitions=("gpu", "all")),
    ]

    own.add_queue(result, ["gpu", "all", "quiet"], jobs, 1000.0)

    assert samples(result.text()) == {
        'deepops_slurm_queue_oldest_seconds{partition="gpu"}': 100,
        'deepops_slurm_queue_oldest_seconds{partition="all"}': 100,
        'deepops_slurm_queue_oldest_seconds{partition="quiet"}': 0,
    }


def test_many_users_cost_no_more_than_the_limit() -> None:
    result = Families()
    jobs = [job(id=str(number), user=f"u{number}") for number in range(own.WHO_LIMIT + 500)]

    own.add_jobs(result, [*jobs, job(id="x", user="busy", count=50, state="pending")])

    reported = samples(result.text())
    counts = {name: value for name, value in reported.items() if name.startswith("deepops_slurm_jobs{")}
    assert len(counts) == own.WHO_LIMIT + 1
    assert sum(counts.values()) == own.WHO_LIMIT + 550
    assert counts['deepops_slurm_jobs{state="running",partition="gpu",account="(others)",user="(others)"}'] == 501
    assert counts['deepops_slurm_jobs{state="pending",partition="gpu",account="physics",user="busy"}'] == 50


def test_a_reason_as_long_as_a_book_is_cut() -> None:
    result = Families(LABEL_LIMIT)

    result.family("x", "x").set(1, reason="long " * 500)

    assert len(result.text()) < LABEL_LIMIT + 100


# as 26.05 answers: with the plugin, without it, with PrivateData
@pytest.mark.parametrize(
    ("status", "page", "managed"), [(200, "metrics-scheduler", False), (200, "", True), (401, "", True)]
)
def test_native_names_are_reported_where_slurmctld_tells_them_to_nobody(
    status: int, page: str, *, managed: bool
) -> None:
    text = (DATA / "26.05" / f"{page}.txt").read_bytes() if page else b""

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics/scheduler" else 500)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        seen = SlurmReader(("127.0.0.1", server.server_port), recorded("26.05")).read_snapshot(when("26.05"))
        server.shutdown()

    result = names(seen.text)
    assert any(name.startswith("slurm_") for name in result) == managed
    assert {"deepops_slurm_up", "deepops_slurm_jobs", "deepops_slurm_node_state", "deepops_slurmdbd_up"} <= result
