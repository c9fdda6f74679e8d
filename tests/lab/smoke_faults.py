"""What is broken for the tests of the smoke suite: one damage at least for every check."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

COMPUTE = ("gpu01", "gpu02")
CLUSTER = "CLUSTER"  # stands for the lab's name, which differs by Debian release
# everything that reads slurm.conf is started again; the nodes fetch their copy from the controller
RESTART = "systemctl restart slurmctld; until scontrol ping | grep -q UP; do sleep 0.2; done"


Step = tuple[str, str, str]
Key = tuple[str, str]


@dataclass(frozen=True)
class Damage:
    """What is broken in (node, damage, repair) steps, the checks that must fail, and words of their messages."""

    id: str
    steps: tuple[Step, ...]
    expected: frozenset[Key]
    messages: dict[Key, str] = field(default_factory=dict)
    untouched: frozenset[Key] = frozenset({("node-answers", "gpu01"), ("munge-local", "gpu01")})


def both(name: str) -> set[Key]:
    """The check on both compute nodes."""
    return {(name, node) for node in COMPUTE}


def on_cluster(*names: str) -> set[Key]:
    """Checks whose target is the cluster."""
    return {(name, CLUSTER) for name in names}


def on_partition(*names: str) -> set[Key]:
    """Checks whose target is the partition."""
    return {(name, "gpu") for name in names}


def conf_steps(**edits: tuple[str, ...]) -> tuple[Step, ...]:
    """sed expressions by file of Slurm's configuration on the controller, applied on all nodes."""
    files = []
    for name, expressions in edits.items():
        path = f"/etc/slurm/{name}.conf"
        words = " ".join(f"-e {shlex.quote(expression)}" for expression in expressions)
        files.append(("ctl1", f"cp -a {path} {path}.orig && sed -i {words} {path}", f"mv {path}.orig {path}"))
    restarts = [("ctl1", RESTART, "true"), *((node, "systemctl restart slurmd", "true") for node in COMPUTE)]
    # undone in reverse: the files first, then the daemons
    repairs = [*((node, "true", "systemctl restart slurmd") for node in COMPUTE), ("ctl1", "true", RESTART)]
    return (*repairs, *files, *restarts)


WRAPPED_DATE = """printf '#!/bin/sh\\nexec /bin/date -d "+90 seconds" "$@"\\n' > /usr/local/bin/date
chmod +x /usr/local/bin/date"""
OTHER_SLURMD = """printf '#!/bin/sh\\n[ "$1" = -V ] && echo slurm 20.02.1 || exec /usr/sbin/slurmd "$@"\\n' > \
/usr/local/bin/slurmd; chmod +x /usr/local/bin/slurmd"""
# a site's wrapper that loses what a user asked for
LOSING_SBATCH = """printf '#!/bin/sh\\ncase "$*" in *-over-*) set -- --parsable --hold --wrap true;; esac\\n\
exec /usr/bin/sbatch "$@"\\n' > /usr/local/bin/sbatch; chmod +x /usr/local/bin/sbatch"""
FORGETFUL_SACCT = """printf '#!/bin/sh\\n/usr/bin/sacct "$@" | sed "s/COMPLETED/FAILED/"\\n' > /usr/local/bin/sacct
chmod +x /usr/local/bin/sacct"""
LEAVING_SHELL = """printf '[ -n "$SLURM_JOB_ID" ] && exit 0\\n' > /root/bashrc
cat ~ubuntu/.bashrc >> /root/bashrc 2>/dev/null; cp -a ~ubuntu/.bashrc /root/bashrc.orig 2>/dev/null
cat /root/bashrc > ~ubuntu/.bashrc"""
RESTORED_SHELL = "cp -a /root/bashrc.orig ~ubuntu/.bashrc 2>/dev/null || rm -f ~ubuntu/.bashrc"

TASK_PROLOG = """printf '#!/bin/sh\\necho unset CUDA_VISIBLE_DEVICES\\n' > /usr/local/bin/task-prolog
chmod +x /usr/local/bin/task-prolog"""
OTHER_KEY = """cd /etc/munge && cp -a munge.key /root/ && head -c 1024 /dev/urandom > munge.key
systemctl restart munge"""
OWN_KEY = "cat /root/munge.key > /etc/munge/munge.key && systemctl restart munge && systemctl restart slurmd"

DAMAGES = (
    Damage(
        "slurmd stopped on a node",
        (("gpu02", "systemctl stop slurmd", "systemctl start slurmd"),),
        frozenset({("services", "gpu02"), ("node-answers", "gpu02")}),
        {("services", "gpu02"): "slurmd is inactive"},
    ),
    Damage(
        "munge stopped on a node",
        (("gpu02", "systemctl stop munge", "systemctl start munge; systemctl restart slurmd"),),
        frozenset({("services", "gpu02"), ("munge-local", "gpu02"), ("munge-across", "gpu02")}),
        {("munge-local", "gpu02"): "munge:"},
    ),
    Damage(
        "another munge key on a node",
        (("gpu02", OTHER_KEY, OWN_KEY),),
        frozenset({("munge-across", "gpu02"), ("node-answers", "gpu02")}),
        {("munge-across", "gpu02"): "does not decode on ctl1: Invalid credential"},
    ),
    Damage(
        "slurmctld stopped",
        (("ctl1", "systemctl stop slurmctld", "systemctl start slurmctld"),),
        frozenset({("services", "ctl1"), ("controller-answers", "ctl1")}),
        {("controller-answers", "ctl1"): "does not answer"},
        untouched=frozenset({("munge-local", "gpu01"), ("services", "gpu01"), ("node-state", "gpu01")}),
    ),
    Damage(
        "slurmdbd stopped",
        (("ctl1", "systemctl stop slurmdbd", "systemctl start slurmdbd"),),
        frozenset({
            ("services", "ctl1"),
            *on_cluster("accounting-answers", "accounting-association", "accounting-jobs", "accounting-array"),
        }),
        {("accounting-answers", CLUSTER): "slurmdbd does not answer"},
    ),
    Damage(
        "the user's association deleted",
        (("ctl1", "sacctmgr -i delete user ubuntu", "sacctmgr -i add user ubuntu account=default"),),
        frozenset({*on_cluster("accounting-association"), *both("node-answers")}),
        {("accounting-association", CLUSTER): "belongs to no account"},
        untouched=frozenset({("munge-local", "gpu01"), ("node-state", "gpu01")}),
    ),
    Damage(
        "nothing confines jobs, a task prolog hides their GPUs, arrays may have one task",
        (
            *((node, TASK_PROLOG, "rm /usr/local/bin/task-prolog") for node in COMPUTE),
            *conf_steps(
                cgroup=(r"s/^\(Constrain[A-Za-z]*=\).*/\1no/",),
                slurm=(
                    "s,^TaskPlugin=.*,TaskPlugin=task/cgroup,",
                    "$ a TaskProlog=/usr/local/bin/task-prolog",
                    "$ a MaxArraySize=2",
                ),
            ),
        ),
        frozenset({
            *on_cluster("confinement"), *both("cpu-confinement"), *both("memory-confinement"), *both("gpu-confinement"),
            *both("gpu-assignment"), *on_partition("guide-two-nodes", "guide-interactive", "guide-batch"),
            ("job-array", "gpu01"),
        }),
        {
            ("gpu-confinement", "gpu01"): "a job with one GPU could open /dev/nvidia0",
            ("gpu-assignment", "gpu01"): "CUDA_VISIBLE_DEVICES is not set",
            ("job-array", "gpu01"): "Invalid job array specification",
        },
    ),
    Damage(
        "a drained node, a fast clock, another slurmd, a changed limit, wrong accounting, a shell that ends at once",
        (
            ("ctl1", "scontrol update nodename=gpu02 state=drain reason='bad DIMM in slot 7'",
             "scontrol update nodename=gpu02 state=resume"),
            ("gpu02", WRAPPED_DATE, "rm /usr/local/bin/date"),
            ("gpu02", OTHER_SLURMD, "rm /usr/local/bin/slurmd"),
            ("gpu01", LEAVING_SHELL, RESTORED_SHELL),
            ("ctl1", "scontrol update partitionname=gpu maxtime=01:00:00",
             "scontrol update partitionname=gpu maxtime=02:00:00"),
            ("ctl1", FORGETFUL_SACCT, "rm /usr/local/bin/sacct"),
        ),
        frozenset({
            ("node-state", "gpu02"), ("clock", "gpu02"), ("slurm-version", "gpu02"),
            *on_partition("partition", "guide-interactive"), *on_cluster("accounting-jobs", "accounting-array"),
        }),
        {
            ("node-state", "gpu02"): "bad DIMM in slot 7",
            ("clock", "gpu02"): "ahead of ctl1's",
            ("slurm-version", "gpu02"): "differs from the controller",
            ("partition", "gpu"): "time limit 01:00:00, not 02:00:00",
            ("accounting-jobs", CLUSTER): "state FAILED instead of COMPLETED",
        },
    ),
    Damage(
        "a submit command that loses what is asked for, homes that no user may write to",
        (
            ("ctl1", LOSING_SBATCH, "rm /usr/local/bin/sbatch"),
            *((node, "chown root: ~ubuntu", "chown ubuntu: ~ubuntu") for node in COMPUTE),
        ),
        frozenset({
            *on_partition(*(f"over-ask-{what}" for what in ("nodes", "cpus", "memory", "gpus", "time"))),
            ("batch-output", "gpu01"), ("job-array", "gpu01"), *on_partition("guide-batch"),
            *on_cluster("guide-own"),
        }),
        {("over-ask-cpus", "gpu"): "accepted a job that can never run"},
    ),
)  # fmt: skip
