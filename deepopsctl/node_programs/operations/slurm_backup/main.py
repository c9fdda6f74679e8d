"""What `node_program` starts, in the order of `deepopsctl restore`: fetch, stop, accounting, state, reconcile, end."""

from __future__ import annotations

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


def _fetch(request: Request) -> Result:
    sets = restore.fetch(settings.load(CONFIG), request["snapshot"], request["parts"])
    return {"deepops": {"restored": sets}}


def _accounting(request: Request) -> Result:
    return {"changed": restore.put_accounting(request["database"])}


def _missing(request: Request) -> Result:
    return {"missing": restore.is_missing(request["state_directory"], request["mount"])}


def _stop(_request: Request) -> Result:
    return {"changed": restore.stop_slurmctld()}


def _state(request: Request) -> Result:
    return {"changed": restore.put_state(request["state_directory"], request["user"], request["living"])}


def _reconcile(request: Request) -> Result:
    return {"deepops": {"reconciled": restore.reconcile(float(request["timeout"]), request["jobs_on"])}}


def _end(_request: Request) -> Result:
    return {"changed": restore.end()}


def _monitoring(request: Request) -> Result:
    """All of it at once: Slurm does not wait for it."""
    done = restore.put_monitoring(settings.load(MONITORING_CONFIG), request["snapshot"])
    return {"changed": any(done.values()), "deepops": {"restored": done}}


def _forget(_request: Request) -> Result:
    return {"changed": restore.forget()}


def _add_password(request: Request) -> Result:
    return {"changed": Repository(settings.load(_config(request))).add_password(request["password"])}


def _drop_passwords(request: Request) -> Result:
    return {"changed": Repository(settings.load(_config(request))).drop_other_passwords()}


def _config(request: Request) -> str:
    return MONITORING_CONFIG if request["monitoring"] else CONFIG


def _begun(_request: Request) -> Result:
    begun = restore.has_begun()
    return {"begun": begun, "deepops": {"restore": {"begun": begun}}}


def _jobs(_request: Request) -> Result:
    jobs = restore.jobs_here()
    return {"jobs": jobs, "deepops": {"living": jobs, "components": deployed.components()}}


_PHASES = {
    "fetch": _fetch,
    "accounting": _accounting,
    "missing": _missing,
    "stop": _stop,
    "state": _state,
    "jobs": _jobs,
    "reconcile": _reconcile,
    "end": _end,
    "begun": _begun,
    "forget": _forget,
    "monitoring": _monitoring,
    "add password": _add_password,
    "drop passwords": _drop_passwords,
}
