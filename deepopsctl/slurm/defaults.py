"""Slurm's own values by key of slurm.conf, as `scontrol write config` writes them for a file with nodes alone.

Source: that command of Debian's slurm-wlm 22.05.8, 24.11.5 and 26.05.5; several where releases differ.
"""

from __future__ import annotations

from types import MappingProxyType

_TABLE = """
AccountingStorageEnforce: none
AccountingStorageHost: localhost
AccountingStoragePort: 0 6819
AccountingStorageTRES: cpu,mem,energy,node,billing,fs/disk,vmem,pages
AccountingStorageType: accounting_storage/none
AccountingStorageUser: root
AcctGatherEnergyType: acct_gather_energy/none
AcctGatherFilesystemType: acct_gather_filesystem/none
AcctGatherInterconnectType: acct_gather_interconnect/none
AcctGatherNodeFreq: 0
AcctGatherProfileType: acct_gather_profile/none
AllowSpecResourcesUsage: no
AuthType: auth/munge
BatchStartTimeout: 10
BcastExclude: /lib,/usr/lib,/lib64,/usr/lib64
CompleteWait: 0
CoreSpecPlugin: core_spec/none
CpuFreqGovernors: OnDemand,Performance,UserSpace
CredType: cred/munge
DisableRootJobs: no
EioTimeout: 60
EnforcePartLimits: NO
EpilogMsgTime: 2000
ExtSensorsFreq: 0
ExtSensorsType: ext_sensors/none
FairShareDampeningFactor: 1
FirstJobId: 1
GetEnvTimeout: 2
GpuFreqDef: high,memory=high
GroupUpdateForce: 1
GroupUpdateTime: 600
HashPlugin: hash/k12
HealthCheckInterval: 0
HealthCheckNodeState: ANY
HealthCheckTimeout: 0
InactiveLimit: 0
InteractiveStepOptions: --interactive
JobAcctGatherFrequency: 30
JobAcctGatherType: jobacct_gather/none
JobCompHost: localhost
JobCompLoc: /var/log/slurm_jobcomp.log
JobCompPort: 0
JobCompType: jobcomp/none
JobCompUser: root
JobContainerType: job_container/none
JobFileAppend: 0
JobRequeue: 1
KillOnBadExit: 0
KillWait: 30
LaunchType: launch/slurm
LogTimeFormat: iso8601_ms
MailProg: /bin/mail /usr/bin/mail
MaxArraySize: 1001
MaxBatchRequeue: 5
MaxDBDMsgs: 0
MaxJobCount: 10000
MaxJobId: 67043328
MaxMemPerNode: UNLIMITED
MaxStepCount: 40000
MaxTasksPerNode: 512
MCSPlugin: mcs/none
MessageTimeout: 10
MinJobAge: 300
MpiDefault: none
OverTimeLimit: 0
PluginDir: /usr/lib/x86_64-linux-gnu/slurm-wlm
PreemptExemptTime: 00:00:00
PreemptMode: OFF
PreemptType: preempt/none
PrEpPlugins: prep/script
PriorityCalcPeriod: 00:05:00
PriorityDecayHalfLife: 7-00:00:00
PriorityFavorSmall: no
PriorityMaxAge: 7-00:00:00
PriorityType: priority/basic priority/multifactor
PriorityUsageResetPeriod: NONE
PriorityWeightAge: 0
PriorityWeightAssoc: 0
PriorityWeightFairShare: 0
PriorityWeightJobSize: 0
PriorityWeightPartition: 0
PriorityWeightQOS: 0
PrivateData: none
ProctrackType: proctrack/cgroup
PrologEpilogTimeout: 65534
PropagatePrioProcess: 0
PropagateResourceLimits: ALL
ResumeRate: 300
ResumeTimeout: 60
ResvOverRun: 0
ReturnToService: 0
RoutePlugin: route/default
SchedulerTimeSlice: 30
SchedulerType: sched/backfill
SelectType: select/linear select/cons_tres
SelectTypeParameters: CR_CORE_MEMORY
SlurmctldDebug: info
SlurmctldPort: 6817
SlurmctldTimeout: 120
SlurmdDebug: info
SlurmdPidFile: /run/slurmd.pid
SlurmdPort: 6818
SlurmdSpoolDir: /var/spool/slurmd
SlurmdTimeout: 300
SlurmdUser: root
SlurmSchedLogLevel: 0
SrunPortRange: 0-0
SuspendRate: 60
SuspendTime: INFINITE
SuspendTimeout: 30
SwitchType: switch/none
TaskPlugin: task/none
TCPTimeout: 2
TLSType: tls/none
TmpFS: /tmp
TopologyPlugin: topology/none topology/default topology/flat
TrackWCKey: no
TreeWidth: 50 16
UnkillableStepTimeout: 60
UsePam: no
VSizeFactor: 0
WaitTime: 0
"""
DEFAULTS = MappingProxyType({
    key: frozenset(values.split()) for key, _, values in (line.partition(":") for line in _TABLE.strip().splitlines())
})  # fmt: skip
