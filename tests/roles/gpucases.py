"""Clusters with the GPUs that people have: how slurm.conf and gres.conf are rendered for them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.roles.cases import DEBIAN13, DGX, WORKER, Case, slurmd

GRACE = slurmd(2, 72, 1, 870000)
ROME = slurmd(2, 24, 1, 515000)


def cluster(nodes: str, names: Sequence[str], report: str) -> Case:
    """The cluster `cpu-only` with some identical nodes of another type."""
    return Case(
        spec=f"""\
schema: 1
cluster: {{name: hpc, user: ubuntu}}
nodes:
  - {{names: head, roles: [controller, login]}}
{nodes}""",
        version=DEBIAN13,
        reports=dict.fromkeys(names, report),
        controller_only=True,
    )


GPU_CASES = {
    "gpus-8xh100": cluster(
        """\
  - names: "gpu[01-04]"
    roles: [compute]
    gpus:
      - {type: h100, count: 4, cores: "0-55"}
      - {type: h100, count: 4, cores: "56-111"}
""",
        ("gpu01", "gpu02", "gpu03", "gpu04"),
        DGX,
    ),
    "gpus-8xb200": cluster(
        """\
  - {names: "gpu[01-02]", roles: [compute], gpus: {type: b200, count: 8}, autodetect: nvml}
""",
        ("gpu01", "gpu02"),
        DGX,
    ),
    "gpus-gb200-nvl": cluster(
        """\
  - names: "nvl[01-36]"
    roles: [compute]
    gpus: {type: gb200, count: 4, cores: ["0-71", "0-71", "72-143", "72-143"]}
nvlink_domains:
  - {name: rack1, nodes: "nvl[01-18]"}
  - {name: rack2, nodes: "nvl[19-36]"}
""",
        tuple(f"nvl{number:02}" for number in range(1, 37)),
        GRACE,
    ),
    "gpus-4xa100-mig": cluster(
        """\
  - names: "gpu[01-02]"
    roles: [compute]
    gpus:
      type: a100
      count: 4
      cores: ["0-23", "0-23", "24-47", "24-47"]
      mig:
        - ~
        - ~
        - {"3g.20gb": [1], "2g.10gb": [6], "1g.5gb": [11, 12]}
        - {"1g.5gb": [7, 8, 9, 11, 12, 13, 14]}
""",
        ("gpu01", "gpu02"),
        ROME,
    ),
    "gpus-a40-l40s": cluster(
        """\
  - names: gpu01
    roles: [compute]
    gpus:
      - {type: a40, count: 2, cores: "0-31", links: ["-1,4,0,0", "4,-1,0,0"]}
      - {type: l40s, count: 2, cores: "32-63"}
""",
        ("gpu01",),
        WORKER,
    ),
}
