"""One call of node_mounts: desired state, managed files, changes and deferred mounts."""

from __future__ import annotations

import os

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command,
    files as node_files,
    resources as node_resources,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import node_jobs as slurm_node_jobs
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.node_states import drain_reason
from ansible_collections.deepopsctl.cluster.plugins.module_utils.storage import mount_table as node_mounts

# a server that is away answers a mount after the unit's own 90 s, at the latest
PATIENCE_S = 120


class InUseError(Exception):
    """Somebody uses a mount that has to go."""


def systemctl(*words):
    """(success, output)."""
    result = command.run_merged(["systemctl", *words], PATIENCE_S)
    return result.ok, result.message


class Quiet:
    """The node without jobs, while mounts are removed; drained once, then resumed."""

    def __init__(self, dry, node, reason, wait):
        self.dry = dry
        self.node = node
        self.reason = drain_reason(reason)
        self.wait = wait
        self.sought = False
        self.stays = False

    def seek(self):
        """No job runs here, and none starts. Raises InUseError."""
        self.sought = True
        busy = slurm_node_jobs.why_busy(self.node)
        if not busy:
            return
        if busy == slurm_node_jobs.RUNNING and not self.wait:
            raise InUseError(busy)
        if self.dry:
            return
        try:
            slurm_node_jobs.drain(self.node, self.reason, self.wait, dry=False)
        except slurm_node_jobs.BusyError as error:
            # who waits for jobs keeps the node drained, so that the next deploy finds it empty
            self.stays = bool(self.wait)
            raise InUseError(str(error)) from error

    def end(self, warn):
        """Give the node back if it is drained for our reason, by this call or by one that was cut off."""
        if not self.sought or self.stays or self.dry:
            return
        try:
            slurm_node_jobs.resume(self.node, self.reason, lambda: "", dry=False)
        except slurm_node_jobs.BusyError as error:
            warn("%s: %s" % (self.node, error))


class MountRun(node_resources.Step):
    """One call: desired state, managed files, changes and deferred mounts."""

    def __init__(self, module):
        super().__init__(module)
        self.table = node_mounts.mounted()
        self.quiet = Quiet(
            module.check_mode, self.wanted["node"], self.wanted["drain_reason"], self.wanted["drain_wait"]
        )
        self.deferred = {}
        self.failed = {}
        self.unmanaged_mounts = []

    def own(self, path):
        """Record a managed file before it is created: an interrupted run loses none."""
        if path not in self.owned["files"]:
            self.owned["files"].append(path)
            self.save_owned()

    def disown(self, path):
        node_files.remove(self.noted, path)
        if path in self.owned["files"] and not self.dry:
            self.owned["files"].remove(path)
            self.save_owned()

    def defer(self, name, reason):
        self.deferred[name] = reason
        self.module.warn("storage %s stays as it is: %s; the next deploy without that changes it" % (name, reason))


def file_of(unit):
    return os.path.join(node_mounts.UNIT_DIRECTORY, unit)


def automount_of(unit):
    return unit[: -len(".mount")] + ".automount"


def text_of(path):
    content = node_files.read(path)
    return None if content is None else content.decode("utf-8", "replace")


def drop_unit(step, unit):
    """Disable a unit and remove its file."""
    if file_of(unit) not in step.owned["files"]:
        return
    if not step.dry:
        systemctl("disable", "--quiet", unit)
    step.disown(file_of(unit))
