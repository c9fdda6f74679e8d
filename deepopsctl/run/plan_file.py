"""A plan as a file: `plan --out FILE` writes it, `deploy FILE` does what it says, or refuses if that has changed.

It is stale where its inputs are others (the cluster directory, deepopsctl itself, variables of the command line), or
where a new plan finds other changes on the nodes. It holds differences of files, but no secrets and no variables.
"""

from __future__ import annotations

import getpass
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from deepopsctl import __version__
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.files import read_text, write_atomic
from deepopsctl.run.desired_state import read_inputs
from deepopsctl.run.events import Change
from deepopsctl.run.plan import Plan
from deepopsctl.run.request import RunRequest, Variables
from deepopsctl.text.answers import RequiredFields
from deepopsctl.text.node_sets import fold

FORMAT = "deepopsctl plan 1"
_NEW_ONE = "make a new plan, and have that approved"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PlanFile:
    """What was planned: for which nodes and components, from which inputs, and each change in a line of its own."""

    cluster: str
    components: tuple[str, ...]
    limit: str
    full: bool
    inputs: str
    version: str
    made: str
    user: str
    plan: str
    changes: tuple[str, ...]


def inputs_of(content: Path, directory: ClusterDir, variables: Sequence[Variables]) -> str:
    """The digest of all that a deploy is made from on this machine."""
    values = [each.read_text(encoding="utf-8") if isinstance(each, Path) else dict(each) for each in variables]
    hardware = directory.hardware.read_bytes() if directory.hardware.is_file() else b""
    inputs = read_inputs(content, directory.path, [values, hashlib.sha256(hardware).hexdigest()])
    return hashlib.sha256(json.dumps([inputs.common, inputs.hashes()]).encode()).hexdigest()


def write_plan(path: Path, plan: Plan, request: RunRequest, content: Path) -> None:
    """Write the plan of a request; a plan that a deploy would refuse is none."""
    if plan.exit_code:
        what = f"{path} is not written: {plan.verdict}"
        raise DeepOpsError(what, "a plan can be deployed later only if it could be deployed now", plan.exit_code)
    made = PlanFile(
        cluster=request.directory.cluster().name,
        components=request.components,
        limit=request.limit,
        full=request.full,
        inputs=inputs_of(content, request.directory, request.user_vars),
        version=__version__,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        user=getpass.getuser(),
        plan=plan.verdict,
        changes=tuple(sorted(map(_line, plan.changes))),
    )
    write_atomic(path, json.dumps({"format": FORMAT, **asdict(made)}, indent=1) + "\n", mode=0o600)


def read_plan(path: Path) -> PlanFile:
    """The plan in a file."""
    try:
        fields = RequiredFields.of(json.loads(read_text(path)))
        if fields.text("format") == FORMAT:
            return fields.fill(PlanFile)
    except (ValueError, RecursionError):
        # as below
        pass
    hint = f"this deepopsctl ({__version__}) reads what its own `plan --out FILE` writes"
    raise InputError.single(str(path), "is not a plan", hint)


def require_same_inputs(path: Path, stored: PlanFile, directory: ClusterDir, inputs: str) -> None:
    """Refuse a plan of another cluster, or of other inputs than those that are here now."""
    name = directory.cluster().name
    if stored.cluster != name:
        raise DeepOpsError(f"{path} is a plan of {stored.cluster}, and this is {name}", "check -C DIR")
    if stored.version != __version__:
        what = f"{path} was made by deepopsctl {stored.version}, and this is {__version__}"
        raise DeepOpsError(f"{what}: nothing was changed", _NEW_ONE)
    if stored.inputs != inputs:
        what = f"{path} is stale: since it was made ({stored.made}), the cluster directory, deepopsctl or -e changed"
        raise DeepOpsError(f"{what}; nothing was changed", _NEW_ONE)


def require_same_changes(path: Path, stored: PlanFile, plan: Plan) -> None:
    """Refuse a plan where a new one finds other changes, or can't say."""
    if plan.exit_code:
        raise DeepOpsError(f"{path}: {plan.verdict}; nothing was changed", "see above", plan.exit_code)
    if differences := list(_differences(stored.changes, tuple(map(_line, plan.changes)))):
        listed = "; ".join(differences[:_SHOWN])
        more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        what = f"{path} is stale: the nodes are not as they were at {stored.made}: {listed}{more}"
        raise DeepOpsError(f"{what}; nothing was changed", _NEW_ONE)


def _line(change: Change) -> str:
    return json.dumps(change.as_object(), sort_keys=True)


def _differences(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """`no longer: ...`, `new: ...`: changes with the nodes that have them."""
    for word, lines in (("no longer", Counter(before) - Counter(now)), ("new", Counter(now) - Counter(before))):
        nodes: dict[str, list[str]] = {}
        for line in lines:
            entry = json.loads(line)
            nodes.setdefault(f"{entry['component']}: {entry['action']} {entry['name']}", []).append(entry["host"])
        for what, hosts in nodes.items():
            where = f" on {fold(host for host in hosts if host)}" if any(hosts) else ""
            yield f"{word}: {what}{where}"
