"""What a site's settings of Slurm need of nodes, and where cluster.yml declares more than hardware.yml has.

`plugins/module_utils/slurm/needs.py` looks for it on a node. Asked by doctor, plan and deploy, before slurmctld gets a
configuration.

Sources: slurm.conf(5) and gres.conf(5) of Slurm 22.05 to 26.05; validate_node_specs() of its node_mgr.c.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deepopsctl.gpus.gres import NVML, groups_of
from deepopsctl.model.cluster import GpuGroup, Gpus, JobDirectories, Role
from deepopsctl.slurm.conf import NodeSet, setting
from deepopsctl.slurm.hardware import NodeHardware
from deepopsctl.slurm.job_hooks import PIECES, PROGRAMS, keys_called
from deepopsctl.text.answers import listed
from deepopsctl.text.node_sets import fold

_CONTROLLER, _COMPUTE, _CLIENT = (
    frozenset({Role.CONTROLLER}), frozenset({Role.COMPUTE}), frozenset({Role.COMPUTE, Role.LOGIN}),
)  # fmt: skip
# The programs that slurm.conf names, and who runs them.
_PROGRAMS = {
    **dict.fromkeys(
        (
            "Prolog", "Epilog", "TaskProlog", "TaskEpilog", "HealthCheckProgram", "RebootProgram",
            "UnkillableStepProgram",
        ),
        _COMPUTE,
    ),
    **dict.fromkeys(("SrunProlog", "SrunEpilog"), _CLIENT),
    **dict.fromkeys(
        (
            "PrologSlurmctld", "EpilogSlurmctld", "ResumeProgram", "ResumeFailProgram", "SuspendProgram", "MailProg",
            "ResvProlog", "ResvEpilog", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg",
        ),
        _CONTROLLER,
    ),
}  # fmt: skip
_OF_USERS = frozenset({"TaskProlog", "TaskEpilog", "SrunProlog", "SrunEpilog"})
# Of a key the first part of its plugins' names, and who loads them.
_PLUGINS = {
    "AcctGatherEnergyType": ("acct_gather_energy", _COMPUTE),
    "AcctGatherFilesystemType": ("acct_gather_filesystem", _COMPUTE),
    "AcctGatherInterconnectType": ("acct_gather_interconnect", _COMPUTE),
    "AcctGatherProfileType": ("acct_gather_profile", _COMPUTE),
    "AuthAltTypes": ("auth", _CONTROLLER),
    "BurstBufferType": ("burst_buffer", _CONTROLLER),
    "CliFilterPlugins": ("cli_filter", _CLIENT),
    "JobAcctGatherType": ("jobacct_gather", _COMPUTE),
    "JobCompType": ("jobcomp", _CONTROLLER),
    "JobSubmitPlugins": ("job_submit", _CONTROLLER),
    "MCSPlugin": ("mcs", _CONTROLLER),
    "MpiDefault": ("mpi", _CLIENT),
    "NodeFeaturesPlugins": ("node_features", _CONTROLLER | _COMPUTE),
    "PreemptType": ("preempt", _CONTROLLER),
    "PrEpPlugins": ("prep", _CONTROLLER | _COMPUTE),
    "PriorityType": ("priority", _CONTROLLER),
    "PrioritySiteFactorPlugin": ("site_factor", _CONTROLLER),
    "ProctrackType": ("proctrack", _COMPUTE),
    "SchedulerType": ("sched", _CONTROLLER),
    "SelectType": ("select", _CONTROLLER | _CLIENT),
    "SwitchType": ("switch", _CONTROLLER | _CLIENT),
    "TaskPlugin": ("task", _COMPUTE),
    "TopologyPlugin": ("topology", _CONTROLLER),
}
# where the role storage has the site's health check program
NODE_CHECK = "/etc/deepopsctl/nodecheck.json"
# built in, or renamed by a release
_NO_FILE = frozenset({"none", "default", "flat"})
_LOGS = {"SlurmctldLogFile": _CONTROLLER, "SlurmSchedLogFile": _CONTROLLER, "SlurmdLogFile": _COMPUTE}
_OWN_DIRECTORIES = {"StateSaveLocation": _CONTROLLER, "SlurmdSpoolDir": _COMPUTE}
# 2 % are kept from jobs, unless a site changes it
_MEMORY_SLACK = 0.02


@dataclass(frozen=True, slots=True)
class Unmet:
    """Nodes that lack what a key of slurm.conf or cluster.yml needs; `new` where they know to be asked for it first."""

    names: tuple[str, ...]
    key: str
    message: str
    new: bool = False

    def as_object(self) -> dict[str, object]:
        """For Ansible's modules."""
        return {"names": list(self.names), "needed_by": self.key, "problem": self.sentence, "new": self.new}

    @property
    def sentence(self) -> str:
        """With the nodes."""
        return f"{fold(self.names)}: {self.message}"


@dataclass(frozen=True, slots=True)
class Site:
    """The settings of a site that need something of nodes: `slurm_config`, job directories, plugstack.conf, mounts."""

    settings: Mapping[str, object]
    directories: JobDirectories | None = None
    plugstack: tuple[str, ...] = ()
    # whether jobs are monitored, and storage is required: deepopsctl's own programs then call the site's
    monitored: bool = False
    requires_storage: bool = False

    @property
    def callers(self) -> dict[str, str]:
        """By key the file on the nodes that has the name of the site's program, where slurm.conf has not."""
        called = keys_called(self.settings, monitored=self.monitored)
        keys = {*called, *(self.directories.programs if self.directories else ())}
        storage = {"HealthCheckProgram": NODE_CHECK} if self.requires_storage else {}
        return {**{key: f"{PIECES}/{PROGRAMS[key]}" for key in keys}, **storage}


def needs_of(
    site: Site, roles: frozenset[Role], node: NodeSet | None = None, mounts: Sequence[str] = ()
) -> dict[str, object]:
    """What a node with these roles is asked for; {} for nothing. `mounts` are its network file systems."""
    needs: dict[str, object] = {
        "programs": list(_programs(site, roles)),
        "plugins": list(_plugins(site.settings, roles)),
        "directories": list(_directories(site, roles)),
        "plugstack": "\n".join(site.plugstack),
    }
    if node and Role.COMPUTE in roles:
        needs["devices"] = _devices(node.gpus)
        needs["temporary"] = _temporary(site.settings, node.options)
    needs = {key: value for key, value in needs.items() if value}
    if needs:
        needs["plugin_directories"] = str(setting(site.settings, "PluginDir", ""))
        needs["mounts"] = list(mounts)
    return needs


def _programs(site: Site, roles: frozenset[Role]) -> Iterator[dict[str, object]]:
    for key, where in _PROGRAMS.items():
        if not where & roles:
            continue
        for path in _words(setting(site.settings, key, "")):
            # those of deepopsctl come with the deploy
            if path.startswith("/") and not path.startswith(f"{PIECES}/"):
                entry: dict[str, object] = {"key": key, "path": path, "user": key in _OF_USERS}
                yield {**entry, "called_by": site.callers[key]} if key in site.callers else entry


def _words(value: object) -> list[str]:
    """Paths of programs without their arguments."""
    return [str(each).split()[0] for each in listed(value) if str(each).split()]


def _plugins(settings: Mapping[str, object], roles: frozenset[Role]) -> Iterator[dict[str, str]]:
    for key, (kind, where) in _PLUGINS.items():
        value = setting(settings, key, "") if where & roles else ""
        for word in value if isinstance(value, list) else str(value).split(","):
            name = str(word).strip().rpartition("/")[2]
            if re.fullmatch(r"[A-Za-z0-9_]+", name) and name.lower() not in _NO_FILE:
                yield {"key": key, "name": str(word).strip(), "file": f"{kind}_{name}.so"}


def _directories(site: Site, roles: frozenset[Role]) -> Iterator[dict[str, object]]:
    for key, where in _LOGS.items():
        path = str(setting(site.settings, key, ""))
        if where & roles and path.startswith("/") and "%" not in posixpath.dirname(path):
            yield {"key": key, "path": posixpath.dirname(path)}
    for key, where in _OWN_DIRECTORIES.items():
        path = str(setting(site.settings, key, ""))
        if where & roles and path.startswith("/") and "%" not in path:
            yield {"key": key, "path": path, "made": True, "executes": key == "SlurmdSpoolDir"}
    if site.directories and Role.COMPUTE in roles:
        yield {"key": "job_directories", "path": site.directories.directory, "made": True, "on_disk": True}


def _devices(gpus: Gpus | None) -> list[str]:
    """Device files that gres.conf names; [] where slurmd finds them itself."""
    if gpus is None or gpus.autodetect == NVML:
        return []
    return [file for group in groups_of(gpus) for file in group.files]


def _temporary(settings: Mapping[str, object], options: Mapping[str, str]) -> dict[str, object]:
    mb = _number(options, "TmpDisk")
    return {"path": str(setting(settings, "TmpFS", "/tmp")), "mb": mb} if mb else {}  # noqa: S108 (only measured)


def unmet_on(answers: Mapping[str, Iterable[Mapping[str, object]]]) -> list[Unmet]:
    """What nodes answered, each thing once with all nodes that lack it."""
    nodes: dict[tuple[str, str], list[str]] = {}
    new = set()
    for name, answer in answers.items():
        for each in answer:
            what = (str(each["key"]), str(each["message"]))
            nodes.setdefault(what, []).append(name)
            if each.get("new"):
                new.add(what)
    return [Unmet(tuple(names), *what, new=what in new) for what, names in nodes.items()]


def beyond_hardware(
    node_sets: Iterable[NodeSet],
    hardware: Mapping[str, NodeHardware],
    settings: Mapping[str, object],
    reported: Mapping[str, NodeHardware] | None = None,
) -> list[Unmet]:
    """What cluster.yml and hardware.yml declare of nodes that they do not have: Slurm would drain them.

    `reported` is what nodes have now, where that is known.
    """
    trusted = "config_overrides" in str(setting(settings, "SlurmdParameters", "")).lower()
    nodes: dict[tuple[str, str], list[str]] = {}
    for node_set in node_sets:
        for name in (name for name in node_set.names if name in hardware):
            has = (reported or {}).get(name, hardware[name])
            amounts = [] if trusted else [*_amounts(node_set.options, has), *_stored(hardware[name], has)]
            for what in [*amounts, *_cores(node_set, has)]:
                nodes.setdefault(what, []).append(name)
    return [Unmet(tuple(names), *what) for what, names in nodes.items()]


def _amounts(options: Mapping[str, str], has: NodeHardware) -> Iterator[tuple[str, str]]:
    memory = _number(options, "RealMemory")
    if memory > has.memory_mb:
        yield "RealMemory", f"RealMemory={memory} is more than the {has.memory_mb} MiB that the node has"
    for key, least in (("MemSpecLimit", has.memory_mb), ("CoreSpecCount", has.sockets * has.cores_per_socket)):
        if _number(options, key) >= least:
            yield key, f"{key}={_number(options, key)} leaves nothing of the {least} that the node has"
    highest = highest_number(_option(options, "CpuSpecList"))
    if highest >= has.cpus:
        yield "CpuSpecList", f"CpuSpecList names CPU {highest}, and the node has 0-{has.cpus - 1}"


def _stored(stored: NodeHardware, has: NodeHardware) -> Iterator[tuple[str, str]]:
    """Of hardware.yml, which people may edit; its memory is a little less by now where the kernel has changed."""
    if stored.cpus > has.cpus:
        yield "CPUs", f"hardware.yml has {stored.cpus} CPUs, the node {has.cpus}"
    if _threads(stored) > _threads(has):
        yield "Sockets", f"hardware.yml has {_shape(stored)}, the node {_shape(has)}"
    if stored.memory_mb > has.memory_mb * (1 + _MEMORY_SLACK):
        yield "RealMemory", f"hardware.yml has {stored.memory_mb} MiB of memory, the node {has.memory_mb}"


def _threads(node: NodeHardware) -> int:
    return node.sockets * node.cores_per_socket * node.threads_per_core


def _shape(node: NodeHardware) -> str:
    return f"{node.sockets} sockets x {node.cores_per_socket} cores x {node.threads_per_core} threads"


def _cores(node_set: NodeSet, has: NodeHardware) -> Iterator[tuple[str, str]]:
    groups = node_set.gpus.groups if node_set.gpus and not node_set.gpus.autodetect else ()
    sentence = cores_beyond(groups, has.sockets * has.cores_per_socket)
    if sentence:
        yield "gpus", sentence


def cores_beyond(groups: Iterable[GpuGroup], count: int) -> str:
    """Cores of GPUs that a node with so many has not, '' for none: slurmd would refuse the line, and bind nothing."""
    beyond = [cores for group in groups for cores in dict.fromkeys(group.cores) if highest_number(cores) >= count]
    if not beyond:
        return ""
    return (
        f"cores {' and '.join(beyond)} of the GPUs: the node has cores 0-{count - 1}; where these "
        "are numbers of threads, write those of cores (`lstopo --logical`)"
    )


def highest_number(numbers: str) -> int:
    """The highest of a list as `0-3,8-11`; -1 of none."""
    return max((int(number) for number in re.findall(r"[0-9]+", numbers)), default=-1)


def _option(options: Mapping[str, str], key: str) -> str:
    return next((value for name, value in options.items() if name.lower() == key.lower()), "")


def _number(options: Mapping[str, str], key: str) -> int:
    value = _option(options, key)
    return int(value) if value.isdigit() else 0
