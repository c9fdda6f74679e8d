"""What `job-report` makes of sacct's and sstat's output, recorded and hostile."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from deepopsctl.node_programs._shared import values
from deepopsctl.node_programs.commands.job_report import records, summary
from deepopsctl.node_programs.commands.job_report.advice import advise
from deepopsctl.node_programs.commands.job_report.asking import UnansweredError, jobs
from deepopsctl.node_programs.commands.job_report.cli import main
from deepopsctl.node_programs.commands.job_report.measures import measure
from deepopsctl.node_programs.commands.job_report.records import Job
from deepopsctl.node_programs.commands.job_report.summary import GpuUse, NodeUse, Summary
from deepopsctl.node_programs.commands.job_report.text import render
from tests.data.slurm_samples import JOB

GIB = 1 << 30
ROW = dict(zip(records.FIELDS, JOB, strict=True))
STEP = {"JobID": "4711.0", "TRESUsageInTot": "cpu=04:10:00,energy=0,fs/disk=12,mem=3145728K,pages=3,vmem=0"}


def line(**changed: str) -> str:
    return records.DELIMITER.join({**ROW, **changed}[field] for field in records.FIELDS) + "\n"


def job(**changed: str) -> Job:
    (result,) = records.read(line(**changed) + line(**STEP))
    return result


def summed(*gpus: GpuUse, nodes: Sequence[NodeUse] = ()) -> str:
    return summary.write(Summary(tuple(nodes), gpus))


class Slurm:
    """Answers by the command's name."""

    def __init__(self, **answers: str) -> None:
        self.answers = answers
        self.asked: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str]) -> str:
        self.asked.append(argv)
        if argv[-1] == "--format=JobID,JobName":
            return self.answers.get("names", f"4711{records.DELIMITER}train\n")
        if argv[0] not in self.answers:
            raise UnansweredError(f"{argv[0]}: Access/permission denied")
        return self.answers[argv[0]]


class TestNumbers:
    def test_are_short_for_people(self) -> None:
        times = {45: "45s", 723: "12m 03s", 7500: "2h 05m", 277200: "3d 05h"}

        assert {seconds: values.format_time(seconds) for seconds in times} == times
        # a little is not nothing
        assert (values.format_share(1, 1000), values.format_share(0, 1000)) == ("<1 %", "0 %")
        assert values.format_count(0.034) == "0.03"


class TestSacct:
    def test_of_an_array_has_a_job_for_each_task(self) -> None:
        text = line(JobID="10_1", JobIDRaw="11") + line(JobID="10_1.batch") + line(JobID="10_2", JobIDRaw="12")
        # those that wait are one, and it may be cut off
        waiting = line(JobID="10_[3-9%2]", JobIDRaw="10") + line(JobID="20_[1,3,5,7,9,11,13,15,17,1", JobIDRaw="20")

        assert [(job.id, job.number) for job in records.read(text)] == [("10_1", "11"), ("10_2", "12")]
        assert [(job.number, job.is_of(job.number)) for job in records.read(waiting)] == [("10", True), ("20", True)]

    def test_lets_no_name_of_a_job_pretend_to_be_another_field(self) -> None:
        name = "x" + records.DELIMITER + "y\n" + line(JobID="4712", User="root") + "\x1b[31m"
        names = f"4711{records.DELIMITER}{name}\n4711{records.DELIMITER}z\n"
        other = line(JobID="4712", JobIDRaw="4712", User="root")
        (result,) = jobs("4711", Slurm(sacct=line() + other + line(User="root"), names=names))

        assert result.user == "alice"
        assert result.name == "x?y"

    @pytest.mark.parametrize("text", ["", "\n\n", "4711\n", "x" * 100, "\x1f" * 18, "4711.batch" + "\x1f" * 18, "\0"])
    def test_with_lines_of_nonsense_has_no_job(self, text: str) -> None:
        assert records.read(text) == []

    @pytest.mark.parametrize("field", [field for field in records.FIELDS if not field.startswith("JobID")])
    @pytest.mark.parametrize("value", ["", "Unknown", "-5", "\x1b[2J", "=,=", "9" * 300, "{"])
    def test_with_nonsense_in_a_field_still_gives_a_report(self, field: str, value: str) -> None:
        text = render(measure(job(**{field: value})))

        assert "Job 4711" in text
        assert "\x1b" not in text

    def test_of_a_job_that_never_ran_says_so(self) -> None:
        text = render(measure(job(State="PENDING", Start="Unknown", End="Unknown", ElapsedRaw="0", AllocTRES="")))

        assert "It has not run" in text
        assert "used" in text


# as sacct of 24.11 prints them: killed in the first second, before slurmd has taken a sample
FIRST_SECOND = {"State": "OUT_OF_MEMORY", "ExitCode": "0:125", "ElapsedRaw": "0", "TotalCPU": "00:00:00"}
NO_SAMPLE = {"JobID": "4711.batch", "TRESUsageInTot": "cpu=00:00:00,energy=0,fs/disk=0,mem=0,pages=0,vmem=0"}
EXTERN = {"JobID": "4711.extern", "TRESUsageInTot": "cpu=00:00:00,fs/disk=1636,mem=256K,vmem=92K"}


def with_steps(*steps: dict[str, str], **changed: str) -> Job:
    (result,) = records.read(line(**changed) + "".join(line(**{**changed, **step}) for step in steps))
    return result


class TestAJobThatIsKilledForMemory:
    def test_in_its_first_second_has_run_and_hears_what_to_do(self) -> None:
        killed = with_steps(NO_SAMPLE, EXTERN, **FIRST_SECOND)

        text = render(measure(killed))

        assert killed.began
        assert "has not run" not in text
        assert "too short for advice" not in text
        assert "it was killed because it needed more memory than 128 GiB: ask for more" in text
        assert "--mem=256G" in text

    @pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
    def test_in_a_step_hears_it_whatever_the_script_made_of_it(self, state: str) -> None:
        step = {**STEP, "State": "OUT_OF_MEMORY", "ExitCode": "0:125"}
        killed = with_steps({**NO_SAMPLE, "State": state}, step, State=state)

        assert advise(measure(killed))[0].startswith("its step 0 was killed because it needed more memory than 128 GiB")

    def test_says_nothing_of_memory_that_would_have_been_enough(self) -> None:
        assert not any(
            "enough" in sentence and "mem" in sentence for sentence in advise(measure(job(State="OUT_OF_MEMORY")))
        )


class TestWhatIsUnknown:
    @pytest.mark.parametrize("tres", ["", "cpu=00:00:00,mem=0,vmem=0", "cpu=00:00:00", "mem=0"])
    def test_is_never_advice(self, tres: str) -> None:
        unknown = with_steps({**NO_SAMPLE, "TRESUsageInTot": tres}, EXTERN, TotalCPU="00:00:00")

        text = render(measure(unknown))

        assert [each for each in advise(measure(unknown)) if "--mem" in each or "CPUs" in each] == []
        rows = {row.split()[0]: row.split()[1] for row in text.splitlines() if row[:4] in ("CPUs", "Memo")}
        assert rows == {"CPUs": "unknown", "Memory": "unknown"}
        assert "Its memory use is unknown: Slurm has no sample of it." in text

    def test_of_monitoring_is_not_a_node_that_used_nothing(self) -> None:
        nothing = job(AdminComment=summed(nodes=[NodeUse("gpu01", 0.0, 0.0)]))

        assert measure(nothing).memory == measure(job()).memory

    def test_is_neither_of_a_running_job(self) -> None:
        assert records.read_live("4711.0|cpu=00:00:00,mem=0\n4711.batch|cpu=00:00:00,mem=1M\n") == {
            "4711.batch": (0.0, 1 << 20)
        }

    def test_ends_with_the_first_gibibyte(self) -> None:
        small = with_steps({**STEP, "TRESUsageInTot": "cpu=00:10:00,mem=1K"})

        assert any("--mem=1G would have been enough" in sentence for sentence in advise(measure(small)))


class TestTheReport:
    def test_is_a_table_of_used_and_asked_with_advice(self) -> None:
        used, unused = (0.853, 1.0, 11 * GIB, 80 * GIB), (0.0, 0.0, GIB / 2, 80 * GIB)
        comment = summed(GpuUse("gpu01", "0", *used), GpuUse("gpu01", "1", *unused))
        text = render(measure(job(AdminComment=comment)))

        lines = [line.split("  ")[0] + "|" + " ".join(line.split()[1:]) for line in text.splitlines() if "[" in line]
        assert lines == [
            "Time|2h 00m 8h 00m 25 % [#####...............]",
            "CPUs|2.1 32 7 % [#...................]",
            "Memory|3 GiB 128 GiB 2 % [....................]",
            "GPUs|0.9 2 43 % [#########...........]",
            "GPU memory|memory 11.5 GiB 160 GiB 7 % [#...................]",
        ]
        assert "gpu01:0" in text
        assert "of 2 GPUs, 1 was never used (gpu01:1): ask for 1" in text
        assert "asked for 32 CPUs, used 2.1: 3 would have been enough" in text
        assert "--mem=4G would have been enough" in text
        assert "with a shorter --time" in text

    def test_gives_no_advice_where_the_job_used_what_it_asked_for_or_had_hardly_begun(self) -> None:
        fitting = job(AllocCPUS="2", TimelimitRaw="130", AllocTRES="cpu=2,mem=4G")
        short = job(ElapsedRaw="30", TotalCPU="00:01")

        assert advise(measure(fitting)) == advise(measure(short)) == []
        assert "Next time" not in render(measure(fitting))
        assert "too short" in render(measure(short))

    @pytest.mark.parametrize(
        ("changed", "expected"),
        [
            (
                {"State": "OUT_OF_MEMORY"},
                "needed more memory than 128 GiB: ask for more, for example --mem=256G",
            ),
            ({"State": "FAILED", "ExitCode": "0:125"}, "it was killed because it needed more memory than 128 GiB"),
            ({"State": "OUT_OF_MEMORY", "AllocTRES": "cpu=32"}, "more memory than it had"),
            (
                {"State": "OUT_OF_MEMORY", "AllocTRES": "mem=100M", "NNodes": "2"},
                "50 MiB a node: ask for more, for example --mem=100M",
            ),
            ({"State": "TIMEOUT"}, "did not end within 8h 00m"),
            ({"TotalCPU": "02:00:00"}, "one CPU was busy"),
            ({"AllocTRES": "cpu=32,mem=3G"}, "nearly all the memory"),
        ],
    )
    def test_says_what_went_wrong(self, changed: dict[str, str], expected: str) -> None:
        assert any(expected in sentence for sentence in advise(measure(job(**changed))))

    def test_of_several_nodes_names_the_one_with_most_memory(self) -> None:
        comment = summed(nodes=[NodeUse("gpu01", 1.0, 2 * GIB), NodeUse("gpu02", 1.1, 60 * GIB)])
        report = measure(job(NNodes="2", NodeList="gpu[01-02]", AdminComment=comment))

        assert report.memory is not None
        assert report.memory.used == 62 * GIB
        assert "Most memory on one node: gpu02." in render(report)
        # --mem is of each node: gpu02 needs all of its 64 GiB
        assert not any("--mem" in sentence for sentence in advise(report))

    def test_says_what_nobody_knows_of_gpus(self) -> None:
        comment = summed(GpuUse("gpu01", "0", 0.0, 0.0, None, None), GpuUse("gpu01", "1", 0.9, 1.0, None, None))
        text = render(measure(job(AllocTRES="gres/gpu=8", AdminComment=comment)))

        assert "of 8 GPUs, 1 was never used (gpu01:0): ask for 7" in text
        assert "monitoring has left no summary" in render(measure(job()))
        assert "available after its end" in render(measure(job(State="RUNNING", End="Unknown")))


class TestTheSummary:
    def test_comes_back_as_it_was_written(self) -> None:
        options = Summary((NodeUse("gpu01", 2.5, 1e9),), (GpuUse("gpu01", "0.7", 0.5, None, None, 8e10),))

        assert summary.read(summary.write(options)) == options
        # slurmdbd makes backticks of quotation marks
        assert summary.read(summary.write(options).replace('"', "`")) == options

    @pytest.mark.parametrize("prefix", ["gpu", "a" * 59])
    def test_has_bounds_and_counts_what_goes_beyond(self, prefix: str) -> None:
        nodes = [NodeUse(f"{prefix}{number:04}", 99.99, 1e12) for number in range(1000)]
        gpus = [GpuUse(node.node, str(gpu), 0.999, 0.999, 1e11, 1e11) for node in nodes for gpu in range(8)]
        text = summary.write(Summary(tuple(nodes), tuple(gpus)))
        result = summary.read(text)

        assert len(text) <= summary.LONGEST
        assert result is not None
        assert (result.more_nodes, result.more_gpus) == (1000 - 32, 8000 - len(result.gpus))
        # with long names there is room for less
        assert len(result.gpus) == 64 if prefix == "gpu" else 0 < len(result.gpus) < 64

    @pytest.mark.parametrize(
        "comment",
        [
            "checked by bob",
            "{",
            '{"deepopsctl":1}',
            '{"deepopsctl":2,"nodes":[],"gpus":[]}',
            '{"deepopsctl":1,"nodes":[["n",NaN,1]],"gpus":[]}',
            '{"deepopsctl":1,"nodes":[["n",true,1]],"gpus":[]}',
            '{"deepopsctl":1,"nodes":5,"gpus":[]}',
            '{"deepopsctl":1,"nodes":[],"gpus":[["n","0",1]]}',
            '{"deepopsctl":1,"nodes":[],"gpus":[["n","0",1,1,1,-1]]}',
            '{"deepopsctl":1,"nodes":[],"gpus":[],"more":[1]}',
            '{"deepopsctl":' + "[" * 5000,
        ],
    )
    def test_that_is_none_is_none(self, comment: str) -> None:
        assert summary.read(comment) is None


class TestTheCommand:
    def test_asks_only_the_accounting_of_a_job_that_ended(self, capsys: pytest.CaptureFixture[str]) -> None:
        slurm = Slurm(sacct=line())

        assert main(["4711"], slurm) == 0
        assert {argv[0] for argv in slurm.asked} == {"sacct"}
        assert "Job 4711  train" in capsys.readouterr().out

    def test_adds_what_a_running_job_uses_now(self, capsys: pytest.CaptureFixture[str]) -> None:
        live = "4711.batch|cpu=01:00:00,mem=2G\n4711.extern|cpu=00:00:00,mem=1K\nrubbish\n"
        slurm = Slurm(sacct=line(State="RUNNING", TotalCPU="00:00:00", End="Unknown"), sstat=live)

        assert main(["4711", "--json"], slurm) == 0
        (result,) = json.loads(capsys.readouterr().out)["jobs"]
        assert result["running"]
        assert result["cpu"] == {"used": 0.5, "asked": 32}
        assert result["memory"]["used"] == 2 * GIB

    @pytest.mark.parametrize(
        ("slurm", "message"),
        [(Slurm(sacct=""), "job 4711"), (Slurm(), "error: sacct: Access/permission denied\n")],
    )
    def test_says_that_there_is_no_such_job_or_why_slurm_does_not_answer(
        self, slurm: Slurm, message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["4711"], slurm) == 1
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize("wanted", ["", "all", "-1", "1;2", "1,2", "12345678901", "1 2", "--help=1", "4711.batch"])
    def test_takes_nothing_but_a_number(self, wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main([wanted], Slurm())

        assert ended.value.code == 2

    def test_gives_one_object_with_everything(self, capsys: pytest.CaptureFixture[str]) -> None:
        comment = summed(GpuUse("gpu01", "0", 0.85, 1.0, 1e10, 8e10), nodes=[NodeUse("gpu01", 2.1, 3e9)])
        main(["4711", "--json"], Slurm(sacct=line(AdminComment=comment)))

        result = json.loads(capsys.readouterr().out)
        assert (result["schema"], result["command"], result["ok"]) == (1, "job-report", True)
        (job,) = result["jobs"]
        assert job["cpu"] == {"used": 2.1, "asked": 32}
        assert job["memory"] == {"used": 3e9, "asked": 128 * GIB}
        assert job["time"] == {"used": 7200.0, "asked": 28800}
        gpu = {"node": "gpu01", "gpu": "0", "use": 0.85, "most": 1.0, "memory": 1e10, "total": 8e10}
        assert job["per_gpu"] == [gpu]
        assert job["per_node"] == [{"node": "gpu01", "cores": 2.1, "memory": 3e9}]
