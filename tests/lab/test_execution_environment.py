"""The container image deploys a node; ansible-navigator then runs the collection in it, without the command line."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import deepopsctl
from tests.lab.harness import NOT_POSSIBLE, PATIENCE_S, PREFIX, LabCluster, fresh_cluster
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(bool(NOT_POSSIBLE), reason=NOT_POSSIBLE)

IMAGE = f"localhost/{PREFIX}-deepopsctl"
COLLECTION = "/usr/share/ansible/collections/ansible_collections/deepopsctl/cluster"
# as the lab gives them to its nodes: not every host lets a container have more
LIMITS = [
    f"--ulimit={name}={limit}:{limit}"
    for name, kind in (("nofile", resource.RLIMIT_NOFILE), ("nproc", resource.RLIMIT_NPROC))
    if (limit := min(4096, resource.getrlimit(kind)[1] if resource.getrlimit(kind)[1] > 0 else 4096))
]
# navigator refuses to start a container of podman's without it
NO_QUEUES = "" if Path("/dev/mqueue").is_dir() else "there is no /dev/mqueue"


def run(*line: str | Path, **options: str | Path) -> str:
    """The output of a program, which must succeed."""
    cwd = options.get("cwd", ROOT)
    done = subprocess.run(list(map(str, line)), cwd=cwd, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """One node, reached by key."""
    with fresh_cluster(f"{PREFIX}-image", tmp_path_factory, "--single") as made:
        yield made


@pytest.fixture(scope="module")
def image(cluster: LabCluster) -> Iterator[str]:
    """The image of this checkout, on the root tree of the lab's nodes: no registry is asked."""
    base = run("podman", "inspect", "--format", "{{.ImageName}}", f"{cluster.name}-ctl1").strip()
    certificates = "/etc/ssl/certs"
    options = (
        f"--isolation chroot --network host --volume {certificates}:{certificates}:ro --build-arg BASE={base} "
        f"--build-arg 'PIP_OPTIONS=--cert {certificates}/ca-certificates.crt'"
    )
    run("make", "image", f"IMAGE={IMAGE}", f"IMAGE_OPTIONS={options}")
    yield IMAGE
    run("podman", "rmi", IMAGE)


def in_image(image: str, cluster: LabCluster, *line: str) -> str:
    """The output of a command in the image, with the cluster directory at /cluster."""
    volume = f"--volume={cluster.directory}:/cluster"
    return run("podman", "run", "--rm", "--network=host", *LIMITS, volume, image, *line)


def navigator(tmp: Path) -> Path:
    """ansible-navigator in an environment of its own."""
    run(sys.executable, "-m", "venv", tmp / "navigator")
    run(tmp / "navigator" / "bin" / "pip", "install", "--quiet", "ansible-navigator")
    return tmp / "navigator" / "bin" / "ansible-navigator"


def test_the_image_makes_a_cluster_directory_and_deploys_a_node(
    cluster: LabCluster, image: str, tmp_path: Path
) -> None:
    assert in_image(image, cluster, "deepopsctl", "--version").split()[-1] == deepopsctl.__version__
    in_image(image, cluster, "deepopsctl", "init", "/tmp/hpc", "--controller", "ctl1", "--compute", "gpu01")

    deployed = json.loads(in_image(image, cluster, "deepopsctl", "-C", "/cluster", "deploy", "slurm", "--json"))

    assert deployed["ok"]
    assert cluster.node_state("ctl1") == "idle"
    status = json.loads(in_image(image, cluster, "deepopsctl", "-C", "/cluster", "status", "--json"))
    assert status["ok"]


@pytest.mark.skipif(bool(NO_QUEUES), reason=NO_QUEUES)
def test_navigator_runs_the_collection_in_it_and_has_nothing_to_change(
    cluster: LabCluster, image: str, tmp_path: Path
) -> None:
    inventories = ["-i", f"{COLLECTION}/inventory/product/hosts.yml", "-i", "/cluster/inventory/hosts.yml"]
    container = [f"--container-options={option}" for option in ("--network=host", *LIMITS)]
    place = ["--execution-environment-image", image, "--pull-policy", "never", "--container-engine", "podman"]
    place += ["--execution-environment-volume-mounts", f"{cluster.directory}:/cluster"]
    quiet = ["--mode", "stdout", "--playbook-artifact-enable", "false", "--log-file", str(tmp_path / "log")]
    vault = ["--vault-password-file", "/cluster/.vault-password"]

    shown = run(
        navigator(tmp_path), "run", "deepopsctl.cluster.slurm", *inventories, *vault, *quiet, *place, *container,
        cwd=tmp_path,
    )  # fmt: skip

    recap = re.search(r"ctl1 .*ok=(\d+).*changed=(\d+).*failed=(\d+)", shown)
    assert recap is not None, shown[-3000:]
    assert (int(recap[1]) > 5, recap[2], recap[3]) == (True, "0", "0"), shown[-3000:]
