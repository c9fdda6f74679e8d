"""The doctor's findings from a finished run: evaluate them and save them in the run directory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from deepopsctl.checks.catalogue.doctor import DOCTOR, SUITE
from deepopsctl.checks.check import Check, Status
from deepopsctl.doctor import cross_node, single_node
from deepopsctl.doctor.check_builders import Declared, failed, passed
from deepopsctl.doctor.facts import NodeFacts, parse_facts
from deepopsctl.doctor.single_node import SILENT_SUDO, check_failure
from deepopsctl.errors import ExitCode
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.json_objects import ChecksObject
from deepopsctl.report.model import Facts, document
from deepopsctl.run.late import busy_share, late_nodes, more_time
from deepopsctl.run.outcome import RunOutcome, RunSummary
from deepopsctl.run.questions import GATE_S
from deepopsctl.run.request import RunRequest
from deepopsctl.text.answers import mapping
from deepopsctl.validation.result import CHECKS_FILE, exit_code_of, record_outcome

COMMAND = "doctor"
# without them no node can be asked
INDISPENSABLE = frozenset({"control-packages", "control-ssh", "control-vault"})
# seconds for a sudo: one that hangs is a finding, and its node is examined without it
SUDO_S = 10


@dataclass(frozen=True, slots=True)
class Examination:
    """The doctor's findings. No `outcome` if this machine can't run Ansible."""

    facts: Facts
    outcome: RunOutcome | None = None

    @property
    def exit_code(self) -> ExitCode:
        """0; 1 for a failed check; 4 where nodes could not be reached and nothing else failed; 5 for this machine."""
        if self.outcome is None:
            return ExitCode.CONTROL_MACHINE
        return exit_code_of(self.outcome.exit_code, self.facts.checks, self.outcome.summary)

    @property
    def ok(self) -> bool:
        """No check failed, and every node was reached."""
        return self.exit_code is ExitCode.OK

    def document(self) -> ChecksObject:
        """The JSON object: validate's form."""
        checks = [_advised(check) for check in self.facts.checks]
        return document(ok=self.ok, run=self.facts.run, checks=checks, command=COMMAND, verdict=self.facts.stopped)


def names_of(cluster: Cluster) -> str:
    """All nodes as arguments of `node_doctor`; an address that is a name is left to the resolver."""
    from ipaddress import ip_address

    def word(name: str, address: str) -> str:
        try:
            return f"{name}={ip_address(address)}"
        except ValueError:
            return name

    return " ".join(word(node.name, node.address) for node in cluster.nodes)


def unfit(here: Iterable[Check]) -> bool:
    """Whether this machine can't query nodes at all."""
    return any(check.status is Status.FAIL and check.name in INDISPENSABLE for check in here)


def late_hosts(summary: RunSummary) -> tuple[str, ...]:
    """Nodes that may be fit: sudo was silent on them, or they were, and this machine is busy."""
    silent = [
        each.host for each in summary.results if SILENT_SUDO in str(mapping(each.data.get("call")).get("sudo", ""))
    ]
    return (*silent, *(late_nodes(summary) if busy_share() > 1 else ()))


def second_request(request: RunRequest, late: Iterable[str]) -> RunRequest:
    """The same question to these alone, with more time."""
    sudo_s = SUDO_S * more_time(busy_share())
    more = {"deepops_node_timeout": int(GATE_S) + sudo_s}
    return replace(request, limit=",".join(late), patience_s=sudo_s, extra_vars={**request.extra_vars, **more})


def examine(
    outcome: RunOutcome | None, here: tuple[Check, ...], declared: Declared, started: datetime, elapsed_s: float
) -> Examination:
    """The findings about this machine and, from a finished run, about the nodes."""
    checks = (*here, *(check_nodes(outcome.summary, declared) if outcome else ()))
    facts = Facts(
        cluster=declared.cluster.name,
        suites=(SUITE,),
        run=outcome.run_id if outcome else "",
        when=started,
        elapsed_s=elapsed_s,
        nodes=tuple(node.name for node in declared.cluster.nodes),
        checks=checks,
        stopped=str(outcome.stopped or "") if outcome else "",
    )
    return Examination(facts, outcome)


def check_nodes(summary: RunSummary, declared: Declared) -> tuple[Check, ...]:
    """Every check of every queried node, in the order of cluster.yml."""
    return tuple(_checks(summary, declared))


def _checks(summary: RunSummary, declared: Declared) -> Iterator[Check]:
    reports: dict[str, Mapping[str, object]] = {}
    for result in summary.results:
        raw, call = mapping(result.data.get("doctor")), mapping(result.data.get("call"))
        if raw and call:
            reports[result.host] = {**raw, **call}
    yield from (check_failure(failure) for failure in summary.failures if failure.host)
    nodes = []
    for name in (node.name for node in declared.cluster.nodes if node.name in reports):
        yield passed("reachable", name, "answers")
        try:
            nodes.append(parse_facts(name, reports[name]))
        except ValueError as error:
            yield failed("examined", name, str(error))
    yield from check_facts(nodes, declared)


def check_facts(nodes: Sequence[NodeFacts], declared: Declared) -> Iterator[Check]:
    """Every check of the examined nodes: single-node checks, then checks across nodes."""
    for node in nodes:
        yield from (check for check_node in single_node.CHECKS if (check := check_node(node, declared)))
    for check_across in cross_node.CHECKS if nodes else ():
        yield from check_across(nodes, declared)


def save(examination: Examination) -> None:
    """Save checks.json in the run directory, and the verdict in the run's summary."""
    if examination.outcome:
        record_outcome(examination.outcome, examination.exit_code)
        examination.outcome.run_dir.write(examination.outcome.run_dir.path / CHECKS_FILE, examination.document())


def _advised(check: Check) -> Check:
    """Add the advice to the JSON, for programs."""
    if check.status in (Status.PASS, Status.SKIP) or check.hint:
        return check
    return replace(check, hint=DOCTOR[check.name].advice)
