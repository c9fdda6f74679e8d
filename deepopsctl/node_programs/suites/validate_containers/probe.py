"""What a job does on its node. Its text is handed to `python3 -c`: standard library, no relative imports.

It makes an image of the node's own shell and its libraries, and asks that shell inside and outside of containers which
cores it has, and which GPUs it can open. One line `DEEPOPS {json}`.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

MARK = "DEEPOPS "
IMAGE = "localhost/deepopsctl-validate:1"
SHELL = "/bin/sh"
LIMIT_S = 60
# starts that wait for each other's locks
MANY_S = 240
ASK = """\
while read -r line; do case $line in Cpus_allowed_list:*) echo "cpus ${line#*:}";; esac; done </proc/self/status
while read -r _ _ count; do echo "ids $count"; done </proc/self/uid_map
for device in "$@"; do (: <>"$device") 2>&1 && echo "device $device: opened"; done
:
"""


def command_output(argv: Sequence[str], stdin: bytes = b"", environment: dict[str, str] | None = None) -> str:
    """A command's output; raises RuntimeError with its last words."""
    try:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=LIMIT_S, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from error
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip() or "exit status " + str(done.returncode)
        raise RuntimeError(" ".join(argv[:2]) + ": " + words[-400:])
    return done.stdout.decode(errors="replace")


def make_tree(root: str) -> None:
    """A root file system with a shell, by the names that the shell's own loader has."""
    # their mount points have to be there
    for name in ("bin", "dev", "etc", "home", "mnt", "proc", "sys", "tmp", "run", "usr/bin"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    words = command_output(["ldd", os.path.realpath(SHELL)]).split()
    for path in [SHELL, *(word for word in words if word.startswith("/"))]:
        target = root + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(path, target)
    accounts = {"passwd": "root:x:0:0::/:/bin/sh\n", "group": "root:x:0:\n"}
    for name, text in {**accounts, "hosts": "", "resolv.conf": ""}.items():
        with open(os.path.join(root, "etc", name), "w") as stream:
            stream.write(text)


def answers(text: str) -> dict[str, Any]:
    """The shell's lines: cores, the number of ids, and the result of opening each device."""
    result: dict[str, Any] = {"cpus": "", "ids": 0, "devices": {}}
    for line in text.splitlines():
        word, _space, rest = line.partition(" ")
        if word == "cpus":
            result["cpus"] = rest.strip()
        elif word == "ids":
            result["ids"] += int(rest)
        elif "/dev/" in line:
            device, _colon, outcome = line[line.index("/dev/") :].partition(": ")
            result["devices"][os.path.basename(device)] = outcome
    return result


def devices() -> list[str]:
    """All GPUs of the node."""
    return sorted(glob.glob("/dev/nvidia[0-9]*"))


def device_options() -> list[str]:
    """How Podman gets all GPUs of the node: by the specification of NVIDIA's toolkit, else file by file."""
    if any(map(os.path.exists, ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"))):
        return ["--device=nvidia.com/gpu=all"]
    return ["--device=" + device for device in devices()]


def podman(tree: str) -> dict[str, Any]:
    """Make an image of the tree and ask its shell."""
    archive = read_output(["tar", "-C", tree, "-c", "."])
    command_output(["podman", "import", "-", IMAGE], archive)
    shell = [IMAGE, SHELL, "-c", ASK, SHELL, *devices()]
    return answers(command_output(["podman", "run", "--rm", *device_options(), *shell]))


def charliecloud(tree: str) -> dict[str, Any]:
    """Ask the shell of the tree by Charliecloud."""
    return answers(command_output(["ch-run", tree, "--", SHELL, "-c", ASK, SHELL, *devices()]))


def apptainer(tree: str) -> dict[str, Any]:
    """Make an image file of the tree and ask its shell; --nv adds NVIDIA's libraries where the node has them."""
    image = tree + ".sif"
    command_output(["apptainer", "--quiet", "build", image, tree])
    return answers(
        command_output(["apptainer", "--silent", "exec", "--nv", image, SHELL, "-c", ASK, SHELL, *devices()])
    )


def pyxis(tree: str) -> dict[str, Any]:
    """Make an image file of the tree, and ask its shell in a step of this job that Slurm starts in it."""
    image = tree + ".sqsh"
    command_output(["mksquashfs", tree, image, "-no-progress", "-quiet"])
    return in_a_step("--container-image=" + image)


def oci(tree: str) -> dict[str, Any]:
    """Make a bundle of the tree, and ask its shell in a step of this job that Slurm starts in it."""
    bundle, own = tree + ".oci", [{"containerID": 0, "hostID": os.getuid(), "size": 1}]
    os.mkdir(bundle)
    settings = {
        "ociVersion": "1.0.2",
        "root": {"path": tree, "readonly": True},
        # Slurm has its own arguments and environment in their place
        "process": {"cwd": "/", "args": [SHELL], "env": [], "user": {"uid": 0, "gid": 0}},
        "mounts": [{"destination": each, "source": each, "options": ["rbind"]} for each in ("/proc", "/dev")],
        "linux": {
            "namespaces": [{"type": "user"}, {"type": "mount"}],
            "uidMappings": own,
            "gidMappings": [{**own[0], "hostID": os.getgid()}],
        },
    }
    with open(os.path.join(bundle, "config.json"), "w") as stream:
        json.dump(settings, stream)
    return in_a_step("--container=" + bundle)


def in_a_step(option: str) -> dict[str, Any]:
    """Ask the shell in a step of this job that Slurm starts in a container."""
    # not the limits of this step
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_STEP", "SRUN_"))}
    step = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=" + os.environ.get("SLURMD_NODENAME", "")]
    shell = [option, SHELL, "-c", ASK, SHELL, *devices()]
    return answers(command_output([*step, *shell], environment=environment))


def pull(image: str) -> dict[str, Any]:
    """Get an image of the site's registry and ask its shell."""
    command_output(["podman", "pull", "--quiet", image])
    return answers(command_output(["podman", "run", "--rm", image, SHELL, "-c", ASK, SHELL]))


def read_output(argv: Sequence[str]) -> bytes:
    """A command's output as it is."""
    return subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S).stdout


def start_many(count: int) -> dict[str, Any]:
    """Start so many containers at the same time."""
    began = time.monotonic()
    argv = ["podman", "run", "--rm", IMAGE, SHELL, "-c", "echo started"]
    jobs = [
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(count)
    ]
    started, words = 0, ""
    for job in jobs:
        try:
            out, errors = job.communicate(timeout=max(began + MANY_S - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            job.kill()
            job.communicate()
            words = "no end after " + str(MANY_S) + " s"
            continue
        if job.returncode == 0 and out.strip() == b"started":
            started += 1
        else:
            words = errors.decode(errors="replace").strip()[-300:]
    return {"asked": count, "started": started, "seconds": round(time.monotonic() - began, 1), "words": words}


ENGINES = {"podman": podman, "charliecloud": charliecloud, "apptainer": apptainer, "pyxis": pyxis, "oci": oci}


def attempt(data: dict[str, Any], name: str, function: Any, *arguments: Any) -> None:
    """Its result under that name, or why there is none under `errors`."""
    try:
        data[name] = function(*arguments)
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        data["errors"][name] = str(error)


def main(starts: str, image: str, *engines: str) -> None:
    """All of it, with an image of the registry ('' for none); what fails does not stop the rest."""
    own = os.environ.get("SLURM_TMPDIR", "")
    data: dict[str, Any] = {
        "node": os.environ.get("SLURMD_NODENAME", ""),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "directory": own,
        "errors": {},
    }
    data["outside"] = answers(command_output([SHELL, "-c", ASK, SHELL, *devices()]))
    tree = os.path.join(own, "deepopsctl-tree")
    attempt(data, "tree", make_tree, tree)
    if not own or "tree" in data["errors"]:
        data["errors"].setdefault("tree", "the job has no SLURM_TMPDIR")
    else:
        for engine in engines:
            attempt(data, engine, ENGINES[engine], tree)
        if image:
            attempt(data, "registry", pull, image)
        if "podman" in data and int(starts):
            attempt(data, "starts", start_many, int(starts))
    sys.stdout.write(MARK + json.dumps(data) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
