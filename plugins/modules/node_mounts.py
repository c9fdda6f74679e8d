#!/usr/bin/python
"""Mounts of a node as systemd units: made, changed under those who use them where that can be, and taken away."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_mounts
short_description: Mount what is wanted by systemd units of our own, and unmount what no longer is
description:
  - Writes a mount unit, and an automount unit where asked, for each mount, enables it and starts it. What an earlier
    call brought and this one does not want goes, nothing else does. A path on which somebody else has mounted
    something is refused, unless it is the same.
  - Options that the kernel can change in use are changed so. Whatever else needs an unmount waits until nobody uses
    the mount. On a compute node that means that no job runs there and none may start meanwhile, so it is drained for
    that moment. What has to wait is returned in RV(kept), and no record is left for M(node_gate).
  - A mount that hides the authorized_keys of the user who calls this by sudo is taken back.
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  node: {description: The node's name in Slurm., type: str, required: true}
  mounts:
    description: Wanted mounts, outer before inner.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: What messages call it., type: str, required: true}
      path: {description: Mount point., type: path, required: true}
      unit: {description: Name of the mount unit., type: str, required: true}
      text: {description: Its text., type: str, required: true}
      automount: {description: Text of the automount unit; empty for none., type: str, default: ""}
      required: {description: Whether the node is no good without it., type: bool, default: false}
  files:
    description: Files that the mounts need, written before anything is mounted.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The text., type: str}
      secret_base64: {description: A secret's bytes in base64; never shown., type: str}
      mode: {description: Octal mode as a string., type: str, default: "0644"}
  timers:
    description: Timers among the files in C(/etc/systemd/system), enabled and started; one that goes is stopped first.
    type: list
    elements: str
    default: []
  drain_reason: {description: Why a node is drained meanwhile., type: str, default: storage is changed}
  drain_wait: {description: Seconds to wait for jobs; 0 leaves a node with jobs as it is., type: int, default: 0}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Mount what the node is to have
  node_mounts:
    component: storage
    step: mounts
    digest: "{{ deepops_digest }}"
    node: gpu07
    mounts:
      - {name: home, path: /home, unit: home.mount, text: "{{ home_unit }}"}
"""

RETURN = r"""
changes: {description: What was done., type: list, elements: dict, returned: always}
kept: {description: Names of the mounts that had to stay as they are., type: list, elements: str, returned: always}
serves: {description: Whether this node has exports of ours., type: bool, returned: always}
"""

import base64
import os
import pwd
import subprocess

from ansible.module_utils import (
    node_changes,
    node_failure,
    node_files,
    node_idle,
    node_mounts,
    node_owned,
    node_quiet,
    node_record,
    node_units,
)
from ansible.module_utils.basic import AnsibleModule

# a server that is away answers a mount after the unit's own 90 s, at the latest
PATIENCE_S = 120
# what M(nfs_exports) writes
EXPORTS = "/etc/exports.d/deepopsctl.exports"


class InUseError(Exception):
    """Somebody uses a mount that has to go."""


def systemctl(*words):
    """(worked, what it said)."""
    return node_failure.tried(["systemctl"] + list(words), PATIENCE_S)


class Quiet:
    """The node without jobs, for as long as mounts are taken away; drained once, and given back."""

    def __init__(self, dry, node, reason, wait):
        self.dry = dry
        self.node = node
        self.reason = node_quiet.reason_of(reason)
        self.wait = wait
        self.sought = False
        self.stays = False

    def seek(self):
        """No job runs here, and none starts. Raises InUseError."""
        self.sought = True
        busy = node_idle.why_busy(self.node)
        if not busy:
            return
        if busy == node_idle.RUNNING and not self.wait:
            raise InUseError(busy)
        if self.dry:
            return
        try:
            node_quiet.empty(self.node, self.reason, self.wait, dry=False)
        except node_quiet.BusyError as error:
            # who waits for jobs keeps the node drained, so that the next deploy finds it empty
            self.stays = bool(self.wait)
            raise InUseError(str(error)) from error

    def end(self, warn):
        """Give the node back if it is drained for our reason, by this call or by one that was cut off."""
        if not self.sought or self.stays or self.dry:
            return
        try:
            node_quiet.give_back(self.node, self.reason, lambda: "", dry=False)
        except node_quiet.BusyError as error:
            warn("%s: %s" % (self.node, error))


class Step:
    """One call: what is wanted, what is ours, what was done and what had to wait."""

    def __init__(self, module):
        self.module = module
        self.wanted = module.params
        self.noted = node_changes.Noted(module.check_mode)
        self.owned = node_owned.load(self.wanted["component"], self.wanted["step"])
        self.table = node_mounts.mounted()
        self.quiet = Quiet(
            module.check_mode, self.wanted["node"], self.wanted["drain_reason"], self.wanted["drain_wait"]
        )
        self.kept = {}
        self.failed = {}

    @property
    def dry(self):
        return self.noted.dry

    def own(self, path):
        """Remember that a file is ours, before it is there: a cut-off run loses none."""
        if path not in self.owned["files"]:
            self.owned["files"].append(path)
            self.remember()

    def disown(self, path):
        node_files.take_away(self.noted, path)
        if path in self.owned["files"] and not self.dry:
            self.owned["files"].remove(path)
            self.remember()

    def remember(self):
        if not self.dry:
            node_owned.save(self.wanted["component"], self.wanted["step"], self.owned)

    def keep(self, name, reason):
        self.kept[name] = reason
        self.module.warn("storage %s stays as it is: %s; the next deploy without that changes it" % (name, reason))


def file_of(unit):
    return os.path.join(node_mounts.FOLDER, unit)


def automount_of(unit):
    return unit[: -len(".mount")] + ".automount"


def text_of(path):
    content = node_files.read(path)
    return None if content is None else content.decode("utf-8", "replace")


def unmount(step, unit, path):
    """Stop the units of a mount. Raises InUseError; the mount is then as it was."""
    if path in step.table:
        step.quiet.seek()
    if step.dry:
        return
    # of a unit whose file somebody removed systemd says that there is none
    _worked, said = systemctl("stop", unit)
    if path in node_mounts.mounted():
        raise InUseError("in use by %s" % (node_mounts.users(path) or said or "the kernel"))
    # never before: systemd takes away what is on top of an automount as well, also from those who use it
    systemctl("stop", automount_of(unit))
    systemctl("reset-failed", unit)
    # what was mounted below it went with it
    step.table = node_mounts.mounted()


def path_of(text):
    """Where a unit of ours mounts."""
    found = (line[len("Where=") :] for line in text.splitlines() if line.startswith("Where="))
    return next(found, "").replace("%%", "%")


def remove_unwanted(step):
    """Units of ours that nothing asks for any more, the inner before the outer."""
    wanted = {file_of(mount["unit"]) for mount in step.wanted["mounts"]}
    units = [path for path in step.owned["files"] if path.endswith(".mount") and path not in wanted]
    for path in sorted(units, key=lambda path: -len(path_of(text_of(path) or ""))):
        unit, where = os.path.basename(path), path_of(text_of(path) or "")
        was_there = where in step.table
        try:
            unmount(step, unit, where)
        except InUseError as error:
            step.keep(where, str(error))
            continue
        if was_there:
            step.noted.did("mount", where, "remove")
        drop_unit(step, automount_of(unit))
        drop_unit(step, unit)


def drop_unit(step, unit):
    """Disable a unit and remove its file."""
    if file_of(unit) not in step.owned["files"]:
        return
    if not step.dry:
        systemctl("disable", "--quiet", unit)
    step.disown(file_of(unit))


def write_files(step):
    for wanted in step.wanted["files"]:
        content = wanted["content"]
        secret = content is None
        data = base64.b64decode(wanted["secret_base64"] or "") if secret else content.encode("utf-8")
        step.own(wanted["path"])
        node_files.ensure(step.noted, wanted["path"], data, int(wanted["mode"], 8), secret=secret)


def remove_files(step):
    """Files of ours that nothing asks for any more, units apart."""
    wanted = {file["path"] for file in step.wanted["files"]}
    for path in [path for path in step.owned["files"] if not path.endswith((".mount", ".automount"))]:
        if path not in wanted and not step.kept:
            if path.endswith(".timer") and not step.dry:
                systemctl("disable", "--now", "--quiet", os.path.basename(path))
            step.disown(path)


def start_timers(step):
    """After the mounts: what a timer does may need them."""
    shown = node_units.show(step.wanted["timers"])
    if step.wanted["timers"] and not step.dry:
        systemctl("daemon-reload")
    for name in step.wanted["timers"]:
        if node_units.is_active(shown[name]) and node_units.is_enabled(shown[name]):
            continue
        step.noted.did("unit", name, "start")
        worked, said = (True, "") if step.dry else systemctl("enable", "--now", "--quiet", name)
        if not worked:
            raise node_failure.HintedError("%s does not start: %s" % (name, said), "see `journalctl -u %s`" % name)


def check_path(step, mount, unit):
    """Refuse a path that is somebody else's."""
    path, ours = mount["path"], file_of(mount["unit"]) in step.owned["files"]
    entry = step.table.get(path)
    if ours:
        return
    text = text_of(file_of(mount["unit"]))
    if text is not None and not text.startswith("# Written by deepopsctl"):
        words = (mount["name"], file_of(mount["unit"]))
        raise node_failure.HintedError("storage %s: %s is there, and not ours" % words, "remove it, or the entry")
    hint = "unmount it there and take it out of /etc/fstab, or choose another path in cluster.yml"
    if entry is not None and not node_mounts.is_it(entry, unit):
        words = (mount["name"], entry.source, entry.fstype, path)
        raise node_failure.HintedError("storage %s: %s (%s) is mounted at %s already" % words, hint)
    fault = node_mounts.in_the_way(path) if entry is None else ""
    if fault:
        raise node_failure.HintedError("storage %s: %s" % (mount["name"], fault), hint)
    hidden = node_mounts.covered(path) if entry is None else 0
    if hidden:
        words = (mount["name"], path, hidden)
        step.module.warn("storage %s: %s is not empty: the mount hides %d entries there" % words)


def write_units(step, mount):
    """Both texts of a mount; whether systemd has to read them anew."""
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


def bring(step, mount):
    """One mount, as it is wanted. Raises InUseError where it has to stay as it is."""
    path, after = mount["path"], node_mounts.parse_unit(mount["text"])
    check_path(step, mount, after)
    text = text_of(file_of(mount["unit"]))
    before = node_mounts.parse_unit(text) if text else after
    waiting = text_of(file_of(automount_of(mount["unit"]))) or ""
    is_there = path in step.table
    turned = text is not None and node_mounts.waits_for(waiting) != node_mounts.waits_for(mount["automount"])
    if is_there and before != after and not turned and node_mounts.is_live(before, after):
        return remount(step, mount, text, before, after)
    if turned or (is_there and before != after):
        unmount(step, mount["unit"], path)
    if is_there and (before != after or turned):
        step.noted.did("mount", path, "remount", detail="unmounted and mounted again")
    if turned and not step.dry:
        # another unit is started at boot from now on
        systemctl("disable", "--quiet", mount["unit"], automount_of(mount["unit"]))
    write_units(step, mount)
    return start(step, mount, is_new=text is None, is_there=is_there)


def remount(step, mount, text, before, after):
    """Other options, under those who use it."""
    write_units(step, mount)
    step.noted.did("mount", mount["path"], "remount", detail="in use")
    kind = [] if after.fstype in ("none", "auto") else ["-t", after.fstype]
    words = ["mount"] + kind + ["-o", node_mounts.remount_options(before, after), after.what, mount["path"]]
    worked, said = (True, "") if step.dry else node_failure.tried(words, PATIENCE_S)
    if not worked:
        # the next deploy has to see that they differ
        node_files.ensure(node_changes.Noted(dry=False), file_of(mount["unit"]), text.encode("utf-8"))
        systemctl("daemon-reload")
        raise InUseError("other options are refused: %s" % said)


def start(step, mount, is_new, is_there):
    """Enable and start what mounts it."""
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
    worked, said = systemctl("start", unit)
    if not worked:
        step.failed[mount["name"]] = "%s: %s" % (mount["path"], why_not(mount["unit"]) or said)
    elif keys and not is_there_for_its_owner(keys):
        take_back(mount, unit, keys)


def why_not(unit):
    """What mount(8) said of a unit that failed; systemd's own words where it said nothing."""
    lines = node_units.last_words(unit, 8).splitlines()
    told = [line for line in lines if line.startswith("mount")]
    return told[-1] if told else "\n".join(lines[-3:])


def authorized_keys():
    """(user, file) by which the node is reached; () where there is none."""
    user = os.environ.get("SUDO_USER") or "root"
    try:
        found = (user, os.path.join(pwd.getpwnam(user).pw_dir, ".ssh", "authorized_keys"))
    except KeyError:
        return ()
    return found if is_there_for_its_owner(found) else ()


def is_there_for_its_owner(keys):
    """Asked as the user: root is nobody on most servers, and may not look into a home there."""
    argv = ["runuser", "-u", keys[0], "--", "test", "-r", keys[1]]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def take_back(mount, unit, keys):
    systemctl("disable", "--now", "--quiet", unit)
    systemctl("stop", mount["unit"])
    message = "storage %s would hide %s, and nobody could log in here any more" % (mount["name"], keys[1])
    raise node_failure.HintedError(message, "put the keys into that storage first; it is unmounted again")


def converge(step):
    """Everything in its order: what goes, files, mounts, and files that nothing needs any more."""
    remove_unwanted(step)
    write_files(step)
    for mount in step.wanted["mounts"]:
        try:
            bring(step, mount)
        except InUseError as error:
            step.keep(mount["name"], str(error))
    remove_files(step)
    start_timers(step)
    if not step.dry:
        systemctl("daemon-reload")
        record(step)


def record(step):
    """What the gate compares; nothing where something had to wait, so that the next deploy looks again."""
    units = {automount_of(m["unit"]) if m["automount"] else m["unit"]: True for m in step.wanted["mounts"]}
    units.update(dict.fromkeys(step.wanted["timers"], True))
    done = not step.kept and not step.failed
    items = node_record.items(files=step.owned["files"], units=units)
    node_record.save(step.wanted["component"], step.wanted["step"], step.wanted["digest"] if done else "", items)


def arguments():
    text = {"type": "str"}
    return {
        **node_record.STEP,
        "node": {"required": True},
        "mounts": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "path": {"type": "path", "required": True},
                "unit": {"required": True},
                "text": {"required": True},
                "automount": {"default": ""},
                "required": {"type": "bool", "default": False},
            },
        },
        "files": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "path", "required": True},
                "content": text,
                "secret_base64": {"no_log": True},
                "mode": {"default": "0644"},
            },
            "required_one_of": [["content", "secret_base64"]],
            "mutually_exclusive": [["content", "secret_base64"]],
        },
        "timers": {"type": "list", "elements": "str", "default": []},
        "drain_reason": {"default": "storage is changed"},
        "drain_wait": {"type": "int", "default": 0},
    }


def main():
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    os.umask(0o022)
    step = Step(module)
    with node_failure.told(module.fail_json):
        try:
            converge(step)
        finally:
            step.quiet.end(module.warn)
    finish(step)


def finish(step):
    """A required mount that is not there fails the node; any other is said."""
    noted = step.noted
    told = {
        "changed": bool(noted.changes),
        "changes": noted.changes,
        "diff": noted.diffs,
        "kept": sorted(step.kept),
        "serves": os.path.exists(EXPORTS),
    }
    required = [mount["name"] for mount in step.wanted["mounts"] if mount["required"]]
    missing = {name: why for name, why in step.failed.items() if name in required}
    for name, why in step.failed.items():
        if name not in missing:
            step.module.warn("storage %s can't be mounted: %s" % (name, why))
    if missing:
        words = "; ".join("storage %s can't be mounted: %s" % item for item in missing.items())
        step.module.fail_json(
            msg=words, hint="is its server up, and does it let this node in? `journalctl` there says more", **told
        )
    step.module.exit_json(**told)


if __name__ == "__main__":
    main()
