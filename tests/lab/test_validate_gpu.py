"""The GPU suite on a real cluster: its simulated GPUs are really kept apart, and no measurement of them passes.

Then with stand-ins for NVIDIA's libraries (tests/fakes): the way of a measurement from a job to the report. The name of
their device has that name: no number here is one of a GPU.
"""

from __future__ import annotations

import base64
import json
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.suites.gpu_check.evaluation import MEASURED
from tests.lab.harness import DEEPOPSCTL, PATIENCE_S, LabCluster, wait_until
from tests.lab.smoke import damaged
from tests.lab.smoke_faults import COMPUTE, both, conf_steps
from tests.support.paths import FAKES

STANDINS = FAKES / "gpu_node.c"
NAMES = ("libnvidia-ml.so.1", "libcuda.so.1")
KEPT = "/var/cache/deepopsctl/gpu-libraries"
HANGS, MEMORY = "/run/stand-in-hangs", "--mem=100M"
# a hanging GPU is given up after two minutes, two of them after four
LESS_THAN_THE_JOB_S = 100


@dataclass(frozen=True)
class Result:
    """One call of `validate gpu --json`."""

    code: int
    checks: dict[tuple[str, str], dict[str, str]]
    shown: str
    directory: Path

    def status(self, name: str) -> dict[str, str]:
        """Status by target."""
        return {target: check["status"] for (check_name, target), check in self.checks.items() if check_name == name}

    def message(self, name: str, target: str) -> str:
        """The message of one check."""
        return self.checks[name, target]["message"]


def validate(cluster: LabCluster, *arguments: str) -> Result:
    """Validate the GPUs, whatever comes of it."""
    done = cluster.deepopsctl("validate", "gpu", "--json", *arguments, ok=False)
    document: dict[str, Any] = json.loads(done.stdout)
    checks = {(check["name"], check["target"]): check for check in document["checks"]}
    return Result(done.returncode, checks, done.stderr, cluster.directory / "runs" / document["run"])


def jobs_of_the_suite(cluster: LabCluster, states: str = "pending,running") -> str:
    """Its jobs that wait or run."""
    listed = cluster.root("ctl1", f"squeue -h --states={states} -o '%T %j'").splitlines()
    return "\n".join(row for row in listed if "deepopsctl-gpu" in row)


def leftovers(cluster: LabCluster) -> str:
    """Jobs, processes and files that the suite forgot."""
    script = "pgrep -af '[g]pucheck'; find /tmp /var/tmp ~ubuntu -newer /run/before-validate -name '*gpu*'; exit 0"
    return "".join([jobs_of_the_suite(cluster), *(cluster.root(node, script) for node in ("ctl1", *COMPUTE))])


@pytest.fixture(scope="module")
def cluster(deployed: LabCluster) -> LabCluster:
    """The shared cluster, with a time to tell new files from old ones."""
    for node in ("ctl1", *COMPUTE):
        deployed.root(node, "touch /run/before-validate")
    return deployed


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-ins, compiled."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    made = tmp_path_factory.mktemp("standins") / "standins.so"
    argv = [compiler, "-shared", "-fPIC", "-O3", "-Wall", "-Werror", "-s", "-o", str(made), str(STANDINS)]
    subprocess.run(argv, check=True)
    return made


@pytest.fixture
def standins(cluster: LabCluster, library: Path) -> Iterator[None]:
    """Libraries on the nodes that answer as NVIDIA's would, for devices whose files a job may open."""
    text = base64.b64encode(library.read_bytes()).decode()
    try:
        for node in COMPUTE:
            files = " ".join(f"/usr/local/lib/{name}" for name in NAMES)
            cluster.root(node, f"echo {text} | base64 -d | tee {files} >/dev/null && ldconfig")
        yield
    finally:
        for node in COMPUTE:
            cluster.root(node, f"cd /usr/local/lib && rm -f {' '.join(NAMES)} {HANGS}; ldconfig")


def test_simulated_gpus_are_apart_and_no_measurement_of_them_passes(cluster: LabCluster) -> None:
    result = validate(cluster)

    assert result.code == 0, result.shown
    for name in ("gpu-allocation", "gpu-isolation", "gpu-job"):
        assert result.status(name) == dict.fromkeys(COMPUTE, "pass"), result.shown
    assert result.checks["gpu-allocation", "gpu01"]["measured"] == "GPU 0, 1"
    for name in ("gpu-visible", "gpu-driver", "gpu-count", *MEASURED):
        assert result.status(name) == dict.fromkeys(COMPUTE, "skip"), name
    assert result.message("gpu-memory-copy", "gpu02") == "simulated GPUs of a lab: nothing to measure"
    record = json.loads((result.directory / "gpu.json").read_text())
    assert (record["schema"], record["command"]) == (1, "gpucheck")
    assert [entry["node"] for entry in record["results"]] == list(COMPUTE)
    assert leftovers(cluster) == ""


def test_busy_gpus_are_not_measured_and_a_drained_node_is_named(cluster: LabCluster) -> None:
    job = cluster.submit("sleep 600", "--nodelist=gpu01", "--gpus-per-node=1", MEMORY, "--output=/dev/null")
    cluster.wait_for_job(job, "RUNNING")
    try:
        cluster.root("ctl1", "scontrol update nodename=gpu02 state=drain reason=odd")
        result = validate(cluster)
        state = cluster.job_state(job)
    finally:
        cluster.user("ctl1", f"scancel {job}")
        cluster.root("ctl1", "scontrol update nodename=gpu02 state=resume", ok=False)
    cluster.wait_until_idle()

    assert state == "RUNNING"
    assert result.code == 0, result.shown
    assert result.status("gpu-job") == dict.fromkeys(COMPUTE, "skip")
    assert result.message("gpu-job", "gpu01") == "busy: other jobs have 1 of its 2 GPUs"
    assert "drain" in result.message("gpu-job", "gpu02")
    assert "odd" in result.message("gpu-job", "gpu02")
    assert result.checks["gpu-allocation", "gpu01"]["status"] == "pass"
    assert result.checks["gpu-allocation", "gpu01"]["expected"] == "1 GPU"


@pytest.mark.usefixtures("standins")
class TestWithStandIns:
    def test_what_a_job_measures_comes_into_the_report(self, cluster: LabCluster, tmp_path: Path) -> None:
        html = tmp_path / "gpus.html"

        result = validate(cluster, "--html", str(html))

        assert result.code == 0, result.shown
        assert result.status("gpu-visible") == dict.fromkeys(COMPUTE, "pass")
        assert result.status("gpu-count") == dict.fromkeys(COMPUTE, "pass")
        gpus = {f"{node}/{index}" for node in COMPUTE for index in (0, 1)}
        assert result.status("gpu-memory-test") == dict.fromkeys(gpus, "pass"), result.shown
        assert result.status("gpu-opens") == dict.fromkeys(gpus, "pass")
        # no such model is known, and the other stand-ins are as quick
        assert result.status("gpu-model") == dict.fromkeys(gpus, "warn")
        assert "other GPUs of this model" in result.message("gpu-memory-copy", "gpu01/1")
        assert "Stand-in for tests, no GPU" in (result.directory / "gpu.json").read_text()
        assert "gpu02" in html.read_text()
        assert leftovers(cluster) == ""

    def test_libraries_come_once_measure_in_and_between_nodes_and_go(
        self, cluster: LabCluster, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        settings = cluster.directory / "inventory/group_vars/all/gpu-libraries.yml"
        settings.write_text(json.dumps({"deepops_gpu_libraries": wheels_of(library, tmp_path)}))
        try:
            first = validate(cluster, "--with-libraries")
            there = cluster.root("gpu01", f"find {KEPT} -type f")
            gone = cluster.deepopsctl("validate", "gpu", "--remove-libraries", "--limit", "gpu[01-02]")
        finally:
            settings.unlink()

        assert first.code == 0, first.shown
        assert first.status("gpu-all-reduce") == dict.fromkeys(COMPUTE, "pass")
        assert {"pass"} == set(first.status("gpu-bf16-gemm").values())
        assert first.status("gpu-all-reduce-nodes") == {"gpu[01-02]": "pass"}
        assert "4 ranks" in first.message("gpu-all-reduce-nodes", "gpu[01-02]")
        assert f"{KEPT}/nccl-9.9/libnccl.so.2" in there
        assert changes(cluster, first.directory.name) == dict.fromkeys(COMPUTE, 1)
        assert gone.returncode == 0
        assert not any(cluster.holds(node, f"test -e {KEPT}") for node in COMPUTE)

    def test_without_constrained_devices_isolation_fails_by_file_and_by_driver(self, cluster: LabCluster) -> None:
        with damaged(cluster, *conf_steps(cgroup=("s/^ConstrainDevices=.*/ConstrainDevices=no/",))):
            result = validate(cluster)

        assert result.code == 1, result.shown
        failed = {key for key, check in result.checks.items() if check["status"] == "fail"}
        assert failed == both("gpu-isolation") | both("gpu-visible"), result.shown
        assert "/dev/nvidia0" in result.message("gpu-isolation", "gpu01")
        assert "sees 2 GPUs by NVML" in result.message("gpu-visible", "gpu01")

    def test_an_interrupted_measurement_leaves_no_job(self, cluster: LabCluster) -> None:
        for node in COMPUTE:
            cluster.root(node, f"touch {HANGS}")
        argv = [DEEPOPSCTL, "-C", str(cluster.directory), "validate", "gpu"]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            wait_until(
                "a GPU is measured, and hangs",
                lambda: "-all-" in jobs_of_the_suite(cluster, "running") or process.poll() is not None,
                details=lambda: cluster.root("ctl1", "squeue"),
            )
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
            wait_until(
                "its jobs are cancelled",
                lambda: not jobs_of_the_suite(cluster),
                LESS_THAN_THE_JOB_S,
                lambda: jobs_of_the_suite(cluster),
            )
        finally:
            process.kill()
            process.wait(PATIENCE_S)
            for node in COMPUTE:
                cluster.root(node, f"rm -f {HANGS}")
        cluster.wait_until_idle()
        wait_until("no process is left", lambda: not leftovers(cluster), details=lambda: leftovers(cluster))


def wheels_of(library: Path, cache: Path) -> dict[str, object]:
    """Wheels that hold the stand-ins, where the control machine stores what it has fetched; and how they are pinned."""
    pinned: dict[str, object] = {}
    for name, member in (("cublas", "nvidia/cublas/lib/libcublas.so.12"), ("nccl", "nvidia/nccl/lib/libnccl.so.2")):
        made = cache / f"{name}.whl"
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(library, member)
        digest = sha256(made.read_bytes()).hexdigest()
        wheel = cache / "deepopsctl" / "wheels" / f"{digest}.whl"
        wheel.parent.mkdir(parents=True, exist_ok=True)
        made.replace(wheel)
        architectures = {architecture: {"platform": "any", "sha256": digest} for architecture in ("x86_64", "aarch64")}
        pinned[name] = {"package": f"nvidia-{name}", "version": "9.9", "files": [member], "wheels": architectures}
    return pinned


def changes(cluster: LabCluster, run: str) -> dict[str, int]:
    """Hosts that a run changed something on."""
    hosts = json.loads((cluster.directory / "runs" / run / "summary.json").read_text())["hosts"]
    return {host: counts["changed"] for host, counts in hosts.items() if counts["changed"]}
