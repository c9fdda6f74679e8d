"""The node exporter: the node itself, the cluster's units, and the text files of deepopsctl's programs."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from deepopsctl.monitoring import tls
from deepopsctl.monitoring.resources import Directory, MonitoredNode, Needs, Target, Unit, at, combine
from deepopsctl.monitoring.systemd_units import started_by
from deepopsctl.monitoring.web_config import GROUP
from deepopsctl.storage.writer import from_variable

PACKAGE = "prometheus-node-exporter"
UNIT = f"{PACKAGE}.service"
PORT = 9100
# scrape job of the first controller's node exporter: its Slurm metrics are about all nodes
CONTROLLER = "controller"
# deepopsctl's programs write NAME.prom here by a rename; the node exporter serves it with its own metrics
TEXTFILES = "/var/lib/prometheus/node-exporter"
# systemd units with metrics: those of the cluster
UNITS = (
    "slurmctld|slurmd|slurmdbd|munge|sackd|mariadb|chrony|ssh|nfs-server|nvidia-.*|nv-hostengine|deepops-.*"
    "|prometheus.*|grafana-server|systemd-journal-(upload|remote)"
)
# excluded mount points: directories of jobs, containers, virtual file systems
_NO_MOUNTS = r"^/(dev|proc|run|sys|var/lib/(docker|containers)/.+|var/spool/slurm-jobs/.+)($|/)"
_NO_DEVICES = "^(veth|cali|cni|podman|docker|br-).*"
# Collectors with 2 to 7 series per CPU that no rule, alert or panel uses: on a node with 256 CPUs they are
# more than all other series of the node. `monitoring_cpu_details` enables them.
CPU_DETAILS: Mapping[str, str] = {
    "cpufreq": "--no-collector.cpufreq",
    "guest": "--no-collector.cpu.guest",
    "schedstat": "--no-collector.schedstat",
    "softnet": "--no-collector.softnet",
}


def collectors(details: Collection[str] = (), unasked: Collection[str] = ()) -> tuple[str, ...]:
    """Arguments of the node exporter; `details` are names of CPU_DETAILS, `unasked` mount points to exclude."""
    mounts = "|".join((_NO_MOUNTS, *(f"^{re.escape(path)}$" for path in unasked)))
    return (
        f"--collector.textfile.directory={TEXTFILES}",
        "--collector.systemd",
        rf"--collector.systemd.unit-include=({UNITS})\.(service|timer)",
        f"--collector.filesystem.mount-points-exclude={mounts}",
        f"--collector.netdev.device-exclude={_NO_DEVICES}",
        f"--collector.netclass.ignored-devices={_NO_DEVICES}",
        *(argument for name, argument in CPU_DETAILS.items() if name not in details),
    )


def needs(node: MonitoredNode) -> Needs:
    """The same on every node."""
    wanted = node.settings.get("cpu_details", [])
    details = [str(name) for name in wanted] if isinstance(wanted, list) else [str(wanted)]
    unknown = [name for name in details if name not in CPU_DETAILS]
    if unknown:
        names = ", ".join(CPU_DETAILS)
        return Needs(problems=(f"monitoring_cpu_details: there is no {', '.join(unknown)}; write some of [{names}]",))
    dropin = started_by(
        UNIT,
        (
            "/usr/bin/prometheus-node-exporter",
            f"--web.listen-address={at(node.address, PORT)}",
            *tls.arguments(node, _web_option(node)),
            *collectors(details, _unasked(node)),
        ),
        # an address that is not there yet, at boot, is no reason to give up
        "Restart=always",
        "RestartSec=5",
    )
    own = Needs(
        packages=(PACKAGE,),
        # after the package, which creates the directory: root's programs write there, some of it about users' jobs
        directories=(Directory(TEXTFILES, mode="0750", group=GROUP),),
        files=(dropin,),
        units=(Unit(UNIT, restart_on=(dropin.path,), port=PORT),),
    )
    return combine([tls.files(node), own])


def _web_option(node: MonitoredNode) -> str:
    """Name of the option for the web configuration file; version 1.5 renamed it."""
    return "--web.config" if node.platform == "Ubuntu 22.04" else "--web.config.file"


def _unasked(node: MonitoredNode) -> list[str]:
    """Mount points with automount_idle: querying their size would keep them mounted."""
    mounts = from_variable(node.mounts)
    return [mount.path for mount in mounts if mount.automount_idle and node.name in mount.nodes]


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """One on every node."""
    return (Target(CONTROLLER if node.is_first_controller else "node", at(node.address, PORT)),)
