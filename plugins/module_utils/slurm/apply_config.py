"""Have slurmctld use a configuration, with the smallest effect that will do; the old one again where it refuses."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    atomic_file,
    command as node_command,
    files as node_files,
    record as node_record,
    services as node_services,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    effects as slurm_effects,
    slurm_output,
)
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm.effects import Effect

UNIT = "slurmctld.service"
# the key of slurm.conf, as parse_conf has it
STATE = "statesavelocation"
RECONFIGURE = "slurmctld.reconfigure"


class Applied(NamedTuple):
    """What slurmctld needed, why it does not run with the files, and whether it hung and was restarted for that."""

    action: str
    error: str
    hung: bool


class NotAcceptedError(Exception):
    """slurmctld does not run with the new configuration; the hint says which one is in force."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def syntax_error(files: Mapping[str, str]) -> str:
    """The error text of Slurm's own parser for slurm.conf and the files next to it; '' when valid, or without it."""
    directory = tempfile.mkdtemp(prefix="deepopsctl-slurm-")
    try:
        for path, content in files.items():
            with open(os.path.join(directory, os.path.basename(path)), "w") as stream:
                stream.write(content)
        # parses the whole file, needs no daemon and touches none
        env = node_command.environment(SLURM_CONF=os.path.join(directory, "slurm.conf"))
        result = slurm_client.ask(slurm_client.scontrol("show", "hostnames", "x"), 60, env=env)
        return result.message.replace(directory, "(new)") if result.status not in (0, node_command.MISSING) else ""
    finally:
        shutil.rmtree(directory)


def answers_here(pinged: str, host: str) -> bool:
    """Whether this host's slurmctld is among those that answered; of one controller the name does not matter."""
    up = {name.lower(): is_up for name, is_up in slurm_output.pinged(pinged).items()}
    if len(up) < 2:
        return any(up.values())
    return any(up.get(name.lower(), False) for name in (host, host.partition(".")[0]))


def controller_answers(seconds: float) -> bool:
    """True once this host's slurmctld answers as primary or backup."""

    def answer() -> str:
        ping = slurm_client.ask(slurm_client.PING, 20)
        if ping.ok and answers_here(ping.output, socket.gethostname()):
            return "here"
        return "gone" if node_services.show([UNIT]).get(UNIT, {}).get("ActiveState") == "failed" else ""

    return wait_until(answer, seconds, 0.2) == "here"


def due_action(effect: Effect) -> str:
    """What slurmctld needs: '' for nothing, reconfigure, restart or start."""
    if node_services.show([UNIT]).get(UNIT, {}).get("ActiveState") != "active":
        return "start"
    if effect <= Effect.RECONFIGURE:
        return "reconfigure" if effect == Effect.RECONFIGURE else ""
    return "restart"


def reconfigure(start_timeout: float) -> tuple[str, bool]:
    """Have slurmctld, and through it every slurmd, read the files: why not, and whether it does not answer any more.

    A slurmctld 24.11 was seen to hang in this, right after its start, with "Socket timed out on send/recv operation";
    the release notes of Slurm 25.11.7 name a deadlock of shutdown and reconfigure with its accounting.
    """
    result = slurm_client.ask(slurm_client.scontrol("reconfigure"), 120)
    if result.ok:
        return "", False
    return result.message + fatal(), not controller_answers(start_timeout)


def fatal() -> str:
    """What the slurmctld that gave up wrote last: to scontrol its end is an unspecified error."""
    output = node_services.own_journal_tail(UNIT, 60).rpartition("Processing Reconfiguration Request")[2]
    ended = re.findall(r"fatal: .*(?:\n(?!slurmctld: ).+)*", output)
    return f"; {' '.join(ended[-1].split())}" if ended else ""


def restart(start_timeout: float) -> str:
    """Restart slurmctld with the files on disk; returns why it does not answer."""
    node_command.run_merged(["systemctl", "reset-failed", UNIT], 60)
    # one that hangs is killed by systemd after TimeoutStopSec, 90 s unless the site says otherwise
    result = node_command.run_merged(["systemctl", "restart", UNIT], 180)
    if not result.ok or not controller_answers(start_timeout):
        return f"slurmctld does not answer: {result.message}\n{node_services.journal_tail(UNIT)}"
    return ""


def apply(effect: Effect, first: bool, start_timeout: float) -> Applied:
    """Make slurmctld use the files on disk, by a restart where it hangs."""
    action, hung = due_action(effect), False
    if action == "":
        return Applied("", "", hung)
    if action == "reconfigure":
        error, hung = reconfigure(start_timeout)
        if not hung:
            return Applied(action, error, hung)
        action = "restart"
    for _attempt in range(2):
        error = restart(start_timeout)
        if error or first:
            return Applied(action, error, hung)
        # configless slurmds fetch the new files only on reconfigure
        error, hangs = reconfigure(start_timeout)
        if not hangs:
            return Applied(action, "", hung)
        hung = True
    return Applied(action, f"slurmctld hangs whenever it reloads its configuration: {error}", hung)


def install(files: Mapping[str, str], effect: Effect) -> None:
    """Write the files, all or none, after noting on disk what has to follow."""
    prepared = {}
    try:
        for path, content in files.items():
            if node_files.read(path) != content.encode():
                prepared[path] = atomic_file.prepare(path, content.encode(), (0, 0), 0o644)
        if effect == Effect.RECONFIGURE:
            node_record.mark_pending(RECONFIGURE, "configuration")
        elif effect > Effect.RECONFIGURE:
            node_record.mark_pending(UNIT, "configuration")
        for path, temporary in prepared.items():
            atomic_file.put_in_place(temporary, path)
    finally:
        for temporary in prepared.values():
            atomic_file.discard(temporary)


def with_pending(effect: Effect) -> Effect:
    """The effect, raised by what an interrupted call left undone."""
    if node_record.is_pending(UNIT):
        return max(effect, Effect.RESTART_SLURMCTLD)
    if node_record.is_pending(RECONFIGURE):
        return max(effect, Effect.RECONFIGURE)
    return effect


def restore(old: Mapping[str, bytes | None]) -> None:
    """The files as they were before; nothing reads them yet."""
    for path, content in old.items():
        if content is None:
            os.unlink(path)
        else:
            node_files.write(path, content, (0, 0), 0o644, [])


def roll_back(old: Mapping[str, bytes | None], effect: Effect, start_timeout: float) -> str:
    """Have the old configuration in force again; returns a clause that says so, or what came of it."""
    restore(old)
    if apply(max(effect, Effect.RECONFIGURE), True, start_timeout).error:
        return "the old files are back, but slurmctld does not answer with them either"
    return "the old configuration is in force again"


def clear_pending() -> None:
    """Forget that slurmctld has to restart or reconfigure: it has done so."""
    node_record.clear_pending(UNIT)
    node_record.clear_pending(RECONFIGURE)


def systemctl(words: Sequence[str], limit_s: float) -> None:
    """Change slurmctld's unit, without a search for its SysV script."""
    node_command.run_merged(
        ["systemctl", *words, "--quiet", UNIT], limit_s, env=node_command.environment(**node_services.ENVIRONMENT)
    )


def stand_by(files: Mapping[str, str], dry: bool) -> list[str]:
    """Keep the files ready on a controller that does not serve; returns what slurmctld needs."""
    facts = node_services.show([UNIT])[UNIT]
    serves = facts.get("ActiveState") == "active" or facts.get("UnitFileState") == "enabled"
    if not dry:
        install(files, Effect.NONE)
        if serves:
            systemctl(["disable", "--now"], 120)
    return ["stop"] if serves else []


def would_stand_by(effect: Effect) -> list[str]:
    """What the slurmctld of a standby would need: a restart with new files, for it has no jobs."""
    facts = node_services.show([UNIT])[UNIT]
    if facts.get("ActiveState") != "active":
        return ["start"]
    return ["restart" if effect > Effect.NONE else "", *([] if node_services.is_enabled(facts) else ["enable"])]


def stand_ready(files: Mapping[str, str], effect: Effect, action: str, start_timeout: float) -> None:
    """Install the files on a standby, and start or restart it as `action` says. Raises NotAcceptedError."""
    if not node_services.is_enabled(node_services.show([UNIT])[UNIT]):
        systemctl(["enable"], 60)
    install(files, Effect.RESTART_SLURMCTLD if effect > Effect.NONE else effect)
    error = restart(start_timeout) if action else ""
    if error:
        raise NotAcceptedError(f"the standby does not start: {error}", "see `journalctl -u slurmctld` there")
    clear_pending()


def copy_state(before: str, after: str) -> None:
    """Stop slurmctld and copy its state, where a new slurm.conf has it elsewhere; the old one stays as it was.

    As Slurm's user: a file server may refuse root. What makes it a state comes last, so that a copy that was cut off
    is none, and is made again. Raises NotAcceptedError, with slurmctld running as before.
    """
    old, new = (slurm_effects.parse_conf(text).get(STATE, "") for text in (before, after))
    if not old or old == new or not os.path.isdir(old):
        return
    systemctl(["stop"], 300)
    script = """
set -e; cd "$1"; test ! -e "$2/clustername" || cmp clustername "$2/clustername"
rm -f "$2/job_state"
find . -mindepth 1 -maxdepth 1 ! -name job_state ! -name "heartbeat*" -exec cp -a -t "$2" {} +
test ! -e job_state || { cp -a job_state "$2/job_state.new"; mv "$2/job_state.new" "$2/job_state"; }
sync "$2"
"""
    copied = node_command.run_merged(["runuser", "-u", "slurm", "--", "sh", "-c", script, "sh", old, new], 1800)
    if not copied.ok:
        systemctl(["start"], 120)
        hint = f"is it another cluster's? Empty {new}, or name another entry of storage"
        raise NotAcceptedError(f"Slurm's state can't be copied to {new}: {copied.message}", hint)


def serve(files: Mapping[str, str], effect: Effect, keys: Sequence[str], first: bool, start_timeout: float) -> Applied:
    """Install and apply; returns what was Applied. Raises NotAcceptedError with the old files back in force."""
    old = {path: node_files.read(path) for path in files}
    if not node_services.is_enabled(node_services.show([UNIT])[UNIT]):
        systemctl(["enable"], 60)
    install(files, effect)
    applied = apply(effect, first, start_timeout)
    if applied.error:
        hint = "see `journalctl -u slurmctld` on the controller"
        if not first:
            hint = f"{roll_back(old, effect, start_timeout)}; correct {', '.join(keys)} and deploy again"
        clear_pending()
        raise NotAcceptedError(f"Slurm did not accept the new configuration: {applied.error}", hint)
    clear_pending()
    return applied


def would_serve(effect: Effect) -> list[str]:
    """What slurmctld would need; a unit that does not run yet is enabled with its start."""
    facts = node_services.show([UNIT])[UNIT]
    action = due_action(effect)
    return [action] if action == "start" or node_services.is_enabled(facts) else [action, "enable"]
