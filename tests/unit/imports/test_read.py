"""Node list files in every form: detection, reading, and every fault with its line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from deepopsctl.cluster.builder import Draft
from deepopsctl.gpus.gres import describe_gpus
from deepopsctl.imports.detect import Form, detect
from deepopsctl.imports.read import draft_text, read_nodes
from deepopsctl.model.cluster import Gpus, Role
from deepopsctl.text.problems import Problems
from deepopsctl.text.source import MAX_BYTES
from tests.support.problems import faults as faults_of, problems_of

HOSTS = """\
127.0.0.1 localhost
127.0.1.1 here
::1 ip6-localhost ip6-loopback
ff02::1 ip6-allnodes
255.255.255.255 broadcasthost
192.0.2.1\tctl1.example.com ctl1   # the controller
192.0.2.11 gpu01 node1
2001:db8::12 gpu02
"""

CSV = """\
name,address,role,gpus,gpu_type,features,port
# the controller also serves logins
ctl1,192.0.2.1,controller+login,,,,
"gpu[01-02]","192.0.2.[11-12]",compute,8,h100,ib+nvlink,2222
cpu1,192.0.2.21,compute,0,,,

"""


def read(text: str) -> Draft:
    """The draft of a node list without faults."""
    problems = Problems()
    draft = draft_text(text, "nodes", problems)
    problems.raise_if_any()
    return draft


def names_and_addresses(text: str) -> list[tuple[str, str]]:
    return [(node.name, node.address) for node in read(text).nodes.values()]


def faults(text: str) -> list[str]:
    return faults_of(read, text)


def read_stdin(data: bytes) -> Draft:
    problems = Problems()
    draft = read_nodes(None, io.BytesIO(data), problems)
    # so that nothing that it would have had is reported as missing
    assert draft.incomplete
    problems.raise_if_any()
    return draft


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("gpu[01-16]\n", Form.HOSTLIST),
        ("# comment\n\nctl1=192.0.2.1\n", Form.HOSTLIST),
        ("hosta,hostb\n", Form.HOSTLIST),
        ("192.0.2.1 ctl1\n", Form.HOSTS_FILE),
        ("::1 localhost\n", Form.HOSTS_FILE),
        ("2001:db8::1\tctl1\n", Form.HOSTS_FILE),
        ("name,address,role\n", Form.TABLE),
        ("# machines\nName;IP;Role\n", Form.TABLE),
        ("hostname\tip\n", Form.TABLE),
        ("name\nctl1\n", Form.TABLE),
        ("nam,adress,rolle\n", Form.TABLE),
        ("schema: 1\n", Form.YAML),
        ("---\n# x\nschema: 1\n", Form.YAML),
        ('{"schema": 1}', Form.YAML),
        ('"schema": 1', Form.YAML),
        ("nodes:\n", Form.YAML),
        ("- a\n", Form.YAML),
        ("[slurm-master]\nctl1\n", Form.DEEPOPS_INI),
        ("ctl1 ansible_host=192.0.2.1\n[all:vars]\n", Form.DEEPOPS_INI),
        ("ClusterName=hpc\n", Form.SLURM_CONF),
        ("# slurm.conf\nSlurmUser=slurm\nNodeName=n[1-2] CPUs=4\n", Form.SLURM_CONF),
        ("nodename = n1\n", Form.SLURM_CONF),
        ("", Form.HOSTLIST),
    ],
)
def test_tells_the_forms_apart_by_content(text: str, form: Form) -> None:
    assert detect(text) is form


def test_reads_a_hostlist_file() -> None:
    text = "# all\nctl1=192.0.2.1\n\ngpu[01-02] = 192.0.2.12,192.0.2.11 # swapped\nlogin1,login2\n"
    assert names_and_addresses(text) == [
        ("ctl1", "192.0.2.1"),
        ("gpu01", "192.0.2.12"),
        ("gpu02", "192.0.2.11"),
        ("login1", ""),
        ("login2", ""),
    ]


def test_reports_every_faulty_line_of_a_hostlist() -> None:
    assert faults("n[1-3\nok1\n@all\nn1-\na b\nok2=\nok1\n{{ x }}\nn[1-2]=192.0.2.1\n") == [
        "nodes:1: n[1-3: a bracket is not closed",
        "nodes:3: @all: groups (@) and wildcards (*, ?) are not looked up",
        "nodes:4: 'n1-' is not a valid hostname",
        "nodes:5: a b: ' ' can't be part of a node expression",
        "nodes:6: no address after =",
        "nodes:7: ok1 is already given at nodes:2",
        "nodes:8: the template marker {{ is not allowed",
        "nodes:9: n[1-2] stands for 2 names and 192.0.2.1 for 1 address",
    ]


def test_a_name_and_its_address_are_joined_by_an_equals_sign() -> None:
    (problem,) = problems_of(read, "n1  192.0.2.1\n")

    assert problem.hint == "write n1=192.0.2.1"


def test_reports_every_faulty_line_of_a_hosts_file() -> None:
    assert faults("192.0.2.1 ctl1\nctl2 192.0.2.2\n192.0.2.3\n192.0.2.4 ctl1\n192.0.2.5 a-\n") == [
        "nodes:2: 'ctl2' is not an IP address",
        "nodes:3: no name for 192.0.2.3",
        "nodes:4: ctl1 is already given at nodes:1",
        "nodes:5: 'a-' is not a valid hostname",
    ]


def test_a_hosts_file_may_have_two_addresses_of_a_name() -> None:
    text = "fe80::1%lo0 localhost\n192.0.2.1 ctl1\n2001:db8::1 CTL1.example.com\n2001:db8::2 n1\n192.0.2.2 n1\n"

    assert names_and_addresses(text) == [("ctl1", "192.0.2.1"), ("n1", "2001:db8::2")]


def test_reads_a_table() -> None:
    nodes = read(CSV).nodes
    assert [(name, node.address) for name, node in nodes.items()] == [
        ("ctl1", "192.0.2.1"),
        ("gpu01", "192.0.2.11"),
        ("gpu02", "192.0.2.12"),
        ("cpu1", "192.0.2.21"),
    ]
    assert nodes["ctl1"].roles == {Role.CONTROLLER, Role.LOGIN}
    assert nodes["gpu02"].gpus == Gpus("h100", 8)
    assert (nodes["gpu02"].features, nodes["gpu02"].port) == (("ib", "nvlink"), 2222)
    assert nodes["cpu1"].gpus is None


def test_reads_several_kinds_of_gpus_from_a_table() -> None:
    gpus = read("name,gpus,gpu_type\nn1,2+1,a40+l40s\n").nodes["n1"].gpus
    assert gpus is not None
    assert describe_gpus(gpus) == "a40:2+l40s:1"


def test_several_kinds_of_gpus_need_as_many_numbers_as_types() -> None:
    assert faults("name,gpus,gpu_type\nn1,2+2,a40\nn2,2,a40+l40s\nn3,1+1,a40+a40\n") == [
        "nodes:2: gpus: 2 numbers for 1 types",
        "nodes:3: gpus: 1 numbers for 2 types",
        "nodes:4: gpus: a40 is given twice",
    ]


@pytest.mark.parametrize(("delimiter", "line_end"), [("\t", "\n"), (";", "\r\n"), (",", "\r\n")])
def test_reads_what_spreadsheets_export(tmp_path: Path, delimiter: str, line_end: str) -> None:
    path = tmp_path / "nodes"
    text = delimiter.join(["Hostname", "IP address", "Roles"]) + line_end
    text += delimiter.join(["ctl1", "192.0.2.1", "Controller"]) + line_end
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    (node,) = read_nodes(path, None, Problems()).nodes.values()
    assert (node.name, node.address) == ("ctl1", "192.0.2.1")
    assert node.roles == {Role.CONTROLLER}


def test_empty_columns_at_the_end_are_no_columns() -> None:
    text = "name,address,,\nctl1,192.0.2.1,,\n,,,\nn1,,,\n"

    assert names_and_addresses(text) == [("ctl1", "192.0.2.1"), ("n1", "")]
    assert faults(text.replace("n1,,,", "n1,,,x")) == ["nodes:4: has 4 cells, the header 2"]


def test_excels_own_first_line_is_no_line_of_the_table() -> None:
    text = "sep=;\nname;address\nctl1;192.0.2.1\nbad_;192.0.2.2\n"

    assert names_and_addresses(text.replace("bad_", "ctl2")) == [("ctl1", "192.0.2.1"), ("ctl2", "192.0.2.2")]
    (fault,) = faults(text)
    assert fault.startswith("nodes:4: ")


@pytest.mark.parametrize(
    "text",
    ["name,address\nctl1,192.0.2.1/24\n", "192.0.2.1/24 ctl1\n", "ctl1=192.0.2.1/24\n", "ctl[1-2]=192.0.2.[1-2]/24\n"],
)
def test_a_network_is_not_taken_for_an_address(text: str) -> None:
    (fault,) = faults(text)

    assert fault.endswith("/24 has the length of a network prefix")


def test_a_tab_that_breaks_yaml_is_named() -> None:
    (fault,) = faults("nodes:\n\t- {names: ctl1}\n")

    assert fault == "nodes:2: not valid YAML: a tab indents this line"


def test_reports_every_faulty_row_of_a_table() -> None:
    rows = [
        "name,address,role,gpus,gpu_type,port",
        "n1,192.0.2.300,controler,many,h100,x",
        "n2,192.0.2.2,compute,,h100,",
        "n3,192.0.2.3,compute,,,,,too,many",
        "n4,{{ address }},compute,,,",
        ",192.0.2.5,compute,,,",
        '"n6,192.0.2.6',
    ]
    assert faults("\n".join(rows)) == [
        "nodes:2: role: 'controler' is not a role",
        "nodes:2: port: 'x' is not a valid port",
        "nodes:2: gpus: 'many' is not a number of GPUs",
        "nodes:2: 192.0.2.300 is not an IP address",
        "nodes:3: gpus: gpu_type h100 without a number",
        "nodes:4: has 9 cells, the header 6",
        "nodes:5: the template marker {{ is not allowed",
        "nodes:6: no names are given",
        "nodes:7: not valid CSV: unexpected end of data",
    ]


def test_refuses_unknown_columns_and_suggests_the_nearest() -> None:
    problems = problems_of(read, "name,adress,rack,name\nctl1,192.0.2.1,r1,x\n")

    assert [(problem.message, problem.hint) for problem in problems] == [
        ("the column 'name' is given twice", "keep one of them"),
        ("unknown column 'adress'", "did you mean address?"),
        ("unknown column 'rack'", "known: name, address, role, gpus, gpu_type, features, port"),
    ]


def test_refuses_a_table_without_names() -> None:
    assert faults("address,role\n192.0.2.1,compute\n") == ["nodes:1: no column `name`"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "stdin: the file is empty"),
        (b"a\nb\xff\n", "stdin:2: byte 0xff is not UTF-8"),
        ("ctl1\n".encode("utf-16"), "stdin: is UTF-16 or binary, not text in UTF-8"),
        (b"PK\x03\x04\x14\0", "stdin: is a spreadsheet or an archive (xlsx, ods, zip), not text"),
        (b"\x1f\x8b\x08\0", "stdin: is compressed, not text"),
        ("ctl1\n".encode("utf-16-be"), "stdin: is UTF-16 or binary, not text in UTF-8"),
        (b"#" * (MAX_BYTES + 1), "stdin: is larger than 32 MiB"),
    ],
    ids=["empty", "byte", "utf-16", "zip", "gzip", "utf-16-be", "large"],
)
def test_refuses_what_is_no_text_or_larger_than_any_node_list(data: bytes, fault: str) -> None:
    assert faults_of(read_stdin, data) == [fault]


def test_counts_lines_as_an_editor_does() -> None:
    assert [problem.where for problem in problems_of(read_stdin, b"a\r\nb\x0bc\rn1-\n")] == ["stdin:2", "stdin:3"]


def test_refuses_more_nodes_than_any_cluster_has_without_expanding_them_all() -> None:
    assert faults("\n".join(f"r{row}n[1-9999]" for row in range(500))) == ["nodes:3: more than 20,000 nodes in total"]
