"""`maintenance` and prepared partitions of cluster.yml."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import InputError
from deepopsctl.model.cluster import Cluster
from deepopsctl.policy.maintenance import variable

HEAD = """\
schema: 1
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller]}
  - {names: "gpu[01-02]", addresses: "192.0.2.[11-12]", roles: [compute], gpus: {type: a100, count: 2}}
"""


def cluster(text: str, head: str = HEAD) -> Cluster:
    return parse_spec(head + text, "cluster.yml")


def test_maintenance_is_all_nodes_unless_it_names_some() -> None:
    declared = cluster("""\
maintenance:
  - {name: upgrade, start: "2026-12-01T08:00", duration: "04:00:00"}
  - {name: weekly, start: "2026-12-07 06:00", duration: 90, nodes: gpu02, repeat: weekly}
""")

    assert variable(declared.maintenance) == [
        {"name": "upgrade", "start": "2026-12-01T08:00:00", "minutes": 240, "nodes": "gpu[01-02]"},
        {"name": "weekly", "start": "2026-12-07T06:00:00", "minutes": 90, "nodes": "gpu02", "repeat": "weekly"},
    ]
    assert parse_spec(render_spec(declared), "cluster.yml").maintenance == declared.maintenance
    assert [each.everything for each in declared.maintenance] == [True, False]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{name: a b, start: 2026-12-01T08:00, duration: 60}", "can't be a reservation's name"),
        ("{name: deepopsctl-trial, start: 2026-12-01T08:00, duration: 60}", "can't be a reservation's name"),
        ("{name: a, start: tomorrow, duration: 60}", "is not a valid time"),
        ("{name: a, start: 2026-12-01T08:00, duration: UNLIMITED}", "is not a valid duration"),
        ("{name: a, start: 2026-12-01T08:00, duration: 60, repeat: monthly}", "is not known here"),
        ("{name: a, start: 2026-12-01T08:00, duration: 60, nodes: gpu09}", "has no node gpu09"),
        ("{name: a, start: 2026-12-01T08:00, duration: 60, nodes: ctl1}", "not a compute node"),
        (", ".join(["{name: a, start: 2026-12-01T08:00, duration: 60}"] * 2), "already the name"),
    ],
)
def test_what_slurm_would_not_take_is_refused(entry: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        cluster(f"maintenance: [{entry}]\n")


def test_an_interactive_partition_is_short_comes_first_and_lets_each_user_run_one_job() -> None:
    declared = cluster("partitions:\n  - {name: short, nodes: all, prepared: interactive}\n")

    (partition,) = declared.partitions
    assert partition.max_time == "03:00:00"
    assert partition.options == {"DefaultTime": "01:00:00", "PriorityTier": "10", "QOS": "short"}
    assert [(qos.name, qos.flags, dict(qos.limits)) for qos in declared.policy.qos] == [
        ("short", ("DenyOnLimit",), {"MaxJobsPU": "1", "MaxTRESPU": "cpu=4,gres/gpu=1"})
    ]


def test_what_cluster_yml_says_wins_over_what_is_prepared() -> None:
    declared = cluster("""\
partitions:
  - {name: short, nodes: all, prepared: interactive, max_time: "08:00:00", options: {prioritytier: 5}}
  - {name: big, nodes: all, prepared: whole}
qos: [{name: short, limits: {MaxJobsPerUser: 3}}]
""")

    assert (declared.partitions[0].max_time, declared.partitions[0].options["prioritytier"]) == ("08:00:00", "5")
    assert "PriorityTier" not in declared.partitions[0].options
    assert declared.partitions[1].options == {"OverSubscribe": "EXCLUSIVE"}
    assert [dict(qos.limits) for qos in declared.policy.qos] == [{"MaxJobsPU": "3"}]


def test_a_cluster_without_gpus_limits_none() -> None:
    head = HEAD.replace(", gpus: {type: a100, count: 2}", "")
    declared = cluster("partitions:\n  - {name: short, nodes: all, prepared: interactive}\n", head)

    assert declared.policy.qos[0].limits["MaxTRESPU"] == "cpu=4"


@pytest.mark.parametrize(
    ("partition", "problem"),
    [
        ("{name: short, nodes: all, prepared: quick}", "is not known here"),
        # its limits would be everybody's
        (
            "{name: Normal, nodes: all, prepared: interactive}",
            r"partitions\[0\]\.prepared: its QOS normal is that of all jobs",
        ),
    ],
)
def test_what_can_not_be_prepared_is_refused(partition: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        cluster(f"partitions: [{partition}]\n")
