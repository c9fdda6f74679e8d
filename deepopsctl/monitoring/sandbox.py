"""What the units of our programs may not do: one list for all of them, and each one's differences as data.

systemd.exec(5) says what every switch takes away. A unit that needs one of these things back says so, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Since 255 systemd keeps CAP_SYS_ADMIN until the filters of system calls are in force, also for a unit that is not
# root's, and can't start it where there is no CAP_SYS_ADMIN (containers): unless the unit may not change its
# capabilities anyway. None of ours does.
WITHOUT_KEPT_RIGHTS = "SystemCallFilter=~capset"
# as systemd has it by itself
OPEN = None
# what Slurm's commands talk over: munge's socket, the daemons, and the kernel about this machine's own addresses
SLURMS_FAMILIES = "AF_UNIX AF_INET AF_INET6 AF_NETLINK"

_RIGHTS: Mapping[str, str] = MappingProxyType(
    {
        "CapabilityBoundingSet": "",
        "NoNewPrivileges": "yes",
        "RestrictSUIDSGID": "yes",
        "RestrictNamespaces": "yes",
        "RestrictRealtime": "yes",
        "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
        "LockPersonality": "yes",
        "MemoryDenyWriteExecute": "yes",
        "SystemCallArchitectures": "native",
        "SystemCallFilter": "@system-service",
    }
)
# these give a unit a view of the machine of its own
_VIEW: Mapping[str, str] = MappingProxyType(
    {
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "PrivateDevices": "yes",
        "ProtectKernelTunables": "yes",
        "ProtectKernelModules": "yes",
        "ProtectKernelLogs": "yes",
        "ProtectControlGroups": "yes",
        "ProtectClock": "yes",
        "ProtectHostname": "yes",
    }
)


def confined(**but: str | None) -> tuple[str, ...]:
    """Lines of the section Service. What `but` says of a switch holds; OPEN leaves it to systemd."""
    return _lines({**_RIGHTS, **_VIEW, **but})


def confined_with_full_view(**but: str | None) -> tuple[str, ...]:
    """The same for a program that has to see mounts, devices and jobs as they are."""
    return _lines({**_RIGHTS, **but})


def _lines(switches: Mapping[str, str | None]) -> tuple[str, ...]:
    lines = (f"{name}={value}" for name, value in switches.items() if value is not None)
    return (*lines, *((WITHOUT_KEPT_RIGHTS,) if switches["SystemCallFilter"] else ()))
