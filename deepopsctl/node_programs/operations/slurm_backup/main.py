"""What `node_program` starts, in the order of `deepopsctl restore`: fetch, stop, accounting, state, reconcile, end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._shared import deployed, settings
from ..._shared.command import CommandError
from . import CONFIG, MONITORING_CONFIG, BackupError, restore
from .repository import Repository

Request = dict[str, Any]
Result = dict[str, Any]


def main(request: Request) -> Result:
    """One phase; SystemExit with the reason where it fails."""
    try:
        return _PHASES[request["phase"]](request)
    except (BackupError, CommandError, settings.SettingsError, OSError) as error:
        raise SystemExit(str(error)) from error


def _monitoring(request: Request) -> Result:
    """All of it at once: Slurm does not wait for it."""
    done = restore.put_monitoring(settings.load(MONITORING_CONFIG), request["snapshot"])
    return {"changed": any(done.values()), "deepops": {"restored": done}}


def _repository(request: Request) -> Repository:
    return Repository(settings.load(MONITORING_CONFIG if request["monitoring"] else CONFIG))


def _begun(_request: Request) -> Result:
    begun = restore.has_begun()
    return {"begun": begun, "deepops": {"restore": {"begun": begun}}}


def _jobs(_request: Request) -> Result:
    jobs = restore.jobs_here()
    return {"jobs": jobs, "deepops": {"living": jobs, "components": deployed.components()}}


_PHASES: dict[str, Callable[[Request], Result]] = {
    "fetch": lambda request: {
        "deepops": {"restored": restore.fetch(settings.load(CONFIG), request["snapshot"], request["parts"])}
    },
    "accounting": lambda request: {"changed": restore.put_accounting(request["database"])},
    "missing": lambda request: {"missing": restore.is_missing(request["state_directory"], request["mount"])},
    "stop": lambda _: {"changed": restore.stop_slurmctld()},
    "state": lambda request: {
        "changed": restore.put_state(request["state_directory"], request["user"], request["living"])
    },
    "jobs": _jobs,
    "reconcile": lambda request: {
        "deepops": {"reconciled": restore.reconcile(float(request["timeout"]), request["jobs_on"])}
    },
    "end": lambda _: {"changed": restore.end()},
    "begun": _begun,
    "forget": lambda _: {"changed": restore.forget()},
    "monitoring": _monitoring,
    "add password": lambda request: {"changed": _repository(request).add_password(request["password"])},
    "drop passwords": lambda request: {"changed": _repository(request).drop_other_passwords()},
}
