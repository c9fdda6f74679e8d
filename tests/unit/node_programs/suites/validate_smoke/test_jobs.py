"""What batch jobs, the users' guide's examples and accounting must say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deepopsctl.checks.catalogue.smoke import SMOKE
from deepopsctl.node_programs._shared.command import Result
from deepopsctl.node_programs.suites.validate_smoke import accounting, batch, site_guide, user_guide_examples
from deepopsctl.node_programs.suites.validate_smoke.context import Context, Job
from tests.data.slurm_samples import node, partition


def test_the_sites_own_script_is_submitted_as_printed_where_its_user_and_nodes_can() -> None:
    script = "#!/bin/bash\n#SBATCH --mem=8G\n#SBATCH --account=lab\n\nnvidia-smi -L\n"

    def adapted(text: str, *, tools: bool) -> tuple[str, str]:
        reports = {"gpu01": {"nvidia_smi": tools}}
        inputs = SimpleNamespace(guide_script=text, report=lambda name: reports[name])
        return site_guide.adapted(cast(Context, SimpleNamespace(inputs=inputs, names=["gpu01"])))

    assert adapted(script.replace("#SBATCH --account=lab\n", ""), tools=True)[1] == "as printed"
    assert adapted(script, tools=False) == (
        "#!/bin/bash\n#SBATCH --mem=8G\n\nhostname\n",
        "without its account, hostname for nvidia-smi, which not all nodes have",
    )


class TestGuide:
    def place(self, **part: str) -> Any:
        parts = {"cpu": partition("cpu", Default="YES"), "gpu": partition(**part)}
        nodes = {
            "a": node("a", CPUTot="4", RealMemory="16000"),
            "b": node("b"),
            "c": node("c", Partitions="cpu", Gres=""),
        }
        return user_guide_examples.place(parts, nodes, ["a", "c"])

    def test_a_partition_that_is_not_the_default_is_named_and_silent_nodes_are_left_out(self) -> None:
        assert self.place().option == ["-p", "gpu", "-x", "b"]

        printed = user_guide_examples.place({"gpu": partition(Default="YES")}, {"a": node("a")}, ["a"])
        assert printed
        assert printed.option == []
        # without a usable GPU there is no place
        assert user_guide_examples.place({"gpu": partition()}, {"a": node("a", Gres="")}, ["a"]) is None

    def test_the_script_is_scaled_to_what_there_is_and_says_so(self) -> None:
        values, text = user_guide_examples.scaled(self.place(MaxTime="12:00:00"))

        assert values == {"partition": "gpu", "cpus": "4", "memory": "16000M", "time": "12:00:00"}
        assert text == "with --cpus-per-task=4 for 8, --mem=16000M for 32G, --time=12:00:00 for 24:00:00"

        place = user_guide_examples.Place(partition(), [node(RealMemory="64000")], [])
        assert user_guide_examples.scaled(place) == (user_guide_examples.PRINTED, "as printed")

    @pytest.mark.parametrize(("used", "room"), [({}, True), ({"CPUAlloc": "1"}, False), ({"AllocMem": "8000"}, False)])
    def test_it_is_not_submitted_where_it_would_only_wait(self, used: dict[str, str], room: bool) -> None:
        assert user_guide_examples.has_room(node(**used), {"cpus": "8", "memory": "32000M"}) is room

    @pytest.mark.parametrize(
        ("line", "status"),
        [
            ("DEEPOPS-GUIDE job=7 node=gpu01 cpus=8 gpus=0", "pass"),
            ("DEEPOPS-GUIDE job=7 node=gpu01 cpus=8 gpus=", "fail"),
            ("DEEPOPS-GUIDE job=7 node=gpu01 cpus=1 gpus=0", "fail"),
            ("", "fail"),
        ],
    )
    def test_the_scripts_line_is_evaluated(self, line: str, status: str) -> None:
        check = user_guide_examples.evaluate_script("gpu", user_guide_examples.PRINTED, "as printed", line, "")

        assert check["status"] == status

    @pytest.mark.parametrize(
        ("text", "status"),
        [
            ("$ echo ...\r\ndeepops 42 gpu01 gpu=0.\r\n/dev/pts/0\r\n", "pass"),
            ("deepops 42 gpu01 gpu=.\r\n/dev/pts/0\r\n", "fail"),
            ("deepops 42 gpu01 gpu=0.\r\nnot a tty\r\n", "fail"),
        ],
    )
    def test_the_shell_is_evaluated(self, text: str, status: str) -> None:
        assert user_guide_examples.evaluate_shell("gpu", "srun ...", text)["status"] == status


class TestBatch:
    def test_output_of_another_job_or_user_does_not_count(self) -> None:
        def status(job: str, user: int) -> str:
            result = batch.lines(f"{batch.MARK} job=8 task=none user={user}\n")
            return batch.output_check("gpu01", Job(job, "batch"), result, "")["status"]

        assert [status("8", os.getuid()), status("9", os.getuid()), status("8", 4242)] == ["pass", "fail", "fail"]

    @pytest.mark.parametrize(
        ("tasks", "status"), [((1, 2, 3), "pass"), ((1, 3), "fail"), ((1, 2, 2), "fail"), ((), "fail")]
    )
    def test_every_task_of_an_array_must_have_run_once(self, tasks: tuple[int, ...], status: str) -> None:
        result = batch.lines("".join(f"{batch.MARK} job=8 task={task} user=1\n" for task in tasks))

        assert batch.array_check("gpu01", Job("8", "array", tasks=3), result, "")["status"] == status


class TestAccounting:
    ROWS = "7|smoke|ann|default|COMPLETED|0:0\n8_1|a|ann|default|COMPLETED|0:0\n8_2|a|ann|default|COMPLETED|0:0\n"
    JOBS = (Job("7", "batch"), Job("8", "array", tasks=2))

    def evaluated(self, rows: str, rc: int = 0) -> dict[str, Any]:
        answer = Result("sacct", rc, rows, "connection refused", 0.1)
        checks = accounting.evaluate("hpc", self.JOBS, answer, "ann", ["default"])
        return {check["name"]: check for check in checks}

    def test_jobs_as_they_were_pass(self) -> None:
        assert {name: check["status"] for name, check in self.evaluated(self.ROWS).items()} == {
            "accounting-jobs": "pass",
            "accounting-array": "pass",
        }

    @pytest.mark.parametrize(
        ("old", "new", "text"),
        [
            ("7|smoke|ann", "7|smoke|bob", "user bob instead of ann"),
            ("7|smoke|ann|default", "7|smoke|ann|other", "account other instead of one of default"),
            ("default|COMPLETED|0:0\n8_1", "default|NODE_FAIL|1:0\n8_1", "state NODE_FAIL instead of COMPLETED"),
            ("7|", "17|", "0 of 1 records"),
        ],
    )
    def test_each_difference_is_named(self, old: str, new: str, text: str) -> None:
        check = self.evaluated(self.ROWS.replace(old, new, 1))["accounting-jobs"]

        assert check["status"] == "fail"
        assert text in check["message"]

        assert self.evaluated(self.ROWS.replace("8_2", "9_2"))["accounting-array"]["status"] == "fail"
        # a database that does not answer
        assert {check["status"] for check in self.evaluated("", rc=1).values()} == {"fail"}

    def test_it_asks_again_until_the_database_has_everything(self) -> None:
        answers = iter([self.ROWS.replace("COMPLETED", "RUNNING"), self.ROWS[:40], self.ROWS])

        result = accounting.fetch(self.JOBS, lambda argv, limit_s: Result("sacct", 0, next(answers), "", 0.1))

        assert result.output == self.ROWS

        refused = accounting.fetch(self.JOBS, lambda argv, limit_s: Result("sacct", 1, "", "refused", 0.1), patience=0)
        assert refused.status == 1

    def test_a_user_without_an_account_is_reported_what_to_do(self) -> None:
        check = accounting.association("hpc", "ann", Result("sacct", 0, "", "", 0.1))

        assert check["status"] == "fail"
        assert "sacctmgr add user ann" in check["message"]

    @pytest.mark.parametrize(("out", "rc", "status"), [("hpc|\n", 0, "pass"), ("other|\n", 0, "fail"), ("", 1, "fail")])
    def test_slurmdbd_must_know_the_cluster(self, out: str, rc: int, status: str) -> None:
        config = {"AccountingStorageType": "accounting_storage/slurmdbd", "ClusterName": "hpc"}

        assert accounting.answers("hpc", config, Result("sacct", rc, out, "", 0.1))["status"] == status

        nothing = {"AccountingStorageType": "accounting_storage/none"}
        assert accounting.answers("hpc", nothing, Result("sacct", 1, "", "", 0.1))["status"] == "skip"


def test_every_check_that_the_suite_makes_is_in_the_catalogue() -> None:
    source = "".join(path.read_text() for path in Path(batch.__file__).parent.glob("*.py"))
    words = set(re.findall(r'"([a-z]+(?:-[a-z]+)*)"', source))
    made = {name for name in SMOKE if name in words or name.startswith("over-ask-")}

    assert made == set(SMOKE) - {"reachable", "suite-ran"}
    named = set(re.findall(r'(?:\b_?(?:check|failed|skipped)\(\s*|\bCHECK = )"([a-z]+(?:-[a-z]+)*)"', source))
    assert named <= set(SMOKE)
