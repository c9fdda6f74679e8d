"""`why JOBID` on a real slurmctld: each kind of waiting and of failing is provoked, and its cause has to be named.

Where `helps` is set, the user runs the first command that is advised, and the job has to start.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.test_upgrade import ON, add_new_release, version

# ctl1 computes as well: a node without GPUs in partition cpu, one with two in partition gpu
NODES = ("roles: [controller]", "roles: [controller, compute]")
PARTITIONS = """partitions:
  - {name: gpu, nodes: gpu01, default: true, max_time: "02:00:00"}
  - {name: cpu, nodes: ctl1, max_time: "02:00:00"}
  - {name: all, nodes: all, max_time: "02:00:00"}
preemption: {by: qos, mode: requeue}
priority: {weights: {age: 1000, fairshare: 12000, qos: 3000, job_size: 100, partition: 500}}
qos:
  - {name: low}
  - {name: high, priority: 100, preempts: [low]}
accounts:
  - {name: default, qos: [normal, low, high]}
"""
SLURM = 'slurm_config: {EnforcePartLimits: "NO", Licenses: "matlab:1"}\n'
QOS = {
    "onejob": "MaxJobsPerUser=1",
    "onecpu": "MaxTRESPerUser=cpu=1",
    "grpcpu": "GrpTRES=cpu=1",
    "grpgpu": "GrpTRES=gres/gpu=1",
    "grpjobs": "GrpJobs=1",
    "wall": "MaxWall=10",
    "mins": "GrpTRESMins=cpu=1",
    "perjob": "MaxTRESPerJob=cpu=1",
    "pernode": "MaxTRESPerNode=cpu=1",
    "peraccount": "MaxTRESPerAccount=cpu=1",
    "jobsaccount": "MaxJobsPerAccount=1",
    "mincpu": "MinTRESPerJob=cpu=2",
    "runmins": "GrpTRESRunMins=cpu=20",
    "jobmins": "MaxTRESMinsPerJob=cpu=10",
    "grpwall": "GrpWall=1",
    "grpmem": "GrpTRES=mem=60M",
    "memuser": "MaxTRESPerUser=mem=60M",
}
ACCOUNTS = {
    "assocjobs": "parent=root",
    "grpacct": "parent=root GrpJobs=1",
    "cpuacct": "parent=root GrpTRES=cpu=1",
    "minsacct": "parent=root GrpTRESMins=cpu=1",
    "upper": "parent=root GrpJobs=1",
    "lower": "parent=upper",
    "goes": "parent=root",
}
RUNS = "until squeue -h -j {job} -o %T | grep -q RUNNING; do sleep 0.3; done; "
RESERVE = "scontrol create reservation reservationname=kept duration=60 "
BUSY_GPUS, BUSY_CPUS = "-p gpu --gpus=2 -t 30", "-p cpu -c 2 -t 30"


@dataclass(frozen=True)
class Waits:
    """One kind of waiting: `first` are jobs that are there before; `{first}` is the last of them, `{job}` the job."""

    key: str
    says: str
    submit: str
    first: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    undo: str = ""
    helps: bool = False

    @property
    def id(self) -> str:
        """A name for the test."""
        return f"{self.key}-{self.says}".replace(" ", "_")


def limited(qos: str, says: str, options: str = "", first: str = "-t 20", helps: bool = False) -> Waits:
    """A limit of a QOS, on a node with two CPUs."""
    before = (f"-p cpu --qos={qos} {first}",) if first else ()
    return Waits("qos-limit", says, f"-p cpu --qos={qos} {options or '-t 20'}", before, helps=helps)


WAITING = [
    Waits("resources", "job {first} of ubuntu on gpu01 has", "-p gpu --gpus=1 -t 20", (BUSY_GPUS,)),
    Waits("priority", "fair share", "-p gpu --gpus=1 -t 20 --nice=100", (BUSY_GPUS, "-p gpu --gpus=2 -t 20")),
    Waits("held-by-user", "release", "-p cpu --hold", helps=True),
    Waits("held-by-admin", "administrator", "-p cpu --hold", after="scontrol hold {job}"),
    Waits("begin-time", "--begin", "-p cpu --begin=now+1hour", helps=True),
    Waits(
        "dependency", "job {first} is pending", "-p cpu --dependency=afterok:{first}", ("-p cpu --hold",), helps=True
    ),
    Waits(
        "dependency-never-satisfied",
        "job {first} did not end",
        "-p cpu --dependency=afterok:{first}",
        ("-p cpu --hold",),
        after="scancel {first}",
        helps=True,
    ),
    Waits("licenses", "matlab: 1 of 1 in use", "-p cpu -L matlab", ("-p cpu -L matlab",)),
    Waits("partition-time-limit", "allows 02:00:00", "-p cpu -t 1-0", helps=True),
    Waits(
        "partition-node-limit",
        "all: 0 to 1",
        "-p all -N 2",
        before="scontrol update partitionname=all maxnodes=1",
        undo="scontrol update partitionname=all maxnodes=unlimited",
    ),
    Waits(
        "partition-closed",
        "cpu is closed",
        "-p cpu",
        before="scontrol update partitionname=cpu state=down",
        undo="scontrol update partitionname=cpu state=up",
        helps=True,
    ),
    Waits(
        "partition-closed",
        "cpu is closed: no",
        "-p cpu",
        before="scontrol update partitionname=cpu state=down",
        after="scontrol update partitionname=cpu state=inactive",
        undo="scontrol update partitionname=cpu state=up",
    ),
    Waits(
        "reservation-not-begun",
        "kept begins at",
        "-p cpu -t 10 --reservation=kept",
        helps=True,
        before=RESERVE + "starttime=now+20minutes nodes=ctl1 users=ubuntu",
        undo="scontrol delete reservationname=kept",
    ),
    Waits(
        "maintenance",
        "reservation kept from",
        "-p cpu -t 60",
        helps=True,
        before=RESERVE + "starttime=now+30minutes nodes=ctl1 users=root flags=maint",
        undo="scontrol delete reservationname=kept",
    ),
    Waits(
        "reserved-for-others",
        "reservation kept from",
        "-p cpu -t 60",
        helps=True,
        before=RESERVE + "starttime=now+30minutes nodes=ctl1 users=root",
        undo="scontrol delete reservationname=kept",
    ),
    Waits(
        "nodes-out-of-service",
        "gpu01 is idle+drain: Xid 79",
        "-p gpu",
        helps=True,
        before="scontrol update nodename=gpu01 state=drain reason='Xid 79'",
        undo="scontrol update nodename=gpu01 state=resume",
    ),
    Waits(
        "nodes-out-of-service",
        "gpu01 is down",
        "-p gpu -w gpu01",
        before="scontrol update nodename=gpu01 state=down reason=broken",
        undo="scontrol update nodename=gpu01 state=resume",
    ),
    Waits("array-limit", "1 tasks at a time", "-p cpu --array=1-3%1"),
    limited("onejob", "QOS onejob is reached: at most 1 running jobs, of one user", helps=True),
    limited("onecpu", "QOS onecpu is reached: at most 1 CPUs, of one user"),
    limited("grpcpu", "QOS grpcpu is reached: at most 1 CPUs, of all"),
    limited("grpjobs", "QOS grpjobs is reached: at most 1 running jobs, of all"),
    limited("grpgpu", "QOS grpgpu is reached: at most 1 GPUs", "-p gpu --gpus=2 -t 10", "", helps=True),
    limited("wall", "at most 00:10:00 of time", "-t 30", "", helps=True),
    limited("mins", "minutes of CPUs", "-t 30", ""),
    limited("perjob", "at most 1 CPUs, of one job", "-c 2 -t 10", ""),
    limited("pernode", "at most 1 CPUs, of one job on a node", "-c 2 -t 10", ""),
    limited("peraccount", "at most 1 CPUs, of one account"),
    limited("jobsaccount", "at most 1 running jobs, of one account"),
    limited("mincpu", "at least 2 CPUs", "-c 1 -t 10", ""),
    limited("runmins", "at most 20 minutes of CPUs", "-t 30", ""),
    limited("jobmins", "at most 10 minutes of CPUs, of one job", "-t 30", ""),
    limited("grpwall", "at most 00:01:00 of time", "-t 30", ""),
    limited("grpmem", "at most 60 MB of memory, of all"),
    limited("memuser", "at most 60 MB of memory, of one user"),
    Waits(
        "association-limit",
        "user ubuntu in account assocjobs is reached: at most 1",
        "-p cpu -A assocjobs",
        ("-p cpu -A assocjobs",),
        helps=True,
    ),
    Waits(
        "association-limit",
        "account grpacct is reached: at most 1 running",
        "-p cpu -A grpacct",
        ("-p cpu -A grpacct",),
    ),
    Waits("association-limit", "account cpuacct is reached: at most 1 CPUs", "-p cpu -A cpuacct -c 2"),
    Waits("association-limit", "account minsacct is reached", "-p cpu -A minsacct -t 30"),
    Waits("association-limit", "account upper is reached", "-p cpu -A lower", ("-p cpu -A lower",)),
    Waits("requeued-and-held", "returned to the queue", "-p cpu", after=RUNS + "scontrol requeuehold {job}"),
    Waits("requeued", "has begun 1 times", "-p cpu", after=RUNS + "scontrol requeue {job}"),
    Waits(
        "no-such-nodes",
        "no node has the feature fast",
        "-p cpu -C fast --hold",
        helps=True,
        before="scontrol update nodename=ctl1 availablefeatures=fast activefeatures=fast",
        after="scontrol update nodename=ctl1 availablefeatures= activefeatures=; scontrol release {job}",
    ),
    Waits(
        "account-not-allowed",
        "account default may not use",
        "-p cpu",
        before="scontrol update partitionname=cpu allowaccounts=goes",
        undo="scontrol update partitionname=cpu allowaccounts=ALL",
        helps=True,
    ),
    Waits(
        "qos-not-allowed",
        "QOS normal may not use",
        "-p cpu",
        before="scontrol update partitionname=cpu allowqos=high",
        undo="scontrol update partitionname=cpu allowqos=ALL",
        helps=True,
    ),
]


@dataclass(frozen=True)
class Fails:
    """One kind of failing."""

    key: str
    says: str
    script: str
    submit: str = "-p cpu"
    after: str = ""
    undo: str = ""
    # of a later Slurm than the distribution's, where that says more
    later: str = ""

    @property
    def id(self) -> str:
        """A name for the test."""
        return f"{self.key}-{self.says}".replace(" ", "_")


# Python ignores SIGXFSZ
LARGE_FILE = 'ulimit -f 1; exec python3 -c \'import signal; signal.signal(25, 0); open("big", "w").write("x" * 9000)\''
WITHOUT_LIBRARY = "sed 's/libc.so.6/nosuch.so/g' /bin/true >t; chmod +x t; ./t"
HOLD_MEMORY = "python3 -c 'x = bytearray(400 << 20)'"
FAILING = [
    Fails("out-of-memory", "the 60 MiB that it had", HOLD_MEMORY, "-p cpu --mem=60M"),
    Fails("out-of-memory", "a part of it (step 0)", f"srun --mem=60M {HOLD_MEMORY}; true", "-p cpu --mem=100M"),
    Fails("exit-status", "ended with status 3", "exit 3"),
    Fails("exit-status", "step 0: failed, exit 4:0", "srun sh -c 'exit 4'"),
    Fails("command-not-found", "command of the script", "nosuchcommand"),
    Fails("not-executable", "chmod +x", "/etc/hostname 2>/dev/null"),
    Fails("segmentation-fault", "signal 11", "kill -SEGV $$"),
    # 24.11 has the status modulo 128
    Fails("exit-status", "signal 11", "sh -c 'kill -SEGV $$'; exit $?", later="segmentation-fault"),
    Fails("killed", "signal 9", "kill -KILL $$"),
    Fails("aborted", "signal 6", "kill -ABRT $$"),
    Fails("bus-error", "signal 7", "kill -BUS $$"),
    Fails("arithmetic-error", "signal 8", "kill -FPE $$"),
    Fails("illegal-instruction", "signal 4", "kill -ILL $$"),
    Fails("file-too-large", "signal 25", LARGE_FILE),
    Fails("cpu-time", "signal 24", "ulimit -S -t 1; while :; do :; done"),
    Fails("output-not-writable", "could not be opened", "true", "-p cpu -o /nosuchdirectory/out"),
    Fails("disk-full", "No space left on device", "cp /etc/hostname /dev/full"),
    Fails("python-module", "No module named 'nosuch'", "python3 -c 'import nosuch'"),
    Fails("permission", "Permission denied", "cat /etc/shadow"),
    Fails("file-missing", "No such file or directory", "cat nosuchfile"),
    Fails("memory", "MemoryError", "ulimit -v 100000; python3 -c 'x = bytearray(400 << 20)'"),
    Fails("library-not-found", "nosuch.so", WITHOUT_LIBRARY),
    Fails(
        "cancelled-by-user",
        "by its own user while it ran",
        "sleep 300",
        after=RUNS + "su - ubuntu -c 'scancel {job}'",
    ),
    Fails("cancelled-by-other", "by root, an administrator while it ran", "sleep 300", after=RUNS + "scancel {job}"),
    Fails("cancelled-by-other", "before it began", "true", "-p cpu --hold", after="scancel {job}"),
    Fails(
        "preempted",
        "higher priority",
        "sleep 300",
        "-p gpu --gpus=2 --qos=low --no-requeue",
        after=RUNS + "su - ubuntu -c 'sbatch -p gpu --gpus=2 --qos=high -t 1 -o /dev/null --mem=50M --wrap true'",
    ),
    Fails(
        "node-failure",
        "gpu01",
        "sleep 300",
        "-p gpu --no-requeue",
        after=RUNS + "scontrol update nodename=gpu01 state=down reason='power'",
        undo="scontrol update nodename=gpu01 state=resume",
    ),
    Fails(
        "gpu-fault",
        "Xid 79: GPU lost",
        "sleep 300",
        "-p gpu --no-requeue",
        after=RUNS + "scontrol update nodename=gpu01 state=down reason='Xid 79: GPU lost'",
        undo="scontrol update nodename=gpu01 state=resume",
    ),
    Fails("time-limit", "time limit of 1m 00s", "sleep 300", "-p cpu -t 1"),
]


@pytest.fixture(scope="module", params=["24.11", "26.05"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """Two nodes with QOS and accounts of all kinds, and the distribution's Slurm or a later one."""
    with fresh_cluster(f"{PREFIX}-why", tmp_path_factory, "--compute", "1", "--gpus", "a100:2") as made:
        spec = made.directory / "cluster.yml"
        edit(spec, *NODES)
        text = spec.read_text(encoding="utf-8")
        start, end = text.index("partitions:"), text.index("\n# What `deepopsctl deploy`")
        text = text[:start] + PARTITIONS + text[end:]
        spec.write_text(text.replace("components: [nvidia, slurm]", "components: [slurm, environment]"), "utf-8")
        later = request.param != "24.11"
        edit(made.directory / SETTINGS, "---\n", f"---\n{SLURM}{ON if later else ''}")
        if later:
            add_new_release(made, tmp_path_factory.mktemp("sid"))
        made.deepopsctl("deploy")
        prepare(made)
        yield made


def prepare(cluster: LabCluster) -> None:
    """QOS and accounts, each with one limit."""
    lines = [f"sacctmgr -i add qos {name} set {limit}" for name, limit in QOS.items()]
    lines += [f"sacctmgr -i add account {name} {options}" for name, options in ACCOUNTS.items()]
    lines += [f"sacctmgr -i add user ubuntu account={name}" for name in ACCOUNTS]
    lines.append("sacctmgr -i modify user ubuntu where account=assocjobs set maxjobs=1")
    names = ",".join(QOS)
    for whom in ("account default", "user ubuntu where account=default"):
        lines.append(f"sacctmgr -i modify {whom} set qos+={names}")
    cluster.root("ctl1", "\n".join(lines), ok=False)


def submit(cluster: LabCluster, options: str, script: str = "sleep 900") -> str:
    """A job of the user; returns its number."""
    output = "" if " -o " in options else "-o why-%j.out"
    memory = "" if "--mem" in options else "--mem=50M"
    words = f"sbatch --parsable {memory} {output} {options}"
    return cluster.user("ctl1", f"{words} --wrap {shlex.quote(script)}").splitlines()[-1]


def ask(cluster: LabCluster, job: str) -> dict[str, Any]:
    """The user's `why`."""
    answer: dict[str, Any] = json.loads(cluster.user("ctl1", f"why {job} --json"))
    return answer


def named(cluster: LabCluster, job: str, key: str, text: str) -> dict[str, Any]:
    """The first answer that names a cause, with a text in it or in its advice: Slurm's own reason comes late."""
    answers: list[dict[str, Any]] = []

    def has_it() -> bool:
        answers.append(ask(cluster, job))
        causes = [cause for cause in answers[-1]["causes"] if cause["key"] == key]
        lines = [line for cause in causes for line in (cause["text"], *cause["details"])]
        lines += [f"{each['text']} {each['command']}" for cause in causes for each in cause["advice"]]
        return any(text in line for line in lines)

    wait_until(f"why names {key}: {text}", has_it, details=lambda: str(answers[-1]))
    return answers[-1]


@pytest.fixture
def empty(cluster: LabCluster) -> Iterator[LabCluster]:
    """The cluster without jobs, and so again at the end."""
    yield cluster
    cluster.root("ctl1", "scancel --user=ubuntu; while squeue -h -u ubuntu | grep -q .; do sleep 0.3; done")


@pytest.mark.parametrize("kind", WAITING, ids=lambda kind: kind.id)
def test_it_names_why_a_job_waits(empty: LabCluster, kind: Waits) -> None:
    names = {"first": "", "job": ""}
    try:
        if kind.before:
            empty.root("ctl1", kind.before)
        for options in kind.first:
            names["first"] = submit(empty, options)
        names["job"] = submit(empty, kind.submit.format(**names))
        if kind.after:
            empty.root("ctl1", kind.after.format(**names))
        job = names["job"]
        answer = named(empty, job, kind.key, kind.says.format(**names))
        assert answer["calls"] <= 18
        if kind.helps:
            advice = [each["command"] for cause in answer["causes"] for each in cause["advice"]]
            command = next((each for each in advice if each.startswith("scontrol ")), "")
            assert command, answer
            empty.user("ctl1", command)
            wait_until(
                f"it runs after {command}",
                lambda: state(empty, job) == "RUNNING",
                details=lambda: empty.root("ctl1", "squeue -a; sinfo"),
            )
    finally:
        if kind.undo:
            empty.root("ctl1", kind.undo, ok=False)


def state(cluster: LabCluster, job: str) -> str:
    """The job's state."""
    return cluster.root("ctl1", f"squeue -h -a -j {job} -o %T", ok=False)


@pytest.mark.parametrize("kind", FAILING, ids=lambda kind: kind.id)
def test_it_names_why_a_job_failed(empty: LabCluster, kind: Fails) -> None:
    job = submit(empty, kind.submit, kind.script)
    key = kind.later if kind.later and version(empty) != "24.11.5" else kind.key
    try:
        if kind.after:
            empty.root("ctl1", kind.after.format(job=job))
        assert named(empty, job, key, kind.says)["state"] == "ended"
    finally:
        if kind.undo:
            empty.root("ctl1", kind.undo, ok=False)
