"""How a change of slurm.conf reaches the daemons: never more than it takes."""

from __future__ import annotations

import re

import pytest

from deepopsctl.node_programs._shared.slurm_effects import (
    EFFECTS,
    POLICIES,
    Effect,
    changes,
    parse_conf,
    slurmd_generation,
    strongest,
)
from tests.support.paths import ROOT

CONF = """\
# a comment
SlurmctldHost=ctl1(192.0.2.1)
SlurmctldHost=ctl2(192.0.2.2)
ClusterName=hpc
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldTimeout=120
ProctrackType=proctrack/cgroup
NodeName=n[1-2] CPUs=4 State=UNKNOWN
PartitionName=cpu Nodes=n[1-2] MaxTime=INFINITE State=UP
"""


def effect_of(old: str, new: str) -> tuple[Effect, list[str]]:
    return strongest(changes(old, new))


@pytest.mark.parametrize(
    ("old", "new", "effect", "keys"),
    [
        ("SlurmctldTimeout=120", "SlurmctldTimeout=300", Effect.RECONFIGURE, ["SlurmctldTimeout"]),
        ("MaxTime=INFINITE", "MaxTime=1-00:00:00", Effect.RECONFIGURE, ["PartitionName"]),
        ("CPUs=4", "CPUs=8", Effect.DRAIN_FIRST, ["NodeName"]),
        ("State=UNKNOWN", "State=UNKNOWN Features=ib", Effect.RESTART_SLURMCTLD, ["NodeName"]),
        ("NodeName=n[1-2] ", "NodeName=n1 ", Effect.DRAIN_FIRST, ["NodeName"]),
        ("n[1-2] CPUs", "n[1-3] CPUs", Effect.RESTART_SLURMCTLD, ["NodeName"]),
        ("SlurmctldHost=ctl2(192.0.2.2)\n", "", Effect.RESTART_SLURMCTLD, ["SlurmctldHost"]),
        ("proctrack/cgroup", "proctrack/linuxproc", Effect.RESTART_SLURMD, ["ProctrackType"]),
        ("PartitionName=cpu", "PartitionName=other", Effect.DRAIN_FIRST, ["PartitionName"]),
        ("ClusterName=hpc", "ClusterName=other", Effect.REFUSED, ["ClusterName"]),
        ("/var/lib/slurm/slurmctld", "/srv/slurm", Effect.REFUSED, ["StateSaveLocation"]),
        ("SlurmctldTimeout=120\n", "", Effect.RECONFIGURE, ["SlurmctldTimeout"]),
        ("ClusterName=hpc\n", "ClusterName=hpc\nMaxJobCount=5\n", Effect.RECONFIGURE, ["MaxJobCount"]),
    ],
)
def test_a_change_has_the_smallest_effect_that_will_do(old: str, new: str, effect: Effect, keys: list[str]) -> None:
    changed = CONF.replace(old, new)
    assert changed != CONF

    assert effect_of(CONF, changed) == (effect, keys)


def test_the_strongest_of_several_changes_wins() -> None:
    changed = CONF.replace("SlurmctldTimeout=120", "SlurmctldTimeout=9").replace("CPUs=4", "CPUs=8")

    assert effect_of(CONF, changed) == (Effect.DRAIN_FIRST, ["NodeName", "SlurmctldTimeout"])


@pytest.mark.parametrize(
    "text",
    [
        CONF.replace("# a comment", "# another comment"),
        CONF + "\n\n# the end\n",
        CONF.replace("ClusterName=hpc\n", "ClusterName=hpc  # of the university\n"),
        "ClusterName = hpc\n" + CONF.replace("ClusterName=hpc\n", ""),
        "\n".join(sorted(CONF.splitlines(), reverse=True)).replace(
            "SlurmctldHost=ctl2(192.0.2.2)\nSlurmctldHost=ctl1(192.0.2.1)",
            "SlurmctldHost=ctl1(192.0.2.1)\nSlurmctldHost=ctl2(192.0.2.2)",
        ),
    ],
    ids=["comment", "blank lines", "comment after a value", "blanks", "order of keys"],
)
def test_what_slurm_does_not_read_has_no_effect(text: str) -> None:
    assert effect_of(CONF, text) == (Effect.NONE, [])


def test_the_order_of_the_controllers_counts() -> None:
    swapped = CONF.replace("ctl1(192.0.2.1)", "first").replace("ctl2(192.0.2.2)", "ctl1(192.0.2.1)")

    assert effect_of(CONF, swapped.replace("first", "ctl2(192.0.2.2)"))[0] is Effect.RESTART_SLURMCTLD


def test_the_case_of_a_key_does_not_change_its_effect() -> None:
    assert effect_of("proctracktype=a\n", "proctracktype=b\n")[0] is Effect.RESTART_SLURMD
    assert effect_of("nodename=n1 CPUs=1\n", "nodename=n1 cpus=2\n")[0] is Effect.DRAIN_FIRST
    assert effect_of("ClusterName=hpc\n", "clustername=hpc\n") == (Effect.NONE, [])


def test_every_node_line_counts() -> None:
    conf = "NodeName=n1 CPUs=1\nNodeName=n2 CPUs=1\n"

    assert parse_conf(conf) == {"nodename": "n1 CPUs=1\nn2 CPUs=1\n"}
    assert effect_of(conf, conf.replace("n1 CPUs=1", "n1 CPUs=2"))[0] is Effect.DRAIN_FIRST


def test_each_change_is_reported_with_its_old_and_new_value_and_its_policy() -> None:
    changed = (
        CONF.replace("SlurmctldTimeout=120", "SlurmctldTimeout=300")
        .replace("NodeName=n[1-2] CPUs=4", "NodeName=n[2-4] CPUs=8")
        .replace("MaxTime=INFINITE", "MaxTime=5")
    )

    rows = [(c.key, c.action, c.old, c.new, POLICIES[c.effect]) for c in changes(CONF, changed)]

    assert rows == [
        ("NodeName=n1", "remove", "CPUs=4 State=UNKNOWN", "", "drain first"),
        ("NodeName=n2 CPUs", "modify", "4", "8", "drain first"),
        ("NodeName=n[3-4]", "add", "", "CPUs=8 State=UNKNOWN", "restart slurmctld"),
        ("PartitionName=cpu MaxTime", "modify", "INFINITE", "5", "reconfigure"),
        ("SlurmctldTimeout", "modify", "120", "300", "reconfigure"),
    ]


def test_folding_the_lines_of_nodes_otherwise_is_no_change() -> None:
    one_by_one = CONF.replace(
        "NodeName=n[1-2] CPUs=4 State=UNKNOWN", "NodeName=DEFAULT State=UNKNOWN\nNodeName=n2 CPUs=4\nNodeName=n1 CPUs=4"
    )

    assert changes(CONF, one_by_one) == []


class TestGeneration:
    """slurmd restarts when, and only when, its generation changes."""

    CGROUP = "ConstrainCores=yes\n"
    BEFORE = slurmd_generation(CONF, CGROUP)

    @pytest.mark.parametrize("key", ["ProctrackType", "prologflags", "JobContainerType"])
    def test_it_changes_with_what_slurmd_reads_at_its_start(self, key: str) -> None:
        assert slurmd_generation(f"{CONF}{key}=a\n", self.CGROUP) != self.BEFORE

    def test_it_changes_with_the_files_of_cgroups_and_of_job_containers(self) -> None:
        assert slurmd_generation(CONF, "ConstrainCores=no\n") != self.BEFORE
        assert slurmd_generation(CONF, self.CGROUP, "BasePath=/scratch\n") != self.BEFORE
        # a cluster without job containers keeps its number
        assert slurmd_generation(CONF, self.CGROUP, "") == self.BEFORE

    @pytest.mark.parametrize(
        ("old", "new"), [("CPUs=4", "CPUs=8"), ("SlurmctldTimeout=120", "SlurmctldTimeout=5"), ("# a comment\n", "")]
    )
    def test_it_stays_with_everything_else(self, old: str, new: str) -> None:
        changed = CONF.replace(old, new)
        assert changed != CONF

        assert slurmd_generation(changed, self.CGROUP) == self.BEFORE


@pytest.mark.parametrize("effect", [effect for effect in Effect if effect not in (Effect.NONE, Effect.RECONFIGURE)])
def test_the_reference_lists_the_keys_of_each_policy(effect: Effect) -> None:
    text = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{POLICIES[effect]}` |"))
    keys = row.split("|")[2]

    assert {key for key, listed in EFFECTS.items() if listed is effect} - {"NodeName"} == set(
        re.findall(r"`(\w+)`", keys)
    ) - {"Gres"}
