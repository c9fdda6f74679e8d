"""Packages of all nodes, under a job, with a held one, kills between, a node that fails, and reboots by Slurm.

apt, dpkg, slurmctld, its reboots and the validation are real; the packages are small ones, made here and served by the
controller. A container has its host's kernel: what asks for the reboot is a package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from deepopsctl.lifecycle.pace import DAYS
from tests.lab.aptrepo import Stub, build, serve, signers
from tests.lab.faults import killed_when, running_job, working
from tests.lab.harness import PATIENCE_S, PREFIX, LabCluster, command, fresh_cluster, wait_until
from tests.lab.reboots import mark, rebootable, rebooted

NAME = f"{PREFIX}-upgrade-os"
NODES = ("cn01", "cn02", "cn03")
UPGRADE = ("upgrade", "os", "--yes", "--batch", "2")
REQUEST = "#!/bin/sh\ntouch /run/reboot-required; echo small-kernel > /run/reboot-required.pkgs\n"
FAIL = "#!/bin/sh\n! test -e /etc/broken\n"
CONF = {"DEBIAN/conffiles": "/etc/small-tool.conf\n"}
# apt knows no others, so that what is to be upgraded is known
SOURCES = """rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] {url}/{release} ./' > /etc/apt/sources.list; apt-get -qq update"""
FIRST = """DEBIAN_FRONTEND=noninteractive apt-get -qq -y install small-tool small-kernel held-tool >/dev/null
apt-mark hold held-tool >/dev/null; echo edited > /etc/small-tool.conf"""
VERSIONS = "dpkg-query -W -f '${Package} ${Version}\\n' small-tool small-kernel held-tool"
OLD = ["held-tool 1.0", "small-kernel 1.0", "small-tool 1.0"]
NEW = ["held-tool 1.0", "small-kernel 2.0", "small-tool 2.0"]


def packages(version: str) -> list[Stub]:
    """The tool has a configuration file and a script that may fail, the kernel asks for a reboot."""
    return [
        Stub("small-tool", version, files={**CONF, "etc/small-tool.conf": version}, postinst=FAIL),
        Stub("small-kernel", version, postinst=REQUEST if version == "2.0" else ""),
        Stub("held-tool", version),
        # it would end all jobs
        Stub("slurmd", f"99-{version}"),
    ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """Version 1.0 is installed everywhere, and apt knows 2.0."""
    with fresh_cluster(NAME, tmp_path_factory, "--compute", "3") as made:
        made.deploy()
        root = tmp_path_factory.mktemp("repository")
        with signers(1) as (signer,):
            for version in ("1.0", "2.0"):
                build(root / version, "Test", packages(version), signer)
        url = serve(made, "ctl1", root)
        for node in ("ctl1", *NODES):
            made.root(node, SOURCES.format(url=url, release="1.0"))
            made.root(node, FIRST)
            made.root(node, SOURCES.format(url=url, release="2.0"))
        with rebootable(made, NODES):
            mark(made, NODES)
            yield made


def versions(cluster: LabCluster, node: str) -> list[str]:
    return sorted(cluster.root(node, VERSIONS).splitlines())


def state(cluster: LabCluster, node: str) -> str:
    """Slurm's state and reason of a node."""
    return cluster.root("ctl1", f"sinfo -h -n {node} -o '%T %E'")


def upgraded(cluster: LabCluster, *words: str, code: int) -> dict[str, Any]:
    """`upgrade os`; its object."""
    done = command("-C", str(cluster.directory), *UPGRADE, *words, "--json", seconds=1500)
    assert done.returncode == code, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_plan_names_packages_reboots_and_jobs_and_changes_nothing(cluster: LabCluster) -> None:
    with running_job(cluster, "cn01") as job:
        plan = cluster.parsed("upgrade", "os", "--check")

    node = plan["nodes"]["cn02"]
    assert node["packages"] == {"small-kernel": ["1.0", "2.0"], "small-tool": ["1.0", "2.0"]}
    assert node["held"] == {"held-tool": ["1.0", "2.0"]}
    assert node["left"]["slurmd"][1] == "99-2.0"
    assert (plan["idle"], plan["busy"], plan["others"]) == (["cn02", "cn03"], ["cn01"], ["ctl1"])
    assert [entry["id"] for entry in plan["jobs"]] == [str(job)]
    assert versions(cluster, "cn02") == OLD
    assert state(cluster, "cn02") == "idle none"


def test_outside_of_its_window_nothing_is_begun(cluster: LabCluster) -> None:
    day = DAYS[(datetime.now() + timedelta(days=3)).weekday()]

    document = upgraded(cluster, "--window", f"{day} 00:00-00:01", code=0)

    assert any("cn[01-03],ctl1 is left" in warning and day in warning for warning in document["warnings"])
    assert {versions(cluster, node)[2] for node in NODES} == {"small-tool 1.0"}
    assert document["runs"] == []


@pytest.mark.timeout(1800)
def test_it_stops_when_more_nodes_fail_than_may(cluster: LabCluster) -> None:
    cluster.root("cn02", "touch /etc/broken")

    document = upgraded(cluster, "--batch", "1", "--max-failed", "0", "--limit", "cn[02-03]", code=1)

    assert document["stopped"]["message"].startswith("cn02 failed, more than --max-failed 0; cn03 is left")
    assert state(cluster, "cn02").startswith("drained deepopsctl: node upgrade os failed, see run")
    assert state(cluster, "cn03") == "idle none"
    assert versions(cluster, "cn03") == OLD


@pytest.mark.timeout(3600)
def test_it_goes_on_after_kills_waits_for_a_job_and_leaves_a_failed_node(cluster: LabCluster) -> None:
    cluster.root("cn02", "rm -f /etc/broken")
    cluster.root("cn03", "touch /etc/broken")
    slurmd = cluster.root("cn01", "slurmd -V")

    with running_job(cluster, "cn01") as job:
        killed_when(cluster, UPGRADE, "scontrol -o show node cn02 | grep -q 'State=[A-Z+*]*REBOOT'")
        with working(cluster, *UPGRADE) as upgrade:
            wait_until(
                "cn01 is drained after the others",
                lambda: upgrade.process.poll() is not None or state(cluster, "cn01").startswith("draining"),
                4 * PATIENCE_S,
                upgrade.stderr.read_text,
            )
            assert state(cluster, "cn02") == "idle none", upgrade.stderr.read_text()
            assert cluster.job_state(job) == "RUNNING"
            cluster.root("cn01", f"touch /tmp/go-{job}")
            code, document, shown = upgrade.end()

    assert code == 1, shown
    assert document["stopped"]["message"].startswith("cn03 failed: ")
    assert state(cluster, "cn01") == "idle none"
    assert state(cluster, "cn03").startswith("drained deepopsctl: node upgrade os failed")
    assert [versions(cluster, node) for node in ("cn01", "cn02", "ctl1")] == [NEW] * 3
    assert cluster.root("cn01", "slurmd -V") == slurmd
    assert rebooted(cluster, NODES) == ["cn01", "cn02"]
    # a file that a user has edited stays, and the controller is not rebooted
    assert cluster.root("cn01", "cat /etc/small-tool.conf") == "edited"
    warnings = "\n".join(document["warnings"])
    assert "their new versions are /etc/small-tool.conf.dpkg-dist" in warnings
    assert "ctl1: a reboot is needed, and not done here: requested by small-kernel" in warnings
    assert cluster.root("ctl1", "scontrol show reservation").startswith("No reservations")


@pytest.mark.timeout(1800)
def test_the_same_command_does_the_repaired_node_and_then_nothing(cluster: LabCluster) -> None:
    cluster.root("cn03", "rm /etc/broken")

    document = upgraded(cluster, code=0)

    assert versions(cluster, "cn03") == NEW
    assert state(cluster, "cn03") == "idle none"
    assert set(document["hosts"]) == {"cn03", "ctl1"}
    assert rebooted(cluster, NODES) == [*NODES]
    again = upgraded(cluster, code=0)
    assert again["runs"] == []
    assert not cluster.holds("cn01", "test -e /usr/sbin/policy-rc.d")
