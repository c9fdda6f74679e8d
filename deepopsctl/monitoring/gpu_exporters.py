"""GPU exporters on nodes: how each is started. gpu_exporter_choice.py selects the exporter.

Their packages and libraries, pinned to one version, are installed by the role gpu_exporter before.
"""

from __future__ import annotations

from pathlib import Path

from deepopsctl.monitoring import tls
from deepopsctl.monitoring.gpu_exporter_choice import Exporter
from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Target, Unit, at
from deepopsctl.monitoring.systemd_units import OPEN, confined, service, started_by
from deepopsctl.node_programs import gpu_metrics
from deepopsctl.node_programs.node_metrics.jobmap import DCGM_DIRECTORY

DCGM_UNIT = "nvidia-dcgm-exporter.service"
DCGM_PORT = 9400
COUNTERS = "/etc/deepopsctl/dcgm-counters.csv"
# where nvidia-dcgm.service listens (roles/nvidia_dcgm): two host engines would fight for the counters
HOST_ENGINE = "unix:///run/nvidia-dcgm/nv-hostengine"
NAME = "deepops-gpumetrics"
PROGRAM = f"/usr/local/sbin/{NAME}"
PORT = 9401
# scrape interval of GPU metrics
EVERY_S = 15
PORTS = {Exporter.DCGM: DCGM_PORT, Exporter.NVITOP: PORT}

# NVIDIA's library opens devices and may have their modules loaded. Whether it bears the rest no GPU has shown yet.
_OF_THE_DRIVER = dict.fromkeys(
    (
        "PrivateDevices", "ProtectClock", "ProtectKernelModules", "ProtectKernelLogs", "ProtectHostname",
        "MemoryDenyWriteExecute", "SystemCallFilter", "RestrictNamespaces", "RestrictRealtime", "LockPersonality",
        "RestrictSUIDSGID",
    ),
    OPEN,
)  # fmt: skip


def targets(node: MonitoredNode) -> tuple[Target, ...]:
    """None for nodes without GPUs."""
    exporter = _exporter(node)
    return (Target("gpu", at(node.address, PORTS[exporter])),) if exporter in PORTS else ()


def needs(node: MonitoredNode) -> Needs:
    """Nothing on a node without GPUs."""
    exporter = _exporter(node)
    if exporter is Exporter.DCGM:
        return _dcgm(node)
    return _nvitop(node) if exporter is Exporter.NVITOP else Needs()


def _exporter(node: MonitoredNode) -> Exporter:
    return Exporter(str(node.settings.get("gpu_exporter", Exporter.NONE)))


def _dcgm(node: MonitoredNode) -> Needs:
    counters = File(COUNTERS, Path(__file__).with_name("dcgm-counters.csv").read_text(encoding="utf-8"))
    dropin = started_by(
        DCGM_UNIT,
        (
            "/usr/bin/dcgm-exporter",
            f"--collectors={COUNTERS}",
            f"--address={at(node.address, DCGM_PORT)}",
            f"--remote-hostengine-info={HOST_ENGINE}",
            f"--collect-interval={EVERY_S * 1000}",
            f"--hpc-job-mapping-dir={DCGM_DIRECTORY}",
            *tls.arguments(node, "--web-config-file"),
        ),
        # the first job makes it, and the exporter gives up without
        f"ExecStartPre=/bin/mkdir -p {DCGM_DIRECTORY}",
        # NVIDIA's unit has a log file without rotation, does not restart after an error, and some versions never end
        "StandardOutput=journal",
        "StandardError=journal",
        "Restart=always",
        "RestartSec=15",
        "TimeoutStopSec=15",
    )
    return Needs(
        files=(counters, dropin),
        units=(Unit(DCGM_UNIT, restart_on=(counters.path, dropin.path), port=DCGM_PORT),),
    )


def _nvitop(node: MonitoredNode) -> Needs:
    sources = program_files(gpu_metrics, PROGRAM)
    libraries = str(node.settings["gpu_exporter_libraries"])
    unit = service(
        NAME,
        "this node's GPUs for Prometheus, by nvitop-exporter",
        (
            PROGRAM,
            f"--libraries={libraries}",
            f"--address={node.address}",
            f"--port={PORT}",
            *_certified(node),
        ),
        "Nice=10",
        "MemoryMax=256M",
        # it reads devices as root, as MIG instances require, and needs no other privilege
        *confined(**_OF_THE_DRIVER),
    )
    files = (*sources, unit)
    # it reads certificates once, unlike the others
    watched = (*(file.path for file in files), tls.AUTHORITY, tls.CERTIFICATE, tls.KEY)
    return Needs(files=files, units=(Unit(f"{NAME}.service", restart_on=watched, port=PORT),))


def _certified(node: MonitoredNode) -> tuple[str, ...]:
    """With TLS it answers only the monitoring host, on every platform."""
    if not tls.speaks(node):
        return ()
    return (
        f"--certificate={tls.CERTIFICATE}",
        f"--key={tls.KEY}",
        f"--authority={tls.AUTHORITY}",
        f"--client={node.monitoring_host}",
    )
