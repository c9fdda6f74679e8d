"""What runs: who listens where, time, firewall, a Slurm that was there before."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from ..._shared import command, database as database_clients, slurm_client, spank
from .query import output, read

SLURM = ("slurmctld", "slurmd", "slurmdbd")
# the kernel keeps 15 letters of a name
TIME = {"chronyd": "chronyd", "ntpd": "ntpd", "ntpsec": "ntpsec", "systemd-timesyn": "systemd-timesyncd"}
DATABASE = ("bind_address", "innodb_lock_wait_timeout", "innodb_snapshot_isolation", "max_allowed_packet")
FIREWALLS = ("firewalld", "ufw")
STATE = "/var/lib/deepopsctl"
# the first uid of people
PEOPLE = 1000
LISTEN, STA_UNSYNC = "0A", 0x0040


def processes(proc: str = "/proc") -> dict[int, str]:
    """Names of all processes."""
    names = {}
    for path in glob.glob(os.path.join(proc, "[0-9]*", "comm")):
        name = read(path)
        if name:
            names[int(path.split(os.sep)[-2])] = name
    return names


def listeners(ports: Iterable[int], running: dict[int, str]) -> list[dict[str, Any]]:
    """Who listens on these TCP ports; pid 0 where only root can see it."""
    wanted = set(ports)
    sockets: dict[str, int] = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in read(path).splitlines()[1:]:
            words = line.split()
            port = int(words[1].rpartition(":")[2], 16)
            if words[3] == LISTEN and port in wanted:
                sockets[words[9]] = port
    owners = owners_of(set(sockets), running) if sockets else {}
    listening = {}
    for inode, port in sockets.items():
        pid = owners.get(inode, 0)
        listening[port, pid] = {"port": port, "pid": pid, "command": running.get(pid, "")}
    return [listening[key] for key in sorted(listening)]


def owners_of(inodes: Any, running: dict[int, str]) -> dict[str, int]:
    """The process of each of these sockets."""
    owners = {}
    for pid in running:
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                match = re.match(r"socket:\[(\d+)\]", os.readlink(path))
            except OSError:
                continue
            if match and match.group(1) in inodes:
                owners[match.group(1)] = pid
    return owners


def time_service(running: dict[int, str]) -> dict[str, Any]:
    """Which daemons set the clock, and whether the kernel calls it synchronised."""
    names = {name for pid, name in running.items() if name in TIME and is_of_the_system(pid)}
    return {
        "daemons": sorted(TIME[name] for name in names),
        "synchronised": is_synchronised(),
    }


def is_of_the_system(pid: int) -> bool:
    """Whether a process is root's or a system account's: people may give theirs any name."""
    try:
        return os.stat(f"/proc/{pid}").st_uid < PEOPLE
    except OSError:
        return False


def is_synchronised() -> bool:
    """Whether the kernel reports a synchronised clock."""
    buffer = ctypes.create_string_buffer(512)
    try:
        libc = ctypes.CDLL(None)
        # modes = 0: read only; `status` stands after modes (padded), offset, freq, maxerror and esterror
        if libc.adjtimex(buffer) < 0:
            return False
    except (OSError, AttributeError):
        return False
    status = ctypes.c_int.from_buffer(buffer, 5 * ctypes.sizeof(ctypes.c_long)).value
    return not status & STA_UNSYNC


def firewalls() -> list[str]:
    """Firewalls of the distribution that are active."""
    states = output(["systemctl", "is-active", *list(FIREWALLS)]).split()
    active = [name for name, word in zip(FIREWALLS, states) if word == "active"]
    if "ufw" in active and "ENABLED=yes" not in read("/etc/ufw/ufw.conf"):
        # the unit is active on every Ubuntu, whether or not it filters
        active.remove("ufw")
    return active


def database(running: dict[int, str], server: Sequence[Any]) -> dict[str, str]:
    """Settings in force of the MariaDB here, or of a server elsewhere (host, port) with its `server` and `problem`.

    {} where none runs, or only root is let in.
    """
    if server:
        return dict(_elsewhere(str(server[0]), int(server[1])), server=str(server[0]))
    return _settings() if {"mariadbd", "mysqld"} & set(running.values()) else {}


def _elsewhere(host: str, port: int) -> dict[str, str]:
    try:
        socket.create_connection((host, port), 10).close()
    except OSError as error:
        return {"problem": f"{host} port {port}: {error.strerror or error}"}
    # before a deploy there is no login, and without root none that can be read
    return _settings() if os.access(database_clients.LOGIN, os.R_OK) else {}


def _settings() -> dict[str, str]:
    names = ", ".join(f"'{name}'" for name in DATABASE)
    statement = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names});"
    answer = command.run(database_clients.client("mariadb", "--batch", "--skip-column-names"), 10, statement)
    if not answer.ok:
        return {"problem": answer.failure} if database_clients.is_elsewhere() else {}
    rows = [line.split("\t") for line in answer.output.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) == 2}


def slurm(running: dict[int, str]) -> dict[str, Any]:
    """Slurm's daemons, its version, and whether deepopsctl has deployed here."""
    version = re.search(r"\d+\.\d+\S*", output(["slurmd", "-V"]) or output(slurm_client.VERSION))
    return {
        "daemons": sorted(set(running.values()) & set(SLURM)),
        "version": version.group(0) if version else "",
        "managed": os.path.isdir(STATE),
        "plugins": spank.plugins(),
    }
