"""Values that deepopsctl sets differently from the imported slurm.conf."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from deepopsctl.cluster.builder import DraftNode
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.gpus.gres import gres_value
from deepopsctl.imports.slurm_lines import Pair
from deepopsctl.model.cluster import Role

_CONFINED = "where nodes have control groups (slurm_confinement), jobs get no more than they asked for"
# deepopsctl's value and its effect, by key. Not for keys with Slurm's default.
DEEPOPSCTL_VALUES = MappingProxyType({
    "AccountingStorageType": ("accounting_storage/slurmdbd", "every job is accounted"),
    "AccountingStorageEnforce": ("associations,limits,qos,safe", "users without an account can't submit"),
    "ProctrackType": ("proctrack/cgroup", _CONFINED),
    "TaskPlugin": ("task/cgroup,task/affinity", _CONFINED),
    "JobAcctGatherType": ("jobacct_gather/cgroup", _CONFINED),
    "PrologFlags": ("Alloc,Contain,X11", "prologs run when a job is allocated, and logins land in the job"),
    "SelectType": ("select/cons_tres", "jobs share nodes"),
    "SelectTypeParameters": ("CR_Core_Memory", "cores and memory are counted: a job that asks for none gets a share"),
    "PriorityType": ("priority/multifactor", "the queue is ordered by fair share and age"),
    "ReturnToService": ("1", "a node that was only unreachable returns to service by itself"),
    "UnkillableStepTimeout": ("180", ""),
    "SlurmdTimeout": ("300", ""),
    "SlurmctldTimeout": ("120", ""),
    "LaunchParameters": ("use_interactive_step", "salloc opens a shell on the first node of the job"),
    "SlurmctldParameters": ("enable_configless", "nodes fetch their configuration from slurmctld"),
    "RebootProgram": ("/sbin/reboot", "`scontrol reboot` works"),
    "ResumeTimeout": ("900", "a node may take a quarter of an hour to reboot"),
    "MailProg": ("/etc/slurm/deepops/mail", "mail is sent by the installed mailer, if any"),
    "EnforcePartLimits": ("ALL", "a job that no partition would ever start is refused at once"),
})  # fmt: skip
_HINT = "to change it, set it in slurm_config (settings.yml); null leaves it to Slurm"
_OTHER_HINTS = MappingProxyType({
    "ProctrackType": "set slurm_confinement in settings.yml",
    "AccountingStorageType": "",
    "SlurmctldParameters": "",
})  # fmt: skip
# Slurm's defaults that equal deepopsctl's values.
_DEFAULTS = MappingProxyType({"slurmdtimeout": "300", "slurmctldtimeout": "120", "selecttype": "select/cons_tres"})


def note_new_values(
    pairs: Mapping[str, Pair], nodes: Mapping[str, DraftNode], partitions_without_memory: int, carryover: Carryover
) -> None:
    """Add a note on each key whose value changes; `pairs` are by name in lower case."""
    for key, (value, consequence) in DEEPOPSCTL_VALUES.items():
        name = key.lower()
        was = pairs[name].value if name in pairs else _DEFAULTS.get(name, "")
        same = {word.lower() for word in was.split(",")} == {word.lower() for word in value.split(",")}
        if same or (carryover.has_slurm(key) and key != "SlurmctldParameters"):
            continue
        change = f"{value}{', not ' + was if was else ''}{': ' + consequence if consequence else ''}"
        carryover.change(key, change, _OTHER_HINTS.get(key, _HINT))
    compute = [node for node in nodes.values() if Role.COMPUTE in node.roles]
    gres_values = {gres_value(node.gpus) if node.gpus else "" for node in compute}
    if len(gres_values) > 1 and not all(any(key.lower() == "weight" for key in node.slurm) for node in compute):
        carryover.change("Weight", "jobs go first to nodes without GPUs, then to those with few", "slurm: {Weight: 1}")
    if partitions_without_memory:
        carryover.change("DefMemPerCPU", "the smallest memory per CPU of its nodes, in each partition without one",
                         "DefMemPerCPU in a partition's options")  # fmt: skip
