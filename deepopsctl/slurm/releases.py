"""The releases of Slurm: their support and upgrades, and what each can read in slurm.conf.

slurmctld and all commands exit at an unknown key, slurmctld also at most unknown values. An
import has to run on Debian 12 (22.05), Debian 13 (24.11) and on what comes next (26.05), so what one of them refuses is
translated or left out, and reported.

Sources: each key and word was given to the slurmctld of Debian's slurm-wlm 22.05.8, 24.11.5 and 26.05.5; plugins are
those of the package slurm-wlm-basic-plugins of all three. When a key came or went is from RELEASE_NOTES and
src/common/read_config.c of 22.05 to 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


def _table(text: str) -> Mapping[str, str]:
    """Lines of `KEY: TEXT`; indented ones continue with the text."""
    entries = (entry.partition(":") for entry in re.split(r"\n(?=\S)", text.strip()))
    return MappingProxyType({key: " ".join(value.split()) for key, _, value in entries})


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Slurm: the month of its first version, the month its support ends, and where it upgrades from.

    Running jobs and the state survive an upgrade only from the releases in `direct_from`.
    """

    name: str
    first: str
    support_ends: str
    direct_from: tuple[str, ...]


# Source: Slurm's upgrade guide, and slurm_protocol_common.h of each release.
RELEASES = tuple(
    Release(name, first, ends, tuple(direct_from))
    for name, first, ends, *direct_from in map(
        str.split,
        """
22.05 2022-05 over 21.08 20.11
23.02 2023-02 2024-11 22.05 21.08
23.11 2023-11 2025-05 23.02 22.05
24.05 2024-05 2025-11 23.11 23.02
24.11 2024-11 2026-05 24.05 23.11 23.02
25.05 2025-05 2026-11 24.11 24.05 23.11
25.11 2025-11 2027-05 25.05 24.11 24.05
26.05 2026-05 2027-11 25.11 25.05 24.11
""".strip().splitlines(),
    )
)


@dataclass(frozen=True, slots=True)
class Removal:
    """A key of slurm.conf, or one of its values, that a release removed; `effect` is what its daemons do with it."""

    key: str
    value: str
    release: str
    effect: str
    instead: str


def _removal(line: str) -> Removal:
    """`KEY[=VALUE] RELEASE EFFECT[: REPLACEMENT]`."""
    key, release, rest = line.split(" ", 2)
    effect, _, instead = rest.partition(": ")
    name, _, value = key.partition("=")
    return Removal(name, value, release, effect, instead)


def release_of(version: str) -> str:
    """`24.11` of `24.11.5-4+deb13u1` or `slurm-wlm 24.11.5`; '' where there is none."""
    match = re.search(r"\b(\d\d\.\d\d)\b", version)
    return match[1] if match else ""


def find_release(name: str) -> Release | None:
    """The release of this name; None where it is unknown."""
    return next((each for each in RELEASES if each.name == name), None)


def upgrade_path(installed: str, wanted: str) -> tuple[str, ...]:
    """The shortest way from one release to another, both included; empty where there is none."""
    ways: list[tuple[str, ...]] = [(wanted,)]
    while ways:
        if ways[0][0] == installed:
            return ways[0]
        release = find_release(ways[0][0])
        # the latest first: of equally short ways the one with the longest support
        ways = [*ways[1:], *((before, *ways[0]) for before in (release.direct_from if release else ()))]
    return ()


def upgrade_refusal(installed: str, wanted: str) -> str:
    """Why Slurm does not go from one release to another directly; '' where it does, or needs not."""
    release = find_release(wanted)
    if release is None:
        return f"Slurm {wanted} is unknown; known are {', '.join(each.name for each in RELEASES)}"
    if installed in (wanted, *release.direct_from):
        return ""
    if installed > wanted:
        return f"Slurm does not go back from {installed} to {wanted}: {wanted} can't read its state and its database"
    way = upgrade_path(installed, wanted)
    supported = ", ".join(release.direct_from)
    return (
        f"Slurm {wanted} upgrades from {supported} only: with {installed} jobs, state and accounting would be lost"
        + (f"; the way is {' -> '.join(way)}" if way else "")
    )


def _sets(text: str) -> Mapping[str, frozenset[str]]:
    return MappingProxyType({key: frozenset(words.split()) for key, words in _table(text).items()})


# Keys of all three releases, except those that name nodes or define lines of their own.
_KEYS = """
AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost AccountingStorageHost
AccountingStorageParameters AccountingStoragePass AccountingStoragePort AccountingStorageTRES AccountingStorageType
AccountingStoreFlags AcctGatherEnergyType AcctGatherFilesystemType AcctGatherInterconnectType AcctGatherNodeFreq
AcctGatherProfileType AllowSpecResourcesUsage AuthAltParameters AuthAltTypes AuthInfo AuthType BatchStartTimeout
BcastExclude BcastParameters BurstBufferType CliFilterPlugins CommunicationParameters CompleteWait CpuFreqDef
CpuFreqGovernors CredType DebugFlags DefCpuPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode DependencyParameters
DisableRootJobs EioTimeout EnforcePartLimits Epilog EpilogMsgTime EpilogSlurmctld FairShareDampeningFactor
FederationParameters FirstJobId GpuFreqDef GresTypes GroupUpdateForce GroupUpdateTime HealthCheckInterval
HealthCheckNodeState HealthCheckProgram InactiveLimit InteractiveStepOptions JobAcctGatherFrequency
JobAcctGatherParams JobAcctGatherType JobCompHost JobCompLoc JobCompParams JobCompPass JobCompPort JobCompType
JobCompUser JobContainerType JobFileAppend JobRequeue JobSubmitPlugins KillOnBadExit KillWait LaunchParameters
Licenses LogTimeFormat MailDomain MailProg MaxArraySize MaxDBDMsgs MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode
MaxNodeCount MaxStepCount MaxTasksPerNode MCSParameters MCSPlugin MessageTimeout MinJobAge MpiDefault MpiParams
NodeFeaturesPlugins OverTimeLimit PluginDir PlugStackConfig PreemptExemptTime PreemptMode PreemptType
PrEpParameters PrEpPlugins PriorityCalcPeriod PriorityDecayHalfLife PriorityFavorSmall PriorityFlags PriorityMaxAge
PriorityParameters PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare PriorityWeightJobSize PriorityWeightPartition
PriorityWeightQOS PriorityWeightTRES PrivateData ProctrackType Prolog PrologEpilogTimeout PrologFlags
PrologSlurmctld PropagatePrioProcess PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram
ReconfigFlags RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResumeRate ResumeTimeout ResvEpilog
ResvOverRun ResvProlog ReturnToService SbcastParameters SchedulerParameters SchedulerTimeSlice SchedulerType
ScronParameters SelectType SelectTypeParameters SlurmctldAddr SlurmctldDebug SlurmctldLogFile SlurmctldParameters
SlurmctldPidFile SlurmctldPort SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmctldTimeout
SlurmdDebug SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdSyslogDebug SlurmdTimeout
SlurmdUser SlurmSchedLogFile SlurmSchedLogLevel SlurmUser SrunEpilog SrunPortRange SrunProlog StateSaveLocation
SuspendExcNodes SuspendExcParts SuspendProgram SuspendRate SuspendTime SuspendTimeout SwitchParameters SwitchType
TaskEpilog TaskPlugin TaskPluginParam TaskProlog TCPTimeout TmpFS TopologyParam TopologyPlugin TrackWCKey TreeWidth
UnkillableStepProgram UnkillableStepTimeout UsePAM VSizeFactor WaitTime X11Parameters
"""
KEYS = frozenset(_KEYS.split())

# The first release that knows the key.
SINCE = _table("""
PreemptParameters: 23.02
SuspendExcStates: 23.02
HashPlugin: 23.11
TLSType: 24.11
TLSParameters: 24.11
CertmgrType: 24.11
CertmgrParameters: 24.11
DataParserParameters: 24.05
MaxBatchRequeue: 24.11
PrologTimeout: 25.05
EpilogTimeout: 25.05
CertgenType: 25.05
CertgenParameters: 25.05
NamespaceType: 25.11
MetricsType: 25.11
CliFilterParameters: 25.11
MetricsParameters: 25.11
HttpParserType: 25.11
UrlParserType: 25.11
HealthCheckTimeout: 26.05
LicenseParameters: 26.05
MetricsAuthUsers: 26.05
PowerAction: 26.05
JobCompPassScript: 26.05
""")

# What no longer works in slurm.conf: the release that removed it (22.05 also stands for earlier ones), what its daemons
# then do (`fatal`: they and all commands exit; `ignored`; `converted`: still read), and the replacement.
REMOVALS = tuple(
    map(
        _removal,
        """
AccountingStorageLoc 22.05 fatal
AccountingStoreJobComment 22.05 fatal: AccountingStoreFlags: job_comment is its name now
AcctGatherInfinibandType 22.05 fatal: AcctGatherInterconnectType is its name now
CacheGroups 22.05 fatal
CheckpointType 22.05 fatal
CryptoType 22.05 fatal
DynAllocPort 22.05 fatal
FastSchedule 22.05 fatal: SlurmdParameters: config_overrides is what was 2
JobCheckpointDir 22.05 fatal
KeepAliveTime 22.05 converted: CommunicationParameters: keepaliveinterval=... is what it is now
MemLimitEnforce 22.05 fatal: cgroups limit memory
MsgAggregationParams 22.05 fatal
SallocDefaultCommand 22.05 fatal: LaunchParameters: use_interactive_step, which deepopsctl sets, does the same
SchedulerPort 22.05 fatal
SchedulerRootFilter 22.05 fatal
UseSpecialProlog 22.05 fatal
LaunchType 23.02 ignored
SlurmctldPlugstack 23.02 fatal
CommunicationParameters=NoAddrCache 23.11 ignored
ExtSensorsFreq 23.11 ignored
ExtSensorsType 23.11 ignored
JobCredentialPrivateKey 23.11 ignored
JobCredentialPublicCertificate 23.11 ignored
RoutePlugin 23.11 converted: TopologyParam: RouteTree is what it is now
SelectType=select/cons_res 23.11 fatal: select/cons_tres, before the upgrade
SlurmctldParameters=cloud_reg_addrs 23.11 ignored
TopologyPlugin=topology/hypercube 23.11 fatal
CoreSpecPlugin 24.05 ignored
PowerParameters 24.05 ignored
PowerPlugin 24.05 ignored
SchedulerAuth 24.05 fatal
FrontendAddr 25.05 fatal
FrontendName 25.05 fatal
GetEnvTimeout 25.05 ignored
LogTimeFormat=format_stderr 25.05 ignored
SchedulerParameters=no_env_cache 25.05 ignored
SchedulerParameters=requeue_setup_env 25.05 ignored
TopologyPlugin=topology/3d_torus 25.05 fatal
AccountingStorageUser 25.11 ignored
JobContainerType=job_container/tmpfs 25.11 converted: NamespaceType, once no node has an earlier release
NodeFeaturesPlugins=node_features/knl_generic 25.11 fatal
SlurmctldParameters=enable_job_state_cache 26.05 ignored
""".strip().splitlines(),
    )
)

# Keys that current Slurm refuses, ignores or converts, and their replacements.
GONE = MappingProxyType({each.key: each.instead for each in REMOVALS if not each.value})

# Plugins of all three releases, by key.
PLUGINS = _sets("""
SelectType: select/cons_tres select/linear
SchedulerType: sched/backfill sched/builtin
PriorityType: priority/basic priority/multifactor
PreemptType: preempt/partition_prio preempt/qos
JobAcctGatherType: jobacct_gather/cgroup jobacct_gather/linux
TaskPlugin: task/affinity task/cgroup
SwitchType: -
MCSPlugin: mcs/account mcs/group mcs/user
AcctGatherEnergyType: acct_gather_energy/ibmaem acct_gather_energy/pm_counters acct_gather_energy/rapl
JobSubmitPlugins: job_submit/all_partitions job_submit/defaults job_submit/logging job_submit/partition
  job_submit/require_timelimit job_submit/throttle
CliFilterPlugins: cli_filter/syslog cli_filter/user_defaults
PrEpPlugins: prep/script
MpiDefault: cray_shasta pmi2
NodeFeaturesPlugins: -
PrioritySiteFactorPlugin: -
""")
# Keys whose value is a list of plugins.
LISTS_OF_PLUGINS = frozenset(
    {"TaskPlugin", "JobSubmitPlugins", "CliFilterPlugins", "PrEpPlugins", "NodeFeaturesPlugins"}
)
# Replacements of removed plugins.
SUCCESSORS = _table("""
select/cons_res: select/cons_tres
select/cray_aries: select/cons_tres
select/serial: select/cons_tres
sched/wiki: sched/backfill
sched/wiki2: sched/backfill
sched/hold: sched/backfill
""")

# Words of all three releases by key, in lower case; a word may continue with `=` or `:`.
WORDS = _sets("""
SelectTypeParameters: cr_core cr_core_default_dist_block cr_core_memory cr_cpu cr_cpu_memory cr_lln cr_memory
  cr_one_task_per_core cr_pack_nodes cr_socket cr_socket_memory
TaskPluginParam: autobind cores none slurmdoffspec sockets threads verbose
PrologFlags: alloc contain deferbatch nohold serial x11
PrivateData: accounts cloud events jobs nodes partitions reservations usage users
PriorityFlags: accrue_always calculate_running depth_oblivious fair_tree incr_only max_tres no_fair_tree
  no_normal_all no_normal_assoc no_normal_part no_normal_qos no_normal_tres small_relative_to_time
PreemptMode: cancel gang off requeue suspend within
EnforcePartLimits: all any no yes
AccountingStorageEnforce: associations limits nojobs nosteps qos safe wckeys
AccountingStoreFlags: job_comment job_env job_script
LogTimeFormat: clock iso8601 iso8601_ms rfc5424 rfc5424_ms short thread_id
HealthCheckNodeState: alloc any cycle idle mixed
PropagateResourceLimits: all as core cpu data fsize memlock nofile none nproc rss stack
PropagateResourceLimitsExcept: all as core cpu data fsize memlock nofile none nproc rss stack
CpuFreqGovernors: conservative ondemand performance powersave schedutil userspace
DebugFlags: accrue agent backfill backfillmap burstbuffer cgroup cpu_bind data dependency elasticsearch energy
  federation gang gres hetjob interconnect jobaccountgather jobcontainer license mpi network networkraw
  no_conf_hash nodefeatures power powersave priority profile protocol reservation route script selecttype steps
  switch task tracejobs triggers workqueue
ReconfigFlags: keeppartinfo keeppartstate
""")
LEVEL_KEYS = frozenset({"SlurmctldDebug", "SlurmdDebug", "SlurmctldSyslogDebug", "SlurmdSyslogDebug"})
_LEVELS = "quiet fatal error info verbose debug debug2 debug3 debug4 debug5"
LEVELS = frozenset(_LEVELS.split())

# Attributes of a node and of a partition that all three know.
_NODE_KEYS = """
BcastAddr Boards CoreSpecCount CoresPerSocket CpuBind CPUs CpuSpecList Features Gres MemSpecLimit NodeAddr
NodeHostname NodeName Port RealMemory Reason Sockets SocketsPerBoard State ThreadsPerCore TmpDisk TRESWeights
Weight
"""
NODE_KEY_NAMES = tuple(_NODE_KEYS.split())
NODE_KEYS = frozenset(_NODE_KEYS.lower().split())
_PARTITION_KEYS = """
AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind Default DefaultTime DefCpuPerGPU DefMemPerCPU
DefMemPerGPU DefMemPerNode DenyAccounts DenyQos DisableRootJobs ExclusiveUser GraceTime Hidden LLN MaxCPUsPerNode
MaxMemPerCPU MaxMemPerNode MaxNodes MaxTime MinNodes Nodes OverSubscribe OverTimeLimit PartitionName PreemptMode
PriorityJobFactor PriorityTier QOS ReqResv ResumeTimeout RootOnly SelectTypeParameters State SuspendTime
SuspendTimeout TRESBillingWeights
"""
PARTITION_KEY_NAMES = tuple(_PARTITION_KEYS.split())
PARTITION_KEYS = frozenset(_PARTITION_KEYS.lower().split())
