"""The keys of a slurm.conf, except those of nodes and partitions, and the values that deepopsctl sets differently."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from deepopsctl.cluster.builder import DraftNode
from deepopsctl.cluster.import_report import Carryover
from deepopsctl.gpus.gres import gres_value
from deepopsctl.imports.slurm_lines import Pair
from deepopsctl.model.cluster import Role
from deepopsctl.node_programs._shared.own_programs import own_among
from deepopsctl.node_programs._shared.slurm_effects import EFFECTS
from deepopsctl.node_programs._shared.slurm_words import NO, YES, seconds, whole
from deepopsctl.slurm.conf import OWNED_KEYS, directory_refusal
from deepopsctl.slurm.defaults import DEFAULTS
from deepopsctl.slurm.job_hooks import PROGRAMS
from deepopsctl.slurm.releases import (
    GONE,
    KEYS,
    LEVEL_KEYS,
    LEVELS,
    LISTS_OF_PLUGINS,
    PLUGINS,
    SINCE,
    SUCCESSORS,
    WORDS,
)
from deepopsctl.text.node_sets import shorten

# Read in slurm_conf: they name hosts or the cluster.
HOST_KEYS = frozenset({
    "clustername", "slurmctldhost", "controlmachine", "controladdr", "backupcontroller", "backupaddr",
    "accountingstoragehost",
})  # fmt: skip

# Keys that deepopsctl sets itself, with equivalent values: nothing is lost.
_AGREED: Mapping[str, Collection[str]] = MappingProxyType({
    "slurmuser": {"slurm"},
    "authtype": {"auth/munge"},
    "credtype": {"auth/munge", "cred/munge"},
    "jobacctgathertype": {"jobacct_gather/cgroup"},
    "accountingstoragetype": {"accounting_storage/slurmdbd"},
    "proctracktype": {"proctrack/cgroup", "proctrack/linuxproc"},
    "grestypes": {"gpu"},
    "slurmduser": {"root"},
    "topologyplugin": {"topology/none", "topology/default", "topology/flat"},
    "jobcontainertype": {"job_container/none"},
    "jobcomptype": {"jobcomp/none"},
    "burstbuffertype": {"burst_buffer/none"},
    "acctgatherprofiletype": {"acct_gather_profile/none"},
    "acctgatherinterconnecttype": {"acct_gather_interconnect/none"},
    "acctgatherfilesystemtype": {"acct_gather_filesystem/none"},
    "slurmschedloglevel": {"0"},
    "usepam": NO,
    "taskpluginparam": {"none"},
    "plugindir": {"/usr/lib/slurm", "/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm"},
})  # fmt: skip

_UNIT = ("the package's systemd unit decides it", "")
_DATABASE = ("only slurmdbd connects to the database", "`deepopsctl takeover` reads slurmdbd.conf and keeps it")
_PASSWORD = ("passwords do not belong in a file that is committed to git", "")
_JOBCOMP = ("records of ended jobs are slurmdbd's: `sacct`", "set it in slurm_config once its file or server is there")
_SCHEDULER_LOG = ("slurmctld exits if it can't open that file", "set it in slurm_config once slurm may write there")
_TOKENS = (
    "tokens need the package slurm-wlm-jwt-plugin and a key on the controller",
    "install both, then set AuthAltTypes and AuthAltParameters in slurm_config",
)


def _needs(name: str) -> tuple[str, str]:
    return (f"it needs {name}, which deepopsctl does not deliver", "set it in slurm_config once the file is there")


_CONTROLLERS = _needs("a program on the controller: without it slurmctld exits")
_LEFT = MappingProxyType({
    "slurmctldpidfile": _UNIT, "slurmdpidfile": _UNIT,
    "plugindir": ("the package decides where its plugins are", ""),
    "slurmduser": ("slurmd runs as root", ""),
    "accountingstoragebackuphost": (
        "a second slurmdbd needs a database server outside", "two nodes with the role dbd, and slurm_dbd_server",
    ),
    "accountingstorageexternalhost": ("other clusters' accounting is not managed here", "set it in slurm_config"),
    "accountingstorageloc": _DATABASE, "accountingstorageuser": _DATABASE, "defaultstoragehost": _DATABASE,
    "defaultstorageloc": _DATABASE, "defaultstorageport": _DATABASE, "defaultstoragetype": _DATABASE,
    "defaultstorageuser": _DATABASE,
    "accountingstoragepass": _PASSWORD, "defaultstoragepass": _PASSWORD, "jobcomppass": _PASSWORD,
    "jobcomptype": _JOBCOMP, "jobcomploc": _JOBCOMP, "jobcomphost": _JOBCOMP, "jobcompport": _JOBCOMP,
    "jobcompuser": _JOBCOMP, "jobcompparams": _JOBCOMP,
    "slurmschedlogfile": _SCHEDULER_LOG, "slurmschedloglevel": _SCHEDULER_LOG,
    "credtype": ("munge signs the credentials of jobs", ""),
    "authalttypes": _TOKENS, "authaltparameters": _TOKENS,
    "prologslurmctld": _CONTROLLERS, "epilogslurmctld": _CONTROLLERS,
    "topologyplugin": _needs("topology.conf"), "topologyparam": _needs("topology.conf"),
    "burstbuffertype": _needs("burst_buffer.conf"),
    "jobcontainertype": ("private directories of jobs are job_directories in cluster.yml", "job_directories: {}"),
    "acctgatherprofiletype": _needs("acct_gather.conf"),
    "acctgatherinterconnecttype": _needs("acct_gather.conf"), "acctgatherfilesystemtype": _needs("acct_gather.conf"),
    "switchparameters": ("the switch plugin that reads it is not in the packages", ""),
    "usepam": _needs("/etc/pam.d/slurm on the nodes"),
    "plugstackconfig": ("deepopsctl writes /etc/slurm/plugstack.conf, with the lines of slurm_plugstack", ""),
})  # fmt: skip

# Keys that name programs or files on the nodes: the key is carried over, the file is not.
_FILES = frozenset({
    "prolog", "epilog", "taskprolog", "taskepilog", "srunprolog", "srunepilog", "healthcheckprogram", "rebootprogram",
    "resumeprogram", "suspendprogram", "resumefailprogram", "mailprog", "unkillablestepprogram", "resvprolog",
    "resvepilog",
    "slurmctldprimaryonprog", "slurmctldprimaryoffprog",
})  # fmt: skip

# Those that may stand in slurm.conf several times: Slurm runs all from 24.05 on, and before the last one alone.
_REPEATED = frozenset({"prolog", "epilog"})

# deepopsctl's programs that call a site's.
_CALLING = frozenset({*(key.lower() for key in PROGRAMS), "healthcheckprogram"})
_CALLED = "what it calls of the site's is listed in that file on a compute node: set it in slurm_config"

# The spelling that roles expect.
_SPELLINGS = MappingProxyType({key.lower(): key for key in (*KEYS, *OWNED_KEYS, *EFFECTS)})
_OWNED = MappingProxyType({key.lower(): hint for key, hint in OWNED_KEYS.items()})
_GONE = MappingProxyType({key.lower(): hint for key, hint in GONE.items()})
_SINCE = MappingProxyType({key.lower(): release for key, release in SINCE.items()})


_WITHOUT_PREFIX = frozenset({"JobSubmitPlugins", "CliFilterPlugins", "MpiDefault"})
_NOT_PACKAGED = (
    "not all packages of Slurm 22.05 to 26.05 have that plugin", "set it in slurm_config if your Slurm has it",
)  # fmt: skip
_NO_PLUGIN = MappingProxyType({
    "job_submit/lua": _needs("/etc/slurm/job_submit.lua on the controller: without it slurmctld exits"),
    "cli_filter/lua": _needs("/etc/slurm/cli_filter.lua wherever jobs are submitted: without it the commands exit"),
    "node_features/helpers": _needs("helpers.conf"),
    "acct_gather_energy/ipmi": _needs("the package slurm-wlm-ipmi-plugins"),
})  # fmt: skip


_CORES = ("cr_core", "cr_core_memory")
# TRES of every cluster.
BASIC_TRES = frozenset({"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"})


NO_TRES = "no node, license or plugin of this cluster counts it: slurmctld does not start"

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
# Further values that deepopsctl writes: they follow from cluster.yml, the nodes or the release of Slurm.
_FOLLOWING = MappingProxyType({
    "StateSaveLocation": {"/var/lib/slurm/slurmctld"},
    "SlurmdSpoolDir": {"/var/lib/slurm/slurmd"},
    "SlurmctldPidFile": {"/run/slurmctld/slurmctld.pid", "/run/slurmctld.pid"},
    "SlurmdPidFile": {"/run/slurmd.pid"},
    "SlurmctldTimeout": {"30"},
    "MessageTimeout": {"10"},
    "SchedulerType": {"sched/backfill"},
    "JobAcctGatherFrequency": {"30"},
    "TaskPlugin": {"task/affinity"},
    "JobAcctGatherType": {"jobacct_gather/linux"},
    "PrologFlags": {"Alloc", "Alloc,Contain"},
    "SwitchType": {"switch/nvidia_imex"},
    "TopologyPlugin": {"topology/block"},
    "MetricsType": {"metrics/openmetrics"},
    "JobContainerType": {"job_container/tmpfs"},
    "JobSubmitPlugins": {"lua"},
    "HealthCheckInterval": {"60"},
    "CommunicationParameters": {"EnableIPv6", "EnableIPv6,DisableIPv4"},
    "GresTypes": {"gpu,tmpdisk", "tmpdisk"},
})  # fmt: skip
_HINT = "to change it, set it in slurm_config (settings.yml); null leaves it to Slurm"
_OTHER_HINTS = MappingProxyType({
    "ProctrackType": "set slurm_confinement in settings.yml",
    "AccountingStorageType": "",
    "SlurmctldParameters": "",
})  # fmt: skip
# Slurm's defaults that equal deepopsctl's values.
_DEFAULTS = MappingProxyType({"slurmdtimeout": "300", "slurmctldtimeout": "120", "selecttype": "select/cons_tres"})


def written_by_programs(*, own: bool, dump: bool) -> dict[str, set[str]]:
    """Values that are not a site's, by key in lower case: deepopsctl's `own`, and in a `dump` of all keys Slurm's."""
    always = {key: {value} for key, (value, _) in DEEPOPSCTL_VALUES.items()}
    written: dict[str, set[str]] = {}
    for table in (*((always, _FOLLOWING) if own else ()), *((DEFAULTS,) if dump else ())):
        for key, values in table.items():
            written.setdefault(key.lower(), set()).update(map(_unordered, values))
    return written


def is_among(pair: Pair, written: Mapping[str, Collection[str]]) -> bool:
    """Whether a key has one of these values, in any case and any order of words."""
    return _unordered(pair.value) in written.get(pair.name, ())


def _unordered(value: str) -> str:
    return ",".join(sorted(value.lower().split(",")))


def carry_key(pair: Pair, where: str, carryover: Carryover) -> None:
    """Carry one global key over to `slurm_config`, or add a note."""
    name, value = pair.name, pair.value
    if not value or value.lower() in _AGREED.get(name, ()):
        return
    refusal = _refusal(name, value)
    if refusal:
        carryover.leave(pair.key, where, *refusal)
        return
    own = own_among(value)
    if own:
        # a site's program, which deepopsctl's calls, is in no file of the controller's
        if pair.name in _CALLING:
            carryover.leave(pair.key, where, f"{shorten(own)} is deepopsctl's own, which deploy writes", _CALLED)
        return
    key = _SPELLINGS[name]
    text = _readable(key, value, where, carryover)
    before = carryover.slurm(key)
    if name in _REPEATED and before not in (None, text):
        reason = f"{where} has another one, and slurm_config has one for a key; Slurm runs both from 24.05 on"
        hint = f"keep them in one directory on the nodes, and set {key}: /etc/slurm/{name}.d/*"
        carryover.leave(f"{key}={shorten(str(before))}", "", reason, hint)
    if text:
        carryover.set_slurm(key, text)
        if name in _FILES:
            carryover.check(pair.key, where, f"{shorten(text)} must be on the nodes: files are not copied")


def settle_keys(carryover: Carryover, places: Mapping[str, str], gres: Collection[str]) -> None:
    """Fix what does not go together, by keys with their places; `gres` has the TRES that the cluster's GPUs are."""
    _Settling(carryover, places, gres).settle()


def known_tres(value: str, known: Collection[str]) -> tuple[list[str], list[str]]:
    """The words of a list of TRES (or `TRES=weight`) that the cluster has, and the others."""
    counted: list[str] = []
    lost: list[str] = []
    for word in value.split(","):
        (counted if word.partition("=")[0].lower() in known else lost).append(word)
    return counted, lost


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


def _refusal(name: str, value: str) -> tuple[str, str] | None:
    """Why a key is not carried over, and what to do; None if it is."""
    if name in _LEFT:
        return _LEFT[name]
    if name in _GONE:
        return "current Slurm no longer knows it", _GONE[name]
    if name in _OWNED:
        return f"deepopsctl sets it, {shorten(value)!r} is not what it sets", _OWNED[name]
    if name in _SINCE:
        return f"Slurm knows it from {_SINCE[name]} on", "set it in slurm_config if your Slurm is new enough"
    if name not in _SPELLINGS:
        near = get_close_matches(name, _SPELLINGS, n=1)
        hint = (
            f"did you mean {_SPELLINGS[near[0]]}?" if near else "set it in slurm_config if your Slurm was built with it"
        )
        return "no Slurm from 22.05 to 26.05 knows it", hint
    reason = directory_refusal(name, value)
    if reason:
        hint = "deepopsctl's own is used; `deepopsctl takeover` reports what to do with state stored there"
        return f"{shorten(value)} {reason}", hint
    if not re.fullmatch(r"[!-~]+", value) or re.search(r"[\"'\\#]|\{[{%#]", value):
        return f"{shorten(value)!r} is not a single word without quotes", "set it another way"
    return None


def _readable(key: str, value: str, where: str, carryover: Carryover) -> str:
    """The part of the value that every supported Slurm reads, '' for none; adds notes on the rest."""
    if key in LEVEL_KEYS and not value.isdecimal() and value.lower() not in LEVELS:
        carryover.leave(key, where, f"{shorten(value)} is not a level of logging")
        return ""
    if key in PLUGINS:
        return _plugins(key, value, where, carryover)
    if key == "EnforcePartLimits" and value.lower() in YES | NO:
        return "YES" if value.lower() in YES else "NO"
    if key in WORDS:
        return _words(key, value, where, carryover)
    if key == "AuthInfo":
        words = [word for word in value.split(",") if word.startswith(("cred_expire=", "ttl="))]
        if len(words) < len(value.split(",")):
            carryover.leave(key, where, "munge's socket is where its package has it")
        return ",".join(words)
    return value


def _plugins(key: str, value: str, where: str, carryover: Carryover) -> str:
    known, plugins = PLUGINS[key], []
    prefix = next(iter(known)).rpartition("/")[0]
    for word in value.split(",") if key in LISTS_OF_PLUGINS else [value]:
        plugin = f"{prefix}/{word.lower()}" if prefix and "/" not in word else word.lower()
        if plugin in SUCCESSORS:
            carryover.check(key, where, f"{SUCCESSORS[plugin]} is what {plugin} is today")
            plugin = SUCCESSORS[plugin]
        if plugin in known:
            # older releases need the type prefix for some keys, and refuse it for others
            plugins.append(plugin if key not in _WITHOUT_PREFIX else plugin.rpartition("/")[2])
        elif plugin.rpartition("/")[2] != "none":
            carryover.leave(f"{key}={shorten(word)}", where, *_NO_PLUGIN.get(plugin, _NOT_PACKAGED))
    if key == "TaskPlugin" and set(plugins) == {"task/affinity", "task/cgroup"}:
        # deepopsctl's own, which follow from slurm_confinement
        return ""
    return ",".join(dict.fromkeys(plugins))


def _words(key: str, value: str, where: str, carryover: Carryover) -> str:
    known, accepted = WORDS[key], []
    for word in value.split(","):
        plain = re.split("[=:]", word.strip().lower(), maxsplit=1)[0].lstrip("+")
        if plain in known:
            accepted.append(word.strip())
        elif plain and plain not in ("none", "0"):
            reason = "not every Slurm from 22.05 to 26.05 knows that word: slurmctld would not start"
            carryover.leave(f"{key}={shorten(word)}", where, reason, "set it in slurm_config if your Slurm does")
    if key == "PrologFlags" and {word.lower() for word in accepted} <= {"alloc", "contain"}:
        return ""
    return ",".join(accepted)


@dataclass(frozen=True, slots=True)
class _Settling:
    carryover: Carryover
    places: Mapping[str, str]
    gres: Collection[str]

    def settle(self) -> None:
        self._select()
        self._preempt()
        self._measured()
        self._prolog_flags()
        self._priority_flags()
        if whole(self.carryover.slurm("MinJobAge") or "2") in (0, 1):
            self._drop("MinJobAge", "slurmctld takes 2 seconds at least", "MinJobAge: 2")
        if whole(self.carryover.slurm("TreeWidth") or "1") == 0:
            self._drop("TreeWidth", "slurmctld needs 1 at least", "TreeWidth: 16 is Slurm's own")
        if seconds(self.carryover.slurm("PriorityDecayHalfLife") or "1") == 0 and not self.carryover.slurm(
            "PriorityUsageResetPeriod"
        ):
            self._drop(
                "PriorityDecayHalfLife", "0 needs PriorityUsageResetPeriod, and slurmctld does not start without"
            )
        if (self.carryover.slurm("MCSPlugin") or "").startswith("mcs/group") and not self.carryover.slurm(
            "MCSParameters"
        ):
            self._drop("MCSPlugin", "mcs/group needs MCSParameters")
        self._tres()

    def _drop(self, key: str, reason: str, hint: str = "") -> None:
        if self.carryover.slurm(key) is not None:
            self.carryover.leave(key, self.places.get(key.lower(), ""), reason, hint)
            self.carryover.unset_slurm(key)

    def _select(self) -> None:
        """select/linear allocates whole nodes; with deepopsctl's CR_Core_Memory slurmctld would exit."""
        words = (self.carryover.slurm("SelectTypeParameters") or "").lower()
        if self.carryover.slurm("SelectType") != "select/linear":
            self._consumed(words.split(",") if words else [])
            return
        parameters = "CR_Memory" if "memory" in words else None
        if words and words != "cr_memory":
            self.carryover.check("SelectTypeParameters", self.places.get("selecttypeparameters", ""),
                                 f"with select/linear Slurm takes {parameters or 'none'}")  # fmt: skip
        self.carryover.set_slurm("SelectTypeParameters", parameters)
        self._drop("MaxNodeCount", "it needs select/cons_tres")

    def _consumed(self, words: Sequence[str]) -> None:
        """select/cons_tres needs to know whether to allocate sockets, cores or CPUs."""
        if words and not any(word.startswith(("cr_cpu", "cr_socket")) or word in _CORES for word in words):
            further = ",".join(["CR_Core_Memory", *(word.upper() for word in words if word != "cr_memory")])
            self.carryover.set_slurm("SelectTypeParameters", further)
            reason = f"select/cons_tres gives out cores or CPUs, which has to be said: {further}"
            self.carryover.check("SelectTypeParameters", self.places.get("selecttypeparameters", ""), reason)

    def _measured(self) -> None:
        """cgroups limit memory, and measure it unless jobacct_gather/linux does."""
        value = self.carryover.slurm("JobAcctGatherParams")
        if value is None:
            return
        linux = self.carryover.slurm("JobAcctGatherType") == "jobacct_gather/linux"
        lost = {"overmemorykill", "noovermemorykill", *(() if linux else ("usepss", "noshared"))}
        words = [word for word in value.split(",") if word.lower() not in lost]
        if len(words) < len(value.split(",")):
            reason = "control groups count and limit memory: slurmctld does not start with a second way"
            self.carryover.leave("JobAcctGatherParams", self.places.get("jobacctgatherparams", ""), reason)
        self._put("JobAcctGatherParams", words)

    def _preempt(self) -> None:
        mode = (self.carryover.slurm("PreemptMode") or "").lower().split(",")
        real = [word for word in mode if word not in ("", "off", "gang", "within")]
        if not self.carryover.slurm("PreemptType"):
            if real:
                self._drop("PreemptMode", "without PreemptType there is no preemption, and slurmctld does not start")
        elif not real:
            reason = "it needs a PreemptMode, and slurmctld does not start without"
            self._drop("PreemptType", reason, "PreemptMode: REQUEUE, CANCEL or SUSPEND,GANG")
            self._drop("PreemptMode", "it goes with PreemptType")
        elif "suspend" in mode and "gang" not in mode:
            self.carryover.set_slurm("PreemptMode", f"{self.carryover.slurm('PreemptMode')},GANG")
            self.carryover.check(
                "PreemptMode", self.places.get("preemptmode", ""), "SUSPEND needs GANG, which is added"
            )

    def _prolog_flags(self) -> None:
        reason = "Contain and X11 need the prolog to end first: slurmctld does not start with both"
        self._exclude("PrologFlags", "NoHold", {"contain", "x11"}, reason)

    def _priority_flags(self) -> None:
        reason = "FAIR_TREE and NO_FAIR_TREE exclude each other, and Slurm follows NO_FAIR_TREE"
        self._exclude("PriorityFlags", "FAIR_TREE", {"no_fair_tree"}, reason)

    def _exclude(self, key: str, word: str, others: Collection[str], reason: str) -> None:
        """Remove a word of a list if it also has one of `others`."""
        words = (self.carryover.slurm(key) or "").split(",")
        remaining = [other for other in words if other.lower() != word.lower()]
        if len(remaining) < len(words) and not {other.lower() for other in remaining}.isdisjoint(others):
            self._put(key, remaining)
            self.carryover.leave(f"{key}={word}", self.places.get(key.lower(), ""), reason)

    def _tres(self) -> None:
        licenses = [re.split("[:*@]", word)[0] for word in (self.carryover.slurm("Licenses") or "").lower().split(",")]
        known = {*BASIC_TRES, *self.gres, *(f"license/{name}" for name in licenses if name)}
        weights = self._known("PriorityWeightTRES", known)
        if weights is not None:
            self._put("PriorityWeightTRES", weights)
        counted = self._known("AccountingStorageTRES", known)
        if counted is not None:
            further = [word for word in counted if word.lower() not in BASIC_TRES and word.lower() not in self.gres]
            # deepopsctl's default has the GPUs; a site's list replaces all of it
            self._put("AccountingStorageTRES", [*self.gres, *further] if further else [])

    def _known(self, key: str, known: Collection[str]) -> list[str] | None:
        value = self.carryover.slurm(key)
        if value is None:
            return None
        counted, lost = known_tres(value, known)
        for word in lost:
            self.carryover.leave(f"{key}={word}", self.places.get(key.lower(), ""), NO_TRES)
        return counted

    def _put(self, key: str, words: Sequence[str]) -> None:
        if words:
            self.carryover.set_slurm(key, ",".join(words))
        else:
            self.carryover.unset_slurm(key)
