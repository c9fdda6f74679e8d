"""Whether a mount would hide the keys by which this node is reached: asked by a plan, which mounts nothing here."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table

# a server that is away; a plan continues without its answer
PATIENCE_S = 30
# what the shell below ends with
NOT_MOUNTED, HIDDEN = 91, 92
# Mounted read-only, in a mount namespace that ends with the shell: no other process sees it. The file is read
# as its owner, as most servers squash root.
TRIAL = 'user=$1 file=$2; shift 2; mount "$@" || exit 91; runuser -u "$user" -- test -r "$file" || exit 92'
HINT = "put the keys into that storage first; the deploy would unmount it again"


def below(path: str, file: str) -> bool:
    """Whether a file is in a directory, or anywhere below it."""
    inside = os.path.realpath(path).rstrip("/") + "/"
    return os.path.realpath(file).startswith(inside)


class UnknownError(Exception):
    """The mount can't be tried; the message has the reason."""


def refusal(mount: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    """What a deploy would refuse (message, hint), or (); `keys` are (user, file) or (). Raises UnknownError."""
    path = mount["path"]
    if not keys or not below(path, keys[1]):
        return ()
    unit = mount_table.parse_unit(mount["text"])
    types = [] if unit.fstype in ("", "none", "auto") else ["-t", unit.fstype]
    words = [*types, "-o", ",".join(["ro", *(option for option in unit.options if option != "rw")]), unit.what, path]
    shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", TRIAL, "sh", keys[0], keys[1]]
    result = command.run_merged([*shell, *words], PATIENCE_S)
    if result.ok:
        return ()
    if result.status == HIDDEN:
        message = f"storage {mount['name']} would hide {keys[1]}, and no user could log in here any more"
        return (message, HINT)
    reason = (result.message.strip().splitlines() or ["no answer"])[-1]
    raise UnknownError(
        f"storage {mount['name']} comes over {keys[1]}; the deploy is refused where it has no such file: {reason}"
    )
