"""Put a reachable node into service: stop slurmd, deploy, reserve, validate, release."""

from __future__ import annotations

from datetime import datetime

from deepopsctl.checks.check import failed_places
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.nodes.drain import NODE_STATE, encode_reason
from deepopsctl.nodes.workflow import PATIENCE_S, Flow, StoppedError, require_success
from deepopsctl.slurm.node_states import RESERVATION
from deepopsctl.text.node_sets import fold
from deepopsctl.validation.result import Validation, examine, save

SUITE = "smoke"


def admit(flow: Flow, cluster: Cluster, nodes: tuple[Node, ...], verb: str, **extra: object) -> None:
    """Deploy on these nodes and their dependent nodes, validate them, accept jobs. Raises StoppedError.

    No job starts on a node that is not validated: before its slurmd starts it is put in a reservation that only the
    validation may use (a drain would keep out the validation's jobs, too). Whatever stops the command, the
    reservation stays until the next run removes it. `extra` are variables of the deploy.
    """
    names = [node.name for node in nodes]
    compute = [node.name for node in nodes if Role.COMPUTE in node.roles]
    again = f"fix it, then run the same command again: it resumes from here (deepopsctl node {verb})"
    flow.operator.info(f"deploy on {fold(names)} and on the dependent nodes")
    outcome = flow.deploy(cluster, names, "operate/nodes/stop-slurmd", deepops_new_nodes=compute, **extra)
    stands = f"{fold(names)} stays in cluster.yml and takes no jobs"
    flow.require_service(outcome, cluster, nodes, stands, again)
    if compute:
        try_out(flow, cluster, nodes, compute, verb)


def try_out(flow: Flow, cluster: Cluster, nodes: tuple[Node, ...], compute: list[str], verb: str) -> None:
    """Validate nodes whose slurmd runs, then accept jobs. What fails is drained. Raises StoppedError."""
    flow.operator.info(f"validate {fold(compute)} in a reservation that keeps other jobs away")
    started = datetime.now().astimezone()
    first = cluster.controllers[0]
    outcome = flow.run(
        cluster,
        (NODE_STATE, f"validate/{SUITE}"),
        [first.name, *(node.name for node in nodes)],
        deepops_node_state="reserved",
        deepops_nodes=compute,
        deepops_wait_for_nodes=PATIENCE_S * 2,
        validate_smoke_reservation=RESERVATION,
    )
    again = "fix it, then run the same command again"
    held = f"{fold(compute)} is in the cluster and takes no jobs (reservation {RESERVATION})"
    if outcome.stopped or first.name in outcome.summary.failed or first.name in outcome.summary.unreachable:
        require_success(outcome, (first,), held, again)
    validation = examine(outcome, cluster, (SUITE,), started)
    save(validation)
    flow.report.checks += validation.facts.checks
    failed = failed_places(validation.facts.checks)
    bad = [] if validation.ok else [name for name in compute if name in failed] or compute
    good = [name for name in compute if name not in bad]
    if good:
        done = flow.set_node_state(cluster, "released", good)
        require_success(done, (first,), held, again)
    if not bad:
        return
    why = f"node {verb}, validation failed, see run {outcome.run_id}"
    done = flow.set_node_state(cluster, "out_of_service", bad, deepops_drain_reason=encode_reason(why))
    require_success(done, (first,), held, again)
    raise _refusal(validation, bad, outcome.run_id)


class NotAdmittedError(StoppedError):
    """Nodes failed their validation and stay drained; the others of the same call take jobs."""

    def __init__(self, nodes: list[str], message: str, hint: str, exit_code: ExitCode) -> None:
        super().__init__(message, hint, exit_code)
        self.nodes = tuple(nodes)


def _refusal(validation: Validation, compute: list[str], run: str) -> NotAdmittedError:
    failed = [check for check in validation.facts.checks if check.status == "fail"]
    text = "; ".join(f"{check.name} on {check.target}: {check.message or check.measured}" for check in failed[:3])
    return NotAdmittedError(
        compute,
        f"{fold(compute)} failed the validation and stays drained: {text or 'no check passed'}",
        f"see `deepopsctl runs show {run}`; fix it, then run the same command again",
        validation.exit_code if validation.exit_code is not ExitCode.OK else ExitCode.FAILED,
    )
