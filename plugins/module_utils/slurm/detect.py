"""The Slurm that is on a node already: its daemons, its configuration, whose it is. Only reads."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import files as node_files, record as node_record

DAEMONS = ("slurmctld", "slurmdbd", "slurmd")
DIRECTORIES = ("/etc/slurm", "/etc/slurm-llnl", "/usr/local/etc", "/usr/local/slurm/etc", "/opt/slurm/etc")
MUNGE_KEY = "/etc/munge/munge.key"
# what `deepopsctl restore` has fetched, until it has compared the queue
RESTORE = "/var/lib/deepopsctl/restore/current.json"


def daemons() -> dict[str, str]:
    """{name: path of the program} of Slurm's daemons that run here."""
    programs = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            name = (node_files.read(f"/proc/{entry}/comm") or b"").decode(errors="replace").strip()
            if name in DAEMONS:
                programs[name] = _program(entry, name)
    return programs


def _program(pid: str, name: str) -> str:
    try:
        # a program whose package was upgraded under it reads `... (deleted)`
        return os.readlink(f"/proc/{pid}/exe").replace(" (deleted)", "")
    except OSError:
        return _started_as(pid, name)


def _started_as(pid: str, name: str) -> str:
    """The program by its command line, as a container without SYS_PTRACE hides the link; '' where it is not root's."""
    word = (node_files.read(f"/proc/{pid}/cmdline") or b"").split(b"\0")[0].decode(errors="replace")
    path = word if os.path.isabs(word) and os.path.basename(word) == name else shutil.which(name) or ""
    try:
        # a user may call a process what he likes
        facts = os.stat(path)
    except OSError:
        return ""
    return path if facts.st_uid == 0 and not facts.st_mode & 0o022 else ""


def first_file(name: str) -> tuple[str, bytes]:
    """Path and content of a configuration file in the first usual directory that has it; ('', b'') for none."""
    for directory in DIRECTORIES:
        path = os.path.join(directory, name)
        content = node_files.read(path)
        if content is not None:
            return path, content
    return "", b""


def settings(content: bytes) -> dict[str, str]:
    """KEY=VALUE lines as a dict with keys in lower case; the last one wins."""
    return {key.lower(): value for key, value in _pairs(content)}


def public_settings(content: bytes) -> dict[str, str]:
    """The same with keys as they are written, without passwords."""
    last = {key.lower(): (key, value) for key, value in _pairs(content)}
    return dict(last[key] for key in last if not key.endswith("pass"))


def _pairs(content: bytes) -> Iterator[tuple[str, str]]:
    for line in content.decode(errors="replace").splitlines():
        match = re.match(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$", line.partition("#")[0])
        if match:
            yield match.group(1), match.group(2).strip('"')


def with_includes(path: str, content: bytes, depth: int = 4) -> bytes:
    """The text of a configuration file with the files that it includes, as Slurm reads them."""
    lines = []
    for line in content.decode(errors="replace").splitlines(keepends=True):
        match = re.match(r"\s*Include\s+(\S+)", line, re.IGNORECASE)
        if match and depth:
            included = os.path.join(os.path.dirname(path), match.group(1))
            lines.append(with_includes(included, node_files.read(included) or b"", depth - 1).decode() + "\n")
        else:
            lines.append(line)
    return "".join(lines).encode()


def restore_begun() -> bool:
    """Whether a restore was begun here that has not ended."""
    return os.path.exists(RESTORE)


def munge_key_hash() -> str:
    """SHA-256 of this node's munge key, '' without one."""
    content = node_files.read(MUNGE_KEY)
    return hashlib.sha256(content).hexdigest() if content else ""


def foreign(component: str) -> dict[str, str]:
    """Facts of a Slurm that deepopsctl did not deploy; {} when there is none."""
    if deployed(component):
        return {}
    running = sorted(daemons())
    path, content = first_file("slurm.conf")
    if not running and (not content or content.startswith(node_files.MANAGED)):
        return {}
    return {
        "what": f"runs {' and '.join(running)}" if running else f"has {path}",
        "cluster": settings(content).get("clustername", "").lower(),
        "munge_key": munge_key_hash(),
    }


def deployed(component: str) -> bool:
    """Whether deepopsctl has deployed a component here, or begun to."""
    directory = os.path.join(node_record.STATE, "records")
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return any(name.startswith(f"{component}.") for name in names)
