"""CUDA toolkits and the container toolkit on real nodes, from a signed repository of stubs that a node serves.

NVIDIA's own can't be reached from here. apt, dpkg, signatures, systemd, Lmod and Environment Modules are real; the
packages have NVIDIA's names and layout, and a compiler that only prints its version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.aptrepo import ARCHITECTURE, Signer, Stub, build, serve, signers
from tests.lab.harness import PREFIX, LabCluster, actions, fresh_cluster
from tests.lab.nvidia_stubs import site

pytestmark = pytest.mark.without_slurm

SOURCE = "/etc/apt/sources.list.d/deepopsctl-nvidia-cuda.sources"
MODULES = "/opt/deepopsctl/modulefiles/cuda"
CONTAINER = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools")
CONTAINER_VERSION = "1.20.0-1"
# what a deploy of this component writes, and what apt has
WRITTEN = "dpkg-query --show; find /etc /opt -name 'deepopsctl*' -not -path '*/keyrings/*'"
LOADED = "module load cuda/12.8; nvcc --version; echo $CUDA_HOME; echo $LD_LIBRARY_PATH; echo $CPATH"
WATCH = "[Path]\nPathChanged=/etc/hostname\n[Install]\nWantedBy=multi-user.target\n"
# as NVIDIA's: it does not start where there is no driver
REFRESH = """\
[Unit]
ConditionPathExists=/usr/bin/nvidia-smi
[Service]
Type=oneshot
ExecStart=/usr/bin/nvidia-ctk
[Install]
WantedBy=multi-user.target
"""
CONTROL = "ctl1"
COMPUTE = "gpu01"
LOGIN = "login1"


def toolkit(version: str) -> list[Stub]:
    """NVIDIA's packages of one version, their names and their layout."""
    home, dashed = f"usr/local/cuda-{version}", version.replace(".", "-")
    nvcc = {f"{home}/bin/nvcc": f"#!/bin/sh\necho release {version}\n", f"{home}/include/cuda.h": "\n"}
    return [
        Stub(f"cuda-toolkit-{dashed}", f"{version}.1-1", f"cuda-nvcc-{dashed}, cuda-toolkit-config-common"),
        Stub(f"cuda-nvcc-{dashed}", f"{version}.61-1", files=nvcc),
    ]


def container(version: str) -> list[Stub]:
    """The packages of one release of the container toolkit, with its units as version 1.18 installed them."""
    units = {
        "usr/bin/nvidia-ctk": "#!/bin/sh\n",
        "etc/systemd/system/nvidia-cdi-refresh.path": WATCH,
        "etc/systemd/system/nvidia-cdi-refresh.service": REFRESH,
    }
    names = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service"
    enable = f"#!/bin/sh\nsystemctl daemon-reload\nsystemctl enable --now --quiet {names}\n"
    return [
        Stub("nvidia-container-toolkit", version, "nvidia-container-toolkit-base, libnvidia-container-tools"),
        Stub("nvidia-container-toolkit-base", version, files=units, postinst=enable),
        Stub("libnvidia-container-tools", version, "libnvidia-container1"),
        Stub("libnvidia-container1", version),
    ]


@dataclass(frozen=True)
class Mirror:
    """Where the repositories are, and whose key signs them."""

    url: str
    fingerprint: str


def make_mirror(root: Path, signer: Signer, forger: Signer) -> None:
    """NVIDIA's two repositories, and a forged one: it offers the right key, but is signed by another."""
    arch = {"amd64": "x86_64", "arm64": "sbsa"}[ARCHITECTURE]
    others = [Stub("cuda-toolkit-config-common", "13.0.96-1"), Stub("libcuda1", "999.1-1")]
    # the CUDA repository has these as well
    everything = [*toolkit("12.8"), *toolkit("13.0"), *others, *container("1.21.0-1")]
    for name, by in (("cuda", signer), ("forged", forger)):
        directory = root / name / "debian13" / arch
        build(directory, "NVIDIA CUDA", everything, by)
        (directory / "8793F200.pub").write_bytes(signer.public)
    directory = root / "container" / "stable" / "deb" / ARCHITECTURE
    build(directory, "libnvidia-container", [*container(CONTAINER_VERSION), *container("1.20.1-1")], signer)
    (root / "container" / "gpgkey").write_bytes(signer.public)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller, a node with simulated GPUs and Lmod, a login node with Environment Modules; nothing deployed."""
    name = f"{PREFIX}-cuda"
    with fresh_cluster(name, tmp_path_factory, "--compute", "1", "--gpus", "a100:2", "--login", "1") as made:
        for node, system in ((COMPUTE, "lmod"), (LOGIN, "environment-modules")):
            made.root(node, f"apt-get -qq update && apt-get -qq install --no-install-recommends {system} 2>&1")
            # a user's own, from NVIDIA's .run installer
            made.root(node, "mkdir -p /usr/local/cuda-12.6/bin && touch /usr/local/cuda-12.6/bin/nvcc")
        yield made


@pytest.fixture(scope="module")
def mirror(cluster: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    """The repositories, served by the compute node."""
    root = tmp_path_factory.mktemp("mirror") / "mirror"
    with signers(2) as (signer, forger):
        make_mirror(root, signer, forger)
        return Mirror(serve(cluster, COMPUTE, root), signer.fingerprint)


@pytest.fixture(scope="module")
def cuda_settings(mirror: Mirror) -> dict[str, object]:
    """The settings of a site with a mirror that signs itself."""
    return {
        "cuda_toolkits": ["12.6", "12.8", "13.0"],
        "cuda_key_fingerprint": mirror.fingerprint,
        "nvidia_driver_repository_url": f"{mirror.url}/cuda",
        "nvidia_container_toolkit": True,
        "nvidia_container_key_fingerprint": mirror.fingerprint,
        "nvidia_container_repository_url": f"{mirror.url}/container",
    }


def test_a_foreign_key_and_a_forged_signature_are_refused_and_leave_the_nodes_as_they_were(
    cluster: LabCluster, mirror: Mirror, cuda_settings: dict[str, object]
) -> None:
    before = [cluster.root(node, WRITTEN) for node in (COMPUTE, LOGIN)]
    # what comes from elsewhere would be installed all the same
    cuda = {name: value for name, value in cuda_settings.items() if not name.startswith("nvidia_container")}

    site(cluster, {**cuda, "cuda_key_fingerprint": ""})
    foreign = cluster.parsed("deploy", "nvidia", ok=False)
    site(cluster, {**cuda, "nvidia_driver_repository_url": f"{mirror.url}/forged"})
    forged = cluster.parsed("deploy", "nvidia", "--limit", LOGIN, ok=False)

    # a node that fails blocks no other
    assert [failure["host"] for failure in foreign["failures"]] == [COMPUTE, LOGIN]
    for failure in foreign["failures"]:
        assert "is not the key with the fingerprint 02182E60" in failure["message"]
    (failure,) = forged["failures"]
    assert failure["host"] == LOGIN
    assert "is not signed by the key" in failure["hint"]
    assert [cluster.root(node, WRITTEN) for node in (COMPUTE, LOGIN)] == before


@pytest.fixture(scope="module")
def deploys(cluster: LabCluster, cuda_settings: dict[str, object]) -> dict[str, dict[str, Any]]:
    """What plan predicted, what the first deploy did, and a rerun of each type."""
    site(cluster, cuda_settings)
    return {
        "plan": cluster.parsed("plan", "nvidia"),
        "first": cluster.parsed("deploy", "nvidia"),
        "full": cluster.parsed("deploy", "nvidia", "--full"),
        "again": cluster.parsed("deploy", "nvidia"),
    }


def test_plan_predicts_the_deploy_and_the_controller_is_only_claimed(deploys: dict[str, dict[str, Any]]) -> None:
    on_login = {
        ("file", SOURCE, "write"),
        ("package", "cuda-toolkit-12-8", "install"),
        ("package", "cuda-toolkit-13-0", "install"),
        ("file", f"{MODULES}/12.6", "write"),
        ("file", f"{MODULES}/12.8", "write"),
    }

    for host in (COMPUTE, LOGIN):
        assert on_login <= actions(deploys["plan"], host)
        assert actions(deploys["plan"], host) == actions(deploys["first"], host)
    assert ("package", "nvidia-container-toolkit", "install") in actions(deploys["first"], COMPUTE)
    counts = deploys["first"]["hosts"].pop(CONTROL)
    assert (counts["ok"], counts["changed"]) == (1, 0)
    assert set(deploys["first"]["hosts"]) == {COMPUTE, LOGIN}


def test_the_second_run_changes_nothing_with_and_without_the_gate(deploys: dict[str, dict[str, Any]]) -> None:
    for host in (COMPUTE, LOGIN):
        assert deploys["full"]["hosts"][host]["changed"] == 0
        assert deploys["again"]["hosts"][host]["changed"] == 0
        assert deploys["again"]["hosts"][host]["ok"] < 5
    assert deploys["again"]["warnings"] == []


@pytest.mark.usefixtures("deploys")
@pytest.mark.parametrize("node", [COMPUTE, LOGIN])
class TestModules:
    """Lmod on the one, Environment Modules on the other."""

    def test_a_users_login_shell_sees_all_and_the_newest_is_the_default(self, cluster: LabCluster, node: str) -> None:
        seen = cluster.user(node, "module -t avail 2>&1; module load cuda; nvcc --version")

        assert "cuda/12.6" in seen
        assert "cuda/12.8" in seen
        assert "cuda/13.0" in seen
        assert seen.splitlines()[-1] == "release 13.0"

    def test_a_module_puts_its_toolkit_in_use(self, cluster: LabCluster, node: str) -> None:
        home = "/usr/local/cuda-12.8"

        assert cluster.user(node, LOADED).splitlines() == ["release 12.8", home, f"{home}/lib64", f"{home}/include"]

    def test_there_are_never_two_of_them(self, cluster: LabCluster, node: str) -> None:
        both = "module load cuda/12.8 2>/dev/null; module load cuda/13.0 2>/dev/null; echo $PATH"

        assert cluster.user(node, both).count("/usr/local/cuda-") == 1


@pytest.mark.usefixtures("deploys")
def test_the_driver_does_not_come_in_with_cuda(cluster: LabCluster) -> None:
    assert "Candidate: (none)" in cluster.root(LOGIN, "apt-cache policy libcuda1")
    assert "999.1-1" in cluster.root(LOGIN, "apt-cache madison libcuda1")


@pytest.mark.usefixtures("deploys")
def test_all_packages_of_the_container_toolkit_stay_at_one_version(cluster: LabCluster) -> None:
    shown = cluster.root(COMPUTE, f"dpkg-query -W -f '${{Version}}\\n' {' '.join(CONTAINER)} libnvidia-container1")
    upgrade = cluster.root(COMPUTE, "apt-get -s dist-upgrade")

    assert set(shown.split()) == {CONTAINER_VERSION}
    assert "nvidia-container" not in upgrade
    assert cluster.root(COMPUTE, "systemctl is-enabled nvidia-cdi-refresh.path nvidia-cdi-refresh.service").split() == [
        "enabled",
        "enabled",
    ]
    assert cluster.root(COMPUTE, "systemctl --failed --no-legend") == ""


@pytest.mark.usefixtures("deploys")
def test_an_edited_module_file_is_restored_and_toolkits_off_the_list_are_removed(
    cluster: LabCluster, cuda_settings: dict[str, object]
) -> None:
    cluster.root(COMPUTE, f"echo 'setenv CUDA_HOME /elsewhere' >> {MODULES}/13.0")
    cluster.root(COMPUTE, f"rm {MODULES}/.version")
    deployed = cluster.parsed("deploy", "nvidia")
    nvcc = cluster.root(COMPUTE, "ls -l /usr/local/cuda-13.0/bin/nvcc")
    site(cluster, {**cuda_settings, "cuda_toolkits": ["13.0"], "cuda_login_nodes": False})
    planned = cluster.parsed("plan", "nvidia", "--limit", LOGIN)
    removed = cluster.parsed("deploy", "nvidia")

    assert actions(deployed, COMPUTE) == {
        ("file", f"{MODULES}/13.0", "write"),
        ("file", f"{MODULES}/.version", "write"),
    }
    assert actions(planned, LOGIN) == actions(removed, LOGIN)
    assert actions(removed, COMPUTE) == {
        ("package", "cuda-toolkit-12-8", "remove"),
        ("file", f"{MODULES}/12.6", "remove"),
        ("file", f"{MODULES}/12.8", "remove"),
    }
    assert cluster.root(COMPUTE, "ls -l /usr/local/cuda-13.0/bin/nvcc") == nvcc
    assert cluster.root(COMPUTE, "ls -d /usr/local/cuda-*").split() == ["/usr/local/cuda-12.6", "/usr/local/cuda-13.0"]
    assert cluster.root(LOGIN, "ls -d /usr/local/cuda-*") == "/usr/local/cuda-12.6"
    assert "cuda" not in cluster.root(LOGIN, "dpkg-query --show; find /etc /opt -type f -path '*deepopsctl*'").replace(
        "keyrings", ""
    )


@pytest.mark.usefixtures("deploys")
def test_a_toolkit_that_nobody_has_is_refused_with_what_there_is(
    cluster: LabCluster, cuda_settings: dict[str, object]
) -> None:
    site(cluster, {**cuda_settings, "cuda_toolkits": ["13.7"]})

    refused = cluster.parsed("deploy", "nvidia", "--limit", LOGIN, ok=False)

    (failure,) = refused["failures"]
    assert "Unable to locate package cuda-toolkit-13-7" in failure["message"]
    assert "cuda-toolkit-12-8 cuda-toolkit-13-0" in failure["hint"]
