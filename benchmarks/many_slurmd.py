"""500 slurmd on this machine, and a real slurmctld with what the role slurm_conf renders for them.

Each slurmd is started as the role starts it, without a slurm.conf of its own (`--conf-server CONTROLLER -N NODE`), in
namespaces of its own for name and mounts, at its own address of the loopback network. The packages are those of Debian
13, in one container. What a container lacks is left out of slurm.conf (accounting, cgroups, mail).

Measured are: registration of all; a new slurm.conf until each has it; a job on all; slurmctld started again; a rolling
restart in batches as `upgrade slurm` makes them, by the states that it sets in Slurm; and what `deepopsctl` asks of
slurmctld in a `status`. Connections that slurmctld's socket dropped are counted by the kernel.

    python -m benchmarks.many_slurmd [--sizes 100,500] [--json FILE]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.crowd import addresses
from benchmarks.large_slurm import LEFT_OUT, in_container, rendered, with_slurm, without
from deepopsctl.content import content_dir
from deepopsctl.lab.image import Recipe, ensure_image, own_mirror
from deepopsctl.lifecycle.pace import Pace, batch_size
from deepopsctl.run.question_program import archive

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "iproute2")
# of a node: its cgroups, and hooks of the deploy
OF_A_NODE = ("ProctrackType", "TaskPlugin", "JobAcctGather", "PrologFlags", "MpiDefault", "SlurmdParameters",
             "SlurmdPidFile")  # fmt: skip
# this machine has fewer processors than the nodes; each slurmd listens at the address of its own name
INSTEAD = """
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny
SlurmdPidFile=/run/slurm/slurmd.pid
"""
PROGRAM = """
import json, os, re, subprocess, sys, time, zipfile
zipfile.ZipFile("/conf/program.zip").extractall("/tmp/program")
sys.path.insert(0, "/tmp/program")
names = json.load(open("/conf/names.json"))
batch = int(sys.argv[1])

def output_of(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=900).stdout

def now():
    return time.monotonic()

def start_controller():
    return subprocess.Popen(["slurmctld", "-D"], stdout=open("/tmp/log", "a"), stderr=subprocess.STDOUT)

# as the kernel of a node would have it: its name, and what it writes
NODE = '''
hostname "$1"
for place in /run/slurm /etc/slurm /var/lib/slurm/slurmd /var/log/slurm; do
    mkdir -p $place
    mount -t tmpfs none $place
done
exec slurmd --conf-server ctl1 -N "$1" -D 2>/tmp/$1.log
'''
processes, started, again = {}, {}, []

def start(nodes):
    for name in nodes:
        started[name] = now()
        processes[name] = subprocess.Popen(["unshare", "-um", "sh", "-c", NODE, "sh", name],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def stop(nodes):
    for name in nodes:
        processes[name].terminate()
    for name in nodes:
        processes[name].wait()

def states():
    lines = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %t"], capture_output=True, text=True).stdout.split("\\n")
    return dict(line.split() for line in lines if line.strip())

def until(done, limit_s=600):
    begin = now()
    while not done():
        if now() - begin > limit_s:
            log = open("/tmp/log").read()[-2000:]
            some = open("/tmp/" + names[0] + ".log").read()[-2000:]
            sys.exit("not in time: " + json.dumps(sorted(set(states().values()))) + log + some)
        time.sleep(0.25)
    return round(now() - begin, 1)

def start_again(late):
    # as its unit does: systemd waits 90 s for a slurmd, and starts one that failed
    for name in late:
        if processes[name].poll() is not None or now() - started[name] > 90:
            processes[name].kill()
            processes[name].wait()
            again.append(name)
            start([name])

def all_idle(nodes=names):
    def ask():
        known = states()
        late = [name for name in nodes if known.get(name) != "idle"]
        start_again([name for name in late if known.get(name, "").startswith("unk")])
        return not late
    return ask

def dropped():
    rows = [line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt")]
    counts = dict(zip(rows[0][1:], map(int, rows[1][1:])))
    return counts["ListenDrops"], counts["ListenOverflows"]

def memory(pid, key):
    for line in open("/proc/%s/%s" % (pid, "status" if key == "VmHWM" else "smaps_rollup")):
        if line.startswith(key + ":"):
            return int(line.split()[1]) // 1024

def has(marker):
    def each():
        for name in names:
            pid = processes[name].pid
            try:
                if marker not in open("/proc/%d/root/var/lib/slurm/slurmd/conf-cache/slurm.conf" % pid).read():
                    return False
            except OSError:
                return False
        return True
    return each

result = {}
controller = start_controller()
until(lambda: b" is UP" in subprocess.run(["scontrol", "ping"], capture_output=True).stdout)
begin = now()
start(names)
result["registered_s"] = round(now() - begin + until(all_idle()), 1)
result["dropped"], result["started_again"] = dropped(), len(again)
share = sorted(memory(processes[name].pid, "Pss") for name in names)
result["slurmd_mib"] = share[len(share) // 2]
with open("/etc/slurm/slurm.conf", "a") as stream:
    stream.write("MaxJobCount=12345\\n")
begin = now()
output_of("scontrol", "reconfigure")
result["new_conf_s"] = round(now() - begin + until(has("MaxJobCount=12345")), 1)
until(all_idle())
begin = now()
lines = output_of("srun", "-N", str(len(names)), "--export=NONE", "/bin/hostname").split()
assert sorted(lines) == sorted(names), len(lines)
result["job_on_all_s"] = round(now() - begin, 1)
until(all_idle())
before = dropped()
controller.terminate(); controller.wait()
begin = now()
controller = start_controller()
# none may be lost: each answers the ping of the new one
result["controller_again_s"] = until(all_idle())
result["dropped_again"] = [after - was for after, was in zip(dropped(), before)]
begin, longest, todo = now(), 0, list(names)
batches = 0
while todo:
    part, todo = todo[:batch], todo[batch:]
    one = now()
    listed = ",".join(part)
    output_of("scontrol", "update", "nodename=" + listed, "state=drain", "reason=deepopsctl: node upgrade")
    until(lambda: all(states()[name] == "drain" for name in part))
    stop(part)
    start(part)
    output_of("scontrol", "update", "nodename=" + listed, "state=resume")
    until(all_idle(part))
    batches, longest = batches + 1, max(longest, now() - one)
all_s = round(now() - begin, 1)
result["rolling"] = {"batch": batch, "batches": batches, "all_s": all_s, "longest_s": round(longest, 1)}
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import query
begin = now()
answer = query.report(0, 30)
result["asked_s"] = round(now() - begin, 2)
assert answer["controller_up"] and len([each for each in answer["nodes"] if each["name"] in set(names)]) == len(names)
result["answer_bytes"] = len(json.dumps(answer))
result["slurmctld_mib"] = memory(controller.pid, "VmHWM")
print(json.dumps(result))
stop(names)
controller.terminate()
"""


def main() -> None:
    """Render, start, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="100,500")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    image = with_slurm(ensure_image(Recipe.for_os("debian13", own_mirror()), print), PACKAGES)
    results = []
    for size in map(int, options.sizes.split(",")):
        results.append({"nodes": size, "load": round(os.getloadavg()[0], 1), **measured(size, image)})
        print(json.dumps(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def measured(size: int, image: str) -> Any:
    """All steps with so many nodes."""
    names = [f"cn{number:05}" for number in range(1, size + 1)]
    places = dict(zip(names, addresses(size), strict=True))
    nodes = "".join(f"  - {{names: {name}, addresses: {place}, roles: [compute]}}\n" for name, place in places.items())
    spec = (
        "schema: 1\ncluster: {name: many, user: admin}\nnodes:\n"
        f"  - {{names: ctl1, addresses: 127.0.0.1, roles: [controller]}}\n{nodes}"
    )
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        texts = rendered(spec, directory)
        conf = without(texts["slurm.conf"], (*LEFT_OUT, *OF_A_NODE))
        (directory / "slurm.conf").write_text(conf + INSTEAD, encoding="utf-8")
        (directory / "names.json").write_text(json.dumps(names), encoding="utf-8")
        (directory / "program.zip").write_bytes(base64.b64decode(archive(content_dir())))
        hosts = ["127.0.0.1 localhost ctl1", *(f"{place} {name}" for name, place in places.items())]
        (directory / "hosts").write_text("\n".join(hosts) + "\n", encoding="utf-8")
        batch = batch_size(Pace().batch, size)
        more = ("--cap-add=SYS_ADMIN", "--pids-limit=-1", f"--volume={directory}/hosts:/etc/hosts:ro")
        return json.loads(in_container(image, directory, PROGRAM, *more, arguments=[str(batch)]).splitlines()[-1])


if __name__ == "__main__":
    main()
