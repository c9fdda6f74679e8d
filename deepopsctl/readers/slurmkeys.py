"""What becomes of every key of a slurm.conf that says nothing about machines or partitions."""

from __future__ import annotations

import re
from types import MappingProxyType

from deepopsctl.carryover import Carryover
from deepopsctl.nodelist import shorten
from deepopsctl.readers.slurmlines import Pair
from deepopsctl.slurm_effects import EFFECTS
from deepopsctl.slurmconf import OWNED_KEYS, folder_refusal

# Read elsewhere: they name machines or the cluster itself.
MACHINE_KEYS = frozenset({
    "clustername", "slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr",
    "accountingstoragehost",
})  # fmt: skip

# Keys that deepopsctl sets itself, with the values it gives them: nothing is lost where they agree.
_AGREED = MappingProxyType({
    "slurmuser": {"slurm"},
    "authtype": {"auth/munge"},
    "credtype": {"auth/munge", "cred/munge"},
    "accountingstoragetype": {"accounting_storage/slurmdbd"},
    "proctracktype": {"proctrack/cgroup", "proctrack/linuxproc"},
    "grestypes": {"gpu"},
    "slurmduser": {"root"},
    "topologyplugin": {"topology/none", "topology/default"},
    "plugindir": {"/usr/lib/slurm", "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm"},
})  # fmt: skip

_UNIT = ("the package's systemd unit decides it", "")
_DATABASE = ("slurmdbd alone speaks with the database", "`deepopsctl takeover` reads slurmdbd.conf and keeps it")
_GONE = ("today's Slurm does not know it any more", "")
_PASSWORD = ("a password does not belong into a file that goes into git", "")


def _needs(name: str) -> tuple[str, str]:
    return (f"it needs {name}, which deepopsctl does not deliver", "set it in slurm_config once the file is there")


_LEFT = MappingProxyType({
    "slurmctldpidfile": _UNIT, "slurmdpidfile": _UNIT,
    "pluginDir".lower(): ("the package decides where its plugins are", ""),
    "slurmduser": ("slurmd runs as root", ""),
    "accountingstoragebackuphost": ("one accounting host is supported", ""),
    "accountingstorageexternalhost": ("other clusters' accounting is not managed here", "set it in slurm_config"),
    "accountingstorageport": ("slurmdbd listens on its own port, 6819", "set slurmdbd_port in settings.yml"),
    "accountingstorageloc": _DATABASE, "accountingstorageuser": _DATABASE, "defaultstoragehost": _DATABASE,
    "defaultstorageloc": _DATABASE, "defaultstorageport": _DATABASE, "defaultstoragetype": _DATABASE,
    "defaultstorageuser": _DATABASE,
    "accountingstoragepass": _PASSWORD, "defaultstoragepass": _PASSWORD, "jobcomppass": _PASSWORD,
    "topologyplugin": _needs("topology.conf"), "burstbuffertype": _needs("burst_buffer.conf"),
    "jobcontainertype": _needs("job_container.conf"), "acctgatherprofiletype": _needs("acct_gather.conf"),
    "acctgatherinterconnecttype": _needs("acct_gather.conf"), "acctgatherfilesystemtype": _needs("acct_gather.conf"),
    "jobcredentialprivatekey": _GONE, "jobcredentialpubliccertificate": _GONE, "fastschedule": _GONE,
    "cachegroups": _GONE, "checkpointtype": _GONE, "jobcheckpointdir": _GONE, "cryptotype": _GONE,
    "memlimitenforce": _GONE, "schedulerport": _GONE, "schedulerrootfilter": _GONE, "schedulerauth": _GONE,
    "sallocdefaultcommand": _GONE, "msgaggregationparams": _GONE, "powerplugin": _GONE, "powerparameters": _GONE,
    "extsensorstype": _GONE, "extsensorsfreq": _GONE, "launchtype": _GONE, "usespecialprologs": _GONE,
    "keepalivetime": ("it is part of CommunicationParameters today", "CommunicationParameters: keepaliveinterval=..."),
})  # fmt: skip

# Programs and files on the nodes that a key names: the key comes along, the file does not.
_FILES = frozenset({
    "prolog", "epilog", "prologslurmctld", "epilogslurmctld", "taskprolog", "taskepilog", "srunprolog", "srunepilog",
    "healthcheckprogram", "rebootprogram", "resumeprogram", "suspendprogram", "resumefailprogram", "mailprog",
    "unkillablestepprogram", "jobsubmitplugins", "clifilterplugins", "authaltparameters", "plugstackconfig",
    "slurmctldprimaryonprog", "slurmctldprimaryoffprog", "jobcomploc",
})  # fmt: skip

# Read by roles under this very spelling.
_SPELLINGS = MappingProxyType({key.lower(): key for key in (*OWNED_KEYS, *EFFECTS)})


def carry_key(pair: Pair, where: str, carryover: Carryover) -> None:
    """Put one global key into `slurm_config`, or say by name why not."""
    name, value = pair.name, pair.value
    if value.lower() in _AGREED.get(name, ()):
        return
    owned = {key.lower(): hint for key, hint in OWNED_KEYS.items()}
    if name in _LEFT:
        reason, hint = _LEFT[name]
        carryover.leave(pair.key, where, reason, hint)
    elif refusal := folder_refusal(name, value):
        hint = "deepopsctl's own is used; `deepopsctl takeover` says what to do with a state that lies there"
        carryover.leave(pair.key, where, f"{shorten(value)} {refusal}", hint)
    elif name in owned:
        carryover.leave(pair.key, where, f"deepopsctl sets it, {shorten(value)!r} is not what it sets", owned[name])
    elif not value or not re.fullmatch(r"[!-~]+", value) or re.search(r"[\"'\\#]|\{[{%#]", value):
        carryover.leave(pair.key, where, f"{shorten(value)!r} is no single word without quotes", "set it another way")
    else:
        carryover.set_slurm(_SPELLINGS.get(name, pair.key), value)
        if name in _FILES:
            carryover.check(pair.key, where, f"{shorten(value)} must be on the nodes: files are not copied")
