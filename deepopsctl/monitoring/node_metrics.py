"""The daemon that writes metrics of this node's jobs, mounts and certificates, and the job map that it reads.

A collector runs where its function below gives it settings. A new one is a module of node_programs/node_metrics with a
line in its collectors.py, and a line here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType

from deepopsctl.model.storage import Platform
from deepopsctl.monitoring import tls
from deepopsctl.monitoring.node_certificate import AUTHORITY, CERTIFICATE
from deepopsctl.monitoring.node_exporter import TEXTFILES
from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Unit
from deepopsctl.monitoring.systemd_units import OPEN, SLURMS_FAMILIES, confined_with_full_view, service
from deepopsctl.node_programs import node_metrics
from deepopsctl.node_programs.node_metrics import CONFIG
from deepopsctl.node_programs.node_metrics.jobmap import DCGM_DIRECTORY, DIRECTORY
from deepopsctl.slurm.job_hooks import PIECES
from deepopsctl.storage.node_plan import plan_node
from deepopsctl.storage.writer import from_variable

NAME = "deepops-nodemetrics"
PROGRAM = f"/usr/local/sbin/{NAME}"
# by what apt knows repositories that deploys add
_KEYRINGS = "/etc/apt/keyrings/deepopsctl-*"
# as the daemon names them, by collector
_TEXTFILE = "nodemetrics-{}.prom"


def _jobs(node: MonitoredNode) -> Mapping[str, object] | None:
    return {"map": DIRECTORY, "dcgm": DCGM_DIRECTORY, "gpus": list(node.gpus)} if node.runs_jobs else None


def _certificates(node: MonitoredNode) -> Mapping[str, object] | None:
    log_certificates = [AUTHORITY, CERTIFICATE] if node.is_on("logs") else []
    if tls.speaks(node):
        log_certificates += [tls.AUTHORITY, tls.CERTIFICATE]
    if node.name == node.monitoring_host:
        log_certificates += [str(node.settings.get("grafana_certificate") or "")]
    # only deepopsctl's repositories are signed by keys that a deploy installs
    if node.name == node.monitoring_host or "nvidia_gpu" in node.groups:
        log_certificates += [_KEYRINGS]
    site_paths = node.settings.get("certificates")
    paths = [path for path in (*log_certificates, *(site_paths if isinstance(site_paths, list) else [])) if path]
    return {"paths": paths} if paths else None


def _mounts(node: MonitoredNode) -> Mapping[str, object] | None:
    # names, paths and what is required are the same on every platform
    plan = plan_node(from_variable(node.mounts), node.name, {}, Platform(""))
    wanted = [
        {"name": each.name, "path": each.path, "required": each.required, "automount": bool(each.automount)}
        for each in plan.mounts
    ]
    return {"mounts": wanted} if wanted else None


# Settings of each collector on a node; None if it has nothing to do.
COLLECTORS: Mapping[str, Callable[[MonitoredNode], Mapping[str, object] | None]] = MappingProxyType(
    {"jobs": _jobs, "certificates": _certificates, "mounts": _mounts}
)


def _collector_settings(node: MonitoredNode) -> dict[str, Mapping[str, object]]:
    return {name: settings for name, ask in COLLECTORS.items() if (settings := ask(node)) is not None}


def textfiles(node: MonitoredNode) -> list[str]:
    """The names of the text files that the daemon writes there."""
    return [_TEXTFILE.format(name) for name in _collector_settings(node)]


def needs(node: MonitoredNode) -> Needs:
    """The daemon, where a collector has work; on compute nodes what writes the job map."""
    collectors = _collector_settings(node)
    if not collectors:
        return Needs()
    config = File(CONFIG, json.dumps({"schema": 1, "folder": TEXTFILES, "collectors": collectors}, indent=1) + "\n")
    sources = program_files(node_metrics, PROGRAM)
    unit = service(
        NAME,
        "what this node knows of its jobs, mounts and certificates, for node exporter",
        (PROGRAM,),
        # stale metrics must not be served
        f"ExecStopPost=/bin/sh -c 'rm -f {TEXTFILES}/{_TEXTFILE.format('*')}'",
        # jobs come first: should one of these ever be reached, this program is at fault
        "Nice=10",
        "CPUQuota=20%",
        "MemoryMax=128M",
        # it reads mounts and certificates of any owner, and queries jobs by squeue
        *confined_with_full_view(CapabilityBoundingSet=OPEN, RestrictAddressFamilies=SLURMS_FAMILIES),
    )
    files = (*sources, config, unit)
    return Needs(
        files=(*files, *(_pieces() if node.runs_jobs else ())),
        units=(Unit(f"{NAME}.service", restart_on=tuple(file.path for file in files)),),
    )


def _pieces() -> tuple[File, ...]:
    """What the prolog and the epilog of each job run."""
    return tuple(
        File(f"{PIECES}/{script}.d/20-job-map", f"#!/bin/sh\nexec {PROGRAM} {action}\n", "0755")
        for script, action in (("prolog", "job-begin"), ("epilog", "job-end"))
    )
