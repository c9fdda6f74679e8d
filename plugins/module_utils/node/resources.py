"""What M(node_state) does for each kind of thing, and what it remembers of it."""

from __future__ import annotations

import base64
import fnmatch
import os
import pwd
import re
import socket
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    command as node_command,
    files as node_files,
    ownership as node_ownership,
    packages as node_packages,
    record as node_record,
    services as node_services,
    step as node_step,
    system_directories as node_system_directories,
)

UNIT_DIRECTORY = "/etc/systemd/system/"
RUNTIME_UNITS = "/run/systemd/system"
CONTAINER = "/run/systemd/container"
# Debian's packages give slurmd's directory to this account, and slurmd runs as root
OF_SLURM = "slurm"
DONE = {"install": "installed", "upgrade": "upgraded"}


def versions_of(packages: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """{name: wanted version} of the option C(packages); '' is any version."""
    return dict(packages) if isinstance(packages, dict) else dict.fromkeys(packages, "")


def leave_manual_installs(step: node_step.Step) -> None:
    """Take the packages that were installed manually, without apt, out of those that are wanted."""
    packages = step.wanted["packages"]
    missing = [name for name in packages if name in step.wanted["manual_installs"]]
    missing = [name for name in missing if name not in node_packages.installed(missing)]
    for name in node_ownership.manually_installed(missing, step.wanted["manual_installs"], node_packages.is_packaged):
        path = step.wanted["manual_installs"][name]
        step.module.warn(f"{name} was installed manually ({path}): left unchanged")
        del packages[name]


def ensure_packages(step: node_step.Step) -> dict[str, str]:
    """Install what is missing or of another version; returns what is there."""
    wanted = step.wanted["packages"]
    release_held_units(step)
    present = node_packages.installed(list(wanted))
    missing = [name for name in wanted if name not in present]
    other = [name for name in present if wanted[name] and not fnmatch.fnmatchcase(present[name], wanted[name])]
    exact = node_packages.in_upstream(missing, step.wanted["upstream"])
    mark_restarts(step, other)
    ahead = [] if step.dry else claim_ahead(step)
    if (missing or other or ahead) and not step.dry:
        install_packages(step, [specification(step, name, exact) for name in missing + other], ahead)
        present = node_packages.installed(list(wanted))
        check_installed(step, present)
        for name, version in node_packages.installed(ahead).items():
            step.did(f"installed {name} {version}", "package", name, "install", detail=version)
    elif missing or other:
        present.update(node_packages.candidates(missing), **exact)
        present.update({name: wanted[name] for name in missing + other if wanted[name]})
    for name in missing + other:
        version, action = present.get(name, ""), "install" if name in missing else "upgrade"
        step.did(f"{DONE[action]} {name} {version}", "package", name, action, detail=version)
    if missing or other:
        names = "".join(f"{name}\n" for name in missing + other)
        step.noted.diffs.append({"before": "", "after": names, "after_header": "packages"})
    step.record["packages"] = present
    return present


def claim_ahead(step: node_step.Step) -> list[str]:
    """Missing packages of later steps, each recorded as what its step installed: that step finds it, and may remove it.

    One that several steps want is of the first.
    """
    entries = step.wanted.get("ahead", [])
    names = list(dict.fromkeys(name for entry in entries for name in entry["packages"]))
    present = node_packages.installed(names)
    claimed = set(present) | set(step.wanted["packages"])
    for entry in entries:
        owned = node_ownership.load(step.wanted["component"], entry["step"])
        new = [name for name in dict.fromkeys(entry["packages"]) if name not in claimed]
        owned["packages"] += [name for name in new if name not in owned["packages"]]
        if new:
            node_ownership.save(step.wanted["component"], entry["step"], owned)
        if new and node_record.load(step.wanted["component"], entry["step"]) is None:
            # should that step not come, and not be wanted any more, the next deploy removes them
            node_record.begin(step.wanted["component"], entry["step"])
        claimed.update(new)
    return [name for name in names if name not in present and name not in step.wanted["packages"]]


def ensure_guarded(step: node_step.Step) -> None:
    """Have apt hold what is installed of these packages; named are those that were asked for."""
    patterns = step.wanted["guard"]
    if not patterns:
        return
    named = [name for name in step.record["packages"] if any(fnmatch.fnmatchcase(name, each) for each in patterns)]
    held = node_packages.held()
    for name in sorted(set(named) - held):
        step.did(f"held {name}", "hold", name, "hold")
    if not step.dry:
        node_packages.guard(node_packages.installed(patterns))
    step.record["held"] = sorted(named)


def specification(step: node_step.Step, name: str, exact: Mapping[str, str]) -> str:
    """A package as apt takes it."""
    version = exact.get(name) or step.wanted["packages"][name]
    return step.wanted["archives"].get(name) or (f"{name}={version}" if version else name)


def mark_restarts(step: node_step.Step, other: Sequence[str]) -> None:
    """Before anything is replaced, so that an interrupted run loses no restart."""
    reasons = [name for name in other if name not in step.wanted["restart_except"]]
    for name, facts in node_services.show(step.wanted["restart_on_upgrade"] if reasons else []).items():
        if node_services.is_active(facts) and step.dry:
            note_restart(step, name)
        elif node_services.is_active(facts):
            node_record.mark_pending(name, f"another version of {' '.join(reasons)}")


def note_restart(step: node_step.Step, name: str) -> None:
    """For a plan, once: the packages and a drop-in of a unit may both change."""
    if node_changes.entry("unit", name, "restart") not in step.noted.changes:
        step.noted.did("unit", name, "restart")


def install_packages(step: node_step.Step, specifications: Sequence[str], ahead: Sequence[str] = ()) -> None:
    """Install packages, each with its version in the package manager's notation or without; the result is verified.

    Packages `ahead` of later steps come with them, if the package manager has all of them. Daemons in `hold_units` that
    do not run yet are kept from starting meanwhile, so that no package starts one before its configuration is there: by
    the policy that scripts of packages ask, others by a mask, for which systemd reads all of its units twice. Fails the
    module where the package manager refuses, or where a package is missing after it.
    """
    stopped = stop_for_packages(step)
    # only what does not run yet: a daemon that serves is left alone
    hold_units = node_services.show(step.wanted["hold_units"] + stopped)
    held = [name for name, facts in hold_units.items() if facts.get("ActiveState") != "active"]
    foreign = node_packages.has_foreign_policy()
    masked = [name for name in held if foreign or name in stopped or name not in node_packages.BY_POLICY]
    failure = None
    mask(step, "mask", masked)
    try:
        install_with(step, specifications, ahead, held)
    except node_packages.PackageError as error:
        failure = error
    finally:
        mask(step, "unmask", masked)
    if failure:
        # once they are replaced, `units` starts them
        run_systemctl(step, ["start"] + stopped, "")
        step.fail(f"cannot install {' '.join(specifications)}: {failure}", hint_for(step, failure))


def install_with(
    step: node_step.Step, specifications: Sequence[str], ahead: Sequence[str], held: Sequence[str]
) -> None:
    """One transaction; without those of later steps where it fails: their own step says why. Raises PackageError."""
    lock_wait, downgrade = step.wanted["lock_wait"], step.wanted.get("downgrade", False)
    try:
        node_packages.install([*specifications, *ahead], lock_wait, downgrade, held)
    except node_packages.PackageError as error:
        if not ahead or node_packages.LOCKED.search(str(error)):
            raise
        if specifications:
            node_packages.install(specifications, lock_wait, downgrade, held)


def stop_for_packages(step: node_step.Step) -> list[str]:
    """Stop what must not run on replaced programs; the names of what ran."""
    units = node_services.show(step.wanted["stop_units"])
    running = [name for name, facts in units.items() if node_services.is_active(facts)]
    for name in running:
        run_systemctl(step, ["stop", name], name)
        step.did(f"stopped {name}", "unit", name, "stop")
    return running


def mask(step: node_step.Step, how: str, units: Sequence[str]) -> None:
    """`mask` or `unmask` units until the next start of the node."""
    if units:
        run_systemctl(step, [how, "--runtime", "--quiet", *units], "")


def release_held_units(step: node_step.Step) -> None:
    """Unmask what an installation that was cut off left masked: such a unit can't be enabled, and does not start."""
    names = step.wanted["hold_units"] + step.wanted["stop_units"]
    paths = {name: os.path.join(RUNTIME_UNITS, name) for name in names}
    held = [name for name, path in paths.items() if os.path.realpath(path) == os.devnull]
    if not step.dry:
        mask(step, "unmask", held)


def hint_for(step: node_step.Step, error: node_packages.PackageError) -> str:
    """What to do; where the sources have no such package, what the role says, or what they have instead."""
    if not re.search("Unable to locate|no installation candidate|was not found", str(error)):
        return error.hint
    prefix = step.wanted["name_prefix"]
    if step.wanted["hint"] or not prefix:
        return step.wanted["hint"] or error.hint
    return f"{error.hint}; they have {' '.join(node_packages.known(prefix)) or 'nothing of that kind'}"


def check_installed(step: node_step.Step, present: Mapping[str, str]) -> None:
    """Fail where a package is missing all the same, or a file has another version than the settings name."""
    for name, path in step.wanted["archives"].items():
        version, installed = step.wanted["packages"].get(name, ""), present.get(name, "")
        if version and not fnmatch.fnmatchcase(installed, version):
            what = f"{path} contains {name} {installed or 'not at all'}, and {version} is wanted"
            step.fail(what, step.wanted["hint"] or "give the version that the file has")
    absent = [name for name in step.wanted["packages"] if name not in present]
    if absent:
        step.fail(f"the package manager reported success, yet these are missing: {' '.join(absent)}")


def ensure_hostname(step: node_step.Step, name: str) -> None:
    """Set the static hostname; an empty `name` leaves it alone."""
    if not name or socket.gethostname() == name:
        return
    was = f"was {socket.gethostname()}"
    step.did(f"set the hostname to {name}", "hostname", name, "set", detail=was)
    step.noted.diffs.append({"before": socket.gethostname() + "\n", "after": name + "\n", "before_header": "hostname"})
    if step.dry:
        return
    result = node_command.run_merged(["hostnamectl", "set-hostname", name])
    if not result.ok:
        step.fail(f"cannot set the hostname: {result.message}")


def ensure_directory(step: node_step.Step, wanted: Mapping[str, Any]) -> None:
    """Create a directory, or correct its owner and mode.

    Fails the module where the path is a file, or another owner's directory that the step did not make.
    """
    path, mode = wanted["path"], int(wanted["mode"], 8)
    ids = node_files.owner_ids(wanted["owner"], wanted["group"])
    if ids is None and not step.dry:
        step.fail(f"{path}: user {wanted['owner']} or group {wanted['group']} does not exist")
    current = node_record.directory_facts(path)
    if current is None or (ids is not None and current != [ids[0], ids[1], mode]):
        refuse_foreign(step, path, current, ids)
        sentence = f"created {path}" if current is None else f"set owner and mode of {path}"
        # one word for both: which of them it is may depend on what a package has just made
        owned = f"{wanted['owner']}:{wanted['group']} {wanted['mode']}"
        step.did(sentence, "directory", path, "set", detail=owned)
        if not step.dry:
            make_directory(step, path, ids, mode)
    step.record["directories"][path] = node_record.directory_facts(path)


def refuse_foreign(step: node_step.Step, path: str, current: Sequence[int] | None, ids: tuple[int, int] | None) -> None:
    """Fail where a directory belongs to the system or to another owner: the setting names the wrong one."""
    if current is None:
        return
    owner = current[0]
    if node_system_directories.is_system_directory(os.path.realpath(path)) or current[2] & (
        stat.S_ISVTX | stat.S_IWOTH
    ):
        why = "is a system or shared directory"
    elif ids is not None and owner not in (0, ids[0]) and account_of(owner) not in ("", OF_SLURM):
        why = f"belongs to {account_of(owner)}"
    else:
        return
    step.fail(
        f"{path} {why}: its owner and mode stay as they are",
        "name a directory for this purpose alone, for example one below it",
    )


def account_of(uid: int) -> str:
    """The name of an account here; '' for a number that no account has (any more)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def make_directory(step: node_step.Step, path: str, ids: tuple[int, int] | None, mode: int) -> None:
    """Create a directory with its parents. Fails the module where a link of a user is in the path."""
    try:
        link = node_files.users_link(path)
        if link:
            step.fail(f"{path}: {link} is a link of a user's", "look where it leads, and remove it")
        node_files.make_directory(path, ids, mode)
    except OSError as error:
        step.fail(f"{path}: {error.strerror}", "see what is at that path, and its file system")


def desired_content(step: node_step.Step, wanted: Mapping[str, Any]) -> bytes:
    """A file's whole content in bytes: `block` within what is there, else `secret_base64`, else `content`."""
    if wanted["block"] is not None:
        return node_files.with_block(node_files.read(wanted["path"]), wanted["block"], node_files.MARKER)
    if wanted["secret_base64"] is not None:
        try:
            return base64.b64decode(wanted["secret_base64"].strip(), validate=True)
        except ValueError:
            step.fail(f"{wanted['path']}: its content is not base64", "correct the variable that holds the secret")
    # lines of others may be in another encoding: login_access keeps them
    return str(wanted["content"]).encode("utf-8", "surrogateescape")


def ensure_file(step: node_step.Step, wanted: Mapping[str, Any], units: Sequence[Mapping[str, Any]]) -> bool:
    """Write a file that differs in content, owner or mode; returns whether its content changed.

    Before the content is replaced, each unit that has to restart or reload for it gets a note on disk, so that an
    interrupted run does so in the next one. One with `where_present` is left out where it does not exist yet.
    """
    path, mode = wanted["path"], int(wanted["mode"], 8)
    if wanted.get("where_present") and not os.path.exists(path):
        # once the file is there the record differs, and the next deploy looks again
        step.record["files"][path] = None
        return False
    content = desired_content(step, wanted)
    ids = node_files.owner_ids(wanted["owner"], wanted["group"])
    if ids is None and not step.dry:
        step.fail(f"{path}: user {wanted['owner']} or group {wanted['group']} does not exist")
    differences = node_files.differs(path, content, ids, mode)
    if differences:
        before = node_files.read(path)
        # another owner or mode is nothing that a running daemon has to be restarted for
        configured = running_with(step, path) if "content" in differences else []
        if step.dry:
            for name in configured:
                note_restart(step, name)
        else:
            notes = calls_of(path, units) + configured if "content" in differences else []
            due = [note for note in notes if not node_record.is_pending(note)]
            for name in due:
                node_record.mark_pending(name, path)
            apply_file(step, wanted, content, ids, differences, due)
        note_file(step, wanted, differences, before, content)
    step.record["files"][path] = node_record.file_facts(path)
    return "content" in differences


def apply_file(
    step: node_step.Step,
    wanted: Mapping[str, Any],
    content: bytes,
    ids: tuple[int, int] | None,
    differences: Sequence[str],
    due: Sequence[str],
) -> None:
    """Write the file, or set its owner and mode. Fails the module where `validate` refuses the content.

    The old file is in place then, and the notes `due` for units are taken back.
    """
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
            words = f"{path}: {validate[0]} refuses the new content"
            step.fail(str(error) if wanted["secret_base64"] is None else words, "the old file is still in place")
        else:
            step.fail(*node_files.error_text(OSError(error.errno, error.strerror, path)))


def note_file(
    step: node_step.Step, wanted: Mapping[str, Any], differences: Sequence[str], before: bytes | None, content: bytes
) -> None:
    """Report the change, with a difference for --diff; of a secret only that it changed."""
    path = wanted["path"]
    if "content" not in differences:
        owned = f"{wanted['owner']}:{wanted['group']} {wanted['mode']}"
        step.did(f"set {' and '.join(differences)} of {path}", "file", path, "mode", detail=owned)
        return
    step.actions.append(f"wrote {path}")
    if wanted["secret_base64"] is None:
        step.noted.wrote(path, before, content)
    else:
        step.noted.wrote_secret(path, before)


def ensure_absent(step: node_step.Step, path: str) -> None:
    """Remove a file if it is there, and record that it must not be."""
    if node_files.remove(step.noted, path):
        step.actions.append(f"removed {path}")
    step.record["files"][path] = None


def calls_of(path: str, units: Sequence[Mapping[str, Any]]) -> list[str]:
    """The notes that the change of a file leaves, until it has had its effect: `a.service`, `b.service.reload`."""
    restarts = [unit["name"] for unit in units if is_among(path, unit["restart_on"])]
    return restarts + [reload_of(unit["name"]) for unit in units if is_among(path, unit.get("reload_on") or [])]


def is_among(path: str, wanted: Sequence[str]) -> bool:
    """Whether a path is one of these, or below one that ends with a slash."""
    return path in wanted or any(path.startswith(directory) for directory in wanted if directory.endswith("/"))


def running_with(step: node_step.Step, path: str) -> list[str]:
    """Units of `restart_on_upgrade` that run, and whose drop-in this file is."""
    directory = os.path.dirname(path)
    names = step.wanted.get("restart_on_upgrade", ())
    names = [name for name in names if directory == f"{UNIT_DIRECTORY}{name}.d"]
    return [name for name, facts in node_services.show(names).items() if node_services.is_active(facts)]


def reload_of(name: str) -> str:
    """The name of the note that a unit has to reload, not restart."""
    return f"{name}.reload"


def ensure_units(
    step: node_step.Step, units: Sequence[Mapping[str, Any]], changed_files: Sequence[str], new_units: Collection[str]
) -> None:
    """Enable and start, restart, reload or stop units, each once whatever its reasons are.

    `changed_files` are the paths whose content this call replaced; `new_units` came with packages of this call, and
    their being enabled is not a change of its own.
    """
    names = [unit["name"] for unit in units]
    if not step.dry and any(path.startswith(UNIT_DIRECTORY) for path in changed_files):
        run_systemctl(step, ["daemon-reload"], "")
    shown = node_services.show(names)
    if not step.dry and any(shown.get(name, {}).get("NeedDaemonReload") == "yes" for name in names):
        run_systemctl(step, ["daemon-reload"], "")
    units = [unit for unit in units if not is_left_masked(step, unit, shown.get(unit["name"], {}))]
    enable(step, [unit["name"] for unit in units if unit["running"]], shown)
    for unit in units:
        if unit["running"]:
            ensure_running(step, unit, shown.get(unit["name"], {}), changed_files, unit["name"] in new_units)
        else:
            ensure_stopped(step, unit, shown[unit["name"]])


def is_left_masked(step: node_step.Step, unit: Mapping[str, Any], properties: Mapping[str, str]) -> bool:
    """Whether an optional unit is masked for good, a person's right: the record has nothing of it, nor has the gate."""
    name = unit["name"]
    if not unit["optional"] or not unit["running"] or properties.get("UnitFileState") != "masked":
        return False
    if node_record.is_pending(name):
        node_record.clear_pending(name)
        step.module.warn(f"{name} is masked: changed files take effect once it is unmasked and started")
    return True


def enable(step: node_step.Step, names: Sequence[str], shown: Mapping[str, Mapping[str, str]]) -> None:
    """Enable all that do not start at boot in one call: systemd reloads all of its units after each."""
    wanted = [name for name in names if not node_services.is_enabled(shown.get(name, {}))]
    if wanted and not step.dry:
        run_systemctl(step, ["enable", "--quiet"] + wanted, wanted[0])


def ensure_running(
    step: node_step.Step,
    unit: Mapping[str, Any],
    properties: Mapping[str, str],
    changed_files: Sequence[str],
    is_new: bool,
) -> None:
    """Start a unit that does not run, restart or reload it where a file or a note asks for it.

    `properties` are systemd's, before. Fails the module where it is not active, or not on its port, after 60 s.
    """
    name = unit["name"]
    due = node_record.is_pending(name) or any(is_among(path, unit["restart_on"]) for path in changed_files)
    reload_on = unit.get("reload_on") or []
    stale = node_record.is_pending(reload_of(name)) or any(is_among(path, reload_on) for path in changed_files)
    active = properties.get("ActiveState") == "active"
    enabled = node_services.is_enabled(properties)
    if not (due or not active) or is_held_back(unit, properties, due, step.dry):
        started = False
    else:
        started = step.dry or start_or_restart(step, unit)
    if started:
        action = "restart" if active else "start"
        step.did(f"{action}ed {name}", "unit", name, action)
    elif active and stale:
        step.did(f"reloaded {name}", "unit", name, "reload")
        if not step.dry:
            run_systemctl(step, ["reload", name], name)
            node_record.clear_pending(reload_of(name))
    elif not enabled and not is_new:
        # a unit that starts is enabled, too, and so is one that came with its package: no change of its own
        step.did(f"enabled {name}", "unit", name, "enable")
    step.record["units"][name] = True
    if unit.get("port"):
        step.record["ports"][name] = unit["port"]


def is_held_back(unit: Mapping[str, Any], properties: Mapping[str, str], due: bool, dry: bool) -> bool:
    """True where systemd itself keeps a unit from starting (chrony in a container: no clock to set)."""
    if not unit["optional"] or properties.get("ActiveState") == "active":
        return False
    if properties.get("LoadState") == "not-found":
        # its package, and with it its condition, is not there yet
        return dry and os.path.exists(CONTAINER)
    return node_services.is_refused_by_condition(properties) and (dry or not due)


def start_or_restart(step: node_step.Step, unit: Mapping[str, Any]) -> bool:
    """True when the unit runs afterwards; False when a condition of its own keeps it from it."""
    name = unit["name"]
    facts = node_services.show([name])[name]
    if facts.get("LoadState") == "masked":
        # an installation was cut off; to mask for good is a person's right, and stays
        run_systemctl(step, ["unmask", "--runtime", "--quiet", name], "")
    if facts.get("ActiveState") == "failed":
        # systemd refuses a unit that failed too often until its counter is reset
        run_systemctl(step, ["reset-failed", name], "")
    run_systemctl(step, ["restart", name], name)
    # it has reloaded everything
    node_record.clear_pending(reload_of(name))
    properties = node_services.wait_until_active(name, 60)
    if properties.get("ActiveState") != "active":
        if unit["optional"] and node_services.is_refused_by_condition(properties):
            node_record.clear_pending(name)
            return False
        step.fail(
            f"{name} does not run ({properties.get('SubState', '?')}): {node_services.journal_tail(name)}",
            f"see `journalctl -u {name}` on the node",
        )
    if unit["port"] and not node_services.wait_for_port(unit["port"], 60):
        step.fail(f"{name} runs but does not listen on port {unit['port']}", node_services.journal_tail(name))
    node_record.clear_pending(name)
    return True


def ensure_stopped(step: node_step.Step, unit: Mapping[str, Any], properties: Mapping[str, str]) -> None:
    """Stop and disable a unit; one that systemd does not know is fine."""
    name = unit["name"]
    if properties.get("LoadState") == "not-found":
        return
    if node_services.is_active(properties) or properties.get("UnitFileState") == "enabled":
        step.did(f"stopped and disabled {name}", "unit", name, "stop")
        if not step.dry:
            run_systemctl(step, ["disable", "--now", "--quiet", name], name)
    step.record["units"][name] = False


def run_systemctl(step: node_step.Step, arguments: list[str], unit: str) -> None:
    """Run systemctl. Where `unit` is given, a failure fails the module, with the end of its journal."""
    environment = node_command.environment(**node_services.ENVIRONMENT)
    result = node_command.run_merged(["systemctl"] + arguments, env=environment)
    if not result.ok and unit:
        words = node_services.journal_tail(unit)
        step.fail(
            f"systemctl {' '.join(arguments)}: {result.message}\n{words}",
            f"see `journalctl -u {unit}` on the node",
        )
