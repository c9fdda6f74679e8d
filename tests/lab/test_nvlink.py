"""NVSwitches in one node, and NVLink between nodes: fabric manager, subnet manager, IMEX, and Slurm's side of it.

apt, systemd, Slurm and its channels' device files are real; NVIDIA's packages are stubs (nvidia_stubs.py) whose daemons
do nothing, and the channels are devices of another type. Of nodes with NVSwitches the test makes the PCI bus and the
list of loaded kernel modules, for a container has its host's; nvidia-smi is a stand-in. No NVLink was there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.faults import running_job
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, actions, changes, edit, fresh_cluster, wait_until
from tests.lab.nvidia_stubs import (
    STANDIN,
    Mirrors,
    driver,
    installed,
    mirrors,
    pci_bus,
    simulated_host,
    site,
    subnet_manager,
    write,
)

# what the site's mirror had when the driver came, and what it has later
THEN = [*driver("580.95.05"), *driver("595.45.04"), subnet_manager()]
NOW = [*driver("580.126.09"), *driver("595.58.03")]
DRIVER = "580.95.05-1"
RACK = ("gpu01", "gpu02")
BOARD, HGX = "gpu03", "gpu04"
FABRIC, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
DOMAIN = "{name: rack1, nodes: 'gpu[01-02]'}"
PARTED = "{name: rack1, nodes: gpu01}, {name: rack2, nodes: gpu02}"
# where the stand-in for nvidia-smi has its GPUs
SLOTS = [f"0000:{0x17 + 8 * number:02x}:00.0" for number in range(8)]
PRODUCTS = {BOARD: "NVIDIA B200", HGX: "NVIDIA H100 80GB HBM3"}
SWITCHES = [f"0000:{number:02x}:00.0" for number in (0x07, 0x08, 0x09, 0x0A)]
# Podman's, and the one by which slurmd makes a channel's device file: root of a real host has it, a lab's has not
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
    "SETUID", "SYS_CHROOT",
)  # fmt: skip
# a task's node, and each channel that it has with the type of device
SEE = f"""#!/bin/sh
cd {CHANNELS} && for n in *; do echo "$(hostname) $n $(stat -c %t $n)"; done
"""
# without NVIDIA's driver there is no type of device that is theirs: the kernel's terminals serve
MAJOR = "slurm_config: {SwitchParameters: imex_dev_major=4}"


def known_changes(document: dict[str, Any]) -> set[tuple[str, str, str, str]]:
    """Host, type, name and action of what changes.

    Which libraries are held is known when they are there; and a unit is enabled by its package, or by us after it.
    """
    return {entry for entry in changes(document) if entry[1] != "hold" and entry[3] != "enable"}


def state(cluster: LabCluster, node: str, unit: str) -> list[str]:
    """Whether a unit runs, and whether it starts at boot."""
    return cluster.root(node, f"systemctl is-active {unit}; systemctl is-enabled {unit}", ok=False).split()


def started(cluster: LabCluster, node: str) -> str:
    """Which start of IMEX this is."""
    return cluster.root(node, f"systemctl show {IMEX} -p InvocationID --value")


def domains(cluster: LabCluster, text: str | None) -> None:
    """Write the NVLink domains of cluster.yml; None removes the key."""
    spec = cluster.directory / "cluster.yml"
    rest = re.sub("(?m)^nvlink_domains:.*\n", "", spec.read_text(encoding="utf-8"))
    spec.write_text(rest + ("" if text is None else f"nvlink_domains: [{text}]\n"), encoding="utf-8")


def peers(cluster: LabCluster, *names: str) -> str:
    """The list of nodes as IMEX reads it."""
    return "\n".join(cluster.root(name, "hostname -I").split()[0] for name in names)


def drain(cluster: LabCluster, *names: str) -> None:
    for name in names:
        cluster.deepopsctl("node", "drain", name, "--reason", "another rack", "--wait", "--timeout", "300")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """Two trays of a rack, a board with B200, a node with eight H100 and its NVSwitches on its bus."""
    name = f"{PREFIX}-nvlink"
    podman = tmp_path_factory.mktemp("podman") / "containers.conf"
    listed = ", ".join(f'"CAP_{word}"' for word in CAPABILITIES)
    podman.write_text(f"[containers]\ndefault_capabilities = [{listed}]\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_CONF", str(podman))
        with fresh_cluster(name, tmp_path_factory, "--compute", "4", "--gpus", "gb200:8") as made:
            _declare(made)
            for node, product in PRODUCTS.items():
                made.root(node, pci_bus(dict.fromkeys(SLOTS, "0x2330"), SWITCHES if node == HGX else ()))
                made.root(node, simulated_host(DRIVER.partition("-")[0], SLOTS))
                write(made, node, "/usr/bin/nvidia-smi", STANDIN.read_text(encoding="utf-8"), "0755")
                write(made, node, "/var/lib/standin-nvidia/settings.json", json.dumps({"gpus": 8, "product": product}))
            yield made


def _declare(cluster: LabCluster) -> None:
    """A lab has the same GPUs everywhere; this cluster has three types of nodes."""
    spec = cluster.directory / "cluster.yml"
    text = spec.read_text(encoding="utf-8")
    net = re.findall(r'addresses: "([\d.]+)\.\[101-104\]"', text)[0]
    rows = [
        f'  - {{names: "{names}", addresses: "{net}.{hosts}", roles: [compute], gpus: {{{gpus}}}}}'
        for names, hosts, gpus in (
            ("gpu[01-02]", "[101-102]", "type: gb200, count: 4"),
            (BOARD, "103", "type: b200, count: 8"),
            (HGX, "104", "type: h100, count: 8"),
        )
    ]
    spec.write_text(re.sub(r"  - .names: .?gpu\[01-04\].*gb200.*", "\n".join(rows), text), encoding="utf-8")
    edit(cluster.directory / SETTINGS, "---\n", f"---\n{MAJOR}\n")


@pytest.fixture(scope="module")
def mirror(bare: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Mirrors:
    """The site's mirrors, on the controller."""
    root = tmp_path_factory.mktemp("mirrors") / "mirrors"
    return mirrors(bare, "ctl1", root, {"site": THEN, "later": [*THEN, *NOW]})


@pytest.fixture(scope="module")
def first(bare: LabCluster, mirror: Mirrors) -> dict[str, dict[str, Any]]:
    """What plan predicted of the drivers, what the deploy did, and what a second one."""
    site(bare, mirror.settings("site"))
    planned = bare.parsed("plan", "nvidia")
    done = bare.parsed("deploy", "nvidia")
    return {"plan": planned, "done": done, "again": bare.parsed("deploy", "nvidia", "--full")}


@pytest.fixture(scope="module")
def aged(bare: LabCluster, first: dict[str, dict[str, Any]]) -> LabCluster:
    """The same with drivers; since then the mirror has newer ones of the same branch, and apt knows them."""
    assert first["done"]["ok"]
    bare.root("ctl1", "cp -r /srv/mirror/later/. /srv/mirror/site/")
    for node in (*RACK, BOARD, HGX):
        bare.root(node, "apt-get update")
        assert "580.126.09-1" in bare.root(node, "apt-cache madison nvidia-driver-cuda")
    return bare


@pytest.fixture(scope="module")
def cluster(aged: LabCluster) -> LabCluster:
    """The same with Slurm."""
    for node in PRODUCTS:
        # hwloc, and so slurmd, asks the kernel more of what a driver lists than a container can answer, and crashes
        aged.root(node, "rmdir /run/machine/driver/nvidia/gpus/*")
    aged.parsed("deploy")
    return aged


def test_plan_predicts_the_drivers_and_the_second_deploy_changes_nothing(first: dict[str, dict[str, Any]]) -> None:
    assert known_changes(first["done"]) == known_changes(first["plan"])
    assert {counts["changed"] for counts in first["again"]["hosts"].values()} == {0}


def test_a_node_with_nvswitches_on_its_bus_has_the_fabric_manager_of_its_driver(
    bare: LabCluster, first: dict[str, dict[str, Any]]
) -> None:
    assert actions(first["plan"], HGX) >= {("package", "nvidia-fabricmanager", "install"), ("unit", FABRIC, "start")}
    assert installed(bare, HGX, "nvidia-fabricmanager", "nvidia-driver-cuda", "nvlsm") == [
        f"nvidia-driver-cuda {DRIVER}",
        f"nvidia-fabricmanager {DRIVER}",
    ]
    assert state(bare, HGX, FABRIC) == ["active", "enabled"]
    assert "nvidia-fabricmanager" in bare.root(HGX, "apt-mark showhold").split()


def test_a_board_whose_nvswitches_are_hidden_has_the_subnet_manager_as_well(bare: LabCluster, first: object) -> None:
    there = installed(bare, BOARD, "nvidia-fabricmanager", "nvlsm", "infiniband-diags")

    assert [row.split()[0] for row in there] == ["infiniband-diags", "nvidia-fabricmanager", "nvlsm"], first
    assert there[1:] == [f"nvidia-fabricmanager {DRIVER}", "nvlsm 2025.10.11-1"]
    assert state(bare, BOARD, FABRIC) == ["active", "enabled"]
    # started after it was there, and after the kernel's way to the switches
    assert "/opt/nvidia/nvlsm/sbin/nvlsm" in bare.root(BOARD, f"systemctl status {FABRIC}")
    for way in ("Wants", "After"):
        assert "modprobe@ib_umad.service" in bare.root(BOARD, f"systemctl show {FABRIC} -p {way}")
    assert bare.root(BOARD, "systemctl --failed --no-legend") == ""


@pytest.mark.parametrize("node", RACK)
def test_a_node_without_nvswitches_has_neither(bare: LabCluster, first: object, node: str) -> None:
    assert first
    assert installed(bare, node, "nvidia-fabricmanager", "nvlsm", "infiniband-diags", "nvidia-imex") == []
    assert bare.holds(node, f"! systemctl cat {FABRIC}")


def test_a_fabric_manager_that_went_comes_back_in_the_version_of_the_driver(aged: LabCluster) -> None:
    aged.root(BOARD, "apt-get -qq -y --allow-change-held-packages purge nvidia-fabricmanager nvlsm 2>&1")

    planned = aged.parsed("plan", "nvidia")
    done = aged.parsed("deploy", "nvidia")

    assert known_changes(done) == known_changes(planned)
    there = installed(aged, BOARD, "nvidia-fabricmanager", "nvlsm", "nvidia-driver-cuda")
    # a newer one is in the mirror, and would not talk to this driver
    assert there == [f"nvidia-driver-cuda {DRIVER}", f"nvidia-fabricmanager {DRIVER}", "nvlsm 2025.10.11-1"]
    assert state(aged, BOARD, FABRIC) == ["active", "enabled"]
    assert "nvidia-fabricmanager" in aged.root(BOARD, "apt-mark showhold").split()


@pytest.fixture(scope="module")
def joined(cluster: LabCluster) -> dict[str, dict[str, Any]]:
    """Two nodes become an NVLink domain: what plan lists, what deploy does, and a second one of each."""
    domains(cluster, DOMAIN)
    planned = cluster.parsed("plan")
    done = cluster.parsed("deploy")
    return {
        "plan": planned,
        "done": done,
        "again": cluster.parsed("deploy"),
        "full": cluster.parsed("deploy", "--full"),
    }


def test_a_domain_comes_as_planned_and_a_second_deploy_changes_nothing(joined: dict[str, dict[str, Any]]) -> None:
    assert known_changes(joined["done"]) == known_changes(joined["plan"])
    for node in RACK:
        assert actions(joined["plan"], node) >= {
            ("package", "nvidia-imex", "install"),
            ("file", NODES, "write"),
            ("unit", IMEX, "start"),
        }
    assert not {BOARD, HGX} & {host for host, *_ in known_changes(joined["plan"])}
    for again in (joined["again"], joined["full"]):
        assert {counts["changed"] for counts in again["hosts"].values()} == {0}


@pytest.mark.usefixtures("joined")
def test_imex_is_of_the_drivers_version_and_knows_the_same_nodes_everywhere(cluster: LabCluster) -> None:
    wanted = peers(cluster, *RACK)
    for node in RACK:
        assert installed(cluster, node, "nvidia-imex", "nvidia-driver-cuda") == [
            f"nvidia-driver-cuda {DRIVER}",
            f"nvidia-imex {DRIVER}",
        ]
        assert state(cluster, node, IMEX) == ["active", "enabled"]
        assert cluster.root(node, f"cat {NODES}") == wanted == cluster.root(node, "cat /run/imex-knows")
        assert "nvidia-imex" in cluster.root(node, "apt-mark showhold").split()
        assert IMEX in cluster.root(node, "systemctl show slurmd -p After --value").split()
    assert installed(cluster, BOARD, "nvidia-imex") == []
    assert FABRIC in cluster.root(BOARD, "systemctl show slurmd -p After --value").split()


@pytest.mark.usefixtures("joined")
def test_a_job_gets_nodes_of_one_domain_and_a_channel_of_its_own(cluster: LabCluster) -> None:
    cluster.wait_until_idle()
    shown = cluster.root("ctl1", "scontrol show config")
    assert re.search(r"SwitchType\s+= switch/nvidia_imex", shown)
    # other nodes are here as well: as blocks they would get no job
    assert "topology/block" not in shown
    for node in RACK:
        write(cluster, node, "/usr/local/bin/channels", SEE, "0755")

    options = ("--nodes=2", "--mem=100M", "--constraint=nvlink_rack1", "--output=seen-%j")
    script = "srun --mem=50M channels; until [ -e /tmp/go ]; do sleep 0.5; done"
    jobs = [cluster.submit(script, *options) for _ in range(2)]
    rows = [_seen(cluster, job) for job in jobs]
    cluster.root(RACK[0], "touch /tmp/go")
    for job in jobs:
        cluster.wait_for_job(job, "COMPLETED")

    channels = []
    for nodes, numbers, majors in (tuple(zip(*seen, strict=True)) for seen in rows):
        assert sorted(nodes) == sorted(RACK), rows
        # one, the same on both nodes
        assert len(set(numbers)) == 1, rows
        assert set(majors) == {"4"}
        channels.append(numbers[0])
    assert len(set(channels)) == 2, rows
    for node in RACK:
        assert cluster.root(node, f"ls {CHANNELS} 2>/dev/null", ok=False) == ""


def _seen(cluster: LabCluster, job: int) -> list[list[str]]:
    """Node, channel and type of device, of each task of a job."""
    wait_until(
        f"job {job} has looked on both nodes",
        lambda: len(cluster.user(RACK[0], f"cat seen-{job}", ok=False).splitlines()) == 2,
        details=lambda: cluster.user(RACK[0], f"cat seen-{job}; squeue", ok=False),
    )
    return [line.split() for line in cluster.user(RACK[0], f"cat seen-{job}").splitlines()]


@pytest.mark.usefixtures("joined")
def test_the_nodes_of_a_domain_do_not_change_under_a_job(cluster: LabCluster) -> None:
    before = {node: started(cluster, node) for node in RACK}
    domains(cluster, PARTED)
    with running_job(cluster, "gpu01") as job:
        planned = cluster.parsed("plan", "nvidia", ok=False)
        refused = cluster.parsed("deploy", "nvidia", ok=False)
        assert cluster.job_state(job) == "RUNNING"

    messages = {entry["host"]: entry["message"] for entry in refused["failures"]}
    assert messages == {
        "gpu01": "the nodes of the NVLink domain rack1 change on gpu01, and jobs run on it",
        "gpu02": "the nodes of the NVLink domain rack2 change on gpu02, and Slurm may start jobs on it",
    }
    assert {entry["message"] for entry in planned["blocked"]} == set(messages.values())
    assert {entry["hint"] for entry in refused["failures"]} == {
        "drain the nodes of the domain, wait for their jobs, deploy again"
    }
    assert {node: started(cluster, node) for node in RACK} == before


@pytest.mark.usefixtures("joined")
def test_on_drained_nodes_they_change_as_planned_and_imex_restarts(cluster: LabCluster) -> None:
    before = {node: started(cluster, node) for node in RACK}
    domains(cluster, PARTED)
    drain(cluster, *RACK)

    planned = cluster.parsed("plan")
    done = cluster.parsed("deploy")
    again = cluster.parsed("deploy", "--full")

    assert known_changes(done) == known_changes(planned)
    for node in RACK:
        assert actions(done, node) >= {("unit", IMEX, "stop"), ("file", NODES, "write"), ("unit", IMEX, "start")}
        assert cluster.root(node, "cat /run/imex-knows") == peers(cluster, node)
        assert started(cluster, node) != before[node]
    assert {counts["changed"] for counts in again["hosts"].values()} == {0}
    assert "nvlink_rack2" in cluster.root("ctl1", "scontrol --oneliner show node gpu02")


def test_what_came_for_a_domain_goes_with_it(cluster: LabCluster, joined: dict[str, dict[str, Any]]) -> None:
    drain(cluster, *RACK)
    domains(cluster, "")

    planned = cluster.parsed("plan")
    done = cluster.parsed("deploy")
    again = cluster.parsed("deploy", "--full")

    assert known_changes(done) == known_changes(planned)
    assert {counts["changed"] for counts in again["hosts"].values()} == {0}
    for node in RACK:
        assert actions(done, node) >= {
            ("unit", IMEX, "stop"),
            ("file", NODES, "remove"),
            ("package", "nvidia-imex", "remove"),
        }, joined["done"]
        assert installed(cluster, node, "nvidia-imex", "nvidia-driver-cuda") == [f"nvidia-driver-cuda {DRIVER}"]
        assert cluster.root(node, "find /etc -name '*imex*'") == ""
        assert cluster.holds(node, f"! systemctl cat {IMEX}")
    shown = cluster.root("ctl1", "scontrol show config; scontrol --oneliner show node gpu01")
    assert "imex" not in shown.replace("imex_dev_major", "")
    assert "nvlink_" not in shown
    # nothing of it affected nodes without a domain
    assert state(cluster, BOARD, FABRIC) == state(cluster, HGX, FABRIC) == ["active", "enabled"]
    for node in RACK:
        cluster.deepopsctl("node", "resume", node)
    cluster.wait_until_idle()
