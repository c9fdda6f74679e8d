"""Slurm on nodes: all questions to scontrol, squeue and sinfo, and all changes, are put together here.

As text: `--oneliner` and explicit columns are the same in Slurm 22.05, 24.11 and 26.05, its JSON is not. A command that
fails, or does not answer in time, has said nothing: `nodes`, `jobs` and `config` raise then, for "unknown" is never
"idle" and never "no jobs".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Dict

from . import command, slurm_output

# above Slurm's own MessageTimeout (10 s): it says what is wrong better than a signal does
ANSWER_S = 30
SQUEUE = "squeue"
Node = Dict[str, Any]


class NoAnswerError(Exception):
    """Slurm does not answer, or refuses: its words, in one line."""


# --- the words of each command


def scontrol(*words: str) -> list[str]:
    """A query or an order to slurmctld."""
    return ["scontrol", *words]


def show(kind: str, *words: str) -> list[str]:
    """A query for records of a kind, one on each line: `node gpu01`, `partition`, `--details node`."""
    return scontrol("--oneliner", "show", kind, *words)


def update(kind: str, names: Iterable[str], *words: str) -> list[str]:
    """An order to change a node, job, partition or reservation: `node`, [gpu01, gpu02], `state=resume`."""
    return scontrol("update", f"{_KEYS[kind]}={','.join(names)}", *words)


def squeue(columns: str, *options: str) -> list[str]:
    """A query for jobs; `columns` as in `%i|%T`, or '' where an option or the environment has them."""
    return [SQUEUE, "--noheader", *(["--format=" + columns] if columns else []), *options]


def squeue_long(columns: Sequence[str], widths: Sequence[int], *options: str) -> list[str]:
    """The same for columns that only have a long name; they are cut by their widths."""
    layout = ",".join(f"{name}:{width}" for name, width in zip(columns, widths))
    return squeue("", *options, "--Format=" + layout)


def sinfo(*options: str) -> list[str]:
    """A query for partitions and nodes as users see them."""
    return ["sinfo", "--noheader", *options]


def sprio(columns: str, *options: str) -> list[str]:
    """A query for the factors of priorities; `columns` as in `%A|%F`, in points."""
    return ["sprio", "--noheader", "--format=" + columns, *options]


def sacctmgr(kind: str, *words: str) -> list[str]:
    """A query of the accounting database: `cluster`, `association where user=alice format=account`."""
    return ["sacctmgr", "--noheader", "--parsable2", "show", kind, *words]


_KEYS = {"node": "nodename", "job": "jobid", "partition": "partitionname", "reservation": "reservationname"}
# refused at once where slurmctld is down; every other command tries for ten seconds
PING = scontrol("ping")
CONFIG = scontrol("show", "config")
RESERVATIONS = show("reservation")
CLUSTERS = sacctmgr("cluster", "format=cluster")
VERSION = ["sinfo", "--version"]
# counters of slurmctld, with the number of jobs in each state; no job is read for it
STATISTICS = ["sdiag"]


# --- asked


def ask(
    argv: Sequence[str],
    limit_s: float | None = ANSWER_S,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    undecodable: str = "replace",
) -> command.Result:
    """How one of Slurm's commands ended, whatever SQUEUE_FORMAT and the like a user or a site has set."""
    return command.run(argv, limit_s, stdin, command.slurm_environment() if env is None else env, undecodable)


def require(argv: Sequence[str], limit_s: float = ANSWER_S) -> str:
    """Its output. Raises NoAnswerError."""
    result = ask(argv, limit_s)
    if not result.ok:
        raise NoAnswerError(result.failure)
    return result.output


def config(limit_s: float = ANSWER_S) -> slurm_output.Record:
    """slurmctld's settings as they are in force. Raises NoAnswerError."""
    return slurm_output.config(require(CONFIG, limit_s))


def ping(limit_s: float = ANSWER_S) -> dict[str, bool]:
    """Whether each controller answers; {} without Slurm. One that is down makes the command fail."""
    return slurm_output.pinged(ask(PING, limit_s).output)


def nodes(*names: str, limit_s: float = ANSWER_S) -> dict[str, Node]:
    """The nodes that slurmctld knows, by name. Raises NoAnswerError, also for one name that it does not know."""
    return {node["name"]: node for node in slurm_output.nodes(require(show("node", *names), limit_s))}


def jobs(columns: str, *options: str, limit_s: float = ANSWER_S) -> list[list[str]]:
    """A list of its columns for each job. Raises NoAnswerError.

    What is not as many columns is left out: a text with a bar in it. So ask for no text of a user's.
    """
    return slurm_output.rows(require(squeue(columns, *options), limit_s), columns)


def version() -> str:
    """The release of the tools on this node, `24.11.5`, '' without any; Debian writes `slurm-wlm 24.11.5`."""
    shown = ask(VERSION)
    return shown.output.split()[-1] if shown.ok and shown.output.split() else ""
