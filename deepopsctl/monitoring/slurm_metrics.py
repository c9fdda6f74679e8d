"""The program that queries Slurm for the whole cluster on the first controller, for node exporter."""

from __future__ import annotations

import json

from deepopsctl.monitoring.node_exporter import TEXTFILES
from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Target, Unit, at
from deepopsctl.monitoring.systemd_units import SLURMS_FAMILIES, confined, service
from deepopsctl.monitoring.web_config import GROUP
from deepopsctl.node_programs import slurm_metrics
from deepopsctl.node_programs.slurm_metrics import CONFIG
from deepopsctl.slurm.native_metrics import PAGES

NAME = "deepops-slurmmetrics"
PROGRAM = f"/usr/local/sbin/{NAME}"
# link for node exporter, and the file itself: the program may write only in its own directory
LINK = f"{TEXTFILES}/slurmmetrics.prom"
PATH = f"/run/{NAME}/slurm.prom"
INTERVAL_S = 30
SLURMCTLD_PORT = 6817
# if on, Prometheus reads slurmctld's own metrics; if slurmctld serves none, the program writes them
NATIVE = "slurm_native"

_SANDBOX = (
    # it may read everything in Slurm, whatever PrivateData is; it changes nothing, and reads none of Slurm's secrets
    "User=slurm",
    # only node exporter may read the file: it is about all users' jobs
    f"Group={GROUP}",
    "InaccessiblePaths=-/var/lib/slurm -/var/spool/slurmctld -/etc/slurm/slurmdbd.conf -/etc/munge",
    "RuntimeDirectory=" + NAME,
    "RuntimeDirectoryMode=0750",
    "UMask=0022",
    *confined(RestrictAddressFamilies=SLURMS_FAMILIES),
)


def needs(node: MonitoredNode) -> Needs:
    """On the first controller; nothing elsewhere."""
    if not node.is_first_controller:
        return Needs()
    settings = {
        "schema": 1,
        "path": PATH,
        "interval_s": INTERVAL_S,
        "address": node.address,
        "port": _port(node),
        "native": node.is_on(NATIVE),
    }
    config = File(CONFIG, json.dumps(settings, indent=1) + "\n")
    sources = program_files(slurm_metrics, PROGRAM)
    unit = service(
        NAME,
        "what Slurm knows of nodes, jobs and itself, for node exporter",
        (PROGRAM,),
        # ready after the first query; the watchdog expects further ones
        "Type=notify",
        "TimeoutStartSec=180",
        "WatchdogSec=300",
        # `+` runs as root: the directory of node exporter is root's
        f"ExecStartPost=+/bin/ln -sfn {PATH} {LINK}",
        # stale metrics must not be served
        f"ExecStopPost=+/bin/rm -f {LINK}",
        "Nice=10",
        "CPUQuota=50%",
        "MemoryMax=1G",
        *_SANDBOX,
    )
    files = (*sources, config, unit)
    return Needs(
        files=files,
        units=(Unit(f"{NAME}.service", restart_on=tuple(file.path for file in files)),),
    )


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """slurmctld itself, a page each, where Prometheus is to read them there."""
    if not (node.is_first_controller and node.is_on(NATIVE)):
        return ()
    address = at(node.address, _port(node))
    # `page` distinguishes their `up`
    return tuple(Target("slurm", address, {"__metrics_path__": f"/metrics/{page}", "page": page}) for page in PAGES)


def _port(node: MonitoredNode) -> int:
    return int(str(node.settings.get("slurmctld_port", SLURMCTLD_PORT)))
