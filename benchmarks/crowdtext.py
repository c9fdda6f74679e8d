"""What a simulated node exports: the text of a node exporter with the product's arguments, and of a GPU exporter.

Real is this host's own node exporter, asked again each second, so that values move as they do on a node. Added are
the processors and sensors of a GPU node, its units, jobs and GPUs, and on the first node Slurm's metrics of all nodes.
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from deepopsctl.node_programs.services.slurm_metrics.snapshot import SlurmReader
from tests.support import systemd
from tests.support.monitoring_roles import GPU01
from tests.support.role_templates import render

TESTS = Path(__file__).resolve().parent.parent / "tests"
# recorded output of a GPU node's other exporter and of sdiag
GPUS = TESTS / "integration" / "monitoring" / "texts" / "dcgm.prom"
SDIAG = TESTS / "data" / "slurm_metrics" / "24.11" / "sdiag.txt"
USERS, ACCOUNTS, PARTITIONS = 200, 20, ("gpu", "short", "long", "debug")
GPUS_A_NODE = 8
_CPU = re.compile(r'^(node_cpu_(?:guest_)?seconds_total\{cpu=)"0"(.*\} )(\S+)$')
_GPU = re.compile(r'^(\w+)\{gpu="0",UUID="[^"]*"(,.*device=")nvidia0(".*)\} (\S+)$')
_UNITS = (
    "slurmd", "munge", "ssh", "chrony", "nvidia-persistenced", "nv-hostengine", "nvidia-fabricmanager",
    "deepops-nodemetrics", "prometheus-node-exporter", "systemd-journal-upload", "nvidia-dcgm-exporter",
)  # fmt: skip
_STATES = ("active", "activating", "deactivating", "failed", "inactive")
_FABRIC = (
    "excessive_buffer_overrun_errors_total", "link_downed_total", "link_error_recovery_total",
    "local_link_integrity_errors_total", "multicast_packets_received_total", "multicast_packets_transmitted_total",
    "physical_state_id", "port_constraint_errors_received_total", "port_constraint_errors_transmitted_total",
    "port_data_received_bytes_total", "port_data_transmitted_bytes_total", "port_discards_received_total",
    "port_discards_transmitted_total", "port_errors_received_total", "port_packets_received_total",
    "port_packets_transmitted_total", "port_receive_remote_physical_errors_total",
    "port_receive_switch_relay_errors_total", "port_transmit_wait_total", "rate_bytes_per_second", "state_id",
    "symbol_error_total", "unicast_packets_received_total", "unicast_packets_transmitted_total",
    "vl15_dropped_total",
)  # fmt: skip
# samples of a job, as deepops-nodemetrics writes them
_JOB = """deepops_job_info{{jobid="{id}",user="{user}",account="{account}",partition="{partition}"}} 1
deepops_job_cpus{{jobid="{id}"}} 16
deepops_job_cpu_seconds_total{{jobid="{id}"}} {used:.2f}
deepops_job_memory_bytes{{jobid="{id}"}} {memory}
deepops_job_memory_peak_bytes{{jobid="{id}"}} 68719476736
deepops_job_memory_requested_bytes{{jobid="{id}"}} 137438953472
"""
_JOB_GPU = 'deepops_job_gpu{{jobid="{id}",gpu="{gpu}",uuid="{uuid}"}} 1\n'


def name_of(number: int) -> str:
    """Nodes are counted from 1."""
    return f"n{number:04}"


def _collectors(details: Sequence[str]) -> list[str]:
    """The collectors of the node exporter that every node runs; `details` are those of each processor that are on."""
    unit = render(
        "monitoring_node",
        "node-exporter.service.j2",
        **{**GPU01, "monitoring_cpu_details": details, "__monitoring_node_tls": False},
    )
    words = systemd.command(unit)
    return [word for word in words if "collector." in word and not word.startswith("--collector.textfile")]


class Nodes:
    """All simulated nodes."""

    def __init__(self, port: int, count: int, cpus: int, jobs: int, details: Sequence[str]) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._count, self._cpus, self._jobs = count, cpus, jobs
        self._hardware = "".join(_hardware(cpus))
        self._gpus = [match for line in GPUS.read_text().splitlines() if (match := _GPU.match(line))]
        self._directory = tempfile.TemporaryDirectory(prefix="deepopsctl-bench-text-")
        # this host's own text files are left out here; elsewhere no one may ask
        own = (f"--collector.textfile.directory={self._directory.name}", f"--web.listen-address=127.0.0.1:{port}")
        argv = ["prometheus-node-exporter", *own, *_collectors(details)]
        self._process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.slurm = SlurmReader(None, self._answer).read_snapshot(time.time()).text

    def shared(self) -> str:
        """The text that all nodes have in common, now."""
        with urllib.request.urlopen(self._url, timeout=10) as answer:  # noqa: S310 (our own process)
            return scaled_cpu_lines(answer.read().decode(), self._cpus) + self._hardware

    def own(self, number: int) -> str:
        """The text of one node alone: its jobs."""
        now = time.monotonic()
        return "".join(self._job(number, place, now) for place in range(self._jobs))

    def gpus(self, number: int) -> str:
        """The text of a node's GPU exporter."""
        return "\n".join(self._gpu_lines(number, time.monotonic())) + "\n"

    def stop(self) -> None:
        """End the node exporter."""
        self._process.terminate()
        self._process.wait()
        self._directory.cleanup()

    def _job(self, number: int, place: int, now: float) -> str:
        job = (number - 1) * self._jobs + place
        who = {"user": f"user{job % USERS}", "account": f"account{job % ACCOUNTS}", "partition": PARTITIONS[job % 4]}
        memory = int(3e10 + 1e10 * math.sin(now / 100 + job))
        mine = range(place, GPUS_A_NODE, self._jobs)
        return _JOB.format(id=job, used=now * (8 + job % 8), memory=memory, **who) + "".join(
            _JOB_GPU.format(id=job, gpu=gpu, uuid=_uuid(number, gpu)) for gpu in mine
        )

    def _gpu_lines(self, number: int, now: float) -> Iterator[str]:
        for gpu in range(GPUS_A_NODE):
            wave, uuid = 1 + 0.3 * math.sin(now / 50 + number + gpu), _uuid(number, gpu)
            for match in self._gpus:
                metric, before, after, text = match.groups()
                # counts of errors, and limits, stand still on a real one too
                value = f"{float(text) * wave:.6g}" if float(text) > 1 and "TOTAL" not in metric else text
                yield f'{metric}{{gpu="{gpu}",UUID="{uuid}"{before}nvidia{gpu}{after}}} {value}'

    def _answer(self, command: Sequence[str], limit_s: float) -> str:
        """The output of Slurm's commands on such a cluster: every node full, five jobs waiting for each that runs."""
        del limit_s
        end, field = "\x1e\n", "\x1f"
        if command[0] == "sinfo" and "--version" in command:
            return "slurm 24.11.5\n"
        if command[0] == "sinfo":
            node = "{}|{}|mixed|{}/4/0/{}|1000000|900000|90000|gpu:h100:8|gpu:h100:8(IDX:0-7)|Unknown|Unknown|none"
            numbers = range(1, self._count + 1)
            lines = [
                node.format(name_of(n), p, self._cpus - 4, self._cpus) for n in numbers for p in PARTITIONS[: 1 + n % 2]
            ]
            return "".join(line.replace("|", field) + end for line in lines)
        if command[0] == "squeue":
            jobs = self._count * max(self._jobs, 1)
            return "".join(self._queued(job, jobs).replace("|", field) + end for job in range(5 * jobs))
        return SDIAG.read_text() if command[0] == "sdiag" else "bench\n"

    def _queued(self, job: int, running: int) -> str:
        who = f"{PARTITIONS[job % 4]}|account{job % ACCOUNTS}|user{job % USERS}"
        began = int(time.time()) - 60 * (job % 50)
        tres = "cpu=16,mem=128G,node=1,billing=16,gres/gpu=2,gres/gpu:h100=2"
        if job < running:
            return f"{job}|RUNNING|{who}|1|{name_of(1 + job // max(self._jobs, 1))}|{tres}|{began - 600}|{began}|None"
        return f"{job}|PENDING|{who}|1||{tres}|{began}|N/A|Priority"


def scaled_cpu_lines(text: str, cpus: int) -> str:
    """A node exporter's text with the first processor's lines for so many of them."""
    lines = []
    for line in text.splitlines():
        match = _CPU.match(line)
        if match:
            start, rest, value = match.groups()
            lines += [f'{start}"{cpu}"{rest}{float(value) * (1 + cpu / 1000):.2f}' for cpu in range(cpus)]
        elif not line.startswith(("node_cpu_seconds_total{", "node_cpu_guest_seconds_total{")):
            lines.append(line)
    return "\n".join(lines) + "\n"


def _hardware(cpus: int) -> Iterator[str]:
    """Metrics of a GPU node that this host may not have: names as node exporter's, with constant values."""
    for unit in _UNITS:
        for state in _STATES:
            value = int(state == "active")
            yield f'node_systemd_unit_state{{name="{unit}.service",state="{state}",type="simple"}} {value}\n'
    for sensor in range(cpus // 2):
        for metric, value in (("celsius", 61), ("max_celsius", 90), ("crit_celsius", 100), ("crit_alarm_celsius", 0)):
            yield f'node_hwmon_temp_{metric}{{chip="platform_coretemp_0",sensor="temp{sensor}"}} {value}\n'
        yield f'node_hwmon_sensor_label{{chip="platform_coretemp_0",label="core_{sensor}",sensor="temp{sensor}"}} 1\n'
        yield f'node_cpu_core_throttles_total{{core="{sensor}",package="0"}} 0\n'
    for port in range(GPUS_A_NODE):
        yield from (f'node_infiniband_{name}{{device="mlx5_{port}",port="1"}} 0\n' for name in _FABRIC)
    yield 'deepops_nodemetrics_up{collector="jobs"} 1\ndeepops_nodemetrics_up{collector="certificates"} 1\n'
    yield 'deepops_mount{name="home",path="/home",required="true"} 1\n'
    yield 'deepops_certificate_readable{path="/etc/deepopsctl/node.pem"} 1\n'


def _uuid(number: int, gpu: int) -> str:
    return f"GPU-{number:08x}-0000-4000-8000-{gpu:012x}"
