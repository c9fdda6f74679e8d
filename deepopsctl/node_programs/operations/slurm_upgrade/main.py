"""What `node_program` starts: one phase of an upgrade, each of which can be repeated."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..._shared.slurm_client import NoAnswerError
from ..slurm_backup import ACCOUNTING, BackupError
from . import UpgradeError, copies, daemons, nodes, query, record, transaction

Request = dict[str, Any]
Result = dict[str, Any]
_LOST = "the first controller does not answer any more"


def main(request: Request) -> Result:
    """One phase; SystemExit with the reason where it fails."""
    try:
        return _PHASES[request["phase"]](request)
    except (UpgradeError, BackupError, NoAnswerError, OSError) as error:
        raise SystemExit(str(error)) from error


def _prepare(request: Request) -> Result:
    transaction.prepare(request["packages"], keep=request["keep"])
    return {"changed": False}


def _accounting(request: Request) -> Result:
    """Whether slurmdbd serves; `again` asks for another call while it converts its tables."""
    try:
        progress = daemons.accounting(request["version"])
    except UpgradeError as error:
        # not a call that failed: asked again, it would be taken for a host that does not answer
        return {"failed": True, "final": True, "msg": str(error)}
    if not progress:
        return {"changed": False}
    return {
        "again": {
            "after_s": daemons.PAUSE_S,
            "input": {},
            "progress": progress,
            "lost": "the host of slurmdbd does not answer any more: the conversion continues there",
        }
    }


def _queue(request: Request) -> Result:
    """What slurmctld still has for slurmdbd, which was away; `again` while there is any."""
    size, limit = daemons.queue()
    until = float(request.get("until") or time.time() + request["timeout"])
    if size and time.time() < until:
        progress = f"slurmctld hands over {size} records"
        return {"again": {"after_s": daemons.PAUSE_S, "input": {"until": until}, "progress": progress, "lost": _LOST}}
    discarded = daemons.discarded(request["since"])
    return {"deepops": {"queue": {"left": size, "limit": limit, "discarded": discarded}}}


def _controller(request: Request) -> Result:
    daemons.controller(request["version"], float(request["timeout"]))
    return {"changed": False}


def _registered(request: Request) -> Result:
    """Nodes that serve in the new version take jobs again."""
    names, reason, version = request["nodes"], request["reason"], request["version"]
    return {"deepops": {"registered": nodes.registered(names, reason, version, float(request["timeout"]))}}


def _kept(_request: Request) -> Result:
    files = transaction.kept()
    if not files:
        raise UpgradeError("nothing was kept to go back to")
    return {
        "files": {name: path for name, (path, _version) in files.items()},
        "versions": {name: version for name, (_path, version) in files.items()},
    }


_PHASES: dict[str, Callable[[Request], Result]] = {
    "query": lambda request: {
        "deepops": {"upgrade": query.query(controller=request["controller"], database=request["database"])}
    },
    # without values the upgrade has ended
    "record": lambda request: {"changed": record.update(request["values"]) if request["values"] else record.end()},
    "prepare": _prepare,
    # why apt could not install the packages, '' where it could
    "simulate": lambda request: {
        "deepops": {"not_installable": transaction.obstacle(request["packages"], request["index"])}
    },
    "withdraw": lambda _: {"changed": transaction.withdraw()},
    "save": lambda request: {"changed": copies.save(request)},
    "backups": lambda _: {"changed": copies.backups_go_on()},
    # before something that going back has to undo
    "going": lambda request: {"changed": copies.mark(request["step"])},
    # whether the new slurmdbd was started, and runs
    "converting": lambda _: {
        "deepops": {"converting": copies.is_marked(ACCOUNTING) and daemons.runs("slurmdbd.service")}
    },
    "queue": _queue,
    "accounting": _accounting,
    "controller": _controller,
    "timeouts": lambda request: {"changed": copies.raise_timeouts(request["least"])},
    # no job starts on the nodes from now on
    "drain": lambda request: {
        "deepops": {"starting": nodes.drain(request["nodes"], request["reason"], float(request["timeout"]))}
    },
    "registered": _registered,
    "kept": _kept,
    "undo": lambda request: {"changed": copies.put_back(request)},
}
