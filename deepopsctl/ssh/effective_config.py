"""The effective ssh destination and keys, with the person's own ~/.ssh/config applied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Route:
    """`alias` is the HostKeyAlias; `direct`: no proxy; `keys`: the person has a key, agent or ticket."""

    user: str
    host: str
    port: int
    alias: str = ""
    direct: bool = True
    keys: bool = False

    @property
    def shown(self) -> str:
        """The host as ssh names it in its password prompt."""
        return self.alias or self.host


def read_route(output: str, environment: Mapping[str, str]) -> Route:
    """The route in the output of `ssh -G`."""
    values: dict[str, list[str]] = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)

    def last(key: str, default: str = "") -> str:
        return values.get(key, [default])[-1]

    return Route(
        user=last("user"),
        host=last("hostname"),
        port=int(last("port", "22")),
        alias=last("hostkeyalias"),
        direct=all(last(key, "none") == "none" for key in ("proxycommand", "proxyjump")),
        keys=(
            any(Path(file).expanduser().exists() for file in values.get("identityfile", ()))
            or last("identityagent", environment.get("SSH_AUTH_SOCK", "")) not in ("", "none")
            or last("pkcs11provider", "none") != "none"
            or (last("gssapiauthentication") == "yes" and _has_ticket(environment))
        ),
    )


def _has_ticket(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("KRB5CCNAME")) or Path(f"/tmp/krb5cc_{os.getuid()}").exists()  # noqa: S108 - Kerberos' own place
