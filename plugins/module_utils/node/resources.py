"""One step of a node: what M(node_state) does for each kind of thing, and what it remembers of it."""

from __future__ import annotations

import base64
import os
import pwd
import socket
import stat
import subprocess

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    files as node_files,
    packages_apt as node_packages,
    record as node_record,
    service_resources as node_service_resources,
    services as node_services,
    system_directories as node_system_directories,
)

MARKER = "deepopsctl"
# Debian's packages give slurmd's directory to this account, and slurmd runs as root
OF_SLURM = "slurm"


class Step:
    """One call: what is wanted, what was done, and what the record will say."""

    def __init__(self, module):
        self.module = module
        self.dry = module.check_mode
        self.actions = []
        self.noted = node_changes.Noted(self.dry)
        self.record = node_record.items()

    def did(self, sentence, type_name, name, action, **more):
        self.actions.append(sentence)
        self.noted.did(type_name, name, action, **more)

    def fail(self, message, hint=""):
        self.module.fail_json(msg=message, hint=hint, actions=self.actions, changed=bool(self.actions))


def ensure_packages(step, names, hold_units, upstream):
    present = node_packages.installed(names)
    missing = [name for name in names if name not in present]
    exact = node_packages.in_upstream(missing, upstream)
    if missing and not step.dry:
        specified = ["%s=%s" % (name, exact[name]) if name in exact else name for name in missing]
        install_packages(step, specified, hold_units)
        present = node_packages.installed(names)
        absent = [name for name in names if name not in present]
        if absent:
            step.fail("the package manager reported success, yet these are missing: %s" % " ".join(absent))
    elif missing:
        present.update(node_packages.candidates(missing), **exact)
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
    held = [name for name, facts in node_services.show(hold_units).items() if facts.get("ActiveState") != "active"]
    node_service_resources.run_systemctl(step, ["mask", "--runtime", "--quiet"] + held, "")
    try:
        node_packages.install(missing, step.module.params["lock_wait"])
    except node_packages.PackageError as error:
        step.fail("cannot install %s: %s" % (" ".join(missing), error), error.hint)
    finally:
        node_service_resources.run_systemctl(step, ["unmask", "--runtime", "--quiet"] + held, "")


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
        refuse_foreign(step, path, current, ids)
        sentence = "created %s" % path if current is None else "set owner and mode of %s" % path
        # one word for both: which of them it is may depend on what a package has just made
        owned = "%s:%s %s" % (wanted["owner"], wanted["group"], wanted["mode"])
        step.did(sentence, "directory", path, "set", detail=owned)
        if not step.dry:
            make_directory(step, path, ids, mode)
    step.record["directories"][path] = node_record.directory_facts(path)


def refuse_foreign(step, path, current, ids):
    """Fail where a directory belongs to the system or to another owner: the setting names the wrong one."""
    if current is None:
        return
    owner = current[0]
    if node_system_directories.is_system_directory(os.path.realpath(path)) or current[2] & (
        stat.S_ISVTX | stat.S_IWOTH
    ):
        why = "is a system or shared directory"
    elif ids is not None and owner not in (0, ids[0]) and account_of(owner) not in ("", OF_SLURM):
        why = "belongs to %s" % account_of(owner)
    else:
        return
    step.fail(
        "%s %s: its owner and mode stay as they are" % (path, why),
        "name a directory for this purpose alone, for example one below it",
    )


def account_of(uid):
    """The name of an account here; '' for a number that nobody has (any more)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def make_directory(step, path, ids, mode):
    try:
        link = node_files.users_link(path)
        if link:
            step.fail("%s: %s is a link of a user's" % (path, link), "look where it leads, and remove it")
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
    differences = node_files.differs(path, content, ids, mode)
    if differences:
        before = node_files.read(path)
        if not step.dry:
            # another owner or mode is nothing that a running daemon has to be restarted for
            notes = node_service_resources.calls_of(path, units) if "content" in differences else []
            due = [note for note in notes if not node_record.is_pending(note)]
            for name in due:
                node_record.mark_pending(name, path)
            apply_file(step, wanted, content, ids, differences, due)
        note_file(step, wanted, differences, before, content)
    step.record["files"][path] = node_record.file_facts(path)
    return "content" in differences


def apply_file(step, wanted, content, ids, differences, due):
    path, mode, validate = wanted["path"], int(wanted["mode"], 8), wanted["validate"]
    try:
        if "content" in differences:
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
        step.fail(*node_files.error_text(OSError(error.errno, error.strerror, path)))


def note_file(step, wanted, differences, before, content):
    path = wanted["path"]
    if "content" not in differences:
        owned = "%s:%s %s" % (wanted["owner"], wanted["group"], wanted["mode"])
        step.did("set %s of %s" % (" and ".join(differences), path), "file", path, "mode", detail=owned)
        return
    step.actions.append("wrote %s" % path)
    if wanted["secret_base64"] is None:
        step.noted.wrote(path, before, content)
    else:
        step.noted.wrote_secret(path, before)


def ensure_absent(step, path):
    if node_files.remove(step.noted, path):
        step.actions.append("removed %s" % path)
    step.record["files"][path] = None
