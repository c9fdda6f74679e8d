"""What `node_program` starts: `ports` on every compute node, `fabric` on one as root, `suite` on a submit host."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from ..._shared.checks import Check, one_line
from ..._shared.hostlist import HostlistError, expand, fold
from ..._slurm_jobs import placement, probe_jobs, suite as suite_of_jobs
from ..._slurm_jobs.placement import Placement
from ..._slurm_jobs.session import Session
from ..._slurm_jobs.snapshot import read_snapshot
from . import checks, evaluation, fabric, pair, ports
from .checks import failed, skip

Request = dict[str, Any]
Result = dict[str, Any]
_PROBE = inspect.getsource(pair)
_LIMIT_S = 300.0
# of one TCP connection of Python's; a job of a minute is enough for this many nodes at once
_MOST_NODES = 256


def main(request: Request) -> Result:
    """One phase."""
    if request["phase"] == "ports":
        report = {} if request["check_mode"] else ports.report(str(request["address"]))
        return {"report": report, "deepops": {"checks": []}}
    return suite_of_jobs.run_trials(request, {"fabric": read_fabric, "suite": measure}[request["phase"]])


def read_fabric(request: Request) -> Result:
    """The checks of the InfiniBand fabric, as root on a node that has a port in it."""
    cluster = request["cluster"]
    try:
        done = subprocess.run(["ibnetdiscover"], capture_output=True, check=False, timeout=_LIMIT_S)
    except FileNotFoundError:
        text = f"{request['node']} has no ibnetdiscover: install infiniband-diags there"
        return {"checks": [skip(checks.FABRIC, cluster, text)]}
    except subprocess.TimeoutExpired:
        return {"checks": [failed(checks.FABRIC, cluster, f"ibnetdiscover gave no answer in {_LIMIT_S:.0f} s")]}
    listed = fabric.cables(done.stdout.decode(errors="replace"))
    if not listed and done.returncode:
        return {"checks": [failed(checks.FABRIC, cluster, one_line(done.stderr.decode(errors="replace")))]}
    try:
        declared = _declared(request["leaves"])
    except HostlistError as error:
        return {"checks": [failed(checks.LEAVES, cluster, f"validate_network_leaves: {error}")]}
    return {"checks": list(fabric.evaluate(listed, cluster, request["tested"], declared))}


def _declared(by_switch: Mapping[str, Any]) -> dict[str, list[str]]:
    """Nodes by switch, of a setting. Raises HostlistError."""
    return {str(switch): expand(str(nodes)) for switch, nodes in dict(by_switch).items()}


def measure(request: Request) -> Result:
    """The checks of ports, from the reports of nodes, and of pairs, in jobs: {checks, rates}."""
    reports: Mapping[str, Any] = {name: each or {} for name, each in dict(request["reports"]).items()}
    made = [*evaluation.links(reports), *evaluation.ports(reports)]
    try:
        made += evaluation.switches(reports, request["cluster"], _declared(request["switches"]))
    except HostlistError as error:
        made.append(failed(checks.SWITCHES, request["cluster"], f"validate_network_switches: {error}"))
    snapshot, tested = read_snapshot(), list(request["tested"])
    if not snapshot.answered:
        return {"checks": [*made, failed(checks.PAIRS, request["cluster"], snapshot.silence)]}
    rates: list[dict[str, Any]] = []
    obstacles = {
        name: placement.obstacle(snapshot.nodes[name], snapshot.partitions)
        if name in snapshot.nodes
        else "Slurm has no such node"
        for name in tested
    }
    made += [skip(checks.PAIRS, name, reason) for name, reason in obstacles.items() if reason]
    session = suite_of_jobs.session(request, checks.SUITE, float(request["run_timeout"]), minutes=10)
    try:
        free = [name for name in tested if not obstacles[name]][:_MOST_NODES]
        for place in placement.place(free, snapshot.nodes, snapshot.partitions):
            if len(place.nodes) < 2:
                made.append(skip(checks.PAIRS, place.nodes[0], f"it is alone in the partition {place.partition}"))
                continue
            addresses = {name: snapshot.nodes[name].get("NodeAddr", name) for name in place.nodes}
            more, measured = _pairs(session, place, addresses, reports, request)
            made += more
            rates += measured
    finally:
        session.close()
    return {"checks": made, "rates": rates}


def _pairs(
    session: Session, place: Placement, addresses: Mapping[str, str], reports: Mapping[str, Any], request: Request
) -> tuple[list[Check], list[dict[str, Any]]]:
    """One job on all nodes of a partition: they open ports, get the plan, and measure with each other."""
    share, nodes = float(request["share"]), place.nodes
    running = session.start(f"pairs-{place.partition}", place.options(), ["/usr/bin/python3", "-c", _PROBE])
    running.wait_for(pair.MARK, len(nodes), session.queue_timeout + session.run_timeout)
    first = {node: lines[0] for node, lines in probe_jobs.parse(running.text("out")).items()}
    ready = [name for name in nodes if isinstance(first.get(name, {}).get("port"), int)]
    active = {name: evaluation.active_ports(reports.get(name, {})) for name in ready}
    obstacles = {name: _rdma_obstacle(addresses[name], first[name]) for name in ready if active[name]}
    peers = {
        name: {
            "node": name,
            "address": addresses[name],
            "port": first[name]["port"],
            "rdma": [] if obstacles.get(name) else [*active[name]],
        }
        for name in ready
    }
    running.send(_plan(peers, request) + "\n")
    outcome = session.finish(f"pairs-{place.partition}", running)
    answers = probe_jobs.parse(outcome.out)
    listed, errors = evaluation.parse(answers)
    if not listed and not errors:
        trouble = probe_jobs.trouble(outcome)
        return [checks.check(checks.PAIRS, fold(nodes), trouble.status, "no answer", message=trouble.message)], []
    made = [failed(checks.PAIRS, name, one_line(outcome.why), "no answer") for name in nodes if name not in ready]
    made += evaluation.pairs(listed, errors, fold(nodes), share)
    made += [skip(checks.RDMA, name, text) for name, text in obstacles.items() if text]
    of_ports, port_errors = evaluation.parse_ports(answers)
    made += evaluation.pairs([], port_errors, fold(nodes), share, checks.RDMA)
    rates = [*evaluation.rates(listed, ready, place.partition, share)]
    port_rates = {evaluation.port_name(name, port): rate for name in ready for port, rate in active[name].items()}
    for rate in sorted(set(port_rates.values())):
        # ports of another rate are not compared
        of_rate = [each for each in of_ports if port_rates[each.one] == rate]
        made += evaluation.pairs(of_rate, {}, f"{fold(nodes)}: {rate}", share, checks.RDMA)
        targets = [name for name, each in port_rates.items() if each == rate]
        rates += evaluation.rates(of_rate, targets, f"{place.partition}: {rate}", share, checks.OF_PORTS)
    return made, rates


def _rdma_obstacle(address: str, answer: Mapping[str, Any]) -> str:
    if not answer.get("perftest"):
        return "it has no perftest: set `slurm_rdma: true` and deploy slurm"
    return "perftest needs IPv4 addresses" if ":" in address else ""


def _plan(peers: Mapping[str, Any], request: Request) -> str:
    return json.dumps({
        "token": os.urandom(8).hex(),
        "seconds": float(request["seconds"]),
        "rounds": evaluation.rounds(list(peers), int(request["rounds"])),
        "peers": peers,
    })  # fmt: skip
