"""`validate training` on two nodes with torch of an environment, on CPUs; a slow node; the examples of users.

On Debian 12, whose Python small wheels of torch are for. pip's index decides which: that of PyPI for x86_64 is the
build for GPUs, of some GB, which runs on CPUs as well.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, limit_cores, wait_until
from tests.lab.smoke import Result, validate

NODES = ("cn01", "cn02")
BOTH = "cn[01-02]"
SITE = """
storage: [{name: software, type: local, source: /srv/shared/software, path: /opt/software, local: {shared: true}}]
"""
# two nodes that share the cores of one machine are not equally fast at any time
DECLARED = """\
modules_wheels: /opt/software/wheels
modules_software: [python, openmpi]
environments: {dl: {packages: ["torch==2.13.0", accelerate, deepspeed, mpi4py, numpy]}}
validate_training_share: 0.5
"""
PLACE = "/srv/shared/train"
OPTIONS = "--steps 30 --batch 256 --width 64"
# Debian 12's Slurm has no PMIx
BY_MPI = f"""\
#!/bin/bash -l
module load openmpi dl
export OMP_NUM_THREADS=1
python train_ddp.py {OPTIONS}
mpirun python train_mpi.py {OPTIONS}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    with fresh_cluster(f"{PREFIX}-training", tmp_path_factory, "--compute", "2", os="debian12") as made:
        spec = made.directory / "cluster.yml"
        made.root("ctl1", f"mkdir -p /srv/shared/software && install -d -o ubuntu {PLACE}")
        edit(spec, "components: [slurm]", "components: [storage, slurm, environment]")
        spec.write_text(spec.read_text(encoding="utf-8") + SITE, encoding="utf-8")
        edit(made.directory / SETTINGS, "---\n", f"---\n{DECLARED}")
        with pytest.MonkeyPatch.context() as environment:
            places = (os.environ.get("PIP_FIND_LINKS", ""), str(deepspeed_wheel(tmp_path_factory.mktemp("wheels"))))
            environment.setenv("PIP_FIND_LINKS", " ".join(places).strip())
            made.deepopsctl("deploy")
        yield made


def deepspeed_wheel(directory: Path) -> Path:
    """The directory, with the wheel that docs/reference/validate-training.md has built: the index has a source."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(directory), "deepspeed"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory


def statuses(result: Result) -> dict[str, str]:
    """The checks of each node and of both."""
    return {f"{name} {target}": check["status"] for (name, target), check in result.checks.items()}


def test_each_way_gives_the_loss_of_a_single_process(cluster: LabCluster) -> None:
    result = validate(cluster, suite="training")

    of_nodes = [f"training-{what} {node}" for node in NODES for what in ("software", "node")]
    of_both = [f"training-{what} {BOTH}" for what in ("ddp", "fsdp", "accelerate", "deepspeed")]
    skipped = {f"training-mpi {BOTH}": "skip"}
    # what these are on a machine that does other work as well is for the test of the slow node
    rates = [*(f"training-rate {node}" for node in NODES), f"training-efficiency {BOTH}"]
    reported = statuses(result)
    assert {reported.pop(name, "") for name in rates} <= {"pass", "warn", "fail"}, result.shown
    assert reported == dict.fromkeys([*of_nodes, *of_both], "pass") | skipped, result.shown
    assert "environment dl/" in result.message("training-software", "cn01")
    for what in ("ddp", "deepspeed"):
        assert "4 processes on cpu" in result.message(f"training-{what}", BOTH)


def test_the_slow_node_is_named_and_drawn(cluster: LabCluster) -> None:
    # what else the machine did in the run before says nothing about a node: it is compared with the other one alone
    history = cluster.directory / "rate-history.jsonl"
    history.unlink(missing_ok=True)

    with limit_cores(cluster, "cn02", 0.2):
        result = validate(cluster, suite="training")

    assert ("training-rate", "cn02") in result.failed(), result.shown
    assert ("training-rate", "cn01") not in result.failed()
    page = (cluster.directory / "runs" / result.run / "report.html").read_text(encoding="utf-8")
    assert 'class="curve outlier"' in page
    lines = history.read_text(encoding="utf-8").splitlines()
    histories = {(line["name"], line["target"]): line["points"] for line in map(json.loads, lines[1:])}
    good = [[good for _when, _value, good in histories["training-rate", node]] for node in NODES]
    assert good == [[True], [False]]


def test_mpi_gives_the_loss_of_a_single_process(cluster: LabCluster) -> None:
    cluster.user("ctl1", f"cp -r /usr/share/deepopsctl/examples/training/. {PLACE}")
    cluster.user("ctl1", f"cat > {PLACE}/mpi.sh <<'END'\n{BY_MPI}END")

    submit = "sbatch --wait --parsable -N2 --ntasks-per-node=1 --mem=1500M -o mpi.out mpi.sh"
    cluster.user("ctl1", f"cd {PLACE} && {submit}", ok=False)

    output = cluster.user("ctl1", f"cat {PLACE}/mpi.out")
    results = [json.loads(line) for line in re.findall(r"^result: (.*)$", output, re.MULTILINE)]
    assert [(each["method"], each["processes"]) for each in results] == [("ddp", 1), ("mpi", 2)], output
    single, both = (each["loss"] for each in results)
    assert both == pytest.approx(single, rel=0.01)


def test_a_job_whose_time_is_up_continues_from_its_checkpoint(cluster: LabCluster) -> None:
    cluster.user("ctl1", f"cp -r /usr/share/deepopsctl/examples/training/. {PLACE}")
    # the program is to end 100 seconds before the limit of two minutes
    submit = (
        "TRAIN_MARGIN=100 sbatch --parsable --export=TRAIN_MARGIN --time=2 --mem=1500M train.sh fsdp --steps 1000000"
    )
    job = cluster.user("ctl1", f"cd {PLACE} && {submit}")

    def saved() -> list[int]:
        output = cluster.user("ctl1", f"cat {PLACE}/train-{job}.out", ok=False)
        return [int(number) for number in re.findall(r"time is up: saved step (\d+)", output)]

    wait_until("the first start has saved", lambda: len(saved()) == 1)
    wait_until("it is back in the queue", lambda: cluster.user("ctl1", f"squeue -h -j {job} -o %T") == "PENDING")
    # a requeued job waits for two minutes, or until its owner says otherwise
    cluster.user("ctl1", f"scontrol update jobid={job} starttime=now")
    wait_until("the second start has saved", lambda: len(saved()) == 2)
    cluster.user("ctl1", f"scancel {job}")

    first, second = saved()
    assert 0 < first < second
