"""Remove from a node what a setting installed and no longer requests, and nothing that was there before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    changes as node_changes,
    errors as node_errors,
    files as node_files,
    kernel as node_kernel,
    packages as node_packages,
    record as node_record,
    services as node_services,
    step as node_step,
)

UNIT_DIRECTORY = "/etc/systemd/system/"
# parent directories of managed files that hold nothing else; of modules one by name
_OWN_PARENTS = (UNIT_DIRECTORY, "/usr/local/lib/deepopsctl/", "/opt/deepopsctl/modulefiles/")


class Ownership:
    """What a step owns: recorded before anything is installed, so that an interrupted run loses no record."""

    def __init__(self, step: node_step.Step) -> None:
        self.step = step
        self.noted = step.noted
        self.owned = step.owned
        wanted = step.wanted
        self.names = {
            "packages": list(wanted["packages"]),
            "units": [unit["name"] for unit in wanted["units"]],
            "files": [file["path"] for file in wanted["files"] if file["block"] is None]
            + [node_kernel.load_file(module["name"]) for module in wanted["kernel_modules"] if module["loaded"]],
            # of these files only a part is ours
            "blocks": [file["path"] for file in wanted["files"] if file["block"] is not None],
            "directories": [directory["path"] for directory in wanted["directories"]],
        }
        # removed drop-ins that say more than what a unit starts after
        self.dropins: list[str] = []

    def record_additions(self) -> None:
        """Record what is about to be installed as managed. What exists already is not, except files."""
        present = node_packages.installed(self.names["packages"])
        shown = node_services.show(self.names["units"])
        new = {
            "packages": [name for name in self.names["packages"] if name not in present],
            "units": [name for name in self.names["units"] if shown[name].get("LoadState") == "not-found"],
            "files": self.names["files"],
            "blocks": self.names["blocks"],
            "directories": [path for path in self.names["directories"] if not os.path.isdir(path)],
        }
        for type_name, names in new.items():
            self.owned[type_name] += [name for name in names if name not in self.owned[type_name]]
        self.step.save_owned()

    def is_empty(self) -> bool:
        """Whether the call wants nothing at all: then all that is owned is obsolete."""
        return not any(self.names.values())

    def has_obsolete(self) -> bool:
        """Whether anything has to be removed."""
        return any(self.obsolete(type_name) for type_name in self.names)

    def obsolete(self, type_name: str) -> list[str]:
        """What an earlier call of the step installed of a type, and this one does not want."""
        return [name for name in self.owned[type_name] if name not in self.names[type_name]]

    def remove_files(self) -> list[str]:
        """Stop obsolete units and remove obsolete files and blocks; returns the paths of the removed files."""
        stop(self.noted, self.obsolete("units"))
        for path in self.obsolete("blocks"):
            node_files.remove_block(self.noted, path, node_files.MARKER)
        files = self.obsolete("files")
        self.dropins = [path for path in files if path.startswith(UNIT_DIRECTORY) and not is_ordering(path)]
        return [path for path in files if node_files.remove(self.noted, path)]

    def remove_rest(self, removed: Sequence[str]) -> None:
        """Once the files are removed and systemd has reloaded: remove packages and empty directories."""
        if not self.noted.dry:
            for path in removed:
                remove_directory_of(path)
        self.restart_units_without([path for path in removed if path in self.dropins])
        lock_wait = self.step.wanted["lock_wait"]
        remove_packages(self.noted, self.obsolete("packages"), self.step.module.warn, lock_wait)
        for path in reversed(self.obsolete("directories")):
            if not self.noted.dry:
                remove_empty(path, (os.path.dirname(path) + "/",))
        for type_name, wanted in self.names.items():
            self.owned[type_name] = [name for name in self.owned[type_name] if name in wanted]
        self.step.save_owned()

    def restart_units_without(self, paths: Sequence[str]) -> None:
        """Restart units that existed before and had a managed drop-in, so that they run without it."""
        dropins = [os.path.dirname(path) for path in paths]
        names = [os.path.basename(directory)[: -len(".d")] for directory in dropins if directory.endswith(".d")]
        theirs = [name for name in dict.fromkeys(names) if name not in self.owned["units"]]
        for name, facts in node_services.show(theirs).items():
            if not node_services.is_active(facts):
                continue
            self.noted.did("unit", name, "restart")
            if not self.noted.dry:
                node_errors.run_or_raise(["systemctl", "restart", name])


def is_ordering(path: str) -> bool:
    """Whether a drop-in has the section [Unit] alone: a unit that runs need not be restarted without it."""
    text = (node_files.read(path) or b"").decode("utf-8", "replace")
    return [line for line in text.splitlines() if line.startswith("[")] == ["[Unit]"]


def stop(noted: node_changes.Noted, names: Sequence[str]) -> None:
    """Stop and disable the units that exist."""
    served, shown = [], node_services.show(names)
    for name in names:
        facts = shown[name]
        if not noted.dry:
            node_record.clear_pending(name)
            node_record.clear_pending(f"{name}.reload")
        is_loaded = facts.get("LoadState") != "not-found"
        if is_loaded and (node_services.is_active(facts) or facts.get("UnitFileState") == "enabled"):
            noted.did("unit", name, "stop")
            served.append(name)
    if served and not noted.dry:
        # one call: systemd reloads all of its units after each
        node_errors.run_or_raise(["systemctl", "disable", "--now", "--quiet"] + served, node_services.ENVIRONMENT)


def remove_packages(
    noted: node_changes.Noted, obsolete: Sequence[str], warn: Callable[[str], None], lock_wait: int
) -> None:
    """Purge packages and their dependencies; none where another package needs one. Raises PackageError."""
    present = node_packages.installed(obsolete)
    # one that a package of this step has just replaced left its configuration
    for name in node_packages.with_configuration_only(obsolete):
        noted.did("package", name, "remove")
        if not noted.dry:
            node_packages.remove([name], lock_wait)
    if not present:
        return
    names = " ".join(sorted(present))
    try:
        removable = node_packages.removable_with(list(present))
        if not removable:
            warn(f"not removed, other packages need it: {names}")
            return
        others = len(removable) - len(present)
        with_them = f"and {others} that came with {'it' if len(present) == 1 else 'them'}" if others else ""
        for name in sorted(present):
            noted.did("package", name, "remove", detail=with_them if name == max(present) else "")
        if not noted.dry:
            node_packages.remove(removable, lock_wait)
    except node_packages.PackageError as error:
        raise node_packages.PackageError(f"cannot remove {names}: {error}", error.hint) from error


def remove_directory_of(path: str) -> None:
    """Remove a unit's drop-in directory, or a program directory, once its last file is removed."""
    remove_empty(os.path.dirname(path), _OWN_PARENTS)


def remove_empty(directory: str, below: Iterable[str]) -> None:
    """Remove an empty directory and its empty parents, as far as they are below one of `below`."""
    while directory.startswith(tuple(below)):
        try:
            os.rmdir(directory)
        except OSError:
            return
        directory = os.path.dirname(directory)
