"""What the role nvidia_driver writes on each platform, compared with files to be read; apt's own parser reads them too.

After a wanted change: DEEPOPSCTL_WRITE_GOLDEN=1 pytest tests/roles/test_nvidia.py && git diff tests/roles/nvidia_golden
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.data.driver_samples import SET_PLATFORM, facts, platform
from tests.roles.content import load
from tests.support.local_ansible import Played, play
from tests.support.paths import ROOT

GOLDEN = Path(__file__).parent / "nvidia_golden"
WRITE = bool(os.environ.get("DEEPOPSCTL_WRITE_GOLDEN"))
EVERY = ["contrib", "non-free", "non-free-firmware"]
MAIN = ["http://deb.example.com/debian/", "bookworm", "/usr/share/keyrings/debian-archive-keyring.gpg", EVERY]
SECURITY = ["http://deb.example.com/debian-security/", "bookworm-security", "", EVERY]
UBUNTU = {
    "installed": False, "available": True,
    "package": "linux-headers-6.8.0-1015-nvidia-64k", "meta": "linux-headers-nvidia-64k",
}  # fmt: skip
GENERIC = {"installed": True, "available": True, "package": "", "meta": "linux-headers-generic"}

NODE_64K = facts(1, device="0x2342", architecture="aarch64", kernel="6.8.0-1015-nvidia-64k", headers=UBUNTU)
DISTRO = {"nvidia_driver_source": "distro"}

# name -> distribution and version, GPUs, what was found there, settings
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "debian12-distro": ("Debian", "12", {"type": "a40", "count": 2}, facts(2, sources=[MAIN, SECURITY]), DISTRO),
    "debian12-b200": ("Debian", "12", {"type": "b200", "count": 8}, facts(8, device="0x2901", sources=[MAIN]), {}),
    "ubuntu2404-grace": ("Ubuntu", "24.04", {"type": "gh200", "count": 1}, NODE_64K, {}),
    "ubuntu2204-distro": (
        "Ubuntu", "22.04", {"type": "v100", "count": 16}, facts(16, nvswitches=12, headers=GENERIC), DISTRO
    ),
}  # fmt: skip
TEMPLATES = (
    "nvidia.sources", "preferences", "nouveau.conf", "modules.conf", "persistenced.conf", "fabricmanager.conf",
    "slurmd.conf",
)  # fmt: skip
# the same on all nodes: compared for one of them
CONSTANT = {"nouveau.conf", "modules.conf"}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """All cases in one run of Ansible."""
    directory = tmp_path_factory.mktemp("nvidia")
    role = ROOT / "roles" / "nvidia_driver"
    defaults = load("roles/nvidia_driver/defaults/main.yml")
    internal = load("roles/nvidia_driver/vars/main.yml")
    catalogue = {"nvidia_driver_catalogue": "{{ deepops_nvidia_drivers }}"}
    hosts = {
        name: {
            **defaults, **catalogue, **settings,
            "nvidia_driver_gpus": gpus,
            "nvidia_driver_info_result": {"nvidia": node},
            "platform": platform(distribution, version),
        }
        for name, (distribution, version, gpus, node, settings) in CASES.items()
    }  # fmt: skip
    shown = {name: f"{{{{ lookup('ansible.builtin.template', '{role}/templates/{name}.j2') }}}}" for name in TEMPLATES}
    tasks = [
        SET_PLATFORM,
        {"name": "Plan", "ansible.builtin.debug": {"msg": "{{ __nvidia_driver_plan }}"}},
        {"name": "Render", "ansible.builtin.debug": {"msg": shown}},
    ]  # fmt: skip
    done = play(directory, [{"hosts": "all", "gather_facts": False, "vars": internal, "tasks": tasks}], hosts)
    assert done.status == 0, done.output
    return done


def of(played: Played, task: str, case: str) -> Any:
    """What a task showed for a case."""
    return played.on(case).result(task).data["msg"]


@pytest.mark.parametrize("case", CASES)
def test_it_plans_and_writes_what_golden_has(played: Played, case: str) -> None:
    plan, files = of(played, "Plan", case), of(played, "Render", case)
    # written where there is one
    left_out = set() if "nvidia-fabricmanager.service" in plan["units"] else {"fabricmanager.conf"}
    if case != "debian12-distro":
        left_out |= CONSTANT
    lines = [f"{key}: {plan[key]}" for key in ("state", "reason", "source", "branch", "modules", "loads", "problems")]
    for part in ("packages", "units"):
        lines += [f"{part}:", *(f"  {name}" for name in plan[part])]
    text = "\n".join([*lines, *(f"\n=== {name}\n{files[name]}" for name in files if name not in left_out)])
    text = re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"
    golden = GOLDEN / f"{case}.txt"
    if WRITE:
        golden.write_text(text, encoding="utf-8")

    assert text == golden.read_text(encoding="utf-8")


class Apt:
    """apt on a system of its own, with these sources and pins and nothing installed."""

    def __init__(self, root: Path, sources: str, pins: str) -> None:
        for name in ("lists/partial", "parts", "none", "cache/archives/partial"):
            (root / name).mkdir(parents=True)
        (root / "parts" / "nvidia.sources").write_text(sources, encoding="utf-8")
        (root / "pins").write_text(pins, encoding="utf-8")
        (root / "status").touch()
        options = {
            "Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": root / "parts",
            "Dir::Etc::preferences": root / "pins", "Dir::Etc::preferencesparts": root / "none",
            "Dir::State": root, "Dir::State::status": root / "status", "Dir::Cache": root / "cache",
            "APT::Architecture": "amd64", "Debug::NoLocking": "1",
        }  # fmt: skip
        self._options = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]

    def __call__(self, tool: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([tool, *self._options, *words], capture_output=True, text=True)


# package, version, what it depends on; all made from one source package
Listed = tuple[str, str, str]


def repository(directory: Path, origin: str, label: str, listed: list[Listed]) -> str:
    """A flat repository's lists without the packages; returns its stanza for apt."""
    directory.mkdir()
    index = "\n".join(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nSource: nvidia-graphics-drivers\n"
        f"Maintainer: Nobody\nDescription: none\nFilename: ./{name}.deb\nSize: 1\nSHA256: {'0' * 64}\n"
        + (f"Depends: {depends}\n" if depends else "")
        for name, version, depends in listed
    ).encode()
    (directory / "Packages").write_bytes(index)
    (directory / "Release").write_text(
        f"Origin: {origin}\nLabel: {label}\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n",
        encoding="utf-8",
    )
    return f"Types: deb\nURIs: file:{directory}\nSuites: /\nTrusted: yes\n"


def driver_of(*versions: str) -> list[Listed]:
    """Packages that want each other in their own version, as NVIDIA's and Debian's do; not all have its name."""
    names = ("libcuda1", "libnvcuvid1", "firmware-nvidia-gsp", "libodd1", "nvidia-kernel-open-dkms", "nvidia-smi")
    return [
        entry
        for version in versions
        for entry in (
            ("nvidia-driver-cuda", version, ", ".join(f"{name} (= {version})" for name in names)),
            *((name, version, "") for name in names),
        )
    ]


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="this machine has no apt")
@pytest.mark.parametrize(
    ("case", "chosen"), [("debian12-b200", {"580.95.05-1"}), ("debian12-distro", {"535.309.01-0+deb12u1"})]
)
def test_apt_selects_one_branch_from_one_source_though_others_are_newer(
    played: Played, case: str, chosen: set[str], tmp_path: Path
) -> None:
    of_nvidia = driver_of("535.999-1", "580.95.05-1", "595.58.03-1", "620.10-1")
    of_debian = driver_of("535.309.01-0+deb12u1", "550.163.01-2", "580.126.09-0")
    sources = [
        repository(tmp_path / "nvidia", "NVIDIA", "NVIDIA CUDA", of_nvidia),
        repository(tmp_path / "debian", "Debian", "Debian", of_debian),
    ]
    apt = Apt(tmp_path / "system", "\n".join(sources), of(played, "Render", case)["preferences"])
    assert apt("apt-get", "update").returncode == 0

    done = apt("apt-get", "--simulate", "install", "nvidia-driver-cuda")

    assert done.returncode == 0, done.stdout
    installed = re.findall(r"^Inst (\S+) \((\S+)", done.stdout, re.MULTILINE)
    assert len(installed) == 7
    assert {version for _, version in installed} == chosen


@pytest.mark.skipif(not shutil.which("apt-cache"), reason="this machine has no apt")
@pytest.mark.parametrize(
    ("case", "address"),
    [
        ("debian12-distro", "http://deb.example.com/debian/dists/bookworm"),
        # NVIDIA's packages need some of its component contrib
        ("debian12-b200", "http://deb.example.com/debian/dists/bookworm"),
        ("debian12-b200", "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"),
    ],
)
def test_apt_accepts_the_sources_and_the_pins(played: Played, case: str, address: str, tmp_path: Path) -> None:
    files = of(played, "Render", case)
    apt = Apt(tmp_path / "system", files["nvidia.sources"], files["preferences"])

    listed = apt("apt-get", "update", "--print-uris")
    policy = apt("apt-cache", "policy")

    assert (listed.returncode, listed.stderr) == (0, "")
    assert (policy.returncode, policy.stderr) == (0, "")
    assert f"'{address}/InRelease'" in listed.stdout.split()


# nothing listens there
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
GROUPS = {"ctl1": "slurm_controller", "gpu01": "nvidia_gpu", "gpu02": "nvidia_gpu", "login1": "slurm_login"}


def nvidia_and_slurm(directory: Path, hosts: dict[str, dict[str, Any]], *options: str) -> Played:
    """The component, and what comes after it."""
    group = f"{{{{ {GROUPS}[inventory_hostname] }}}}"
    known = {"deepops_digests": {"nvidia": "0" * 64}, "deepops_full": False, "slurm_nodes": []}
    plays: list[dict[str, Any]] = [
        {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.group_by": {"key": group}}]},
        {"ansible.builtin.import_playbook": str(ROOT / "playbooks" / "nvidia.yml")},
        {"hosts": "all", "gather_facts": False, "tasks": [{"name": "Slurm", "ansible.builtin.debug": {}}]},
    ]
    return play(
        directory,
        plays,
        {name: {**known, **own} for name, own in hosts.items()},
        *options,
        settings={"ANSIBLE_HOST_PATTERN_MISMATCH": "ignore"},
    )


def hosts_of(played: Played, task: str, *status: str) -> set[str]:
    return {result.host for result in played.results if result.task == task and result.status in status}


def test_the_run_goes_on_where_no_gpu_node_can_be_reached(tmp_path: Path) -> None:
    done = nvidia_and_slurm(tmp_path, {"ctl1": {}, "gpu01": AWAY})

    assert "gpu01" in {result.host for result in done.results if result.status == "unreachable"}, done.output
    assert hosts_of(done, "Slurm", "ok") == {"ctl1"}


def test_the_run_goes_on_where_all_nodes_fail_and_only_a_node_with_its_driver_is_resumed(tmp_path: Path) -> None:
    nodes = [{"names": "gpu[01-02]", "gpus": {"count": 1, "sets": [{"type": "h100", "count": 1}]}}]
    no_driver = {"slurm_nodes": nodes, "nvidia_driver_branch": "1", "nvidia_driver_without_device": True}
    no_toolkit = {"slurm_nodes": nodes, "nvidia_driver_source": "present", "cuda_toolkits": ["none"]}

    # the roles look at this host, and leave it as it is
    done = nvidia_and_slurm(
        tmp_path, {"ctl1": {}, "gpu01": no_driver, "gpu02": no_toolkit, "login1": no_toolkit}, "--check"
    )

    assert hosts_of(done, "Refuse settings that can't work", "failed") == {"gpu01", "gpu02", "login1"}, done.output
    assert hosts_of(done, "Resume a node that was drained for the driver", "ok", "failed") == {"gpu02"}
    assert hosts_of(done, "Slurm", "ok") == {"ctl1"}
