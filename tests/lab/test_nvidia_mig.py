"""MIG slices and DCGM on a real node under a real Slurm; nvidia-smi is a stand-in, DCGM's packages are stubs.

Jobs, drains, systemd, apt and a restart are real. The stand-in (tests/fakes/nvidia-smi) keeps state, loses the slices
and their device files at a restart, and refuses another mode while DCGM runs. All of it tests what deepopsctl asks
for and when; nothing here was asked of a GPU, and nothing came from NVIDIA.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab.aptrepo import ARCHITECTURE, Stub, build, serve, signers
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, actions, edit, fresh_cluster, wait_until
from tests.lab.nvidia_stubs import STANDIN, installed, site as site_settings, write
from tests.support.paths import ROOT

HOME = "/var/lib/standin-nvidia"
UNIT = "deepopsctl-mig.service"
LONG_JOB = "sleep infinity"
WHOLE = "gpus: {type: a100, count: 2}"
CUT = 'gpus: {type: a100, count: 2, mig: [{"1g.5gb": [7, 8, 9, 10, 11, 12, 13]}, {"3g.20gb": [1], "2g.10gb": [3]}]}'
WISHES = {("mig", "GPU 0: 7 x 1g.5gb", "set"), ("mig", "GPU 1: 3g.20gb + 2g.10gb", "set")}
SLICES = ["0 1g.5gb"] * 7 + ["1 3g.20gb", "1 2g.10gb"]
HOST_ENGINE = "[Service]\nExecStart=/usr/bin/nv-hostengine -n\n[Install]\nWantedBy=multi-user.target\n"
# as much of it as is asked here: it listens where its options say
ENGINE = """#!/usr/bin/python3
import os, signal, socket, sys
path = sys.argv[sys.argv.index("--domain-socket") + 1]
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
signal.pause()
"""
CONNECT = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/run/nvidia-dcgm/nv-hostengine\")'"
DCGM = ("-core", "-cuda13", "-proprietary", "-proprietary-cuda13")
# as much of DCGM exporter as is asked here: it listens where its options say, by TLS, and has as a comment
# of its metrics how it was started
EXPORTER = """#!/usr/bin/python3
import http.server, re, socketserver, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write("# {}\\nDCGM_FI_DEV_GPU_TEMP 40\\n".format(" ".join(sys.argv[1:])).encode())
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
address, _, port = options["--address"].rpartition(":")
socketserver.TCPServer.allow_reuse_address = True
server = socketserver.TCPServer((address, int(port)), Handler)
files = dict(re.findall("(cert_file|key_file): (.+)", open(options["--web-config-file"]).read()))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(files["cert_file"], files["key_file"])
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
DCGM_EXPORTER = "datacenter-gpu-manager-exporter"
EXPORTER_UNIT = "nvidia-dcgm-exporter.service"
MONITORED = "monitoring_enabled: true\ngrafana_enabled: false"
# the lab's nodes have no driver; its library by name alone is one that was installed otherwise
LIBRARY = "/usr/lib/$(uname -m)-linux-gnu/libnvidia-ml.so.580.95.05"


def dcgm(version: str) -> list[Stub]:
    """NVIDIA's packages of one version, with a daemon that does nothing."""
    unit = {"usr/lib/systemd/system/nvidia-dcgm.service": HOST_ENGINE, "usr/bin/nv-hostengine": ENGINE}
    names = [f"datacenter-gpu-manager-4{suffix}" for suffix in (*DCGM, "-cuda12")]
    return [Stub(name, version, files=unit if name.endswith("-core") else {}) for name in names]


def exporter(version: str) -> Stub:
    """DCGM exporter; its own unit listens on all addresses."""
    unit = "[Service]\nExecStart=/usr/bin/dcgm-exporter --address=0.0.0.0:9400\n[Install]\nWantedBy=multi-user.target\n"
    files = {f"usr/lib/systemd/system/{EXPORTER_UNIT}": unit, "usr/bin/dcgm-exporter": EXPORTER}
    return Stub(DCGM_EXPORTER, version, files=files)


def mirror(cluster: LabCluster, root: Path) -> dict[str, str]:
    """NVIDIA's repository as a mirror that signs itself, served by the GPU node; the settings for it."""
    arch = {"amd64": "x86_64", "arm64": "sbsa"}[ARCHITECTURE]
    directory = root / "debian13" / arch
    with signers(1) as (signer,):
        exporters = [exporter("4.8.3-1"), exporter("4.9.0-1")]
        build(directory, "NVIDIA CUDA", [*dcgm("1:4.6.0-1"), *dcgm("1:4.7.0-1"), *exporters], signer)
        (directory / "8793F200.pub").write_bytes(signer.public)
        # NVIDIA has no repository of it: the site's own
        copies = [Stub(name, version) for name in ("libgdrapi", "gdrdrv-dkms") for version in ("2.6-1", "2.7-1")]
        build(root / "gdrcopy" / ARCHITECTURE, "site", copies, signer)
        (root / "gdrcopy" / "key.asc").write_bytes(signer.public)
        url = serve(cluster, "gpu01", root)
        return {
            "nvidia_driver_repository_url": url,
            "nvidia_dcgm_key_fingerprint": signer.fingerprint,
            "nvidia_gdrcopy_repository_url": f"{url}/gdrcopy/{{arch}}/",
            "nvidia_gdrcopy_key_url": f"{url}/gdrcopy/key.asc",
            "nvidia_gdrcopy_key_fingerprint": signer.fingerprint,
        }


def of_gpus(document: dict[str, Any], component: str = "nvidia") -> set[tuple[str, str, str]]:
    """Type, name and action of what changes on the GPU node."""
    return actions(document, "gpu01", component)


def asked(cluster: LabCluster) -> list[str]:
    """What the exporter answers on the node's address: how it was started."""
    url = f"https://{cluster.root('gpu01', 'hostname -I').split()[0]}:9400/metrics"
    any_client = "context=ssl._create_unverified_context()"
    script = f"import ssl, urllib.request; print(urllib.request.urlopen('{url}', {any_client}).read().decode())"
    return cluster.root("gpu01", f'python3 -c "{script}"').split()


def slices(cluster: LabCluster) -> list[str]:
    """GPU and profile of each slice."""
    shown = cluster.root("gpu01", "nvidia-smi mig -lgi", ok=False)
    rows = [line.split() for line in shown.splitlines() if " MIG " in line]
    return [f"{row[1]} {row[3]}" for row in rows]


def orders(cluster: LabCluster) -> int:
    """How many commands that change something nvidia-smi has had."""
    return int(cluster.root("gpu01", f"grep -c -E -- '-mig|-cgi|-dci|-dgi|reset' {HOME}/calls.log || true"))


def drain(cluster: LabCluster) -> None:
    """Drain the node, and wait until it is empty."""
    cluster.deepopsctl("node", "drain", "gpu01", "--reason", "other slices", "--wait", "--timeout", "300")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller and a node with two whole GPUs by the stand-in, nothing deployed."""
    with fresh_cluster(f"{PREFIX}-mig", tmp_path_factory, "--compute", "1", "--gpus", "a100:2") as made:
        write(made, "gpu01", "/usr/bin/nvidia-smi", STANDIN.read_text(encoding="utf-8"), "0755")
        write(made, "gpu01", f"{HOME}/settings.json", json.dumps({"blockers": ["nvidia-dcgm.service"]}))
        made.root("gpu01", f"touch {LIBRARY}")
        yield made


@pytest.fixture(scope="module")
def site(bare: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """A site's settings: its mirror, and DCGM wanted."""
    return {**mirror(bare, tmp_path_factory.mktemp("mirror") / "mirror"), "nvidia_dcgm": True}


@pytest.fixture(scope="module")
def deploys(bare: LabCluster, site: dict[str, object]) -> dict[str, dict[str, Any]]:
    """What plan predicted of DCGM, what the deploy of all components did, and what plan lists for another version."""
    site_settings(bare, site)
    planned = bare.parsed("plan", "nvidia")
    first = bare.parsed("deploy")
    return {"plan": planned, "first": first}


@pytest.fixture(scope="module")
def cluster(bare: LabCluster, deploys: dict[str, dict[str, Any]]) -> LabCluster:
    """The same with Slurm and DCGM."""
    return bare


def test_dcgm_comes_in_its_one_version_and_for_the_drivers_cuda(
    cluster: LabCluster, deploys: dict[str, dict[str, Any]]
) -> None:
    shown = cluster.root("gpu01", "dpkg-query --show 'datacenter-gpu-manager*'; systemctl is-active nvidia-dcgm")

    assert of_gpus(deploys["first"]) == of_gpus(deploys["plan"]) >= {("unit", "nvidia-dcgm.service", "start")}
    assert shown.split() == [
        *(word for suffix in DCGM for word in (f"datacenter-gpu-manager-4{suffix}", "1:4.6.0-1")),
        "active",
    ]
    # 4.7 is there, and apt must not choose it on its own
    assert "4.7" not in cluster.root("gpu01", "apt-get --simulate --quiet full-upgrade")


def test_the_host_engine_answers_root_and_no_user(cluster: LabCluster) -> None:
    # the account that NVIDIA's package makes, for its diagnosis
    cluster.root("gpu01", "groupadd --force nvidia-dcgm; systemctl restart nvidia-dcgm")
    wait_until("it listens", lambda: cluster.holds("gpu01", CONNECT))

    assert "Permission denied" in cluster.user("gpu01", CONNECT, ok=False)
    modes = cluster.root("gpu01", "stat -c '%a %U:%G' /run/nvidia-dcgm /run/nvidia-dcgm/*")
    assert modes.splitlines() == ["2750 root:nvidia-dcgm", "770 root:nvidia-dcgm"]


def test_gdrcopys_library_comes_in_its_one_version_and_goes_with_the_setting(
    cluster: LabCluster, site: dict[str, object]
) -> None:
    site_settings(cluster, {**site, "nvidia_gdrcopy": True})

    planned = cluster.parsed("plan", "nvidia")
    done = cluster.parsed("deploy", "nvidia")
    full = cluster.parsed("deploy", "nvidia", "--full")

    assert of_gpus(done) == of_gpus(planned) >= {("package", "libgdrapi", "install")}
    assert full["hosts"]["gpu01"]["changed"] == 0
    # a container has its host's kernel: no module of it
    assert installed(cluster, "gpu01", "libgdrapi", "gdrdrv-dkms") == ["libgdrapi 2.6-1"]
    assert "2.7-1" in cluster.root("gpu01", "apt-cache madison libgdrapi")
    assert "2.7-1" not in cluster.root("gpu01", "apt-get --simulate --quiet full-upgrade")

    site_settings(cluster, {**site, "nvidia_gdrcopy": False})
    cluster.parsed("deploy", "nvidia")
    again = cluster.parsed("deploy", "nvidia", "--full")

    assert again["hosts"]["gpu01"]["changed"] == 0
    assert installed(cluster, "gpu01", "libgdrapi", "gdrdrv-dkms") == []
    # a key without a source that names it is trusted for nothing
    assert cluster.root("gpu01", "find /etc -name '*gdr*' -not -path '*/keyrings/*'") == ""


def test_dcgm_exporter_comes_in_the_version_that_goes_with_dcgm(cluster: LabCluster) -> None:
    edit(cluster.directory / SETTINGS, "monitoring_enabled: false", MONITORED)

    planned = cluster.parsed("plan", "monitoring")
    first = cluster.parsed("deploy", "monitoring")
    full = cluster.parsed("deploy", "monitoring", "--full")

    mine = ("package", DCGM_EXPORTER, "install")
    assert {mine, ("unit", EXPORTER_UNIT, "start")} <= of_gpus(first, "monitoring")
    assert mine in of_gpus(planned, "monitoring")
    assert {host: counts["changed"] for host, counts in full["hosts"].items()} == {"ctl1": 0, "gpu01": 0}
    assert installed(cluster, "gpu01", DCGM_EXPORTER) == [f"{DCGM_EXPORTER} 4.8.3-1"]
    # 4.9.0 is there as well, and apt must not choose it on its own
    assert "4.9.0-1" in cluster.root("gpu01", f"apt-cache madison {DCGM_EXPORTER}")
    assert "4.9.0-1" not in cluster.root("gpu01", "apt-get --simulate --quiet full-upgrade")
    metrics = asked(cluster)
    assert "--remote-hostengine-info=unix:///run/nvidia-dcgm/nv-hostengine" in metrics
    assert "--collectors=/etc/deepopsctl/dcgm-counters.csv" in metrics
    listening = cluster.root("gpu01", "ss -Hltn 'sport = 9400'").split()
    assert listening[3] == f"{cluster.root('gpu01', 'hostname -I').split()[0]}:9400"


def test_another_version_of_dcgm_comes_as_planned_and_restarts_it(cluster: LabCluster, site: dict[str, object]) -> None:
    before = cluster.root("gpu01", "systemctl show nvidia-dcgm -p InvocationID")
    catalogue = yaml.safe_load((ROOT / "group_vars" / "all" / "versions.yml").read_text(encoding="utf-8"))
    site_settings(cluster, {**site, "deepops_dcgm": {**catalogue["deepops_dcgm"], "version": "1:4.7.0-1"}})

    planned = cluster.parsed("plan", "nvidia")
    done = cluster.parsed("deploy", "nvidia")

    assert (
        of_gpus(done)
        == of_gpus(planned)
        >= {
            ("package", "datacenter-gpu-manager-4-core", "upgrade"),
            ("unit", "nvidia-dcgm.service", "restart"),
        }
    )
    assert cluster.root("gpu01", "systemctl show nvidia-dcgm -p InvocationID") != before


def test_dcgm_exporter_follows_to_the_version_of_the_pair_and_goes_with_monitoring(
    cluster: LabCluster, site: dict[str, object]
) -> None:
    catalogue = yaml.safe_load((ROOT / "group_vars" / "all" / "versions.yml").read_text(encoding="utf-8"))
    newer = {**catalogue["deepops_dcgm"], "version": "1:4.7.0-1"}
    lone = {**site, "deepops_dcgm": newer}
    before = cluster.root("gpu01", f"systemctl show {EXPORTER_UNIT} -p InvocationID")

    # half of a pair is none
    site_settings(cluster, {**lone, "monitoring_gpu_exporter": "dcgm"})
    (failure,) = cluster.parsed("deploy", "monitoring", ok=False)["failures"]
    assert "DCGM exporter 4.8.3-1 is made for DCGM 4.6.0, and this one is 4.7.0" in failure["message"]
    assert installed(cluster, "gpu01", DCGM_EXPORTER) == [f"{DCGM_EXPORTER} 4.8.3-1"]

    pair = {**newer, "exporter": {**newer["exporter"], "version": "4.9.0-1", "dcgm": "4.7.0"}}
    site_settings(cluster, {**site, "deepops_dcgm": pair})
    planned = cluster.parsed("plan", "monitoring")
    done = cluster.parsed("deploy", "monitoring")

    wanted = {("package", DCGM_EXPORTER, "upgrade"), ("unit", EXPORTER_UNIT, "restart")}
    assert of_gpus(done, "monitoring") == of_gpus(planned, "monitoring") >= wanted
    assert installed(cluster, "gpu01", DCGM_EXPORTER) == [f"{DCGM_EXPORTER} 4.9.0-1"]
    assert "--remote-hostengine-info=unix:///run/nvidia-dcgm/nv-hostengine" in asked(cluster)
    assert cluster.root("gpu01", f"systemctl show {EXPORTER_UNIT} -p InvocationID") != before

    edit(cluster.directory / SETTINGS, MONITORED, "monitoring_enabled: false")
    cluster.parsed("deploy", "monitoring")
    again = cluster.parsed("deploy", "monitoring", "--full")
    assert {counts["changed"] for counts in again["hosts"].values()} <= {0}
    query = f"(dpkg-query --show {DCGM_EXPORTER}; systemctl cat {EXPORTER_UNIT}; ls /etc/deepopsctl/dcgm*)"
    assert cluster.root("gpu01", f"{query} 2>/dev/null; true") == ""
    # DCGM itself is wanted without it
    assert cluster.root("gpu01", "systemctl is-active nvidia-dcgm") == "active"


def test_whole_gpus_that_are_to_be_whole_are_left_alone(cluster: LabCluster) -> None:
    assert orders(cluster) == 0
    assert cluster.holds("gpu01", f"test ! -e /etc/systemd/system/{UNIT}")


def test_nothing_is_cut_under_a_job(cluster: LabCluster) -> None:
    cluster.wait_until_idle()
    job = cluster.submit(LONG_JOB, "--gpus=1", "--mem=100M")
    cluster.wait_for_job(job, "RUNNING")
    edit(cluster.directory / "cluster.yml", WHOLE, CUT)

    planned = cluster.parsed("plan", "nvidia", ok=False)
    refused = cluster.parsed("deploy", "nvidia", ok=False)

    assert of_gpus(planned) >= WISHES
    (failure,) = refused["failures"]
    assert failure["message"] == "the MIG slices of GPU 0, 1 on gpu01 have to change, and jobs run on it"
    assert "deepopsctl node drain gpu01" in failure["hint"]
    assert [entry["message"] for entry in planned["blocked"]] == [failure["message"]]
    assert cluster.job_state(job) == "RUNNING"
    assert orders(cluster) == 0
    cluster.root("ctl1", f"scancel {job}")
    cluster.wait_until_idle()
    # nor where a job may start at any time
    (failure,) = cluster.parsed("deploy", "nvidia", ok=False)["failures"]
    assert failure["message"].endswith("and Slurm may start jobs on it")
    assert orders(cluster) == 0


def test_a_drained_node_is_cut_as_planned_and_a_second_run_changes_nothing(cluster: LabCluster) -> None:
    drain(cluster)
    dcgm = cluster.root("gpu01", "systemctl show nvidia-dcgm -p InvocationID")
    planned = cluster.parsed("plan", "nvidia")

    first = cluster.parsed("deploy", "nvidia")
    full = cluster.parsed("deploy", "nvidia", "--full")

    assert of_gpus(first) == of_gpus(planned) >= WISHES
    assert slices(cluster) == SLICES
    assert full["hosts"]["gpu01"]["changed"] == 0
    # what held the GPUs open let go of them, and is back
    assert cluster.root("gpu01", "systemctl show nvidia-dcgm -p InvocationID") != dcgm
    assert cluster.root("gpu01", "systemctl is-active nvidia-dcgm") == "active"


def test_jobs_get_slices_by_the_names_that_cluster_yml_gives_them(cluster: LabCluster) -> None:
    cluster.deepopsctl("deploy", "slurm")
    cluster.deepopsctl("node", "resume", "gpu01")
    cluster.wait_until_idle()

    job = cluster.submit("true", "--gres=gpu:a100_1g.5gb:2", "--mem=100M")
    cluster.wait_for_job(job, "COMPLETED")

    gres = cluster.root("ctl1", "scontrol --oneliner show node gpu01").split("Gres=")[1].split()[0]
    assert gres.startswith("gpu:a100_1g.5gb:7,gpu:a100_3g.20gb:1,gpu:a100_2g.10gb:1"), gres


def test_the_slices_are_there_again_after_a_restart_before_slurmd_starts(cluster: LabCluster) -> None:
    cluster.power_cut("gpu01")
    cluster.power_on("gpu01")

    # it does not start where a slice's device file is missing, and those are lost at a restart
    wait_until(
        "slurmd runs again",
        lambda: cluster.holds("gpu01", "systemctl is-active --quiet slurmd"),
        details=lambda: cluster.root("gpu01", "systemctl list-jobs; systemctl status slurmd", ok=False),
    )

    assert slices(cluster) == SLICES
    assert cluster.root("gpu01", "systemctl --failed --no-legend") == ""
    # the one question to the node finds everything in its place
    again = cluster.parsed("deploy", "nvidia")["hosts"]["gpu01"]
    assert (again["changed"], again["ok"] < 5) == (0, True)


def test_gpus_become_whole_again_and_nothing_is_left_for_the_next_start(cluster: LabCluster) -> None:
    drain(cluster)
    edit(cluster.directory / "cluster.yml", CUT, WHOLE)

    done = cluster.parsed("deploy", "nvidia")

    assert of_gpus(done) >= {
        ("mig", "GPU 0: whole", "set"),
        ("mig", "GPU 1: whole", "set"),
        ("unit", UNIT, "stop"),
    }
    assert slices(cluster) == []
    assert cluster.holds("gpu01", f"test ! -e /etc/systemd/system/{UNIT} -a ! -e /etc/deepopsctl/mig.json")


def test_dcgm_goes_when_it_is_no_longer_wanted_with_all_that_came_for_it(
    cluster: LabCluster, site: dict[str, object]
) -> None:
    site_settings(cluster, {**site, "nvidia_dcgm": False})

    cluster.parsed("deploy", "nvidia")
    again = cluster.parsed("deploy", "nvidia", "--full")

    assert again["hosts"]["gpu01"]["changed"] == 0
    query = "(dpkg-query --show 'datacenter-gpu-manager*'; systemctl cat nvidia-dcgm; find /etc -type f -name '*dcgm*')"
    assert cluster.root("gpu01", f"{query} 2>/dev/null; true") == ""
