"""Put a reachable node into service: stop slurmd, deploy, reserve, validate, release."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from deepopsctl.checks.check import failed_places
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.node_programs._shared.node_states import RESERVATION
from deepopsctl.nodes.workflow import NODE_STATE, PATIENCE_S, Flow, StoppedError, require_success
from deepopsctl.text.node_sets import fold
from deepopsctl.validation.result import Validation, examine, save

SUITE = "smoke"


def admit(flow: Flow, cluster: Cluster, nodes: tuple[Node, ...], **extra: object) -> None:
    """Deploy on these nodes and their dependent nodes, validate them, accept jobs. Raises StoppedError.

    No job starts on a node that is not validated: before its slurmd starts it is put in a reservation that only the
    validation may use (a drain would keep out the validation's jobs, too). Whatever stops the command, the
    reservation stays until the next run removes it. `extra` are variables of the deploy.
    """
    names = [node.name for node in nodes]
    compute = [node.name for node in nodes if Role.COMPUTE in node.roles]
    again = f"fix it, then run the same command again: it resumes from here (deepopsctl node {flow.verb})"
    flow.operator.info(f"deploy on {fold(names)} and on the dependent nodes")
    outcome = flow.deploy(cluster, nodes, "operate/nodes/stop-slurmd", deepops_new_nodes=compute, **extra)
    stands = f"{fold(names)} stays in cluster.yml and takes no jobs"
    flow.require_service(outcome, cluster, nodes, stands, again)
    if compute:
        try_out(flow, cluster, nodes)


def try_out(flow: Flow, cluster: Cluster, nodes: tuple[Node, ...]) -> None:
    """Validate nodes whose slurmd runs, then accept jobs. What fails is drained. Raises StoppedError."""
    compute = [node.name for node in nodes if Role.COMPUTE in node.roles]
    flow.operator.info(f"validate {fold(compute)} in a reservation that keeps other jobs away")
    first = cluster.controllers[0]
    validation = validate(
        flow,
        cluster,
        [first.name, *(node.name for node in nodes)],
        NODE_STATE,
        deepops_node_state="reserved",
        deepops_nodes=compute,
        deepops_wait_for_nodes=PATIENCE_S * 2,
        validate_smoke_reservation=RESERVATION,
    )
    again = "fix it, then run the same command again"
    held = f"{fold(compute)} is in the cluster and takes no jobs (reservation {RESERVATION})"
    outcome = validation.outcome
    if outcome.stopped or first.name in outcome.summary.failed or first.name in outcome.summary.unreachable:
        require_success(outcome, (first,), held, again)
    save(validation)
    flow.report.checks += validation.facts.checks
    failed = failed_places(validation.facts.checks)
    bad = [] if validation.ok else [name for name in compute if name in failed] or compute
    good = [name for name in compute if name not in bad]
    if good:
        flow.set_node_state(cluster, "released", good, held, again)
    if not bad:
        return
    why = f"node {flow.verb}, validation failed, see run {outcome.run_id}"
    flow.set_node_state(cluster, "out_of_service", bad, held, again, why)
    raise _refusal(validation, bad, outcome.run_id)


def validate(flow: Flow, cluster: Cluster, names: Iterable[str], *before: str, **extra: object) -> Validation:
    """The quick validation of nodes, after the playbooks `before` in the same run; nothing is saved."""
    started = datetime.now().astimezone()
    outcome = flow.run_playbooks(cluster, (*before, f"validate/{SUITE}"), names, **extra)
    return examine(outcome, cluster, (SUITE,), started)


def failed_checks(validation: Validation) -> str:
    """The first checks that failed, with their messages."""
    failed = [check for check in validation.facts.checks if check.status == "fail"]
    return "; ".join(f"{check.name} on {check.target}: {check.message or check.measured}" for check in failed[:3])


class NotAdmittedError(StoppedError):
    """Nodes failed their validation and stay drained; the others of the same call take jobs."""

    def __init__(self, nodes: list[str], message: str, hint: str, exit_code: ExitCode) -> None:
        super().__init__(message, hint, exit_code)
        self.nodes = tuple(nodes)


def _refusal(validation: Validation, compute: list[str], run: str) -> NotAdmittedError:
    text = failed_checks(validation) or "no check passed"
    return NotAdmittedError(
        compute,
        f"{fold(compute)} failed the validation and stays drained: {text}",
        f"see `deepopsctl runs show {run}`; fix it, then run the same command again",
        validation.exit_code if validation.exit_code is not ExitCode.OK else ExitCode.FAILED,
    )
