"""Texts of systemd's files: drop-ins for packages' daemons, and units of deepopsctl's programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from deepopsctl.monitoring.resources import File
from deepopsctl.text.header import MANAGED_HEADER

UNIT_DIRECTORY = "/etc/systemd/system"


def started_by(unit: str, command: Sequence[str], *more: str) -> File:
    """A drop-in that starts a package's unit in another way; `more` are lines of its section Service.

    The package's own file of arguments (/etc/default/...) stays as it came, and is not read.
    """
    lines = ["[Service]", "EnvironmentFile=", "ExecStart=", f"ExecStart={_quoted(command)}", *more]
    return File(f"{UNIT_DIRECTORY}/{unit}.d/deepopsctl.conf", MANAGED_HEADER + "\n".join(lines) + "\n")


def service(name: str, description: str, command: Sequence[str], *more: str) -> File:
    """A unit of deepopsctl that is always running, and restarts 15 s after a failure."""
    lines = [
        "[Unit]",
        f"Description={description}",
        "",
        "[Service]",
        f"ExecStart={_quoted(command)}",
        "Restart=always",
        "RestartSec=15",
        *more,
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return File(f"{UNIT_DIRECTORY}/{name}.service", MANAGED_HEADER + "\n".join(lines) + "\n")


def _quoted(command: Sequence[str]) -> str:
    """One argument a line, so that a diff shows which of them changed; systemd's own escapes."""
    return " \\\n    ".join(_word(word) for word in command)


def _word(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if any(letter in word for letter in " \t'\";\\") else escaped


# Since 255 systemd keeps CAP_SYS_ADMIN until the filters of system calls are in force, also for a unit that is not
# root's, and can't start it where there is no CAP_SYS_ADMIN (containers): unless the unit may not change its
# capabilities anyway. None of deepopsctl's units does.
WITHOUT_KEPT_RIGHTS = "SystemCallFilter=~capset"
# as systemd has it by itself
OPEN = None
# for Slurm's commands: munge's socket, the daemons, and netlink for this node's own addresses
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
# these give a unit a private view of the node
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
    """Lines of the section Service. `but` overrides a switch; OPEN leaves it to systemd."""
    return _lines({**_RIGHTS, **_VIEW, **but})


def confined_with_full_view(**but: str | None) -> tuple[str, ...]:
    """The same for a program that has to see mounts, devices and jobs as they are."""
    return _lines({**_RIGHTS, **but})


def _lines(switches: Mapping[str, str | None]) -> tuple[str, ...]:
    lines = (f"{name}={value}" for name, value in switches.items() if value is not None)
    return (*lines, *((WITHOUT_KEPT_RIGHTS,) if switches["SystemCallFilter"] else ()))
