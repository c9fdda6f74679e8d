"""The jobs in examples/: `validate environment` runs each on a real cluster, and fails for each that is damaged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deepopsctl.checks.catalogue.environment import ENVIRONMENT
from deepopsctl.node_programs.suites.validate_environment.examples import EXAMPLES
from tests.lab.harness import LabCluster, edit
from tests.lab.smoke import Result, damaged, validate
from tests.support.paths import ROOT

NODES = ("ctl1", "gpu01", "gpu02")
INSTALLED = "/usr/share/deepopsctl/examples"
SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.sh")}
# what each check is there for, done to the copy on the host that submits: (script, text, other text)
DAMAGES = [
    ("serial.sh", "seq 1000000", "seq 10"),
    ("multi-core.sh", "srun nproc", "srun --cpus-per-task=1 nproc"),
    ("gpu.sh", "unset SLURM_EXPORT_ENV", "unset CUDA_VISIBLE_DEVICES"),
    ("array.sh", "unset SLURM_EXPORT_ENV", "[ $SLURM_ARRAY_TASK_ID != 2 ] || exit"),
    ("chain-first.sh", "seq 1000 > chain-data.txt", "seq 1000 > chain-data.txt; false"),
    ("checkpoint.sh", 'step=$(< "$checkpoint")', "step=$((steps - 2))"),
    ("staging.sh", "seq 1000", "seq 10"),
    ("farming.sh", "'echo", "'[ {} != 7 ] && echo"),
]


@pytest.fixture(scope="module")
def equipped(battered: LabCluster) -> Iterator[LabCluster]:
    """The cluster with what users find."""
    spec = battered.directory / "cluster.yml"
    before = spec.read_text(encoding="utf-8")
    edit(spec, "components: [slurm", "components: [slurm, environment")
    try:
        battered.deepopsctl("deploy", "environment")
        yield battered
    finally:
        spec.write_text(before, encoding="utf-8")


def examples(result: Result) -> dict[str, tuple[str, str]]:
    """Status and measured value of the examples' checks."""
    names = {example.name for example in EXAMPLES}
    return {name: (each["status"], each["measured"]) for (name, _), each in result.checks.items() if name in names}


def left(cluster: LabCluster) -> list[str]:
    """Jobs and files of the suite that are still there."""
    jobs = cluster.root("ctl1", "squeue -h -o %j")
    return [jobs, *(cluster.root(node, "ls ~ubuntu") for node in NODES)]


def test_users_find_the_examples_on_every_node(equipped: LabCluster) -> None:
    for node in NODES:
        for name, text in SCRIPTS.items():
            assert equipped.user(node, f"cat {INSTALLED}/{name}") == text.strip()


def test_each_example_runs_as_it_says(equipped: LabCluster) -> None:
    before = left(equipped)

    result = validate(equipped, suite="environment")

    assert result.code == 0, result.shown
    statuses = examples(result)
    assert {name: status for name, (status, _) in statuses.items()} == {example.name: "pass" for example in EXAMPLES}
    assert statuses["environment-checkpoint"][1].endswith("starts, step 40")
    assert left(equipped) == before


def test_each_damaged_example_fails_its_check(equipped: LabCluster) -> None:
    steps = []
    for script, text, other in DAMAGES:
        assert text in SCRIPTS[script]
        path = f"{INSTALLED}/{script}"
        changed = SCRIPTS[script].replace(text, other)
        steps.append(("ctl1", write(path, changed), write(path, SCRIPTS[script])))
    before = left(equipped)

    with damaged(equipped, *steps):
        result = validate(equipped, suite="environment")

    assert result.code == 1, result.shown
    assert {name: status for name, (status, _) in examples(result).items()} == {each.name: "fail" for each in EXAMPLES}
    assert {ENVIRONMENT[name].group for name, _target in result.failed()} == {"Example jobs"}
    chain = next(key for key in result.checks if key[0] == "environment-chain")
    assert "CANCELLED" in result.message(*chain)
    assert left(equipped) == before


def write(path: str, text: str) -> str:
    """A shell script that writes a file."""
    return f"cat > {path} <<'END-OF-EXAMPLE'\n{text}END-OF-EXAMPLE\n"
