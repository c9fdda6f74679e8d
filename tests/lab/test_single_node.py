"""One node that is controller, accounting host and compute node, with the policy of the worked example."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from deepopsctl.cluster.spec import load_spec
from deepopsctl.cluster.writer import render_spec
from tests.lab.harness import PREFIX, LabCluster, fresh_cluster, wait_until
from tests.support.paths import ROOT

EXAMPLE = ROOT / "inventory" / "one-dgx" / "cluster.yml"


@pytest.fixture(scope="module")
def single_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A lab of one node; the example's partitions and policy, with the hardware of a small node."""
    with fresh_cluster(f"{PREFIX}-single", tmp_path_factory, "--single", "--gpus", "h100:8") as cluster:
        spec = cluster.directory / "cluster.yml"
        example, lab = load_spec(EXAMPLE), load_spec(spec)
        partitions = tuple(
            replace(partition, nodes=("ctl1",), options={**partition.options, "DefCpuPerGPU": "1"})
            for partition in example.partitions
        )
        spec.write_text(render_spec(replace(lab, partitions=partitions, policy=example.policy)), encoding="utf-8")
        yield cluster


def of_the_database(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The changes of QOS, accounts and users in a plan or a deploy."""
    types = ("qos", "account", "user")
    return [(one["kind"], one["name"], one["action"]) for one in document["changes"] if one["kind"] in types]


def test_the_first_deploy_makes_the_changes_that_plan_listed_and_applies_the_policy(single_node: LabCluster) -> None:
    planned = json.loads(single_node.deepopsctl("plan", "slurm", "--json").stdout)

    summary = single_node.deploy()

    assert summary["ok"]
    assert of_the_database(planned) == of_the_database(summary)
    assert ("qos", "debug", "add") in of_the_database(summary)
    assert single_node.root("ctl1", "sinfo -h -N -o '%N %T %G' -p gpu") == "ctl1 idle gpu:h100:8"
    assert "QoS=debug" in single_node.root("ctl1", "scontrol show partition debug")
    assert "guests|20|gres/gpu=2" in single_node.root(
        "ctl1", "sacctmgr -nP show assoc where account=guests user= format=account,share,grptres"
    )


def test_the_smoke_suite_passes_and_skips_what_one_node_cannot_test(single_node: LabCluster) -> None:
    done = single_node.deepopsctl("validate", "smoke", "--json")

    checks = json.loads(done.stdout)["checks"]
    skipped = {check["name"]: check["message"] for check in checks if check["status"] == "skip"}
    assert [check for check in checks if check["status"] == "fail"] == []
    assert {check["name"] for check in checks if check["status"] == "warn"} == set()
    assert set(skipped) == {"guide-two-nodes"}
    assert "fewer than two nodes" in skipped["guide-two-nodes"]


@pytest.mark.parametrize("options", [(), ("--full",)], ids=["gate", "full"])
def test_another_deploy_changes_nothing(single_node: LabCluster, options: tuple[str, ...]) -> None:
    assert single_node.changed(single_node.deploy(*options)) == {"ctl1": 0}


def test_a_slurmctld_that_starts_with_slurmdbd_waits_until_that_listens(single_node: LabCluster) -> None:
    """As at a boot; slurmdbd is made slow, as on a host with more to do."""
    override = "/run/systemd/system/slurmdbd.service.d/zz-slow.conf"
    slow = r'[Service]\nExecStart=\nExecStart=/bin/sh -c "sleep 3; exec /usr/sbin/slurmdbd -D -s"\n'
    stop = "systemctl stop slurmctld; systemctl stop slurmdbd"
    single_node.root("ctl1", f"mkdir -p {override.rpartition('/')[0]}; printf '{slow}' > {override}")

    def log() -> str:
        return single_node.root(
            "ctl1", "journalctl -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID slurmctld)"
        )

    try:
        single_node.root("ctl1", f"systemctl daemon-reload; {stop}; systemctl start slurmdbd slurmctld")
        wait_until("slurmctld registers", lambda: "Registering slurmctld" in log(), details=log)
        text = log()
    finally:
        single_node.root("ctl1", f"rm {override}; systemctl daemon-reload; {stop}; systemctl start slurmdbd slurmctld")

    assert "Connection refused" not in text
