"""Editing a person's cluster.yml: the edit is made, everything else stays byte for byte."""

from __future__ import annotations

import difflib

import pytest
from hypothesis import given, settings, strategies as st

from deepopsctl.cluster.editor import NewNodes, add_nodes, remove_nodes, set_address
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import DeepOpsError, InputError
from deepopsctl.model.cluster import Gpus, Node, Role
from deepopsctl.text.node_sets import fold_in_order

GPU = Node("", frozenset({Role.COMPUTE}), gpus=Gpus("a100", 2))
CPU = Node("", frozenset({Role.COMPUTE}))

FLOW = """\
# our cluster, bought in 2024
schema: 1
cluster: {name: hpc, user: ubuntu}

nodes:
  - {names: "ctl1", addresses: "10.0.0.1", roles: [controller]}   # in rack 1
  # the first delivery
  - {names: "gpu[01-02]", addresses: "10.0.1.[11-12]", roles: [compute], gpus: {type: a100, count: 2}}  # rack 2
  - {names: 'login1', addresses: '10.0.0.2', roles: [login]}

# partitions
partitions:
  - {name: gpu, nodes: "gpu[01-02]", default: true}   # everybody's
  - {name: long, nodes: 'gpu[01-02]', max_time: "7-00:00:00"}
"""
BLOCK = """\
schema: 1
nodes:
- names: ctl1
  roles: [controller]
- names: gpu[01-02]   # no quotes needed here
  roles:
  - compute
  gpus:
    type: a100
    count: 2
# end of the nodes

partitions:
- name: gpu
  nodes: all
- name: debug
  nodes: gpu01
  max_time: "1:00:00"
"""
JSON = (
    '{"schema": 1, "nodes": [{"names": "ctl1", "roles": ["controller"]}, '
    '{"names": "gpu01", "roles": ["compute"], "gpus": {"type": "a100", "count": 2}}, '
    '{"names": "gpu02", "roles": ["compute"], "gpus": {"type": "a100", "count": 2}}]}'
)
FLOW_LINES = """\
schema: 1
nodes: [
  {names: ctl1, roles: [controller]},  # the head
  {names: "gpu[01-02]", roles: [compute], gpus: {type: a100, count: 2}},  # the muscles
  {names: "cpu[1-3]", roles: [compute]}  # the rest
]
"""


def newcomer(name: str, address: str = "", model: Node = GPU, like: str = "gpu01", *partitions: str) -> NewNodes:
    return NewNodes(((name, address),), model, like, partitions)


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(keepends=True), after.splitlines(keepends=True))
    return [line.rstrip("\n") for line in lines if line[0] in "+-"]


def test_a_node_joins_the_entry_it_resembles_and_only_that_text_changes() -> None:
    after = add_nodes(FLOW, newcomer("gpu03", "10.0.1.13", GPU, "gpu01", "gpu"))

    rest = "roles: [compute], gpus: {type: a100, count: 2}}  # rack 2"
    assert changed_lines(FLOW, after) == [
        f'-   - {{names: "gpu[01-02]", addresses: "10.0.1.[11-12]", {rest}',
        f'+   - {{names: "gpu[01-03]", addresses: "10.0.1.[11-13]", {rest}',
        '-   - {name: gpu, nodes: "gpu[01-02]", default: true}   # everybody\'s',
        '+   - {name: gpu, nodes: "gpu[01-03]", default: true}   # everybody\'s',
    ]


def test_a_node_with_other_gpus_gets_an_entry_next_to_the_one_it_resembles() -> None:
    model = Node("", frozenset({Role.COMPUTE}), gpus=Gpus("h100", 8), features=("ib",))
    after = add_nodes(FLOW, newcomer("gpu03", "10.0.1.13", model, "gpu01", "gpu", "long"))

    assert changed_lines(FLOW, after)[0] == (
        '+   - {names: gpu03, addresses: "10.0.1.13", roles: [compute], gpus: {type: h100, count: 8}, features: [ib]}'
    )
    assert "nodes: 'gpu[01-03]', max_time" in after


def test_a_node_in_a_gap_takes_its_place_and_the_addresses_stay_in_pairs() -> None:
    holed = remove_nodes(FLOW.replace("gpu[01-02]", "gpu[01-16]").replace("[11-12]", "[11-26]"), ["gpu05"])

    assert '"gpu[01-04,06-16]", addresses: "10.0.1.[11-14,16-26]"' in holed
    back = add_nodes(holed, newcomer("gpu05", "10.0.1.99", GPU, "gpu01", "gpu", "long"))
    assert {node.name: node.address for node in parse_spec(back, "x").nodes}["gpu05"] == "10.0.1.99"
    assert '"gpu[01-16]", addresses: "10.0.1.[11-14,99],10.0.1.[16-26]"' in back


def test_block_style_is_kept() -> None:
    assert changed_lines(BLOCK, add_nodes(BLOCK, newcomer("gpu03"))) == [
        "- - names: gpu[01-02]   # no quotes needed here",
        "+ - names: gpu[01-03]   # no quotes needed here",
    ]
    more = add_nodes(BLOCK, newcomer("cn1", "", CPU, ""))
    assert changed_lines(BLOCK, more) == ["+ - names: cn1", "+   roles: [compute]"]
    # before the comment that follows the list
    assert "  roles: [compute]\n# end of the nodes\n" in more
    assert remove_nodes(more, ["cn1"]) == BLOCK


def test_a_comment_above_a_removed_entry_stays() -> None:
    after = remove_nodes(FLOW, ["login1"])

    assert changed_lines(FLOW, after) == ["-   - {names: 'login1', addresses: '10.0.0.2', roles: [login]}"]


def test_json_stays_json() -> None:
    import json

    assert json.loads(add_nodes(JSON, newcomer("gpu03")))["nodes"][1]["names"] == "gpu[01,03]"
    more = add_nodes(JSON, newcomer("cn1", "", CPU, ""))
    assert json.loads(more)["nodes"][3] == {"names": "cn1", "roles": ["compute"]}
    assert len(json.loads(remove_nodes(more, ["gpu02", "cn1"]))["nodes"]) == 2
    assert len(json.loads(remove_nodes(JSON, ["gpu02"]))["nodes"]) == 2
    assert len(json.loads(remove_nodes(JSON, ["gpu01"]))["nodes"]) == 2


@pytest.mark.parametrize(
    ("names", "gone"),
    [
        (["cpu1", "cpu2", "cpu3"], ['-   {names: "cpu[1-3]", roles: [compute]}  # the rest']),
        (
            ["gpu01", "gpu02"],
            ['-   {names: "gpu[01-02]", roles: [compute], gpus: {type: a100, count: 2}},  # the muscles'],
        ),
    ],
)
def test_a_list_in_brackets_over_several_lines_is_kept(names: list[str], gone: list[str]) -> None:
    after = remove_nodes(FLOW_LINES, names)

    assert set(gone) <= set(changed_lines(FLOW_LINES, after))
    assert parse_spec(after, "x").nodes
    assert "# the head" in after


def test_a_new_entry_in_a_list_in_brackets_gets_a_line_of_its_own() -> None:
    model = Node("", frozenset({Role.COMPUTE}), gpus=Gpus("h100", 8))
    after = add_nodes(FLOW_LINES, newcomer("gpu03", "", model, "gpu01"))

    assert "\n  {names: gpu03, roles: [compute], gpus: {type: h100, count: 8}},  # the muscles\n" in after


@pytest.mark.parametrize("end", ["\r\n", "\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_stay(end: str, mark: str) -> None:
    text = mark + FLOW.replace("\n", end)
    more = add_nodes(text, newcomer("cn1", "10.0.2.1", CPU, ""))

    assert more.count(end) == text.count(end) + 1
    assert more.count("\n") == more.count(end)
    assert remove_nodes(more, ["cn1"]) == text


def test_a_file_without_a_last_line_end_can_be_edited() -> None:
    text = "schema: 1\nnodes:\n- {names: ctl1, roles: [controller]}\n- {names: gpu01, roles: [compute]}"
    more = add_nodes(text, newcomer("gpu02", "", GPU, ""))

    assert more == text + "\n- {names: gpu02, roles: [compute], gpus: {type: a100, count: 2}}"
    assert remove_nodes(more, ["gpu01"]).endswith("count: 2}}")


def test_a_value_that_needs_quotes_gets_them() -> None:
    text = "schema: 1\nnodes:\n- {names: ctl1, roles: [controller]}\n- {names: gpu01, roles: [compute]}\n"

    assert '{names: "gpu[01-02]", roles' in add_nodes(text, newcomer("gpu02", "", CPU))


def test_a_folded_scalar_can_be_edited() -> None:
    text = BLOCK.replace("names: gpu[01-02]   # no quotes needed here", "names: >-\n    gpu[01-02]")

    assert '- names: "gpu[01-03]"\n  roles:' in add_nodes(text, newcomer("gpu03"))


def test_a_partition_left_without_nodes_is_refused_with_a_way_out() -> None:
    with pytest.raises(InputError, match=r"cluster.yml:17: the partition debug would have no node left") as caught:
        remove_nodes(BLOCK, ["gpu01"])
    assert "remove it first" in caught.value.hint


@pytest.mark.parametrize(
    ("space", "more", "less"),
    [
        (
            "\n    gpu[01-02]: 800G  # small\n    cn1: 2T",
            "\n    gpu[01-03]: 800G  # small\n",
            "\n    gpu01: 800G  # small\nm",
        ),
        ('{"gpu[01-02]": 800G, "cn1": 2T}', '{"gpu[01-03]": 800G, "cn1": 2T}', '{"gpu01": 800G}\n'),
    ],
)
def test_sizes_of_disks_and_maintenance_follow_the_nodes(space: str, more: str, less: str) -> None:
    times = 'start: "2027-01-01T08:00", duration: "08:00:00"'
    text = add_nodes(BLOCK, newcomer("cn1", "", CPU, ""))
    text += f'job_directories:\n  space: {space}\nmaintenance: [{{name: m, {times}, nodes: "gpu01,gpu02"}}]\n'

    assert f"  space: {more}" in add_nodes(text, newcomer("gpu03"))
    removed = remove_nodes(text, ["gpu02", "cn1"])
    assert f"  space: {less}" in removed
    assert 'nodes: "gpu01"}]\n' in removed


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(InputError, match="gpu02 is already given"):
        add_nodes(FLOW, newcomer("gpu02", "10.0.1.13"))


def test_an_address_is_replaced_in_its_place() -> None:
    after = set_address(FLOW, "gpu02", "10.0.9.9")

    assert '"gpu[01-02]", addresses: "10.0.1.11,10.0.9.9"' in after
    assert len(changed_lines(FLOW, after)) == 2


def test_a_node_whose_name_is_looked_up_has_no_address_to_replace() -> None:
    with pytest.raises(InputError, match="gpu01 has no address there"):
        set_address(BLOCK, "gpu01", "10.0.0.9")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(DeepOpsError, match=r"has no node gpu\[08-09\]"):
        remove_nodes(FLOW, ["gpu09", "gpu08"])


NAMES = [f"gpu{number:02d}" for number in range(1, 25)]


@given(
    known=st.lists(st.sampled_from(NAMES), min_size=1, max_size=12, unique=True),
    new=st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True),
    text=st.sampled_from([FLOW, BLOCK, JSON]),
)
@settings(max_examples=150, deadline=None)
def test_adding_and_removing_any_nodes_gives_back_the_cluster(known: list[str], new: list[str], text: str) -> None:
    text = text.replace("[11-12]", f"[11-{10 + len(known)}]")
    text = text.replace("gpu[01-02]", "ALL").replace("gpu01", "FIRST").replace("gpu02", "b2")
    text = text.replace("ALL", fold_in_order(known)).replace("FIRST", known[0])
    before = parse_spec(text, "x")
    used = {node.name for node in before.nodes}
    fresh = [name for name in new if name not in used]
    addressed = any(node.address for node in before.compute)
    pairs = tuple((name, f"10.7.0.{number}" if addressed else "") for number, name in enumerate(fresh, start=1))
    if not pairs:
        return
    # JSON has none: they are made of the nodes
    partitions = tuple(partition.name for partition in before.partitions) if text.startswith("#") else ()

    more = add_nodes(text, NewNodes(pairs, GPU, known[0], partitions))
    after = parse_spec(more, "x")
    back = parse_spec(remove_nodes(more, fresh), "x")

    assert {node.name for node in after.nodes} == used | set(fresh)
    assert all(set(fresh) <= set(partition.nodes) for partition in after.partitions if partition.name in partitions)
    assert sorted(map(repr, back.nodes)) == sorted(map(repr, before.nodes))
