"""Checks of a node's hardware against the cluster directory."""

from __future__ import annotations

from deepopsctl.checks.check import Check
from deepopsctl.doctor.check_builders import Declared, failed, passed, skipped, warned
from deepopsctl.doctor.facts import NodeFacts
from deepopsctl.gpus.models import may_be
from deepopsctl.model.cluster import Role

# the kernel's own share may change with an update
MEMORY_SLACK = 0.02
# above this ratio, memory was added
MEMORY_MORE = 1.25
NOTHING_YET = "not in hardware.yml yet: `deploy` writes it"


def memory(node: NodeFacts, declared: Declared) -> Check | None:
    """RealMemory of cluster.yml exactly, hardware.yml with some slack; in MiB."""
    stored = declared.hardware.get(node.name)
    exact = _option(declared, node.name, "realmemory")
    wanted = exact or (stored.memory_mb if stored else 0)
    if not _computes(declared, node.name):
        return None
    if not wanted:
        return skipped("memory", node.name, NOTHING_YET)
    measured, expected = str(node.memory_mb), f"at least {wanted}"
    if node.memory_mb < (wanted if exact else wanted * (1 - MEMORY_SLACK)):
        where = "cluster.yml" if exact else "hardware.yml"
        message = f"the node has less memory than {where} says: Slurm would drain it"
        return failed("memory", node.name, message, measured, expected, unit="MiB")
    if not exact and node.memory_mb > wanted * MEMORY_MORE:
        message = "the node has more memory than hardware.yml says: the rest is not used"
        return warned("memory", node.name, message, measured, expected, "MiB")
    return passed("memory", node.name, measured, expected, "MiB")


def cpus(node: NodeFacts, declared: Declared) -> Check | None:
    """CPUs of hardware.yml."""
    stored = declared.hardware.get(node.name)
    if not _computes(declared, node.name):
        return None
    if not stored:
        return skipped("cpus", node.name, NOTHING_YET)
    measured, wanted = str(node.cpus), stored.cpus
    if node.cpus < wanted:
        message = "the node has fewer CPUs than are declared: Slurm would drain it"
        return failed("cpus", node.name, message, measured, str(wanted))
    if node.cpus > wanted:
        message = "the node has more CPUs than hardware.yml says: the rest is not used"
        return warned("cpus", node.name, message, measured, str(wanted))
    return passed("cpus", node.name, measured, str(wanted))


def cgroup(node: NodeFacts, declared: Declared) -> Check | None:
    """A cgroup tree that slurmd may use, unless the site disables confinement."""
    if not _computes(declared, node.name):
        return None
    if node.settings.confinement == "none":
        return skipped("cgroup", node.name, "`slurm_confinement: none`: jobs are not confined")
    if not node.root:
        return skipped("cgroup", node.name, "only root can test it, and sudo does not work")
    if node.cgroup != "none":
        return passed("cgroup", node.name, node.cgroup)
    message = "there is no cgroup tree in which slurmd can confine jobs: a deploy leaves the node out"
    return failed("cgroup", node.name, message, "none", "v2 or v1")


def gpus(node: NodeFacts, declared: Declared) -> Check | None:
    """GPUs on the PCI bus; device files alone are not enough."""
    declared_gpus, count = declared.node(node.name).gpus, len(node.gpus.bus)
    if not declared_gpus:
        if not count or not _computes(declared, node.name):
            return None
        return warned("gpus", node.name, "cluster.yml declares no GPUs for it: they will not be used", str(count), "0")
    if count == declared_gpus.count:
        return passed("gpus", node.name, str(count), str(declared_gpus.count))
    if count > declared_gpus.count:
        message = "there are more than cluster.yml declares: the rest is not used"
        return warned("gpus", node.name, message, str(count), str(declared_gpus.count))
    if count:
        return failed(
            "gpus", node.name, "there are fewer than cluster.yml declares", str(count), str(declared_gpus.count)
        )
    if node.container and node.gpus.files == declared_gpus.count:
        message = "device files only, none on the PCI bus: simulated?"
        return warned("gpus", node.name, message, f"{node.gpus.files} device files", str(declared_gpus.count))
    return failed("gpus", node.name, "no NVIDIA GPU is on the PCI bus", "0", str(declared_gpus.count))


def gpu_model(node: NodeFacts, declared: Declared) -> Check | None:
    """The declared type matches the driver's name of each GPU."""
    declared_gpus = declared.node(node.name).gpus
    if not declared_gpus or not declared_gpus.type:
        return None
    if not node.gpus.models:
        return skipped("gpu-model", node.name, "only a loaded NVIDIA driver knows it")
    models = ", ".join(dict.fromkeys(node.gpus.models))
    if all(may_be(model, declared_gpus.type) for model in node.gpus.models):
        return passed("gpu-model", node.name, models, declared_gpus.type)
    message = f"cluster.yml calls them {declared_gpus.type}, the driver {models}"
    return warned("gpu-model", node.name, message, models, declared_gpus.type)


def gpu_modules(node: NodeFacts, declared: Declared) -> Check | None:
    """The kernel modules that a deploy configures are loaded."""
    if not (declared.node(node.name).gpus and node.gpus.modules):
        return None
    wanted = ", ".join(node.gpus.modules)
    if node.container:
        return skipped("gpu-modules", node.name, "a container has its host's kernel")
    missing = [name for name, runs in node.gpus.modules.items() if not runs]
    if not missing:
        return passed("gpu-modules", node.name, wanted, wanted)
    message = f"not loaded: {', '.join(missing)}"
    return failed("gpu-modules", node.name, message, "not loaded", wanted)


def secure_boot(node: NodeFacts, declared: Declared) -> Check | None:
    """A firmware that refuses unsigned modules keeps the driver from loading."""
    if not declared.node(node.name).gpus:
        return None
    if node.secure_boot == "unknown":
        return skipped("secure-boot", node.name, "the node's firmware can't be read")
    if node.secure_boot == "on" and not node.gpus.driver:
        message = "it is on: an NVIDIA driver that is not signed will not load"
        return warned("secure-boot", node.name, message, "on", "off, or a signed driver")
    words = {"none": "started without EFI", "on": "on, and the driver is loaded"}
    return passed("secure-boot", node.name, words.get(node.secure_boot, node.secure_boot))


def _computes(declared: Declared, name: str) -> bool:
    return Role.COMPUTE in declared.node(name).roles


def _option(declared: Declared, name: str, key: str) -> int:
    """A number that cluster.yml gives under `slurm:`; 0 without."""
    options = {word.lower(): value for word, value in declared.node(name).slurm.items()}
    value = str(options.get(key, ""))
    return int(value) if value.isdigit() else 0
