"""Replace a manually written slurm.conf on a controller with running jobs, if none of them would be lost."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    backups as node_backups,
    command as node_command,
    files as node_files,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    apply_config as slurm_apply_config,
    client as slurm_client,
    detect as slurm_detect,
    effects as slurm_effects,
    fitting as slurm_fitting,
    hostlist as slurm_hostlist,
    query as slurm_query,
    slurm_output,
    waiting_jobs as slurm_waiting_jobs,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.effects import Effect

START_TIMEOUT_S = 120

# a change of one of these makes slurmctld forget every job
KEPT = ("ClusterName", "StateSaveLocation", "SelectType", "SwitchType")
# how slurmctld says that it has none
_NONE = ("", "(null)", "switch/none")
# which `scontrol show config` writes after numbers that have none in slurm.conf
_UNIT = re.compile(r"(?<=[0-9]) (?:sec|min)$")


def lost_settings(live: Mapping[str, str], text: str) -> list[str]:
    """Sentences for settings that slurmctld can't change without losing its jobs."""
    new = slurm_detect.settings(text.encode())
    pairs = [(key, live[key], new.get(key.lower(), "")) for key in KEPT if live.get(key)]
    return [
        f"{key} is {old}, the new slurm.conf says {wanted or 'nothing'}"
        for key, old, wanted in pairs
        if _plain(old) != _plain(wanted)
    ]


def _plain(value: str) -> str:
    return "" if value in _NONE else value.lower().rstrip("/")


def shape(entry: Mapping[str, str]) -> tuple[int, int, int, int]:
    """(boards, sockets, cores, threads) of a node, from `scontrol show node` or from a line of slurm.conf."""
    boards = slurm_output.number(entry, "Boards") or 1
    sockets = slurm_output.number(entry, "Sockets") or boards * slurm_output.number(entry, "SocketsPerBoard")
    return (boards, sockets, slurm_output.number(entry, "CoresPerSocket"), slurm_output.number(entry, "ThreadsPerCore"))


def wanted_shapes(text: str) -> dict[str, tuple[int, int, int, int]]:
    """{node: shape} of the new slurm.conf."""
    shapes = {}
    for line in text.splitlines():
        if line.startswith("NodeName="):
            entry = slurm_output.record(line)
            shapes.update(dict.fromkeys(slurm_hostlist.expand(entry["NodeName"]), shape(entry)))
    return shapes


def lost_jobs(shown: str, queue: str, text: str) -> list[str]:
    """Sentences for nodes whose jobs would not survive the new slurm.conf."""
    wanted = wanted_shapes(text)
    busy: dict[str, list[str]] = {}
    for job in slurm_output.jobs(queue):
        for name in job["nodes"] if job["state"] != "PENDING" else ():
            busy.setdefault(name, []).append(job["id"])
    sentences = []
    for line in shown.splitlines():
        entry = slurm_output.record(line.partition(" Reason=")[0])
        name = entry.get("NodeName", "")
        if name in busy and name not in wanted:
            sentences.append(f"{name} is not in cluster.yml, and runs {', '.join(busy[name])}")
        elif name in busy and wanted[name] != shape(entry):
            sentences.append(f"{name} runs {', '.join(busy[name])}, and its cores would be renumbered")
    return sentences


def refusals(text: str) -> list[str]:
    """Why running jobs would not survive this slurm.conf: the settings of the old one are asked from slurmctld."""
    try:
        problems = lost_settings(slurm_client.config(), text)
        nodes, queue, partitions = (
            slurm_client.require(words)
            for words in (slurm_query.SHOW_NODES, slurm_query.SHOW_JOBS, slurm_client.show("partition"))
        )
    except slurm_client.NoAnswerError as error:
        return [f"slurmctld does not answer: {error}"]
    try:
        live, wanted = slurm_fitting.live(nodes, partitions), slurm_waiting_jobs.layout(text)
        waiting = slurm_waiting_jobs.query(live, wanted, slurm_client.ask)
        lost = [f"waiting jobs would end, or never start: {slurm_waiting_jobs.sentence(waiting)}"] if waiting else []
        return problems + lost_jobs(nodes, queue, text) + lost
    except ValueError as error:
        return [*problems, str(error)]


def changed_settings(path: str, current: bytes, text: str) -> list[slurm_effects.Change]:
    """What the new slurm.conf changes, its includes read: keys, nodes and partitions; not what is in force already."""
    live = slurm_output.config(slurm_client.ask(slurm_client.CONFIG).output)
    old = slurm_detect.with_includes(path, current).decode(errors="replace")
    changes = []
    for change in slurm_effects.changes(old, text):
        before = change.old or _UNIT.sub("", live.get(change.key, ""))
        if _plain(before) != _plain(change.new):
            secret = change.key.lower().endswith("pass")
            changes.append(change._replace(old="(secret)" if secret else before if before not in _NONE else ""))
    return changes


def install(files: Mapping[str, str], unit: str = "") -> None:
    """Write the files and restart slurmctld. Raises NotAcceptedError with the old files back in force.

    `unit` is the file of a slurmctld that was built from source: without it, the package's is started.
    """
    old = {path: node_files.read(path) for path in files}
    for path, content in old.items():
        if content is not None:
            node_files.write(path + node_backups.SUFFIX, content, (0, 0), 0o644, [])
    if unit and os.path.isfile(unit):
        rename_unit(unit, unit + node_backups.SUFFIX)
    # also by a call that was cut off
    set_aside = bool(unit) and os.path.isfile(unit + node_backups.SUFFIX)
    # recorded on disk: if this is interrupted, the next deploy restarts slurmctld
    slurm_apply_config.install(files, Effect.RESTART_SLURMCTLD)
    error = slurm_apply_config.apply(Effect.RESTART_SLURMCTLD, True, START_TIMEOUT_S).error
    if error and set_aside:
        rename_unit(unit + node_backups.SUFFIX, unit)
    hint = slurm_apply_config.roll_back(old, Effect.RESTART_SLURMCTLD, START_TIMEOUT_S) if error else ""
    slurm_apply_config.clear_pending()
    if error:
        raise slurm_apply_config.NotAcceptedError(
            f"Slurm did not accept the new configuration: {error}",
            f"{hint}; see `journalctl -u slurmctld` on the controller",
        )


def rename_unit(path: str, target: str) -> None:
    """Rename the file of a unit; what runs continues, and the next restart starts what systemd reads then."""
    os.rename(path, target)
    node_command.run_merged(["systemctl", "daemon-reload"], 120)
    slurm_apply_config.systemctl(["reenable"], 120)
