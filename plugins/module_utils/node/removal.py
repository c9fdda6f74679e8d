"""Take away from a node what a setting brought and no longer wants: that, and nothing that was there before."""

from __future__ import annotations

import os

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    errors as node_failure,
    files as node_files,
    ownership as node_owned,
    packages_apt as node_packages,
    record as node_record,
    services as node_units,
)

UNIT_FOLDER = "/etc/systemd/system/"
# folders that are made on the way to a file of ours and are nobody else's
_ON_THE_WAY = (UNIT_FOLDER, "/usr/local/lib/deepopsctl/")


class Taking:
    """One step's property: noted before anything is brought, so that a cut-off run loses none."""

    def __init__(self, noted, wanted, warn):
        self.noted = noted
        self.wanted = wanted
        self.warn = warn
        self.names = {
            "packages": list(wanted["packages"]),
            "units": [unit["name"] for unit in wanted["units"]],
            "files": [file["path"] for file in wanted["files"]],
            "directories": [directory["path"] for directory in wanted["directories"]],
        }
        self.owned = node_owned.load(wanted["component"], wanted["step"])

    def remember(self):
        if not self.noted.dry:
            node_owned.save(self.wanted["component"], self.wanted["step"], self.owned)

    def record_additions(self):
        """What is about to come is ours, and what is there already is not; files are in any case."""
        present = node_packages.installed(self.names["packages"])
        shown = node_units.show(self.names["units"])
        new = {
            "packages": [name for name in self.names["packages"] if name not in present],
            "units": [name for name in self.names["units"] if shown[name].get("LoadState") == "not-found"],
            "files": self.names["files"],
            "directories": [path for path in self.names["directories"] if not os.path.isdir(path)],
        }
        for type_name, names in new.items():
            self.owned[type_name] += [name for name in names if name not in self.owned[type_name]]
        self.remember()

    def gone(self, type_name):
        return [name for name in self.owned[type_name] if name not in self.names[type_name]]

    def take_files(self):
        """Stop units that nobody wants any more and remove such files; returns the paths of these."""
        stop(self.noted, self.gone("units"))
        return [path for path in self.gone("files") if node_files.take_away(self.noted, path)]

    def take_rest(self, removed):
        """When the files are gone and systemd knows: what is left of them, packages, folders that are empty."""
        if not self.noted.dry:
            for path in removed:
                remove_folder_of(path)
        self.go_on_without(removed)
        take_packages(self.noted, self.gone("packages"), self.warn, self.wanted["lock_wait"])
        for path in reversed(self.gone("directories")):
            if not self.noted.dry:
                remove_empty(path, (os.path.dirname(path) + "/",))
        for type_name, wanted in self.names.items():
            self.owned[type_name] = [name for name in self.owned[type_name] if name in wanted]
        self.remember()

    def go_on_without(self, paths):
        """Units that were there before us run as they did: a drop-in of ours has changed how."""
        dropins = [os.path.dirname(path) for path in paths if path.startswith(UNIT_FOLDER)]
        names = [os.path.basename(directory)[: -len(".d")] for directory in dropins if directory.endswith(".d")]
        theirs = [name for name in dict.fromkeys(names) if name not in self.owned["units"]]
        for name, facts in node_units.show(theirs).items():
            if not node_units.is_active(facts):
                continue
            self.noted.did("unit", name, "restart")
            if not self.noted.dry:
                node_failure.run(["systemctl", "restart", name])


def stop(noted, names):
    """Stop and disable units, those that there are."""
    served = []
    for name, facts in node_units.show(names).items():
        if not noted.dry:
            node_record.clear_pending(name)
            node_record.clear_pending("%s.reload" % name)
        is_loaded = facts.get("LoadState") != "not-found"
        if is_loaded and (node_units.is_active(facts) or facts.get("UnitFileState") == "enabled"):
            noted.did("unit", name, "stop")
            served.append(name)
    if served and not noted.dry:
        # in one call: after each systemd reads all of its units anew
        node_failure.run(["systemctl", "disable", "--now", "--quiet"] + served, node_units.ENVIRONMENT)


def take_packages(noted, obsolete, warn, lock_wait):
    """Purge packages with what came for them alone; none where somebody else's needs one. Raises PackageError."""
    present = node_packages.installed(obsolete)
    if not present:
        return
    names = " ".join(sorted(present))
    try:
        removable = node_packages.removable_with(list(present))
        if not removable:
            warn("kept, other packages need it: %s" % names)
            return
        others = len(removable) - len(present)
        for name in sorted(present):
            noted.did("package", name, "remove", detail="and %d that came with it" % others if others else "")
        if not noted.dry:
            node_packages.remove(removable, lock_wait)
    except node_packages.PackageError as error:
        raise node_packages.PackageError("cannot remove %s: %s" % (names, error), error.hint) from error


def remove_folder_of(path):
    """Remove a unit's folder of drop-ins, or one of programs, that its last file has left."""
    remove_empty(os.path.dirname(path), _ON_THE_WAY)


def remove_empty(directory, below):
    """Remove a folder that nothing is in, and those above it, as far as they are below one of these."""
    while directory.startswith(tuple(below)):
        try:
            os.rmdir(directory)
        except OSError:
            return
        directory = os.path.dirname(directory)
