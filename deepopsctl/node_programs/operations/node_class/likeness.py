"""Hashes of what a plan depends on, without what is each node's own: its names, addresses and ids of disks.

Two nodes with equal ones have the same system, packages, configuration, services and hardware. Anything that is not
known to be a node's own makes a difference.
"""

from __future__ import annotations

import glob
import hashlib
import os
import platform
import re
import socket
from collections.abc import Iterable, Iterator

from ..._shared import access_keys, command, mount_table, packages_query, platform as node_platform

ETC = "/etc"
# a file above this size is compared by it
LARGE = 1 << 20
# of /etc, what is each node's own and decides nothing of a deploy
OWN = re.compile(
    r"(adjtime|hostname|machine-id|mtab|resolv\.conf|ld\.so\.cache|hostid|[a-z]+-|g?shadow|\.pwd\.lock|\.updated"
    r"|ssh/ssh_host_.*|netplan/.*|network/.*|NetworkManager/system-connections/.*|systemd/network/.*"
    r"|udev/rules\.d/\d+-persistent-.*|iscsi/.*|nvme/.*|lvm/.*|ssl/private/.*|ssl/certs/ssl-cert-snakeoil\.pem"
    r"|letsencrypt/.*|krb5\.keytab|\.git/.*|\.etckeeper)\Z"
)
# where file systems have their ids, which are a node's own
WITH_IDS = re.compile(r"fstab|crypttab|mdadm/|default/grub|kernel/|initramfs-tools/")
IDS = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{4}-[0-9a-fA-F]{4}\b")
# software that no package manager knows, and what an earlier system may have left
PLACES = ("/opt", "/srv", "/usr/local/*", "/usr/local/*/*", "/var/lib", "/var/spool", "/var/lib/slurm*")
KEYS = ("/root/.ssh/authorized_keys",)
# their speed changes while one looks
CHANGING = re.compile(r"^(CPU.*MHz|BogoMIPS).*$\n?", re.MULTILINE)
MODULES = re.compile(
    r"^(nvidia\w*|nouveau|gdrdrv|mlx\w*|ib_\w+|rdma\w*|knem|xpmem|lustre|beegfs|ceph|nfsd?) ", re.MULTILINE
)
# what a deploy configures, or what may be in its place
DAEMONS = re.compile(
    r"(slurm|munge|chrony|ntp|systemd-timesyncd|maria|mysql|nfs|rpc|sss|nscd|nslcd|autofs|ssh|nvidia|dcgm|docker|containerd"
    r"|prometheus|node[_-]exporter|grafana|alertmanager|squid|haproxy|apt-cacher|beegfs|lustre|gluster|ceph|firewalld|ufw|nftables)"
    r"[\w-]*\.service\Z"
)
PSEUDO = re.compile(r"/(proc|sys|dev|run)(/|\Z)")


def areas(name: str, etc: str = ETC) -> dict[str, str]:
    """A hash for each area; `name` is the node's own in cluster.yml."""
    own = Own.of_this_node()
    contents = {
        "system": system(),
        "name": [str(socket.gethostname() == name)],
        "packages": packages(),
        "configuration": configuration(etc, own),
        "software": software(),
        "services": services(),
        "hardware": hardware(),
    }
    return {area: _hash(lines) for area, lines in contents.items()}


class Own:
    """What only this node has: replaced before texts are compared."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(filter(None, words), key=len, reverse=True)

    @classmethod
    def of_this_node(cls) -> Own:
        """By its host name, its addresses and those of its network interfaces."""
        host = socket.gethostname()
        # the kernel's table of its own addresses
        addresses = re.findall(r"-- (\S+)\s+/32 host LOCAL", _text("/proc/net/fib_trie"))
        cards = {_text(path).strip() for path in glob.glob("/sys/class/net/*/address")} - {"00:00:00:00:00:00"}
        others = {address for address in addresses if not address.startswith("127.")}
        return cls([host, host.partition(".")[0], *others, *cards])

    def without(self, text: str) -> str:
        """A text in which no such word is left."""
        for word in self._words:
            # most files have none, and the pattern takes long
            if word in text:
                text = re.sub(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", "<own>", text)
        return text


def system() -> list[str]:
    """The distribution, kernel, Python, and how jobs could be confined."""
    facts = {**node_platform.os_release(), **node_platform.cgroup_facts()}
    python = platform.python_version()
    return [_text("/etc/os-release"), os.uname().release, os.uname().machine, python, str(sorted(facts.items()))]


def packages() -> Iterator[str]:
    """Packages with versions and holds, which of them came for others, and the lists that apt has."""
    yield from (f"{name} {state}" for name, state in sorted(packages_query.states([]).items()))
    yield from packages_query.lists()


def configuration(etc: str, own: Own) -> Iterator[str]:
    """Every file of /etc but the node's own, with owner and mode, and the keys that open it."""
    for directory, directories, names in os.walk(etc):
        directories.sort()
        for name in sorted(names):
            path = os.path.join(directory, name)
            relative = os.path.relpath(path, etc)
            if not OWN.match(relative):
                yield _file(path, relative, own)
    user = os.environ.get("SUDO_USER") or "root"
    yield f"{user} {access_keys.networked_home(user)} {os.path.exists(os.path.expanduser(f'~{user}/.ssh'))}"
    yield from (_text(path) for path in KEYS)
    yield _text(os.path.expanduser(f"~{user}/.ssh/authorized_keys"))


def _file(path: str, relative: str, own: Own) -> str:
    try:
        status = os.lstat(path)
        if os.path.islink(path):
            content = own.without(os.readlink(path))
        elif status.st_size > LARGE:
            content = str(status.st_size)
        else:
            text = own.without(_text(path))
            content = _hash([IDS.sub("<id>", text) if WITH_IDS.match(relative) else text])
    except OSError as error:
        return f"{relative} {error.errno}"
    return f"{relative} {status.st_mode:o} {status.st_uid}:{status.st_gid} {content}"


def software() -> Iterator[str]:
    """The names of what lies where no package manager looks."""
    for place in PLACES:
        for directory in sorted(glob.glob(place)):
            if os.path.isdir(directory):
                yield f"{directory}: {' '.join(sorted(os.listdir(directory)))}"


def services() -> Iterator[str]:
    """Daemons that run, and file systems that are mounted."""
    running = command.run(
        ["systemctl", "list-units", "--plain", "--no-legend", "--type=service", "--state=running"], 10
    )
    # others, as a start's and a login's, come and go
    yield " ".join(sorted({name for name in running.output.split() if DAEMONS.match(name)}))
    yield from sorted(f"{each.path} {each.type}" for each in mount_table.read() if not PSEUDO.match(each.path))


def hardware() -> Iterator[str]:
    """Processors, PCI devices, GPUs and the kernel modules for them."""
    yield CHANGING.sub("", command.run(["lscpu"], 10).output)
    for path in sorted(glob.glob("/sys/bus/pci/devices/*")):
        yield " ".join(_text(os.path.join(path, each)).strip() for each in ("vendor", "device", "class"))
    yield str(len(glob.glob("/dev/nvidia[0-9]*")))
    yield " ".join(sorted(MODULES.findall(_text("/proc/modules"))))
    yield _text("/sys/module/nvidia/version")


def memory() -> str:
    """The line of /proc/meminfo that says how much memory there is."""
    return _text("/proc/meminfo").partition("\n")[0]


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.read(LARGE)
    except OSError:
        return ""


def _hash(lines: Iterable[str]) -> str:
    total = hashlib.sha256()
    for line in lines:
        data = line.encode("utf-8", "surrogateescape")
        total.update(b"%d:" % len(data) + data)
    return total.hexdigest()[:16]
