"""cluster.yml: what is read, and every fault with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cluster.spec import load_spec, parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import InputError, Problem
from deepopsctl.model.cluster import Access, Gpus, Role
from tests.support.cluster_yml import faults

GOOD = """\
schema: 1
cluster: {name: hpc, user: ubuntu, port: 2222, key: ssh/other, jump_host: me@gate.example.com, protected: true}
nodes:
  - {names: "ctl[1-2]", addresses: "192.0.2.[1-2]", roles: [controller, login]}
  - names: "gpu[01-02]"
    addresses: "192.0.2.[11-12]"
    roles: [compute]
    gpus: {type: h100, count: 8}
    features: [ib, nvlink]
    slurm: {Weight: 10, RealMemory: 1000}
    port: 22
  - {names: cpu1, roles: [compute]}
partitions:
  - {name: gpu, nodes: "gpu[01-02]", default: yes, max_time: 2-00:00:00, options: {OverSubscribe: NO}}
  - {name: everything, nodes: all}
"""


def nodes(*entries: str) -> str:
    """A cluster.yml with a controller on line 3, a compute node on line 4, and these entries after them."""
    lines = [
        "schema: 1",
        "nodes:",
        "  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}",
        "  - {names: n1, addresses: 192.0.2.2, roles: [compute]}",
        *(f"  - {entry}" for entry in entries),
    ]
    return "\n".join(lines) + "\n"


def partitions(*entries: str) -> str:
    """The same with these partitions, from line 6 on."""
    return nodes() + "partitions:\n" + "".join(f"  - {entry}\n" for entry in entries)


def test_reads_everything_a_cluster_file_may_say() -> None:
    cluster = parse_spec(GOOD, "cluster.yml")
    assert cluster.name == "hpc"
    assert cluster.access == Access("ubuntu", 2222, "ssh/other", "me@gate.example.com")
    assert cluster.protected
    assert [node.name for node in cluster.nodes] == ["ctl1", "ctl2", "gpu01", "gpu02", "cpu1"]
    assert cluster.controllers[0].roles == {Role.CONTROLLER, Role.LOGIN}
    gpu = cluster.nodes[3]
    assert (gpu.address, gpu.port, gpu.gpus) == ("192.0.2.12", 22, Gpus("h100", 8))
    assert (gpu.features, gpu.slurm) == (("ib", "nvlink"), {"Weight": "10", "RealMemory": "1000"})
    assert cluster.nodes[4].address == ""


def test_what_is_written_reads_back_as_the_same_cluster() -> None:
    cluster = parse_spec(GOOD, "cluster.yml")
    assert parse_spec(render_spec(cluster), "cluster.yml") == cluster


def test_functions_nobody_names_fall_to_the_first_controller() -> None:
    cluster = parse_spec(GOOD, "cluster.yml")
    assert [node.name for node in cluster.with_role(Role.DBD)] == ["ctl1"]
    assert cluster.with_role(Role.LOGIN) == cluster.controllers


def test_partitions_nobody_names_follow_the_gpus() -> None:
    (only,) = parse_spec(nodes(), "cluster.yml").partitions
    assert (only.name, only.default) == ("cpu", True)
    gpu, cpu = parse_spec(nodes("{names: g1, roles: [compute], gpus: {count: 2}}"), "cluster.yml").partitions
    assert (gpu.name, gpu.nodes, gpu.default) == ("gpu", ("g1",), True)
    assert (cpu.name, cpu.nodes, cpu.default) == ("cpu", ("n1",), False)


def test_empty_values_mean_the_same_as_no_key() -> None:
    cluster = parse_spec(nodes("{names: n2, addresses: , roles: [compute], gpus: ~}"), "cluster.yml")
    assert cluster.nodes[2].address == ""


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("{names: n2-, roles: [compute]}", "nodes[2].names: 'n2-' is not a valid hostname"),
        ("{names: -n, roles: [compute]}", "nodes[2].names: '-n' is not a valid hostname"),
        ('{names: "n[1-3]-", roles: [compute]}', "nodes[2].names: 'n1-' is not a valid hostname (and 2 more like it)"),
        ("{names: " + "n" * 64 + ", roles: [compute]}", f"nodes[2].names: '{'n' * 57}...' is not a valid hostname"),
        ("{names: n2.example.com, roles: [compute]}", "nodes[2].names: n2.example.com has a domain, but Slurm"),
        ("{names: 192.0.2.9, roles: [compute]}", "nodes[2].names: 192.0.2.9 is an address where a name is expected"),
        ("{names: 17, roles: [compute]}", "nodes[2].names: 17 has only digits"),
        ("{names: localhost, roles: [compute]}", "nodes[2].names: localhost is the name of every host itself"),
        ("{names: All, roles: [compute]}", "nodes[2].names: All has a meaning of its own in Ansible or Slurm"),
        ('{names: "\\en2", roles: [compute]}', "nodes[2].names: ?n2: '\\x1b' can't be part"),
        ("{names: '@all', roles: [compute]}", "nodes[2].names: @all: groups (@) and wildcards"),
        ('{names: "n[1-999999999]", roles: [compute]}', "nodes[2].names: n[1-999999999] stands for 999,999,999"),
        ('{names: "n[2-30000]", roles: [compute]}', "more than 20,000 nodes in total"),
        ("{names: n1, roles: [compute]}", "nodes[2].names: n1 is already given at cluster.yml:4"),
        ("{names: N1, roles: [compute]}", "nodes[2].names: N1 is already given at cluster.yml:4"),
        ('{names: "n2,n2", roles: [compute]}', "nodes[2].names: n2 is already given in the same entry"),
        (
            "{names: n2, addresses: 192.0.2.1, roles: [compute]}",
            "n2 has the address 192.0.2.1 of ctl1 at cluster.yml:3",
        ),
        ("{names: n2, addresses: N1, roles: [compute]}", "n2 has the address N1 of n1 at cluster.yml:4"),
        (
            '{names: "n[2-3]", addresses: "192.0.2.[3-5]", roles: [compute]}',
            "nodes[2].names: n[2-3] stands for 2 names",
        ),
        (
            "{names: n2, addresses: 192.0.2.300, roles: [compute]}",
            "nodes[2].addresses: 192.0.2.300 is not an IP address",
        ),
        ("{names: n2, addresses: 224.0.0.1, roles: [compute]}", "nodes[2].addresses: 224.0.0.1 is not the address"),
        ("{names: n2, addresses: a-, roles: [compute]}", "nodes[2].addresses: 'a-' is neither an address"),
        ("{names: n2, roles: [computer]}", "nodes[2].roles: 'computer' is not a role"),
        ("{names: n2, roles: compute}", "nodes[2].roles: must be a list"),
        ("{names: n2, roles: []}", "nodes[2].roles: is empty"),
        ("{names: n2}", "nodes[2].roles: is missing"),
        ("{roles: [compute]}", "nodes[2].names: is missing"),
        ("{names: [n2], roles: [compute]}", "nodes[2].names: must be one value"),
        ("n2", "nodes[2]: must be keys with values"),
        ("{names: n2, roles: [compute], gpu: 2}", "nodes[2].gpu: unknown key"),
        ("{names: n2, roles: [compute], gpus: 2}", "nodes[2].gpus: must be keys with values"),
        ("{names: n2, roles: [compute], gpus: {type: a b, count: 1}}", "nodes[2].gpus: 'a b' is not a GPU type"),
        (
            "{names: n2, roles: [login], gpus: {count: 1}}",
            "n2 with gpus, features or slurm keys, but without the role compute",
        ),
        ("{names: n2, roles: [compute], features: [a b]}", "nodes[2].features: 'a b' is not a feature"),
        ("{names: n2, roles: [compute], port: 70000}", "nodes[2].port: '70000' is not a valid port"),
        ("{names: n2, roles: [compute], slurm: {gres: x}}", "nodes[2].slurm: gres is written by deepopsctl"),
        (
            "{names: n2, roles: [compute], slurm: {Weight: 1 State=DOWN}}",
            "nodes[2].slurm: Weight: '1 State=DOWN' can't",
        ),
        (
            "{names: n2, roles: [compute], slurm: {Big Weight: 1}}",
            "nodes[2].slurm: 'Big Weight' is not a key of slurm.conf",
        ),
        (
            "{names: n2, roles: [compute], slurm: {Weight: 1, weight: 2}}",
            "nodes[2].slurm: Weight and weight are one key to Slurm",
        ),
        ("{names: n2, roles: [compute], slurm: {Weight: [1]}}", "nodes[2].slurm.Weight: must be one value"),
        ("{names: '{{ x }}', roles: [compute]}", "the template marker {{ is not allowed"),
        ("{names: {{ x }}, roles: [compute]}", "the template marker {{ is not allowed"),
        ('{names: n2, roles: [compute], features: ["\\x7b% x"]}', "the template marker {% is not allowed"),
        ("{names: n2, roles: [compute], features: ['{# x']}", "the template marker {# is not allowed"),
        ("{names: n2, names: n3, roles: [compute]}", "the key names is given twice"),
        ("{names: &a n2, roles: [compute]}", "anchors and aliases (&name, *name) are not used here"),
        ("{names: *a, roles: [compute]}", "anchors and aliases (&name, *name) are not used here"),
        ("{names: !!python/name:os.system x, roles: [compute]}", "the tag tag:yaml.org,2002:python/name:os.system"),
        ("{names: n[2-3], roles: [compute]}", "not valid YAML: did not find expected ',' or '}'"),
    ],
)
def test_refuses_a_bad_node_entry_and_names_its_line(entry: str, fault: str) -> None:
    (message,) = faults(nodes(entry))
    assert message.startswith(f"cluster.yml:5 {fault}")


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("{name: p, nodes: n9}", "partitions[0].nodes: n9 has no node n9"),
        ('{name: p, nodes: "n[1-4]"}', "partitions[0].nodes: n[1-4] has no node n[2-4]"),
        ("{name: p, nodes: N1}", "partitions[0].nodes: N1 has no node N1"),
        ("{name: p, nodes: ctl1}", "partitions[0].nodes: ctl1: ctl1 is not a compute node"),
        ('{name: p, nodes: "n1,n1"}', "partitions[0].nodes: n1,n1 names a node twice"),
        ('{name: p, nodes: "n[2-1]"}', "partitions[0].nodes: n[2-1]: the range 2-1 runs backwards"),
        ("{name: DEFAULT, nodes: n1}", "partitions[0].name: 'DEFAULT' can't be a partition's name"),
        ("{name: a b, nodes: n1}", "partitions[0].name: 'a b' can't be a partition's name"),
        ("{name: p}", "partitions[0].nodes: is missing"),
        ("{name: p, nodes: n1, default: maybe}", "partitions[0].default: must be true or false"),
        ("{name: p, nodes: n1, max_time: 2d}", "partitions[0].max_time: '2d' is not a valid time limit of Slurm's"),
        (
            f"{{name: p, nodes: n1, max_time: {'9' * 10}}}",
            "partitions[0].max_time: '9999999999' is not a valid time limit of Slurm's",
        ),
        (
            "{name: p, nodes: n1, max_time: 1-1:1:1:1}",
            "partitions[0].max_time: '1-1:1:1:1' is not a valid time limit of Slurm's",
        ),
        ("{name: p, nodes: n1, options: {MaxTime: 10}}", "partitions[0].options: MaxTime is written by deepopsctl"),
        ("{name: p, nodes: n1, options: {QOS: a, Qos: b}}", "partitions[0].options: QOS and Qos are one key to Slurm"),
        ('{name: p, nodes: n1, options: {Alternate: "q\\nNodeName=x"}}', "partitions[0].options: Alternate:"),
    ],
)
def test_refuses_a_bad_partition_and_names_its_line(entry: str, fault: str) -> None:
    (message,) = faults(partitions(entry))
    assert message.startswith(f"cluster.yml:6 {fault}")


@pytest.mark.parametrize("time", ["90", "90:30", "12:00:00", "2-12", "2-12:30", "2-00:00:00", "UNLIMITED", "infinite"])
def test_accepts_every_time_format_of_slurm_also_where_yaml_could_take_it_for_a_number(time: str) -> None:
    cluster = parse_spec(partitions(f"{{name: p, nodes: n1, max_time: {time}}}"), "cluster.yml")
    assert cluster.partitions[0].max_time == time


def test_refuses_two_partitions_of_one_name_and_two_defaults() -> None:
    messages = faults(partitions("{name: p, nodes: n1, default: true}", "{name: p, nodes: n1, default: true}"))
    assert messages == [
        "cluster.yml:7 partitions[1].name: p is already the name of a partition",
        "cluster.yml:7 partitions[1].default: p is already the default partition",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("# only\n# comments\n", "cluster.yml:1 the file holds nothing but comments"),
        ("- a\n- b\n", "cluster.yml:1 no cluster.yml: keys are expected"),
        ("schema: 1\nnodes:\n  - {names: a, ro", "cluster.yml:3 not valid YAML"),
        ("schema: 1\n", "cluster.yml:1 nodes: is missing"),
        ("schema: 1\nnodes: []\n", "cluster.yml:2 nodes: is empty"),
        ("schema: 1\nnodes: {a: b}\n", "cluster.yml:2 nodes: must be a list"),
        ("nodes: []\n---\nnodes: []\n", "cluster.yml:2 a second YAML document begins here"),
        ("a: \x07\n", "cluster.yml:1 not valid YAML: a control character"),
        ("[" * 100_000, "cluster.yml:1 nested more than 12 levels deep"),
    ],
)
def test_refuses_what_is_no_cluster_file(text: str, fault: str) -> None:
    assert any(message.startswith(fault) for message in faults(text))


@pytest.mark.parametrize(
    ("schema", "fault"),
    [("2", "schema: this version reads schema 1 only"), ("", "schema: is missing"), ("one", "schema: this version")],
)
def test_refuses_another_schema(schema: str, fault: str) -> None:
    (message,) = faults(nodes().replace("schema: 1", f"schema: {schema}"))
    assert message.split(" ", 1)[1].startswith(fault)


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("{name: HPC}", "cluster.name: 'HPC' can't be a cluster's name"),
        ("{user: -oProxyCommand=x}", "cluster.user: '-oProxyCommand=x' is not a login name"),
        ("{port: ssh}", "cluster.port: 'ssh' is not a valid port"),
        ("{key: id.pub}", "cluster.key: id.pub is the public half of a key"),
        ("{key: it's}", "cluster.key: \"it's\" can't be used as a path"),
        ('{key: "a\\nb"}', "cluster.key: 'a b' can't be used as a path"),
        ("{jump_host: -x}", "cluster.jump_host: '-x' is not a valid jump host"),
        ("{login_name: -x}", "cluster.login_name: '-x' is not a host name"),
        ("{usr: me}", "cluster.usr: unknown key"),
    ],
)
def test_refuses_a_bad_cluster_section(section: str, fault: str) -> None:
    (message,) = faults(nodes() + f"cluster: {section}\n")
    assert message.startswith(f"cluster.yml:5 {fault}")


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("[slurm, Monitorng]", "components[1]: there is no component 'Monitorng'"),
        ("[slurm, slurm]", "components[1]: slurm is listed twice"),
        ("[]", "components: is empty"),
        ("slurm", "components: must be a list"),
        ("[[slurm]]", "components[0]: must be one value"),
    ],
)
def test_refuses_components_that_there_are_not(written: str, fault: str) -> None:
    (message,) = faults(nodes() + f"components: {written}\n")
    assert message.startswith(f"cluster.yml:5 {fault}")


@pytest.mark.parametrize(
    ("line", "components"),
    [
        ("components: [monitoring, slurm]", ("slurm", "monitoring")),
        ("components:\n- slurm", ("slurm",)),
        ("components:", None),
        ("", None),
    ],
)
def test_components_are_in_the_order_they_build_on_each_other_and_survive_being_written(
    line: str, components: tuple[str, ...] | None
) -> None:
    cluster = parse_spec(nodes() + line + "\n", "cluster.yml")
    assert cluster.components == components
    assert parse_spec(render_spec(cluster), "cluster.yml") == cluster


def test_reports_all_faults_of_a_file_sorted_by_line() -> None:
    text = nodes(
        "{names: n2-, roles: [computer]}",
        "{names: n3, addres: x, roles: [compute]}",
        "{names: n4, addresses: '{{ x }}', roles: [compute]}",
        *(f"{{names: m{number}, roles: [compute]}}" for number in range(5)),
        "{names: n1, roles: [compute]}",
    )
    assert faults(text + "partitions:\n  - {name: p, nodes: 'n[3-1]'}\n") == [
        "cluster.yml:5 nodes[2].roles: 'computer' is not a role",
        "cluster.yml:5 nodes[2].names: 'n2-' is not a valid hostname",
        "cluster.yml:6 nodes[3].addres: unknown key",
        "cluster.yml:7 the template marker {{ is not allowed",
        "cluster.yml:13 nodes[10].names: n1 is already given at cluster.yml:4",
        "cluster.yml:15 partitions[0].nodes: n[3-1]: the range 3-1 runs backwards",
    ]


def test_one_line_reports_many_nodes_with_the_same_fault() -> None:
    text = nodes(
        '{names: "m[1-500]", addresses: "10.0.[1-2].[1-250]", roles: [login], features: [a]}',
        '{names: "x[1-500]", addresses: "10.0.[1-2].[1-250]", roles: [login]}',
    )
    assert faults(text) == [
        "cluster.yml:5 m[1-500] with gpus, features or slurm keys, but without the role compute",
        "cluster.yml:6 x1 has the address 10.0.1.1 of m1 at cluster.yml:5 (and 499 more like it)",
    ]


@pytest.mark.parametrize(
    ("entry", "key", "hint"),
    [
        ("adresses: 192.0.2.3", "adresses", "did you mean addresses?"),
        ("gpus: {count: 8, autodetect: nvml}", "gpus.autodetect", "it is a key of nodes[2]: move it there"),
        ("gpus: [{count: 8, features: [a]}]", "gpus[0].features", "it is a key of nodes[2]: move it there"),
        ("partitions: []", "partitions", "it is a key of the file: move it there"),
    ],
)
def test_suggests_the_nearest_key_or_the_section_that_has_it(entry: str, key: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(nodes(f"{{names: n2, roles: [compute], {entry}}}"), "cluster.yml")
    assert caught.value.problems == (Problem("cluster.yml:5", f"nodes[2].{key}: unknown key", hint),)


@pytest.mark.parametrize(
    ("role", "fault"),
    [("controller", "no node has the role compute"), ("compute", "no node has the role controller")],
)
def test_refuses_a_cluster_without_controller_or_compute_nodes(role: str, fault: str) -> None:
    assert faults(f"schema: 1\nnodes:\n  - {{names: n1, roles: [{role}]}}\n") == [f"cluster.yml {fault}"]


def test_does_not_call_missing_what_a_faulty_entry_would_have_brought() -> None:
    text = "schema: 1\nnodes:\n  - {names: ctl1, roles: [controller]}\n  - {names: 'n[1-', roles: [compute]}\n"
    (message,) = faults(text + "partitions:\n  - {name: p, nodes: n1}\n")
    assert message.startswith("cluster.yml:4 nodes[1].names: n[1-: a bracket is not closed")


def test_comments_may_hold_template_markers() -> None:
    assert parse_spec(nodes() + "# like {{ this }}\n", "cluster.yml").name == "cluster"


def test_loads_a_file_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_spec(path).name == "hpc"


def test_a_command_parses_a_file_once_as_long_as_it_stays_the_same(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    path.write_text(GOOD)
    first = load_spec(path)

    assert load_spec(path) is first
    path.write_text(GOOD.replace("name: hpc", "name: other"))
    assert load_spec(path).name == "other"


def test_refuses_a_missing_file_a_directory_and_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yml"
    with pytest.raises(InputError, match="can't be read: No such file"):
        load_spec(path)
    with pytest.raises(InputError, match="is a directory"):
        load_spec(tmp_path)
    # all that is none: imports/test_read.py
    path.write_bytes(b"schema: 1\n# caf\xe9\n")
    with pytest.raises(InputError, match=r"^cluster.yml:2: byte 0xe9 is not UTF-8$"):
        load_spec(path)
