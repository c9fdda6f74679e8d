"""Validations as real clusters make them, for tests of the reports."""

from __future__ import annotations

from datetime import UTC, datetime

from deepopsctl.checks.check import Check, Status
from deepopsctl.report.model import Facts

PER_NODE = (
    ("services", "munge, slurmd active", "munge, slurmd active", ""),
    ("munge-local", "decodes", "decodes", ""),
    ("munge-across", "decodes both ways", "decodes both ways", ""),
    ("node-state", "idle", "idle, mixed or allocated", ""),
    ("slurm-version", "24.11.5", "24.11.5", ""),
    ("node-cpus", "128", "128", ""),
    ("node-memory", "2025471", "at most 2066808", "MiB"),
    ("node-gpus", "h100:8", "h100:8", ""),
    ("cpu-confinement", "8 of 8 others tried, all refused", "1 CPU", ""),
    ("memory-confinement", "90", "stopped near 100", "MiB"),
    ("gpu-confinement", "1 of 8 GPUs", "1 of 8 GPUs", ""),
    ("gpu-assignment", "GPU 0 and 1", "2 different GPUs", ""),
)
CLUSTER = (
    ("controller-answers", "ctl1", "up", "up"),
    ("accounting-answers", "hpc", "hpc", "hpc"),
    ("partition", "gpu", "500 nodes, up", "500 nodes, up"),
    ("confinement", "hpc", "task/cgroup,task/affinity", "task/cgroup"),
    ("batch-output", "gpu001", "output of job 12", "output of job 12"),
    ("job-array", "gpu001", "tasks 1, 2, 3", "tasks 1, 2, 3"),
    ("over-ask-nodes", "gpu", "refused", "refused"),
    ("guide-batch", "gpu", "8 CPUs, 1 GPU", "8 CPUs, 1 GPU"),
    ("accounting-jobs", "hpc", "3 jobs", "3 jobs of ubuntu"),
)


def passed(name: str, target: str, measured: str = "", expected: str = "", unit: str = "") -> Check:
    """A check that passed."""
    return Check("smoke", name, target, Status.PASS, measured, expected, unit)


def failed(name: str, target: str, measured: str, expected: str, message: str) -> Check:
    """A check that failed."""
    return Check("smoke", name, target, Status.FAIL, measured, expected, message=message)


def skipped(name: str, target: str, message: str) -> Check:
    """A check that could not be made."""
    return Check("smoke", name, target, Status.SKIP, message=message)


def healthy_node(node: str, number: int = 0) -> list[Check]:
    """Every check of a compute node that has nothing wrong."""
    checks = [passed(name, node, *rest) for name, *rest in PER_NODE]
    clock = passed("clock", node, f"+0.0{number % 90 + 10} ± 0.004", "within 1", "s")
    return [*checks, clock, passed("node-answers", node, node, node)]


def down_node(node: str) -> list[Check]:
    """A node whose slurmd is gone: what depends on it is skipped."""
    broken = {
        "services": failed(
            "services", node, "munge active", "munge, slurmd active", "slurmd is failed: systemctl status slurmd"
        ),
        "node-state": failed(
            "node-state", node, "down*", "idle, mixed or allocated",
            "Slurm's reason: Not responding [slurm@2026-11-21T08:40:12]; slurmd does not answer",
        ),
        "node-answers": skipped("node-answers", node, "the node is down*"),
        **{
            name: skipped(name, node, "no job ran here")
            for name in ("cpu-confinement", "memory-confinement", "gpu-confinement", "gpu-assignment")
        },
    }  # fmt: skip
    return [broken.get(check.name, check) for check in healthy_node(node)]


def facts(checks: list[Check], nodes: tuple[str, ...], cluster: str = "hpc") -> Facts:
    """A validation of these checks."""
    when = datetime(2026, 11, 21, 8, 39, 15, tzinfo=UTC)
    return Facts(cluster, ("smoke",), "20261121-083915-validate", when, 6.13, nodes, tuple(checks))


def small() -> Facts:
    """One controller, two nodes, all well but for a warning."""
    nodes = ("gpu01", "gpu02")
    checks = [check for number, node in enumerate(nodes) for check in healthy_node(node, number)]
    checks += [passed(*entry) for entry in CLUSTER]
    held = "accepted, and left pending for ever: set EnforcePartLimits=ALL to refuse it"
    checks.append(Check("smoke", "over-ask-time", "gpu", Status.WARN, "accepted", "refused", message=held))
    return facts(checks, ("ctl1", *nodes), "vallab")


def large(count: int = 500) -> Facts:
    """Many nodes, a few of them outliers."""
    nodes = tuple(f"gpu{number:03d}" for number in range(1, count + 1))
    checks: list[Check] = []
    for number, node in enumerate(nodes):
        checks += down_node(node) if number in (41, 42, 340) else healthy_node(node, number)
    late = "the clock is at least 2.1 s behind ctl1's"
    few = "the node has fewer CPUs today than hardware.yml says"
    outliers = {
        ("clock", nodes[99]): Check("smoke", "clock", nodes[99], Status.WARN, "-2.113 ± 0.012", "within 1", "s", late),
        ("node-cpus", nodes[7]): failed("node-cpus", nodes[7], "120", "128", few),
    }
    busy = [
        skipped(check.name, check.target, "busy: other jobs have all 128 CPUs")
        for check in checks
        if check.target in nodes[200:260] and check.name in ("node-answers", "gpu-assignment", "gpu-confinement")
    ]
    outliers |= {(check.name, check.target): check for check in busy}
    checks = [outliers.get((check.name, check.target), check) for check in checks]
    return facts([*checks, *(passed(*entry) for entry in CLUSTER)], ("ctl1", *nodes))
