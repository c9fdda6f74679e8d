"""The node exporter: the machine itself, our units, and what our own programs write for it to hand out."""

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
# by what name the scrape job of the first controller's is known: what it tells of Slurm is about all nodes
CONTROLLER = "controller"
# a program of ours writes NAME.prom here, whole and by a rename; the node exporter hands it out with its own
TEXTFILES = "/var/lib/prometheus/node-exporter"
# what of systemd's is told: units that the cluster is made of
UNITS = (
    "slurmctld|slurmd|slurmdbd|munge|sackd|mariadb|chrony|ssh|nfs-server|nvidia-.*|nv-hostengine|deepops-.*"
    "|prometheus.*|grafana-server|systemd-journal-(upload|remote)"
)
# not the machine's own disks: folders of jobs, containers, what the kernel makes up
_NO_MOUNTS = r"^/(dev|proc|run|sys|var/lib/(docker|containers)/.+|var/spool/slurm-jobs/.+)($|/)"
_NO_DEVICES = "^(veth|cali|cni|podman|docker|br-).*"
# What tells 2 to 7 series of every processor, and no rule, alert or panel of ours asks for: on a machine of 256 that is
# more than all the rest of a node. A site has what it wants of it by `monitoring_cpu_details`.
CPU_DETAILS: Mapping[str, str] = {
    "cpufreq": "--no-collector.cpufreq",
    "guest": "--no-collector.cpu.guest",
    "schedstat": "--no-collector.schedstat",
    "softnet": "--no-collector.softnet",
}


def collectors(details: Collection[str] = (), unasked: Collection[str] = ()) -> tuple[str, ...]:
    """What is told, as arguments of the node exporter; `details` are names of CPU_DETAILS, `unasked` mount points."""
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
    """The same on every machine."""
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
        # after the package, which brings the folder: root's programs write there, some of it about users' jobs
        directories=(Directory(TEXTFILES, mode="0750", group=GROUP),),
        files=(dropin,),
        units=(Unit(UNIT, restart_on=(dropin.path,), port=PORT),),
    )
    return combine([tls.files(node), own])


def _web_option(node: MonitoredNode) -> str:
    """What its command line calls the file of who may ask; 1.5 gave it the name that all others use."""
    return "--web.config" if node.platform == "Ubuntu 22.04" else "--web.config.file"


def _unasked(node: MonitoredNode) -> list[str]:
    """What is to go when nobody uses it: a look at its size is a use, and mounts it again."""
    mounts = from_variable(node.mounts)
    return [mount.path for mount in mounts if mount.automount_idle and node.name in mount.nodes]


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """One on every machine."""
    return (Target(CONTROLLER if node.is_first_controller else "node", at(node.address, PORT)),)
