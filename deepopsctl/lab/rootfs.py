"""The files that make a minimal Debian a lab node. Their content is part of the image's hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

USER = "ubuntu"
INIT_PATH = "usr/local/lib/lab/init"


@dataclass(frozen=True, slots=True)
class RootFile:
    """One file of the node image."""

    mode: int
    content: str


# systemd 258 and newer refuses cgroup v1. Where this machine has nothing else it is given the v2 tree that lies
# next to v1, with no controllers in it: services run, but slurmd cannot confine jobs there.
INIT = """#!/bin/sh
version=$(systemctl --version | sed -n '1s/^systemd \\([0-9]*\\).*/\\1/p')
if [ "$(stat -f -c %T /sys/fs/cgroup)" != cgroup2fs ] && [ "${version:-0}" -ge 258 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
exec /sbin/init
"""

# On cgroup v1 podman mounts the node's own subtree read-only, even for systemd. `bind` matters: a plain
# remount acts on the shared super block and is refused as busy. On v2 the tree is writable: nothing is done.
WRITABLE_CGROUPS = """#!/bin/sh
# Make this node's own cgroup tree writable, so that slurmd can confine jobs.
for mount in /sys/fs/cgroup/*; do
    mountpoint -q "$mount" || continue
    [ -w "$mount" ] || mount -o remount,bind,rw "$mount" || echo "could not make $mount writable" >&2
done
"""

# Not baked into the image: two nodes with one host key would hide mix-ups that pinned keys must show.
FIRST_BOOT = """#!/bin/sh
# What makes this node different from its siblings.
set -e
for kind in ed25519 ecdsa; do
    ssh-keygen -q -t "$kind" -N '' -C "$(hostname)" -f "/etc/ssh/ssh_host_${kind}_key"
done
echo "127.0.1.1 $(hostname)" >> /etc/hosts
"""

FILES = {
    "etc/systemd/system/lab-cgroups.service": RootFile(
        0o644,
        """[Unit]
Description=Make the node's own cgroup tree writable
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/lab/writable-cgroups

[Install]
WantedBy=sysinit.target
""",
    ),
    "etc/systemd/system/lab-first-boot.service": RootFile(
        0o644,
        """[Unit]
Description=Give the node its own host keys and name
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
Before=ssh.service ssh.socket

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/lib/lab/first-boot

[Install]
WantedBy=multi-user.target
""",
    ),
    INIT_PATH: RootFile(0o755, INIT),
    "usr/local/lib/lab/writable-cgroups": RootFile(0o755, WRITABLE_CGROUPS),
    "usr/local/lib/lab/first-boot": RootFile(0o755, FIRST_BOOT),
    "etc/ssh/sshd_config.d/10-lab.conf": RootFile(
        0o644, "PasswordAuthentication yes\nPermitRootLogin no\nUseDNS no\nGSSAPIAuthentication no\n"
    ),
    "etc/sudoers.d/lab": RootFile(0o440, f"{USER} ALL=(ALL:ALL) NOPASSWD:ALL\n"),
    "etc/hosts": RootFile(0o644, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"),
    "etc/default/locale": RootFile(0o644, "LANG=C.UTF-8\n"),
    "etc/dpkg/dpkg.cfg.d/lab": RootFile(
        0o644,
        "# a throw-away node needs no manuals and no fsync\nforce-unsafe-io\npath-exclude=/usr/share/man/*\n",
    ),
    "etc/apt/apt.conf.d/90lab": RootFile(0o644, 'Acquire::Languages "none";\nAPT::Periodic::Enable "0";\n'),
    "etc/systemd/journald.conf.d/lab.conf": RootFile(0o644, "[Journal]\nSystemMaxUse=32M\nRuntimeMaxUse=32M\n"),
}

ENABLED_UNITS = ("lab-cgroups.service", "lab-first-boot.service")
# Background work that would compete with a deploy for the package lock and the CPU.
MASKED_UNITS = (
    "apt-daily.timer",
    "apt-daily.service",
    "apt-daily-upgrade.timer",
    "apt-daily-upgrade.service",
    "dpkg-db-backup.timer",
    "dev-hugepages.mount",
    "sys-fs-fuse-connections.mount",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty.target",
    "console-getty.service",
    # the settings of this machine: nodes share its kernel
    "systemd-sysctl.service",
    # an inotify instance each, of the 128 that all nodes share by default
    "systemd-ask-password-console.path",
    "systemd-ask-password-wall.path",
)

# Programs that systemd runs whenever it reloads its units, thirty times while a dozen daemons are installed. A node
# has no firmware, no boot loader, no terminal and no partitions to look for; what fstab and init scripts need stays.
MASKED_GENERATORS = (
    "debug",
    "getty",
    "gpt-auto",
    "hibernate-resume",
    "rc-local",
    "run",
    "ssh",
    "system-update",
    "tpm2",
)

# Packages' lists and apt's cache of them stay in an image: the first `apt-get install` needs no update.
WARM_APT = """\
rm -rf /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/log/*.log /var/log/apt
# apt's cache is worth a second of CPU and 90 MB of writing on every node. It is valid only for the very
# times of the files it was made from, and mmdebstrap gives the files it made this one:
find /var/lib/apt/lists /var/lib/dpkg/status -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
apt-cache gencaches
"""

# Run in the new root by mmdebstrap, after the packages are in and the files above are in place.
FINISH = f"""set -e
useradd --create-home --shell /bin/bash --groups sudo,adm {USER}
passwd --quiet --lock root
rm -f /etc/ssh/ssh_host_* /etc/hostname /etc/resolv.conf
systemctl --quiet enable {" ".join(ENABLED_UNITS)}
systemctl --quiet mask {" ".join(MASKED_UNITS)}
# nothing is newer than the last boot: ldconfig, sysusers and the journal's catalog are as packages left them
touch -r /usr /etc/.updated /var/.updated
mkdir -p /etc/systemd/system-generators
for name in {" ".join(MASKED_GENERATORS)}; do
    ln -s /dev/null "/etc/systemd/system-generators/systemd-$name-generator"
done
: > /etc/machine-id
{WARM_APT}"""


def write_rootfs(directory: Path, files: Mapping[str, RootFile]) -> None:
    """Write the files below `directory`, with their modes."""
    for name, file in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.content, encoding="utf-8")
        path.chmod(file.mode)
