"""One mount: created, changed (while in use where possible), or removed."""

from __future__ import annotations

import os
import pwd

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command,
    errors as node_failure,
    files as node_files,
    services as node_units,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table as node_mounts
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage.mount_context import (
    PATIENCE_S,
    InUseError,
    automount_of,
    drop_unit,
    file_of,
    systemctl,
    text_of,
)

LEFT_OUT = "its client is left out"


def unmount(step, unit, path):
    """Stop the units of a mount. Raises InUseError; the mount is then as it was."""
    if path in step.table:
        step.quiet.seek()
    if step.dry:
        return
    # of a unit whose file somebody removed systemd says that there is none
    _worked, output = systemctl("stop", unit)
    if path in node_mounts.mounted():
        raise InUseError("in use by %s" % (node_mounts.users(path) or output or "the kernel"))
    # never before: systemd takes away what is on top of an automount as well, also from those who use it
    systemctl("stop", automount_of(unit))
    systemctl("reset-failed", unit)
    # what was mounted below it went with it
    step.table = node_mounts.mounted()


def check_path(step, mount, unit):
    """Refuse a path that is somebody else's."""
    path, managed = mount["path"], file_of(mount["unit"]) in step.owned["files"]
    entry = step.table.get(path)
    if managed:
        return
    text = text_of(file_of(mount["unit"]))
    if text is not None and not text.startswith(node_files.MANAGED.decode()):
        words = (mount["name"], file_of(mount["unit"]))
        raise node_failure.HintedError(
            "storage %s: %s exists and is not managed by deepopsctl" % words, "remove it, or the entry"
        )
    hint = "unmount it there and take it out of /etc/fstab, or choose another path in cluster.yml"
    if entry is not None and not node_mounts.is_same_mount(entry, unit):
        words = (mount["name"], entry.source, entry.fstype, path)
        raise node_failure.HintedError("storage %s: %s (%s) is mounted at %s already" % words, hint)
    conflict = node_mounts.conflict_at(path) if entry is None else ""
    if conflict:
        raise node_failure.HintedError("storage %s: %s" % (mount["name"], conflict), hint)
    hidden = node_mounts.hidden_entries(path) if entry is None else 0
    if hidden:
        words = (mount["name"], path, hidden)
        step.module.warn("storage %s: %s is not empty: the mount hides %d entries there" % words)


def write_units(step, mount):
    """Both texts of a mount; reloads systemd where one changed."""
    wanted = {mount["unit"]: mount["text"]}
    if mount["automount"]:
        wanted[automount_of(mount["unit"])] = mount["automount"]
    before = len(step.noted.changes)
    for unit, text in wanted.items():
        step.own(file_of(unit))
        node_files.ensure(step.noted, file_of(unit), text.encode("utf-8"))
    if not mount["automount"]:
        drop_unit(step, automount_of(mount["unit"]))
    if len(step.noted.changes) > before and not step.dry:
        systemctl("daemon-reload")


def ensure_mount(step, mount):
    """One mount, as it is wanted. Raises InUseError where it has to stay as it is."""
    path, after = mount["path"], node_mounts.parse_unit(mount["text"])
    check_path(step, mount, after)
    text = text_of(file_of(mount["unit"]))
    before = node_mounts.parse_unit(text) if text else after
    waiting = text_of(file_of(automount_of(mount["unit"]))) or ""
    is_there = path in step.table
    turned = text is not None and node_mounts.waits_for(waiting) != node_mounts.waits_for(mount["automount"])
    if is_there and before != after and not turned and node_mounts.is_live(before, after):
        return remount(step, mount, before, after)
    if turned or (is_there and before != after):
        unmount(step, mount["unit"], path)
    if is_there and (before != after or turned):
        step.noted.did("mount", path, "remount", detail="unmounted and mounted again")
    if turned and not step.dry:
        # another unit is started at boot from now on
        systemctl("disable", "--quiet", mount["unit"], automount_of(mount["unit"]))
    write_units(step, mount)
    return start(step, mount, is_new=text is None, is_there=is_there)


def remount(step, mount, before, after):
    """Other options, under those who use it. Raises InUseError where the kernel refuses; all is then as it was."""
    type_arguments = [] if after.fstype in ("none", "auto") else ["-t", after.fstype]
    words = ["mount"] + type_arguments + ["-o", node_mounts.remount_options(before, after), after.what, mount["path"]]
    result = None if step.dry else command.run_merged(words, PATIENCE_S)
    if result and not result.ok:
        raise InUseError("other options are refused: %s" % result.message)
    step.noted.did("mount", mount["path"], "remount", detail="in use")
    # not before: a deploy after one that was cut off has to see that they differ
    write_units(step, mount)


def start(step, mount, is_new, is_there):
    """Enable and start what mounts it."""
    if not is_there and mount["client"] in step.wanted["missing_clients"]:
        step.failed[mount["name"]] = LEFT_OUT
        return
    unit = automount_of(mount["unit"]) if mount["automount"] else mount["unit"]
    facts = node_units.show([unit])[unit]
    if not node_units.is_enabled(facts):
        if not is_new and facts.get("LoadState") != "not-found":
            step.noted.did("unit", unit, "enable")
        if not step.dry:
            systemctl("enable", "--quiet", unit)
    if node_units.is_active(facts):
        return
    if not is_there:
        step.noted.did("mount", mount["path"], "mount", detail=node_mounts.parse_unit(mount["text"]).what)
    if step.dry:
        return
    keys = authorized_keys()
    systemctl("reset-failed", unit)
    worked, output = systemctl("start", unit)
    if not worked:
        step.failed[mount["name"]] = "%s: %s" % (mount["path"], failure_reason(mount["unit"]) or output)
    elif keys and not is_there_for_its_owner(keys):
        undo_mount(mount, unit, keys)


def failure_reason(unit):
    """mount(8)'s error for a unit that failed; systemd's own message where there is none."""
    lines = node_units.journal_tail(unit, 8).splitlines()
    messages = [line for line in lines if line.startswith("mount")]
    return messages[-1] if messages else "\n".join(lines[-3:])


def authorized_keys():
    """(user, file) by which the node is reached; () where there is none."""
    user = os.environ.get("SUDO_USER") or "root"
    try:
        keys = (user, os.path.join(pwd.getpwnam(user).pw_dir, ".ssh", "authorized_keys"))
    except KeyError:
        return ()
    return keys if is_there_for_its_owner(keys) else ()


def is_there_for_its_owner(keys):
    """Asked as the user: root is nobody on most servers, and may not look into a home there."""
    argv = ["runuser", "-u", keys[0], "--", "test", "-r", keys[1]]
    return command.run(argv).ok


def undo_mount(mount, unit, keys):
    systemctl("disable", "--now", "--quiet", unit)
    systemctl("stop", mount["unit"])
    message = "storage %s would hide %s, and nobody could log in here any more" % (mount["name"], keys[1])
    raise node_failure.HintedError(message, "put the keys into that storage first; it is unmounted again")
