"""What people give instead of a node list: output of Slurm's commands, and its other configuration files."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepopsctl.imports.detect import INVENTORIES, Form

_CONF = "give the controller's /etc/slurm/slurm.conf, with gres.conf next to it, or what `scontrol write config` writes"
_LIST = f"{_CONF}; or a hostlist: `sinfo -hN -o %N | sort -u`"
_ACCOUNTS = f"{_CONF}; accounts go into policy: of cluster.yml and people.yml"


@dataclass(frozen=True, slots=True)
class Other:
    """A file that is not a node list, as people call it, and what to give instead."""

    name: str
    instead: str


# the first that is found in a text, line by line; slurm.conf has none of them
_KNOWN = tuple(
    (re.compile(pattern, re.MULTILINE | re.IGNORECASE), Other(name, instead))
    for pattern, name, instead in (
        (r"^\s*JobId=\d+ ", "the output of `scontrol show job`", _LIST),
        (r"^[^#\n]*\b(CPUAlloc|CPUTot|CfgTRES)=", "the output of `scontrol show node`", _CONF),
        (r"^[^#\n]*\b(TotalNodes|TotalCPUs)=", "the output of `scontrol show partition`", _CONF),
        (r"^Configuration data as of |^SLURM_VERSION\s+=", "the output of `scontrol show config`", _CONF),
        (r"^(Cluster|Parent|Account|User) - '?\w", "a file of `sacctmgr dump`", _ACCOUNTS),
        (r"^\s*PARTITION\s+AVAIL\b|^\s*NODELIST\s+NODES\b|^\s*HOSTNAMES\b", "the output of `sinfo`", _LIST),
        (r"^\S+\s+(up|down|drain|inact)\s+(infinite|[\d:-]+)\s+\d+\S*\s+\S+\s+\S+$", "the output of `sinfo`", _LIST),
        (r"^\s*JOBID\s+(PARTITION|USER|NAME)\b", "the output of `squeue`", _LIST),
        (r"^\s*JobID\s+JobName\b|^JobID\|", "the output of `sacct`", _LIST),
        (r"^\s*(Cluster|Account|User)\s+(Account|Descr|ControlHost|Def)\b", "the output of `sacctmgr show`", _ACCOUNTS),
        (r'"(slurm|data_parser)"\s*:\s*\{', "JSON of Slurm's commands", _LIST),
        (r"^\s*DbdHost\s*=|^\s*StorageType\s*=", "slurmdbd.conf", _CONF),
        (r"^\s*(CgroupPlugin|CgroupAutomount|Constrain(Cores|Devices|RAMSpace))\s*=", "cgroup.conf", _CONF),
        (r"^\s*(SwitchName|BlockName)\s*=", "topology.conf", _CONF),
    )
)
_GRES = re.compile(r"^\s*(NodeName=\S+\s+)?(Name|AutoDetect)\s*=", re.IGNORECASE)
# what slurm.conf has, and two outputs that have it, too
_SLURM_CONF = re.compile(
    r"^\s*(ClusterName|SlurmctldHost|ControlMachine|PartitionName)\s*=", re.IGNORECASE | re.MULTILINE
)
_SHOWN = re.compile(r"^Configuration data as of |\bTotalNodes=|\bCPUAlloc=", re.MULTILINE)


def recognise(text: str, form: Form) -> Other | None:
    """What a text of this form is, if it is not a node list."""
    is_conf = form is Form.SLURM_CONF and _SLURM_CONF.search(text) and not _SHOWN.search(text)
    if is_conf or form in INVENTORIES:
        return None
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if lines and all(_GRES.match(line) for line in lines):
        return Other("gres.conf", _CONF)
    return next((other for pattern, other in _KNOWN if pattern.search(text)), None)
