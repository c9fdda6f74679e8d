"""The checks of every suite by name: title, what each verifies, advice."""

from __future__ import annotations

from deepopsctl.checks.catalogue.containers import CONTAINERS
from deepopsctl.checks.catalogue.doctor import DOCTOR, SUITE as DOCTORS_SUITE
from deepopsctl.checks.catalogue.entry import Entry
from deepopsctl.checks.catalogue.environment import ENVIRONMENT, PER_NODE as ENVIRONMENT_PER_NODE
from deepopsctl.checks.catalogue.gpu import BURNIN, GPU
from deepopsctl.checks.catalogue.ha import HA
from deepopsctl.checks.catalogue.hpc import HPC, PER_NODE as HPC_PER_NODE
from deepopsctl.checks.catalogue.monitoring import MONITORING, PER_NODE as MONITORING_PER_NODE
from deepopsctl.checks.catalogue.network import NETWORK, PER_NODE as NETWORK_PER_NODE
from deepopsctl.checks.catalogue.smoke import SMOKE
from deepopsctl.checks.catalogue.storage import STORAGE
from deepopsctl.checks.catalogue.training import PER_NODE as TRAINING_PER_NODE, TRAINING
from deepopsctl.checks.catalogue.web import WEB
from deepopsctl.checks.suites import EXPLICIT, LOCAL, SUITES

# checks that any suite may make on a node
_ANY = {name: SMOKE[name] for name in ("reachable", "suite-ran")}
_TABLES: dict[str, dict[str, Entry]] = {
    "smoke": SMOKE, "gpu": _ANY | GPU, "storage": _ANY | STORAGE, "environment": _ANY | ENVIRONMENT,
    "monitoring": _ANY | MONITORING, "burnin": _ANY | BURNIN, "ha": _ANY | HA,
    "containers": _ANY | CONTAINERS, "hpc": _ANY | HPC, "network": _ANY | NETWORK,
    "training": _ANY | TRAINING, "web": _ANY | WEB, LOCAL: _ANY, DOCTORS_SUITE: DOCTOR,
}  # fmt: skip

# checks made on every node (or every compute node): the columns of the report's matrix
PER_NODE = frozenset({
    "reachable", "suite-ran", "services", "clock", "munge-local", "munge-across", "node-state", "slurm-version",
    "node-cpus", "node-memory", "node-gpus", "node-answers", "gpu-assignment", "cpu-confinement",
    "memory-confinement", "gpu-confinement", *GPU, *STORAGE, *BURNIN, *CONTAINERS, *ENVIRONMENT_PER_NODE,
    *MONITORING_PER_NODE, *TRAINING_PER_NODE, *HPC_PER_NODE, *NETWORK_PER_NODE,
})  # fmt: skip
GROUPS = tuple(dict.fromkeys(entry.group for suite in (*SUITES, *EXPLICIT) for entry in _TABLES[suite].values()))
_OTHER = Entry("Other", "", "", "see the message")
_OF_SITE = Entry("The site's own", "", "", "see the message, and the executable in checks.d")


def catalogue_of(suite: str) -> dict[str, Entry]:
    """All checks of a suite, in the order of its reports."""
    return _TABLES.get(suite, SMOKE)


def entry(name: str, suite: str = "smoke") -> Entry:
    """The entry of a check; made from its name if the suite is newer than its table."""
    known = catalogue_of(suite).get(name)
    other = _OF_SITE if suite == LOCAL else _OTHER
    return known or Entry(other.group, name.replace("-", " "), "", other.advice)


def position(name: str, suite: str = "smoke") -> int:
    """Where a check stands in a report."""
    names = list(catalogue_of(suite))
    return names.index(name) if name in names else len(names)
