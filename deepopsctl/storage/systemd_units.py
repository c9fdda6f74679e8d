"""Mounts as systemd units: their names and their text. Pure, and the same text for the same mount."""

from __future__ import annotations

import re
from collections.abc import Iterable

from deepopsctl.model.storage import NETWORKED, Mount, Needs
from deepopsctl.text.header import MANAGED_HEADER_FROM_CLUSTER

DIRECTORY = "/etc/systemd/system"
# slurmd waits for required mounts; it also starts without them, and then the node check drains the node
SLURMD_DROP_IN = f"{DIRECTORY}/slurmd.service.d/deepopsctl-storage.conf"
# a server that is away must not hold up the boot for longer
MOUNT_TIMEOUT_S = 90
# Units that start a fabric. Ordering after a unit that does not exist has no effect.
FABRIC = ("rdma-hw.target", "openibd.service", "opa.service")
NETWORK = ("remote-fs-pre.target", "network.target", "network-online.target")

_PLAIN = re.compile(r"[A-Za-z0-9:_.]")


def escape(path: str) -> str:
    """A path as systemd writes it in the name of a unit: systemd-escape --path."""
    inner = path.strip("/")
    escaped = [_escape(character) for character in inner.replace("/", "\0")]
    # a dot at the beginning would make it a hidden file
    return ("\\x2e" if inner.startswith(".") else escaped[0]) + "".join(escaped[1:]) if escaped else "-"


def _escape(character: str) -> str:
    if character == "\0":
        return "-"
    return character if _PLAIN.fullmatch(character) else "".join(f"\\x{byte:02x}" for byte in character.encode())


def unit_name(path: str, suffix: str = "mount") -> str:
    """`/data/new` -> `data-new.mount`."""
    return f"{escape(path)}.{suffix}"


def mount_unit(mount: Mount, needs: Needs) -> str:
    """The unit that mounts it. A mount that fails fails alone: nothing requires it, nothing but slurmd waits for it.

    systemd's own option for this is nofail, which is also passed to the helpers of file systems, and
    Lustre's helper passes unknown options to the kernel, which refuses them. So all dependencies are written here.
    """
    # the server bind-mounts its own directory
    networked = mount.type in NETWORKED and needs.fstype != "none"
    target = "remote-fs.target" if networked else "local-fs.target"
    after = [*((*NETWORK, *FABRIC) if networked else ("local-fs-pre.target",)), *needs.after, *needs.requires]
    unit = [f"Description=Storage {mount.name}", "DefaultDependencies=no"]
    unit += ["Wants=network-online.target"] if networked else []
    unit += [f"After={' '.join(dict.fromkeys(after))}"]
    unit += [f"Requires={' '.join(needs.requires)}"] if needs.requires else []
    unit += ["Conflicts=umount.target", "Before=umount.target"]
    options = [*needs.options, *(["_netdev"] if networked else [])]
    how = [f"What={_value(needs.what)}", f"Where={_value(mount.path)}", f"Type={needs.fstype}"]
    how += [f"Options={_value(','.join(options))}"] if options else []
    how += [f"TimeoutSec={MOUNT_TIMEOUT_S}"]
    install = "" if mount.automount else f"\n[Install]\nWantedBy={target}\n"
    return MANAGED_HEADER_FROM_CLUSTER + _section("Unit", unit) + "\n" + _section("Mount", how) + install


def automount_unit(mount: Mount) -> str:
    """The automount unit: mounts at first use, and unmounts after `automount_idle` without use."""
    target = "remote-fs.target" if mount.type in NETWORKED else "local-fs.target"
    unit = _section("Unit", [f"Description=Storage {mount.name} at first use"])
    how = [f"Where={_value(mount.path)}"]
    how += [f"TimeoutIdleSec={mount.automount_idle}"] if mount.automount_idle else []
    return f"{MANAGED_HEADER_FROM_CLUSTER}{unit}\n{_section('Automount', how)}\n[Install]\nWantedBy={target}\n"


def slurmd_drop_in(mounts: Iterable[Mount]) -> str:
    """slurmd starts after these have been tried. Requires= would stop it, and with it the node, at an unmount."""
    names = " ".join(unit_name(mount.path, "automount" if mount.automount else "mount") for mount in mounts)
    return f"{MANAGED_HEADER_FROM_CLUSTER}{_section('Unit', [f'Wants={names}', f'After={names}'])}"


def _section(name: str, lines: Iterable[str]) -> str:
    return f"[{name}]\n" + "".join(f"{line}\n" for line in lines)


def _value(text: str) -> str:
    """Text with systemd's specifiers escaped."""
    return text.replace("%", "%%")
