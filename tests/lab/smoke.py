"""The smoke suite as tests call it, on clusters that are damaged and repaired around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepopsctl.checks.catalogue.smoke import SMOKE
from tests.lab.harness import LabCluster
from tests.lab.smoke_faults import CLUSTER, COMPUTE, Damage

# checks that only exist when something is wrong
ONLY_FAILURES = {"reachable", "suite-ran"}
# the checks of a cluster without job directories and modules: those have tests of their own
REPORTED = set(SMOKE) - ONLY_FAILURES - {"job-directories", "mpi", "mpi-mpich", "environments"}
OUTPUTS = "~ubuntu/slurm-*.out"


@dataclass(frozen=True)
class Result:
    """One call of `validate --json`."""

    code: int
    checks: dict[tuple[str, str], dict[str, str]]
    shown: str
    run: str

    def failed(self) -> set[tuple[str, str]]:
        """(check, target) of everything that failed."""
        return {key for key, check in self.checks.items() if check["status"] == "fail"}

    def message(self, name: str, target: str) -> str:
        """The message of one check."""
        return self.checks[name, target]["message"]


def validate(cluster: LabCluster, *arguments: str, directory: Path | None = None, suite: str = "smoke") -> Result:
    """Validate, whatever comes of it."""
    where = replace(cluster, directory=directory or cluster.directory)
    done = where.deepopsctl("validate", suite, "--json", *arguments, ok=False)
    document: dict[str, Any] = json.loads(done.stdout)
    checks = {(check["name"], check["target"]): check for check in document["checks"]}
    return Result(done.returncode, checks, done.stderr, document["run"])


@contextmanager
def damaged(cluster: LabCluster, *steps: tuple[str, str, str]) -> Iterator[None]:
    """Apply (node, damage, repair) steps and undo them in reverse, whatever happens."""
    done: list[tuple[str, str]] = []
    try:
        for node, damage, repair in steps:
            done.append((node, repair))
            cluster.root(node, damage)
        yield
    finally:
        for node, repair in reversed(done):
            cluster.root(node, repair)
        cluster.wait_until_idle()


def remove_outputs(cluster: LabCluster) -> None:
    """Remove what other jobs have written, so that `leftovers` shows what is the suite's."""
    for node in ("ctl1", *COMPUTE):
        cluster.root(node, f"rm -f {OUTPUTS}")


def leftovers(cluster: LabCluster) -> str:
    """Jobs of the suite that are still there, and files it forgot."""
    jobs = cluster.root("ctl1", "squeue -h -o %j | grep deepopsctl-smoke; exit 0")
    files = [
        cluster.root(node, f"ls -d ~ubuntu/deepopsctl-smoke* {OUTPUTS} 2>/dev/null; exit 0")
        for node in ("ctl1", *COMPUTE)
    ]
    return "".join([jobs, *files])


def assert_reported(cluster: LabCluster, damage: Damage) -> None:
    """The suite finds this damage, names it, and leaves nothing behind."""

    def here(key: tuple[str, str]) -> tuple[str, str]:
        return key[0], key[1].replace(CLUSTER, cluster.name)

    with damaged(cluster, *damage.steps):
        result = validate(cluster)

    assert result.code == 1, result.shown
    assert {here(key) for key in damage.expected} <= result.failed(), result.shown
    assert not {here(key) for key in damage.untouched} & result.failed(), result.shown
    for key, text in damage.messages.items():
        assert text in result.message(*here(key))
    assert leftovers(cluster) == ""
