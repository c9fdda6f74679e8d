#!/usr/bin/python
"""Bring a node to a desired state in one call: packages, directories, files, units."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_state
short_description: Packages, directories, files and units of one step, in one call
description:
  - Does what a role would otherwise need a task each for, in a fixed order. Packages come first (one
    transaction), then the hostname, directories, files, and last the units that those files belong to.
  - A unit is restarted only when one of its I(restart_on) files changed, or an earlier call was cut off
    between the change and the restart. It is remembered on disk before the file changes.
  - Check mode and diff are honest; the content of a I(secret_base64) is in neither.
  - What was achieved is recorded on the node, keyed by I(digest), for M(node_gate).
options:
  component: {description: Component this step belongs to., type: str, required: true}
  step: {description: Name of the step, usually the role., type: str, required: true}
  digest: {description: Hash of the desired state; empty keeps no record., type: str, default: ""}
  hostname: {description: The node's name., type: str}
  packages: {description: Packages that must be installed., type: list, elements: str, default: []}
  hold_units:
    description:
      - Units that the packages must not start before their configuration is there. They are masked until
        the next reboot or the end of the installation, whichever comes first.
    type: list
    elements: str
    default: []
  lock_wait:
    description: Seconds to wait for another package manager on the node.
    type: int
    default: 300
  directories:
    description: Directories that must exist.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      owner: {description: Owner., type: str, default: root}
      group: {description: Group., type: str, default: root}
      mode: {description: Octal mode as a string., type: str, default: "0755"}
  files:
    description: Files with their whole content, or with a block between markers.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The text., type: str}
      secret_base64:
        description:
          - The content of a secret file in base64, on one line; never shown.
          - Ansible takes no value of several lines out of what it writes to the node's journal, so there is no
            other form.
        type: str
      block: {description: Text of a managed block; the rest of the file is kept., type: str}
      owner: {description: Owner., type: str, default: root}
      group: {description: Group., type: str, default: root}
      mode: {description: Octal mode as a string., type: str, default: "0644"}
      validate: {description: Command that refuses bad content (%s is it)., type: list, elements: str, default: []}
  absent: {description: Files that must not be there., type: list, elements: path, default: []}
  units:
    description: systemd units that must be enabled and running.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Unit name with its suffix., type: str, required: true}
      running: {description: Whether it runs (true) or is stopped and disabled (false)., type: bool, default: true}
      restart_on: {description: Paths whose change restarts it., type: list, elements: path, default: []}
      port: {description: Port it must listen on afterwards., type: int}
      optional: {description: May be kept from starting by a condition of its own., type: bool, default: false}
  probes:
    description: Read-only commands to run at the end; their output is returned.
    type: dict
    default: {}
author: deepopsctl
"""

EXAMPLES = r"""
- name: Install munge with the cluster's key
  node_state:
    component: slurm
    step: munge
    digest: "{{ deepops_digest }}"
    packages: [munge]
    files:
      - {path: /etc/munge/munge.key, secret_base64: "{{ munge_key }}", owner: munge, group: munge, mode: "0400"}
    units:
      - {name: munge.service, restart_on: [/etc/munge/munge.key]}
"""

RETURN = r"""
actions: {description: What was done, a sentence each., type: list, elements: str, returned: always}
changes:
  description: The same for programs, C(kind), C(name) and C(action) each; in check mode with C(diff).
  type: list
  elements: dict
  returned: always
packages: {description: Installed version of each package., type: dict, returned: always}
probes: {description: Output of each probe., type: dict, returned: always}
"""

import base64
import os
import socket
import subprocess

from ansible.module_utils import node_changes, node_failure, node_files, node_packages, node_record, node_units
from ansible.module_utils.basic import AnsibleModule

MARKER = "deepopsctl"
UNIT_FOLDER = "/etc/systemd/system/"
CONTAINER = "/run/systemd/container"


class Step:
    """One call: what is wanted, what was done, and what the record will say."""

    def __init__(self, module):
        self.module = module
        self.dry = module.check_mode
        self.actions = []
        self.noted = node_changes.Noted(self.dry)
        self.record = node_record.items()

    def did(self, sentence, kind, name, action, **more):
        self.actions.append(sentence)
        self.noted.did(kind, name, action, **more)

    def fail(self, message, hint=""):
        self.module.fail_json(msg=message, hint=hint, actions=self.actions, changed=bool(self.actions))


def ensure_packages(step, names, hold_units):
    present = node_packages.installed(names)
    missing = [name for name in names if name not in present]
    if missing and not step.dry:
        install_packages(step, missing, hold_units)
        present = node_packages.installed(names)
        absent = [name for name in names if name not in present]
        if absent:
            step.fail("the package manager reported success, yet these are missing: %s" % " ".join(absent))
    elif missing:
        present.update(node_packages.candidates(missing))
    for name in missing:
        version = present.get(name, "")
        step.did("installed %s %s" % (name, version), "package", name, "install", detail=version)
    if missing:
        step.noted.diffs.append(
            {"before": "", "after": "".join("%s\n" % name for name in missing), "after_header": "packages"}
        )
    step.record["packages"] = present
    return present


def install_packages(step, missing, hold_units):
    # only what does not run yet: a daemon that serves is left alone
    held = [name for name, facts in node_units.show(hold_units).items() if facts.get("ActiveState") != "active"]
    run_systemctl(step, ["mask", "--runtime", "--quiet"] + held, "")
    try:
        node_packages.install(missing, step.module.params["lock_wait"])
    except node_packages.PackageError as error:
        step.fail("cannot install %s: %s" % (" ".join(missing), error), error.hint)
    finally:
        run_systemctl(step, ["unmask", "--runtime", "--quiet"] + held, "")


def ensure_hostname(step, name):
    if not name or socket.gethostname() == name:
        return
    was = "was %s" % socket.gethostname()
    step.did("set the hostname to %s" % name, "hostname", name, "set", detail=was)
    step.noted.diffs.append({"before": socket.gethostname() + "\n", "after": name + "\n", "before_header": "hostname"})
    if step.dry:
        return
    result = subprocess.run(
        ["hostnamectl", "set-hostname", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if result.returncode:
        step.fail("cannot set the hostname: %s" % result.stdout.decode(errors="replace").strip())


def ensure_directory(step, wanted):
    path, mode = wanted["path"], int(wanted["mode"], 8)
    ids = node_files.owner_ids(wanted["owner"], wanted["group"])
    if ids is None and not step.dry:
        step.fail("%s: user %s or group %s does not exist" % (path, wanted["owner"], wanted["group"]))
    current = node_record.directory_facts(path)
    if current is None or (ids is not None and current != [ids[0], ids[1], mode]):
        sentence = "created %s" % path if current is None else "set owner and mode of %s" % path
        # one word for both: which of them it is may depend on what a package has just made
        owned = "%s:%s %s" % (wanted["owner"], wanted["group"], wanted["mode"])
        step.did(sentence, "directory", path, "set", detail=owned)
        if not step.dry:
            make_directory(step, path, ids, mode)
    step.record["directories"][path] = node_record.directory_facts(path)


def make_directory(step, path, ids, mode):
    try:
        os.makedirs(path, exist_ok=True)
        node_files.set_owner_and_mode(path, ids, mode)
    except OSError as error:
        step.fail("%s: %s" % (path, error.strerror), "see what is at that path, and its file system")


def desired_content(step, wanted):
    if wanted["block"] is not None:
        return node_files.with_block(node_files.read(wanted["path"]), wanted["block"], MARKER)
    if wanted["secret_base64"] is not None:
        try:
            return base64.b64decode(wanted["secret_base64"].strip(), validate=True)
        except ValueError:
            step.fail("%s: its content is not base64" % wanted["path"], "correct the variable that holds the secret")
    return wanted["content"].encode("utf-8")


def ensure_file(step, wanted, units):
    path, mode, content = wanted["path"], int(wanted["mode"], 8), desired_content(step, wanted)
    ids = node_files.owner_ids(wanted["owner"], wanted["group"])
    if ids is None and not step.dry:
        step.fail("%s: user %s or group %s does not exist" % (path, wanted["owner"], wanted["group"]))
    found = node_files.differs(path, content, ids, mode)
    if found:
        before = node_files.read(path)
        if not step.dry:
            # another owner or mode is nothing that a running daemon has to be restarted for
            names = [unit["name"] for unit in units if path in unit["restart_on"] and "content" in found]
            due = [name for name in names if not node_record.is_pending(name)]
            for name in due:
                node_record.mark_pending(name, path)
            apply_file(step, wanted, content, ids, found, due)
        note_file(step, wanted, found, before, content)
    step.record["files"][path] = node_record.file_facts(path)
    return "content" in found


def apply_file(step, wanted, content, ids, found, due):
    path, mode, validate = wanted["path"], int(wanted["mode"], 8), wanted["validate"]
    try:
        if "content" in found:
            node_files.write(path, content, ids, mode, validate)
        else:
            node_files.set_owner_and_mode(path, ids, mode)
    except (node_files.FileRefusedError, OSError) as error:
        # nothing changed, so nothing has to restart for it
        for name in due:
            node_record.clear_pending(name)
        if isinstance(error, node_files.FileRefusedError):
            # a parser's complaint quotes the line it does not like
            words = "%s: %s refuses the new content" % (path, validate[0])
            step.fail(str(error) if wanted["secret_base64"] is None else words, "the old file is still in place")
        step.fail(*node_files.trouble(OSError(error.errno, error.strerror, path)))


def note_file(step, wanted, found, before, content):
    path = wanted["path"]
    if "content" not in found:
        owned = "%s:%s %s" % (wanted["owner"], wanted["group"], wanted["mode"])
        step.did("set %s of %s" % (" and ".join(found), path), "file", path, "mode", detail=owned)
        return
    step.actions.append("wrote %s" % path)
    if wanted["secret_base64"] is None:
        step.noted.wrote(path, before, content)
    else:
        step.noted.wrote_secret(path, before)


def ensure_absent(step, path):
    if node_files.take_away(step.noted, path):
        step.actions.append("removed %s" % path)
    step.record["files"][path] = None


def ensure_units(step, units, changed_files, new_units):
    names = [unit["name"] for unit in units]
    if not step.dry and any(path.startswith(UNIT_FOLDER) for path in changed_files):
        run_systemctl(step, ["daemon-reload"], "")
    shown = node_units.show(names)
    if not step.dry and any(shown.get(name, {}).get("NeedDaemonReload") == "yes" for name in names):
        run_systemctl(step, ["daemon-reload"], "")
    for unit in units:
        if unit["running"]:
            ensure_running(step, unit, shown.get(unit["name"], {}), changed_files, unit["name"] in new_units)
        else:
            ensure_stopped(step, unit, shown.get(unit["name"], {}))


def ensure_running(step, unit, properties, changed_files, is_new):
    name = unit["name"]
    due = node_record.is_pending(name) or any(path in changed_files for path in unit["restart_on"])
    active = properties.get("ActiveState") == "active"
    enabled = node_units.is_enabled(properties)
    if not enabled and not step.dry:
        run_systemctl(step, ["enable", "--quiet", name], name)
    if not (due or not active) or is_held_back(unit, properties, due, step.dry):
        started = False
    else:
        started = step.dry or start_or_restart(step, unit)
    if started:
        action = "restart" if active else "start"
        step.did("%sed %s" % (action, name), "unit", name, action)
    elif not enabled and not is_new:
        # a unit that starts is enabled, too, and so is one that came with its package: no change of its own
        step.did("enabled %s" % name, "unit", name, "enable")
    step.record["units"][name] = True


def is_held_back(unit, properties, due, dry):
    """True where systemd itself keeps a unit from starting (chrony in a container: no clock to set)."""
    if not unit["optional"] or properties.get("ActiveState") == "active":
        return False
    if properties.get("LoadState") == "not-found":
        # its package, and with it its condition, is not there yet
        return dry and os.path.exists(CONTAINER)
    return properties.get("ConditionResult") == "no" and (dry or not due)


def start_or_restart(step, unit):
    """True when the unit runs afterwards; False when a condition of its own keeps it from it."""
    name = unit["name"]
    facts = node_units.show([name])[name]
    if facts.get("LoadState") == "masked":
        # an installation was cut off; to mask for good is a person's right, and stays
        run_systemctl(step, ["unmask", "--runtime", "--quiet", name], "")
    if facts.get("ActiveState") == "failed":
        # systemd refuses a unit that failed too often until its counter is reset
        run_systemctl(step, ["reset-failed", name], "")
    run_systemctl(step, ["restart", name], name)
    properties = node_units.wait_until_active(name, 60)
    if properties.get("ActiveState") != "active":
        if unit["optional"] and properties.get("ConditionResult") == "no":
            node_record.clear_pending(name)
            return False
        step.fail(
            "%s does not run (%s): %s" % (name, properties.get("SubState", "?"), node_units.last_words(name)),
            "see `journalctl -u %s` on the node" % name,
        )
    if unit["port"] and not node_units.wait_for_port(unit["port"], 60):
        step.fail("%s runs but does not listen on port %d" % (name, unit["port"]), node_units.last_words(name))
    node_record.clear_pending(name)
    return True


def ensure_stopped(step, unit, properties):
    name = unit["name"]
    if properties.get("LoadState") == "not-found":
        return
    if node_units.is_active(properties) or properties.get("UnitFileState") == "enabled":
        step.did("stopped and disabled %s" % name, "unit", name, "stop")
        if not step.dry:
            run_systemctl(step, ["disable", "--now", "--quiet", name], name)
    step.record["units"][name] = False


def run_systemctl(step, arguments, unit):
    result = subprocess.run(
        ["systemctl"] + arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        check=False,
    )
    if result.returncode and unit:
        words = node_units.last_words(unit)
        step.fail(
            "systemctl %s: %s\n%s" % (" ".join(arguments), result.stdout.strip(), words),
            "see `journalctl -u %s` on the node" % unit,
        )


def run_probes(probes):
    found = {}
    for name, argv in probes.items():
        try:
            result = subprocess.run(
                argv,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                universal_newlines=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if result.returncode == 0:
            found[name] = result.stdout
    return found


def arguments():
    owned = {"owner": {"default": "root"}, "group": {"default": "root"}}
    return {
        **node_record.STEP,
        "hostname": {},
        "packages": {"type": "list", "elements": "str", "default": []},
        "hold_units": {"type": "list", "elements": "str", "default": []},
        "lock_wait": {"type": "int", "default": 300},
        "directories": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": dict(owned, path={"type": "path", "required": True}, mode={"default": "0755"}),
        },
        "files": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": dict(
                owned,
                path={"type": "path", "required": True},
                content={},
                secret_base64={"no_log": True},
                block={},
                mode={"default": "0644"},
                validate={"type": "list", "elements": "str", "default": []},
            ),
            "required_one_of": [["content", "secret_base64", "block"]],
            "mutually_exclusive": [["content", "secret_base64", "block"]],
        },
        "absent": {"type": "list", "elements": "path", "default": []},
        "units": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "running": {"type": "bool", "default": True},
                "restart_on": {"type": "list", "elements": "path", "default": []},
                "port": {"type": "int"},
                "optional": {"type": "bool", "default": False},
            },
        },
        "probes": {"type": "dict", "default": {}},
    }


def converge(step, wanted):
    """Everything in its order; returns the packages that are installed."""
    known = node_units.show([unit["name"] for unit in wanted["units"]])
    packages = ensure_packages(step, wanted["packages"], wanted["hold_units"])
    ensure_hostname(step, wanted["hostname"])
    for directory in wanted["directories"]:
        ensure_directory(step, directory)
    changed_files = [item["path"] for item in wanted["files"] if ensure_file(step, item, wanted["units"])]
    for path in wanted["absent"]:
        ensure_absent(step, path)
    new_units = [name for name, facts in known.items() if facts.get("LoadState") == "not-found"]
    ensure_units(step, wanted["units"], changed_files, new_units)
    if not step.dry:
        node_record.save(wanted["component"], wanted["step"], wanted["digest"], step.record)
    return packages


def main():
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    wanted = module.params
    step = Step(module)
    # the record, or the note of a restart, on a full disk
    with node_failure.told(step.fail):
        packages = converge(step, wanted)
    module.exit_json(
        changed=bool(step.actions),
        actions=step.actions,
        changes=step.noted.changes,
        packages=packages,
        probes=run_probes(wanted["probes"]),
        diff=step.noted.diffs,
    )


if __name__ == "__main__":
    main()
