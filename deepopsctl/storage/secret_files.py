"""Files with storage secrets: from the vault to the bytes of a node's file. Error messages never contain secrets."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

from deepopsctl.model.storage import NodeSecret

# shorter ones are probably invented passwords
SHORTEST_BINARY = 16
_CEPHX = re.compile(r"[A-Za-z0-9+/]{38,}={0,2}")
_WHERE = "storage_secrets: {%s: ...} in inventory/group_vars/all/secrets.yml"


def why_unusable(needed: Iterable[NodeSecret], secrets: Mapping[str, object]) -> list[str]:
    """Problems with the secrets that a node needs, one sentence each."""
    problems = []
    for name, is_binary in dict.fromkeys((secret.name, secret.is_binary) for secret in needed):
        value = secrets.get(name)
        if not value:
            problems.append(f"the vault has no secret {name}: add {_WHERE % name}")
        elif not (_is_binary(str(value)) if is_binary else _CEPHX.fullmatch(str(value).strip())):
            form = "the file in base64 (`base64 -w0`)" if is_binary else "a key as `ceph auth get-key` prints it"
            problems.append(f"the secret {name} is not {form}: correct {_WHERE % name}")
    return problems


def content_base64(secret: NodeSecret, secrets: Mapping[str, object]) -> str:
    """The whole content of a secret's file, in base64; '' where there is none."""
    value = str(secrets.get(secret.name, "")).strip()
    if secret.is_binary or not value:
        return value
    return base64.b64encode(f"{secret.before}{value}\n".encode()).decode()


def _is_binary(text: str) -> bool:
    try:
        return len(base64.b64decode(text.strip(), validate=True)) >= SHORTEST_BINARY
    except (binascii.Error, ValueError):
        return False
