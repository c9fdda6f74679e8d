"""Summaries of jobs from a real Prometheus that holds what was seen of them; Slurm's commands answer as recorded."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from deepopsctl.node_programs.commands.job_report import keeper, records, summary
from deepopsctl.node_programs.commands.job_report.asking import UnansweredError
from deepopsctl.node_programs.commands.job_report.keeping import MOST_JOBS, SETTLE_S, Keeper
from deepopsctl.node_programs.commands.job_report.prometheus import PrometheusError, Query, asking, querying, summarise
from deepopsctl.node_programs.commands.job_report.summary import GpuUse, NodeUse, Summary
from deepopsctl.node_programs.services.job_mail.idle_gpus import Owned, Watch
from deepopsctl.node_programs.services.job_mail.spool import Mail
from deepopsctl.node_programs.services.web import course
from tests.integration.monitoring import servers

GIB = 1 << 30
# on an hour, long enough ago for Prometheus to store it as a block of its own
END = int(time.time()) // 7200 * 7200 - 7200
BEGAN = END - 600


def history() -> str:
    """What Prometheus has of two jobs that shared a node, and of one that had two."""
    lines: list[tuple[str, int, float]] = []
    for at in range(BEGAN, END + 1, 15):
        share = (at - BEGAN) / 600
        for job, node, cores, memory in (
            ("11", "n1", 2, 3),
            ("12", "n1", 1, 1),
            ("13", "n1", 1, 2),
            ("13", "n2", 3, 4),
        ):
            label = f'{{jobid="{job}",node="{node}",instance="{node}"}}'
            lines.append((f"deepops_job_cpu_seconds_total{label}", at, cores * (at - BEGAN)))
            lines.append((f"deepops_job_memory_peak_bytes{label}", at, int(memory * GIB * share)))
            lines.append((f"job:cpu_used:cores{label}", at, cores))
            lines.append((f"deepops_job_cpus{label}", at, 4))
        label = '{jobid="11",node="n1",gpu="0",user="alice"}'
        lines.append((f"job:gpu_utilization:ratio{label}", at, 0.5 if share < 0.5 else 1))
        lines.append((f"job:gpu_memory_used:bytes{label}", at, GIB))
        lines.append((f"job:gpu_memory_total:bytes{label}", at, 80 * GIB))
        lines.append((f"deepops_job_gpu{label}", at, 1))
        # one of its two GPUs does nothing
        for gpu, use in (("0", 0), ("1", 0.4)):
            lines.append((f'job:gpu_utilization:ratio{{jobid="14",node="n2",gpu="{gpu}",user="bob"}}', at, use))
        # idle, and young
        if share > 0.7:
            lines.append(('job:gpu_utilization:ratio{jobid="15",node="n1",gpu="3",user="bob"}', at, 0))
    return "\n".join([*(f"{series} {value} {at}" for series, at, value in sorted(lines)), "# EOF", ""])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("prometheus")
    (directory / "history").write_text(history())
    files = [str(directory / name) for name in ("history", "data")]
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", *files], check=True, capture_output=True)
    with servers.prometheus(directory, {"scrape_configs": []}) as running:
        yield running.url


@pytest.fixture
def query(prometheus: str) -> Query:
    return querying(prometheus, servers.USER, servers.PASSWORD)


def test_the_course_of_a_job_is_of_all_its_nodes_and_of_no_other_job(prometheus: str) -> None:
    ask = asking(prometheus, servers.USER, servers.PASSWORD)

    two, gpu = (course.read(number, BEGAN, END, ask)["of"] for number in (13, 11))

    assert list(two) == ["cpu"]
    assert [at for at, _ in two["cpu"]["used"]] == list(range(BEGAN, END + 1, 15))
    assert {value for _, value in two["cpu"]["used"]} == {4.0}
    assert {value for _, value in two["cpu"]["asked"]} == {8.0}
    assert {value for _, value in gpu["gpu"]["asked"]} == {1.0}
    assert [gpu["gpu"]["used"][place][1] for place in (0, -1)] == [0.5, 1.0]
    assert (gpu["gpu_memory"]["used"][-1][1], gpu["gpu_memory"]["asked"][-1][1]) == (GIB, 80 * GIB)
    assert course.read(99, BEGAN, END, ask)["of"] == {}


def test_idle_gpus_are_those_that_did_nothing_for_so_long(tmp_path: Path, query: Query) -> None:
    mails: list[Mail] = []
    jobs = {number: Owned("bob", "2002", frozenset({"n1", "n2"})) for number in ("11", "14", "15")}

    def running(numbers: list[str]) -> dict[str, Owned]:
        return {number: jobs[number] for number in numbers}

    for minutes in (5, 60):
        state = str(tmp_path / f"{minutes}.json")
        Watch({"minutes": minutes, "percent": 1}, query, running, lambda mail, _uid: mails.append(mail), state).round(
            END
        )

    assert [mail.subject for mail in mails] == ["Slurm Job_id=14: 1 of its 2 GPUs do nothing"]


class Accounting:
    """Slurm's accounting of these jobs, by its commands."""

    def __init__(self, *jobs: str, **fields: str) -> None:
        ended = {"State": "COMPLETED", "End": str(END), "ElapsedRaw": "600", "AdminComment": ""}
        self.rows = {job: {"JobIDRaw": job, **ended, **fields} for job in jobs}
        self.asked: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str]) -> str:
        self.asked.append(argv)
        if argv[0] == "sacctmgr":
            place = next(word for word in argv if word.startswith("jobid=")).removeprefix("jobid=")
            self.rows[place]["AdminComment"] = argv[-1].removeprefix("AdminComment=")
            return ""
        fields = next(word for word in argv if word.startswith("--format=")).removeprefix("--format=").split(",")
        return "".join(records.DELIMITER.join(row[field] for field in fields) + "\n" for row in self.rows.values())

    def comments(self) -> dict[str, str]:
        return {job: row["AdminComment"] for job, row in self.rows.items()}

    def writes(self) -> int:
        return sum(argv[0] == "sacctmgr" for argv in self.asked)


def keeping(tmp_path: Path, accounting: Accounting, query: Query, now: int = END + 100) -> Keeper:
    return Keeper(str(tmp_path / "state" / "until.json"), accounting, query, lambda: now)


class TestASummary:
    def test_has_what_the_job_used_on_its_node_and_did_with_its_gpu(self, query: Query) -> None:
        summaries = summarise("11", END, 600, query)

        assert summaries.nodes == (NodeUse("n1", 2.0, 3 * GIB),)
        (gpu,) = summaries.gpus
        assert (gpu.node, gpu.gpu, gpu.most, gpu.memory, gpu.total) == ("n1", "0", 1.0, GIB, 80 * GIB)
        assert gpu.use == pytest.approx(0.75, abs=0.02)

    def test_has_each_node_of_a_job_and_no_other_job_there(self, query: Query) -> None:
        assert summarise("12", END, 600, query) == Summary((NodeUse("n1", 1.0, GIB),))
        assert summarise("13", END, 600, query).nodes == (NodeUse("n1", 1.0, 2 * GIB), NodeUse("n2", 3.0, 4 * GIB))

    def test_is_of_the_jobs_own_time_alone(self, query: Query) -> None:
        assert summarise("11", END - 86400, 600, query) == Summary()
        assert summarise("11", BEGAN + 120, 60, query).nodes[0].memory == pytest.approx(GIB * 0.6, rel=0.2)

    def test_fails_with_the_address_where_nobody_answers(self) -> None:
        with pytest.raises(PrometheusError, match=r"127\.0\.0\.1:1"):
            querying("http://127.0.0.1:1", "a", "b")("up", END)


class TestKeeping:
    def test_leaves_a_summary_that_job_report_reads(self, tmp_path: Path, query: Query) -> None:
        accounting = Accounting("11", "12")

        assert keeping(tmp_path, accounting, query).round() == 2
        stored = summary.read(accounting.comments()["11"])
        assert stored is not None
        assert stored.nodes == (NodeUse("n1", 2.0, 3 * GIB),)
        assert stored.gpus[0] == GpuUse("n1", "0", stored.gpus[0].use, 1.0, GIB, 80 * GIB)

    def test_does_nothing_twice(self, tmp_path: Path, query: Query) -> None:
        accounting = Accounting("11")
        keeping(tmp_path, accounting, query).round()
        before = accounting.comments()

        assert keeping(tmp_path, accounting, query).round() == 0
        assert accounting.writes() == 1
        assert accounting.comments() == before

    @pytest.mark.parametrize("comment", ["checked by bob", '{"a":1}', "JS1:H4sIAAAA", '{"deepopsctl":2}'])
    def test_never_writes_over_a_comment(self, tmp_path: Path, query: Query, comment: str) -> None:
        accounting = Accounting("11", AdminComment=comment)

        assert keeping(tmp_path, accounting, query).round() == 0
        assert accounting.comments() == {"11": comment}

    @pytest.mark.parametrize(
        "fields",
        [
            # Slurm may run it again
            {"State": "NODE_FAIL"},
            {"ElapsedRaw": "5"},
            {"End": "Unknown"},
            {"End": str(END + 100 - SETTLE_S + 1)},
            {"JobIDRaw": "11.batch"},
            {"ElapsedRaw": "x"},
        ],
    )
    def test_leaves_alone_what_is_not_over_or_was_too_short(
        self, tmp_path: Path, query: Query, fields: dict[str, str]
    ) -> None:
        accounting = Accounting("11", **fields)

        assert keeping(tmp_path, accounting, query).round() == 0
        assert accounting.writes() == 0

    def test_accepts_a_cancelled_job_whoever_cancelled_it(self, tmp_path: Path, query: Query) -> None:
        assert keeping(tmp_path, Accounting("11", State="CANCELLED by 1000"), query).round() == 1

    def test_does_not_ask_again_of_what_nobody_saw(self, tmp_path: Path, query: Query) -> None:
        asked = []

        def counting(text: str, at: int) -> list[dict[str, object]]:
            asked.append(text)
            return query(text, at)

        keeper = keeping(tmp_path, Accounting("99"), counting)
        assert (keeper.round(), keeper.round()) == (0, 0)
        assert len(asked) == 1

    def test_goes_on_where_a_long_round_stopped(self, tmp_path: Path) -> None:
        jobs = [str(number) for number in range(1, MOST_JOBS + 50)]
        accounting = Accounting(*jobs)
        series = [{"metric": {"figure": "cores", "node": "n1"}, "value": [END, "1"]}]
        keeper = keeping(tmp_path, accounting, lambda _text, _at: series)

        assert keeper.round() == MOST_JOBS
        assert keeper.round() == 49
        assert all(accounting.comments().values())

    def test_asks_from_where_it_was_after_a_restart(self, tmp_path: Path, query: Query) -> None:
        keeping(tmp_path, Accounting(), query).round()
        accounting = Accounting("11")
        keeping(tmp_path, accounting, query, now=END + 7200).round()

        # an overlap of 15 minutes, and what is left for Prometheus to have seen it
        assert f"--starttime=now-{7100 + SETTLE_S + 900}" in accounting.asked[0]

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"until": "x"}', '{"until": 99999999999}'])
    def test_survives_a_state_that_somebody_damaged(self, tmp_path: Path, query: Query, text: str) -> None:
        (tmp_path / "state").mkdir()
        (tmp_path / "state" / "until.json").write_text(text)

        assert keeping(tmp_path, Accounting("11"), query).round() == 1

    def test_loses_nothing_where_slurm_does_not_answer(self, tmp_path: Path, query: Query) -> None:
        def fail(argv: Sequence[str]) -> str:
            raise UnansweredError("sacct: slurmdbd is down")

        with pytest.raises(UnansweredError):
            Keeper(str(tmp_path / "until.json"), fail, query, lambda: END + 100).round()
        assert not (tmp_path / "until.json").exists()


class TestTheProgram:
    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"url": "http://127.0.0.1:1"}'])
    def test_reports_which_file_it_can_not_use(
        self, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "job-summaries.json"
        path.write_text(text)

        assert keeper.main(["--config", str(path), "--once"]) == 3
        assert str(path) in capsys.readouterr().err
