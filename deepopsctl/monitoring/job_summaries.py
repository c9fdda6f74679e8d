"""Job summaries in Slurm's accounting: the program on the first controller that reads Prometheus and writes them."""

from __future__ import annotations

import json
from pathlib import PurePath

from deepopsctl.monitoring import web_config
from deepopsctl.monitoring.programs import program_files
from deepopsctl.monitoring.prometheus_server import PROMETHEUS_PORT
from deepopsctl.monitoring.resources import File, MonitoredNode, Needs, Unit, at
from deepopsctl.monitoring.systemd_units import SLURMS_FAMILIES, confined, service
from deepopsctl.node_programs import job_report
from deepopsctl.node_programs.job_report import CONFIG, STATE

NAME = "deepops-job-summaries"
PROGRAM = f"/usr/local/sbin/{NAME}"
SWITCH = "job_summaries"


def needs(node: MonitoredNode) -> Needs:
    """Only on the first controller, where Slurm lets root change a job's record."""
    if not node.is_first_controller or not node.is_on(SWITCH):
        return Needs()
    config_values = {
        "schema": 1,
        "url": f"http://{at(node.monitoring_address, PROMETHEUS_PORT)}",
        "user": web_config.USER,
        "password": node.secrets["web_password"],
    }
    config = File(CONFIG, json.dumps(config_values, indent=1) + "\n", mode="0600", secret=True)
    sources = program_files(job_report, PROGRAM, module="keeper")
    unit = service(
        NAME,
        "summaries of finished jobs for job-report",
        (PROGRAM,),
        "Nice=10",
        "MemoryMax=256M",
        # it queries Slurm and Prometheus, and stores its progress
        *confined(ReadWritePaths=str(PurePath(STATE).parent), RestrictAddressFamilies=SLURMS_FAMILIES),
    )
    files = (*sources, config, unit)
    return Needs(files=files, units=(Unit(f"{NAME}.service", restart_on=tuple(file.path for file in files)),))
