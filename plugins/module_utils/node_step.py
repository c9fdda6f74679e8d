"""One step of a node: what M(node_state) does for each kind of thing, and what it remembers of it."""

from __future__ import annotations

import base64
import os
import socket
import subprocess

from ansible.module_utils import (
    node_changes,
    node_files,
    node_packages,
    node_record,
    node_units,
)

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
            notes = calls_of(path, units) if "content" in found else []
            due = [note for note in notes if not node_record.is_pending(note)]
            for name in due:
                node_record.mark_pending(name, path)
            apply_file(step, wanted, content, ids, found, due)
        note_file(step, wanted, found, before, content)
    step.record["files"][path] = node_record.file_facts(path)
    return "content" in found


def calls_of(path, units):
    """The notes that the change of a file leaves, until it has had its effect: `a.service`, `b.service.reload`."""
    restarts = [unit["name"] for unit in units if is_among(path, unit["restart_on"])]
    return restarts + [reload_of(unit["name"]) for unit in units if is_among(path, unit.get("reload_on") or [])]


def is_among(path, wanted):
    """Whether a path is one of these, or below one that ends with a slash."""
    return path in wanted or any(path.startswith(folder) for folder in wanted if folder.endswith("/"))


def reload_of(name):
    return "%s.reload" % name


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
    enable(step, [unit["name"] for unit in units if unit["running"]], shown)
    for unit in units:
        if unit["running"]:
            ensure_running(step, unit, shown.get(unit["name"], {}), changed_files, unit["name"] in new_units)
        else:
            ensure_stopped(step, unit, shown.get(unit["name"], {}))


def enable(step, names, shown):
    """One call for all that do not start at boot: after each systemd reads all of its units anew."""
    wanted = [name for name in names if not node_units.is_enabled(shown.get(name, {}))]
    if wanted and not step.dry:
        run_systemctl(step, ["enable", "--quiet"] + wanted, wanted[0])


def ensure_running(step, unit, properties, changed_files, is_new):
    name = unit["name"]
    due = node_record.is_pending(name) or any(is_among(path, unit["restart_on"]) for path in changed_files)
    reload_on = unit.get("reload_on") or []
    stale = node_record.is_pending(reload_of(name)) or any(is_among(path, reload_on) for path in changed_files)
    active = properties.get("ActiveState") == "active"
    enabled = node_units.is_enabled(properties)
    if not (due or not active) or is_held_back(unit, properties, due, step.dry):
        started = False
    else:
        started = step.dry or start_or_restart(step, unit)
    if started:
        action = "restart" if active else "start"
        step.did("%sed %s" % (action, name), "unit", name, action)
    elif active and stale:
        step.did("reloaded %s" % name, "unit", name, "reload")
        if not step.dry:
            run_systemctl(step, ["reload", name], name)
            node_record.clear_pending(reload_of(name))
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
    # it has read everything anew
    node_record.clear_pending(reload_of(name))
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
        env=dict(os.environ, **node_units.ENVIRONMENT),
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
