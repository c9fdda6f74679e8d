"""What nodes have, as a table of Lua's: from lines of slurm.conf, read by a real Lua."""

from __future__ import annotations

from typing import Any

from lupa import lua51

from deepopsctl.slurm.shapes import lua_table

NODES = [
    "NodeName=gpu[01-03] CPUs=64 RealMemory=500000 Gres=gpu:a100:4,tmpdisk:800G Features=ib,nvlink State=UNKNOWN",
    "NodeName=mig1 CPUs=64 RealMemory=500000 Gres=gpu:1g.10gb:14,gpu:a100:2(S:0-1) State=UNKNOWN",
    "NodeName=any1 CPUs=8 RealMemory=8000 Gres=gpu:no_consume:2 State=UNKNOWN",
    "NodeName=cpu[1-2] CPUs=8 RealMemory=8000 State=UNKNOWN",
    'NodeName=odd1 CPUs=8 RealMemory=8000 Gres=gpu:"]:1 State=UNKNOWN',
]
PARTITIONS = [
    "PartitionName=all Nodes=gpu[01-03],mig1,cpu[1-2] Default=YES",
    "PartitionName=any Nodes=any1",
    "PartitionName=odd Nodes=odd1",
    "PartitionName=unknown Nodes=gpu[01-04]",
    'PartitionName=x"]=1 Nodes=cpu1',
]


def read(text: str) -> Any:
    return lua51.LuaRuntime().execute(f"return {text}")


def test_each_kind_of_node_of_a_partition_is_there_with_its_number() -> None:
    table = read(lua_table(NODES, PARTITIONS))

    kinds = [(each.nodes, each.cpus, each.memory, dict(each.gpus), set(each.features)) for each in table.all.values()]
    assert kinds == [
        (3, 64, 500000, {"a100": 4}, {"ib", "nvlink"}),
        (1, 64, 500000, {"1g.10gb": 14, "a100": 2}, set()),
        (2, 8, 8000, {}, set()),
    ]
    assert dict(table["any"][1].gpus) == {"": 2}


def test_partitions_with_nodes_that_are_not_known_are_left_out() -> None:
    assert set(read(lua_table(NODES, PARTITIONS))) == {"all", "any"}
    assert set(read(lua_table(NODES[:4], ["PartitionName=p Nodes=ALL"]))) == {"p"}
    assert set(read(lua_table([], []))) == set()
