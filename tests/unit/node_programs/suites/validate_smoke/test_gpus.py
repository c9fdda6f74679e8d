"""Two GPU jobs at a time, on many nodes: one bad node must not take the others with it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from deepopsctl.node_programs._slurm_jobs import probe, session
from deepopsctl.node_programs.suites.validate_smoke import gpus
from tests.data.slurm_samples import node, partition


class Cluster:
    """Our session's seam: jobs that span the bad node fail as a whole, as real ones do when a launch fails."""

    queue_timeout = 1.0

    def __init__(self, *bad: str) -> None:
        self.bad = set(bad)
        self.jobs: list[tuple[str, list[str]]] = []

    def start(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Held:
        del argv
        nodes = next(option for option in options if option.startswith("--nodelist=")).partition("=")[2].split(",")
        self.jobs.append((what, nodes))
        index = "0" if what.startswith("pair-a") else "1"
        env = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": index}
        lines = [probe.MARK + json.dumps({"node": name, "gpus": {}, "env": env}) for name in nodes]
        return Held("" if self.bad & set(nodes) else "\n".join(lines))

    def srun(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Any:
        return self.finish(what, self.start(what, options, argv))

    def finish(self, what: str, held: Held) -> Any:
        del what
        return session.Outcome("ended", 0 if held.out else 1, held.out, "" if held.out else "srun: launch failed")


class Held:
    """A started job."""

    def __init__(self, out: str) -> None:
        self.out = out

    def wait_for(self, mark: str, count: int, timeout: float) -> bool:
        return self.out.count(mark) >= count and timeout > 0

    def text(self, name: str) -> str:
        return self.out if name == "out" else ""

    def release(self) -> None:
        """Nothing is held."""


def statuses(cluster: Cluster, nodes: dict[str, dict[str, str]]) -> dict[str, str]:
    pair = gpus.try_pairs(cast(session.Session, cluster), list(nodes), nodes, {"gpu": partition(Default="YES")})
    return {name: gpus.evaluate(name, pair, 2)["status"] for name in nodes}


def test_all_nodes_are_tested_by_two_jobs_and_one_free_gpu_by_the_first() -> None:
    cluster = Cluster()
    nodes = {"n1": node("n1"), "n2": node("n2", AllocTRES="gres/gpu=1"), "n3": node("n3")}

    assert statuses(cluster, nodes) == dict.fromkeys(nodes, "pass")
    assert cluster.jobs == [("pair-a0", ["n1", "n3", "n2"]), ("pair-b0", ["n1", "n3"])]
    assert statuses(cluster, {}) == {}


def test_one_bad_node_fails_alone() -> None:
    nodes = {name: node(name) for name in ("n1", "n2", "n3")}

    assert statuses(Cluster("n2"), nodes) == {"n1": "pass", "n2": "fail", "n3": "pass"}
