"""One mount of a node, created, changed (while in use where possible) or removed; and the call that it is part of."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    access_keys as node_access_keys,
    command,
    errors as node_errors,
    files as node_files,
    record as node_record,
    services as node_services,
    step as node_step,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.node_states import drain_reason
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import hidden_keys, mount_table

# a server that is away answers a mount after the unit's own 90 s, at the latest
PATIENCE_S = 120
LEFT_OUT = "its client is left out"
# noted on disk before a node is drained: after a call that was cut off nothing may be left to unmount
DRAINED = "storage.drain"


class InUseError(Exception):
    """A process uses a mount that has to go."""


def systemctl(*words: str) -> tuple[bool, str]:
    """(success, output)."""
    result = command.run_merged(["systemctl", *words], PATIENCE_S)
    return result.ok, result.message


class Quiet:
    """The node without jobs, while mounts are removed; drained once, then resumed."""

    def __init__(self, dry: bool, node: str, reason: str, wait: int) -> None:
        self.dry = dry
        self.node = node
        self.reason = drain_reason(reason)
        self.wait = wait
        self.sought = False
        self.stays = False

    def seek(self) -> None:
        """No job runs here, and none starts. Raises InUseError."""
        self.sought = True
        busy = slurm_node_jobs.why_busy(self.node)
        if not busy:
            return
        if busy == slurm_node_jobs.RUNNING and not self.wait:
            raise InUseError(busy)
        if self.dry:
            return
        node_record.mark_pending(DRAINED, self.reason)
        try:
            slurm_node_jobs.drain(self.node, self.reason, self.wait, dry=False)
        except slurm_node_jobs.BusyError as error:
            # who waits for jobs keeps the node drained, so that the next deploy finds it empty
            self.stays = bool(self.wait)
            raise InUseError(str(error)) from error

    def end(self, warn: Callable[[str], None]) -> None:
        """Give the node back if it is drained for our reason, by this call or by one that was cut off."""
        if not (self.sought or node_record.is_pending(DRAINED)) or self.stays or self.dry:
            return
        resumes = f"`deepopsctl node resume {self.node}`"
        try:
            resumed = slurm_node_jobs.resume(self.node, self.reason, lambda: "", dry=False)
            if resumed or slurm_node_jobs.answers(self.node):
                node_record.clear_pending(DRAINED)
            elif node_record.is_pending(DRAINED):
                warn(f"slurmctld does not answer: {resumes} ends the drain for its storage")
        except slurm_node_jobs.BusyError as error:
            warn(f"{self.node}: {error}")


class MountRun(node_step.Step):
    """One call: desired state, managed files, changes and deferred mounts."""

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.table = mount_table.mounted()
        self.quiet = Quiet(
            module.check_mode, self.wanted["node"], self.wanted["drain_reason"], self.wanted["drain_wait"]
        )
        self.deferred: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.unmanaged_mounts: list[dict[str, str]] = []

    def own(self, path: str) -> None:
        """Record a managed file before it is created: an interrupted run loses none."""
        if path not in self.owned["files"]:
            self.owned["files"].append(path)
            self.save_owned()

    def disown(self, path: str) -> None:
        """Remove a managed file and forget it."""
        node_files.remove(self.noted, path)
        if path in self.owned["files"] and not self.dry:
            self.owned["files"].remove(path)
            self.save_owned()

    def defer(self, name: str, reason: str) -> None:
        """Leave a mount as it is for now, with a warning that says why."""
        self.deferred[name] = reason
        self.module.warn(f"storage {name} stays as it is: {reason}; the next deploy without that changes it")


def file_of(unit: str) -> str:
    """The path of a unit's file."""
    return os.path.join(mount_table.UNIT_DIRECTORY, unit)


def automount_of(unit: str) -> str:
    """The automount unit of a mount unit."""
    return unit[: -len(".mount")] + ".automount"


def text_of(path: str) -> str | None:
    """A file's text; None where there is none."""
    content = node_files.read(path)
    return None if content is None else content.decode("utf-8", "replace")


def drop_unit(step: MountRun, unit: str) -> None:
    """Disable a unit and remove its file."""
    if file_of(unit) not in step.owned["files"]:
        return
    if not step.dry:
        systemctl("disable", "--quiet", unit)
    step.disown(file_of(unit))


def unmount(step: MountRun, unit: str, path: str) -> None:
    """Stop the units of a mount. Raises InUseError; the mount is then as it was."""
    on_itself = mount_table.is_on_itself(mount_table.parse_unit(text_of(file_of(unit)) or ""), path)
    if on_itself and path in step.table and not mount_table.below(path, step.table):
        # who has a file open there has the same file afterwards
        detach = ["umount", "--lazy", path]
        step.table = step.table if step.dry or not command.run_merged(detach, PATIENCE_S).ok else mount_table.mounted()
    elif path in step.table:
        step.quiet.seek()
    if step.dry:
        return
    # of a unit whose file was removed systemd says that there is none
    _worked, output = systemctl("stop", unit)
    if path in mount_table.mounted():
        raise InUseError(f"in use by {mount_table.users(path) or output or 'the kernel'}")
    # never before: systemd also unmounts what is on top of an automount, for those who use it
    systemctl("stop", automount_of(unit))
    systemctl("reset-failed", unit)
    # what was mounted below it went with it
    step.table = mount_table.mounted()


def is_left_alone(step: MountRun, mount: Mapping[str, Any]) -> bool:
    """Whether a directory that is to be mounted on itself can't be, without hiding or replacing others' mounts."""
    path = mount["path"]
    if not mount_table.is_on_itself(mount_table.parse_unit(mount["text"]), path):
        return False
    if file_of(mount["unit"]) in step.owned["files"]:
        return False
    # a file system of the site's own, mounted or in /etc/fstab: `doctor` names its options
    if path in step.table or node_services.show([mount["unit"]])[mount["unit"]].get("LoadState") != "not-found":
        return True
    inner = mount_table.below(path, step.table)
    if inner:
        hint = "put nosuid,nodev into the options of its file system, or unmount that and deploy again"
        step.module.warn(f"{path} is exported and honours setuid programs: {inner[0]} is mounted below; {hint}")
    return bool(inner)


def check_path(step: MountRun, mount: Mapping[str, Any], unit: mount_table.Unit) -> None:
    """Refuse a path that is not managed."""
    path, managed = mount["path"], file_of(mount["unit"]) in step.owned["files"]
    entry = step.table.get(path)
    if managed:
        return
    text = text_of(file_of(mount["unit"]))
    if text is not None and not text.startswith(node_files.MANAGED.decode()):
        message = f"storage {mount['name']}: {file_of(mount['unit'])} exists and is not managed by deepopsctl"
        raise node_errors.HintedError(message, "remove it, or the entry")
    hint = "unmount it there and take it out of /etc/fstab, or choose another path in cluster.yml"
    if entry is not None and not mount_table.is_same_mount(entry, unit):
        message = f"storage {mount['name']}: {entry.source} ({entry.fstype}) is mounted at {path} already"
        raise node_errors.HintedError(message, hint)
    conflict = mount_table.conflict_at(path) if entry is None else ""
    if conflict:
        raise node_errors.HintedError(f"storage {mount['name']}: {conflict}", hint)
    hidden = mount_table.hidden_entries(path) if entry is None and not mount_table.is_on_itself(unit, path) else 0
    if hidden:
        step.module.warn(f"storage {mount['name']}: {path} is not empty: the mount hides {hidden} entries there")


def check_login_home(mount: Mapping[str, str], unit: mount_table.Unit) -> None:
    """Refuse a file server over the home of the user by whom the node is reached: who writes there would be root."""
    user = os.environ.get("SUDO_USER") or "root"
    try:
        home = pwd.getpwnam(user).pw_dir
    except KeyError:
        return
    inside = home == mount["path"] or home.startswith(mount["path"].rstrip("/") + "/")
    if inside and node_access_keys.NETWORKED.fullmatch(unit.fstype):
        whose = f"the home of {user}, who may become root here"
        message = f"storage {mount['name']}: {whose}, would be on a file server: {home}"
        hint = f"give {user} a home on this node's disk, or deploy as another user (docs/deploy/ssh.md)"
        raise node_errors.HintedError(message, hint)


def write_units(step: MountRun, mount: Mapping[str, Any]) -> None:
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


def ensure_mount(step: MountRun, mount: Mapping[str, Any]) -> None:
    """One mount, as it is wanted. Raises InUseError where it has to stay as it is."""
    path, after = mount["path"], mount_table.parse_unit(mount["text"])
    check_path(step, mount, after)
    text = text_of(file_of(mount["unit"]))
    before = mount_table.parse_unit(text) if text else after
    if text is None and path not in step.table:
        check_login_home(mount, after)
    waiting = text_of(file_of(automount_of(mount["unit"]))) or ""
    is_there = path in step.table
    before = mount_table.in_force(before, step.table[path]) if is_there else before
    turned = text is not None and mount_table.waits_for(waiting) != mount_table.waits_for(mount["automount"])
    if is_there and before != after and not turned and mount_table.is_live(before, after):
        remount(step, mount, before, after)
        return start(step, mount, is_new=text is None, is_there=True)
    if turned or (is_there and before != after):
        unmount(step, mount["unit"], path)
    if is_there and (before != after or turned):
        step.noted.did("mount", path, "remount", detail="unmounted and mounted again")
    if turned and not step.dry:
        # another unit is started at boot from now on
        systemctl("disable", "--quiet", mount["unit"], automount_of(mount["unit"]))
    write_units(step, mount)
    return start(step, mount, is_new=text is None, is_there=is_there)


def remount(step: MountRun, mount: Mapping[str, Any], before: mount_table.Unit, after: mount_table.Unit) -> None:
    """Other options, under those who use it. Raises InUseError where the kernel refuses; all is then as it was."""
    result = None if step.dry else command.run_merged(remount_command(mount["path"], before, after), PATIENCE_S)
    if result and not result.ok:
        raise InUseError(f"other options are refused: {result.message}")
    step.noted.did("mount", mount["path"], "remount", detail="in use")
    if mount_table.is_of_mount(before, after) and not step.dry:
        remount_below(step, mount["path"], before, after)
    # not before: a deploy after one that was cut off has to see that they differ
    write_units(step, mount)


def remount_command(path: str, before: mount_table.Unit, after: mount_table.Unit) -> list[str]:
    """mount(8) with what changes; flags of the mount without the type's helper, which may ask a server."""
    options = mount_table.remount_options(before, after)
    type_arguments = [] if after.fstype in ("none", "auto") else ["-t", after.fstype]
    if mount_table.is_of_mount(before, after):
        type_arguments.append("--internal-only")
        # without `bind` the file system would be asked, too
        options = ",".join(["remount", "bind"] + [each for each in options.split(",") if each in mount_table.FLAGS])
    return ["mount"] + type_arguments + ["-o", options, after.what, path]


def remount_below(step: MountRun, path: str, before: mount_table.Unit, after: mount_table.Unit) -> None:
    """NFS mounts each file system of its server by itself, with the flags of that moment."""
    for inner in mount_table.below(path, step.table):
        if step.table[inner].fstype in mount_table.NFS:
            result = command.run_merged(remount_command(inner, before, after), PATIENCE_S)
            if not result.ok:
                step.module.warn(f"{inner} keeps its options until it is unmounted: {result.message}")


def start(step: MountRun, mount: Mapping[str, Any], is_new: bool, is_there: bool) -> None:
    """Enable and start what mounts it."""
    if not is_there and mount["client"] in step.wanted["missing_clients"]:
        step.failed[mount["name"]] = LEFT_OUT
        return
    unit = automount_of(mount["unit"]) if mount["automount"] else mount["unit"]
    facts = node_services.show([unit])[unit]
    if not node_services.is_enabled(facts):
        if not is_new and facts.get("LoadState") != "not-found":
            step.noted.did("unit", unit, "enable")
        if not step.dry:
            systemctl("enable", "--quiet", unit)
    if node_services.is_active(facts):
        return
    if not is_there:
        step.noted.did("mount", mount["path"], "mount", detail=mount_table.parse_unit(mount["text"]).what)
    if step.dry:
        predict(step, mount, is_there)
        return
    keys = authorized_keys()
    systemctl("reset-failed", unit)
    worked, output = systemctl("start", unit)
    if not worked:
        step.failed[mount["name"]] = f"{mount['path']}: {failure_reason(mount['unit']) or output}"
    elif keys and not is_there_for_its_owner(keys):
        undo_mount(mount, unit, keys)


def predict(step: MountRun, mount: Mapping[str, Any], is_there: bool) -> None:
    """What a deploy will refuse about a new mount, for a plan."""
    try:
        refusal = () if is_there else hidden_keys.refusal(mount, authorized_keys())
        step.blocked += [refusal] if refusal else []
    except hidden_keys.UnknownError as error:
        step.module.warn(str(error))


def failure_reason(unit: str) -> str:
    """mount(8)'s error for a unit that failed; systemd's own message where there is none."""
    lines = node_services.journal_tail(unit, 8).splitlines()
    messages = [line for line in lines if line.startswith("mount")]
    return messages[-1] if messages else "\n".join(lines[-3:])


def authorized_keys() -> tuple[str, ...]:
    """(user, file) by which the node is reached; () where there is none, or it is root's own, which nothing hides."""
    user = os.environ.get("SUDO_USER") or "root"
    try:
        if node_access_keys.in_force(user):
            return ()
        keys = (user, os.path.join(pwd.getpwnam(user).pw_dir, ".ssh", "authorized_keys"))
    except KeyError:
        return ()
    return keys if is_there_for_its_owner(keys) else ()


def is_there_for_its_owner(keys: Sequence[str]) -> bool:
    """Asked as the user: most servers squash root, which may not look into a home there."""
    argv = ["runuser", "-u", keys[0], "--", "test", "-r", keys[1]]
    return command.run(argv).ok


def undo_mount(mount: Mapping[str, Any], unit: str, keys: Sequence[str]) -> None:
    """Unmount what hides the keys of the user that deploys, and disable its unit. Always raises HintedError."""
    systemctl("disable", "--now", "--quiet", unit)
    systemctl("stop", mount["unit"])
    message = f"storage {mount['name']} would hide {keys[1]}, and no user could log in here any more"
    raise node_errors.HintedError(
        message, "it is unmounted again: deploy slurm first, which moves the keys to root's own directory"
    )
