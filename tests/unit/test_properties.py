"""Any node list, cluster.yml, DeepOps inventory or slurm.conf gives a cluster or listed errors, nothing else."""

from __future__ import annotations

import io
import string
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.inventory import build_inventory, group_members, render_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import InputError
from deepopsctl.imports.request import InitRequest, InitResult, read_request
from deepopsctl.model.cluster import Access, Cluster, Gpus, Node, Partition, Role
from deepopsctl.text.node_sets import expand, fold, fold_in_order, fold_pairs, pair
from deepopsctl.text.problems import RefusedError
from tests.support.paths import ROOT

# the same examples on every machine, and no more than a quick test may have
bounded = settings(
    max_examples=75, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
few = settings(bounded, max_examples=25)

name = st.from_regex(r"[a-z]{1,3}(-[a-z])?[0-9]{1,3}", fullmatch=True)
word = st.one_of(
    name,
    st.sampled_from(
        ["all", "ALL", "DEFAULT", "n[1-3]", "n[01:03]", "n[3-1]", "[", "a..b", "192.0.2.1", "é", "{{ x }}"]
    ),
    st.text(alphabet=string.printable, max_size=8),
)
SLURM_KEYS = [
    "ClusterName", "slurmctldhost", "ControlMachine", "ControlAddr", "NodeName", "NodeAddr", "NodeHostname", "Gres",
    "Feature", "Weight", "State", "CPUs", "PartitionName", "Nodes", "Default", "MaxTime", "QOS", "NodeSet", "Include",
    "StateSaveLocation", "SlurmUser", "AccountingStorageHost", "DefMemPerCPU", "JobCompPass", "Prolog", "Oops",
]  # fmt: skip
GRES = st.sampled_from(["gpu:2", "gpu:a100:4(S:0-1)", "shard:2,gpu", "gpu:a:1,gpu:b:999", "gpu:a100:x"])
pairs = st.builds("{}={}".format, st.sampled_from(SLURM_KEYS), st.one_of(word, GRES))
wild_slurm = st.lists(st.lists(pairs, min_size=1, max_size=4).map(" ".join) | st.text(max_size=12), max_size=8)
node_line = st.builds(
    "NodeName={} Weight={} Gres={} Feature={} State={}".format,
    st.sampled_from(["n[1-3]", "m[01-02],k9", "c1", "DEFAULT", "f[1-9]"]), st.integers(1, 9),
    st.sampled_from(["gpu:2", "gpu:a100:4(S:0-1)", "gpu:1,shard:2", "shard:8"]), st.sampled_from(["ib", "a,b", "a&b"]),
    st.sampled_from(["UNKNOWN", "CLOUD", "DRAIN"]),
)  # fmt: skip
partition_line = st.builds(
    "PartitionName={} Nodes={} Default={} MaxTime={}".format,
    st.sampled_from(["p", "q", "DEFAULT", "all"]), st.sampled_from(["ALL", "n[1-2]", "m01", "big", "f1"]),
    st.sampled_from(["YES", "NO"]), st.sampled_from(["60", "-1", "1-00:00:00", "INFINITE"]),
)  # fmt: skip
global_line = st.builds(
    "{}={}".format,
    st.sampled_from(["StateSaveLocation", "SlurmUser", "MaxArraySize", "Prolog", "DefMemPerCPU", "FastSchedule"]),
    st.sampled_from(["/x", "slurm", "1000", '"a b"', "a,\\\nb"]),
)
tame_slurm = st.builds(
    lambda nodes, partitions, settings: [*settings, "NodeName=z1", *nodes, "NodeSet=big Feature=a", *partitions],
    st.lists(node_line, max_size=3, unique_by=lambda line: line.split()[0]),
    st.lists(partition_line, max_size=3, unique_by=lambda line: line.split()[0]),
    st.lists(global_line, max_size=3),
)
slurm_conf = (wild_slurm | tame_slurm).map(lambda lines: "ClusterName=c\nSlurmctldHost=c1\n" + "\n".join(lines))

SECTIONS = [
    "[all]", "[slurm-master]", "[slurm-node]", "[slurm-login]", "[slurm-cluster:children]", "[all:vars]",
    "[slurm-node:vars]", "[kube-node]", "[x:y]", "[slurm-cluster]",
]  # fmt: skip
VARIABLES = [
    "ansible_host", "ansible_user", "ansible_port", "ansible_ssh_common_args", "slurm_cluster_name", "nfs_server_group",
    "slurm_max_job_timelimit", "slurm_oversubscribe", "slurm_user_uid", "slurm_password", "chrony_config_server", "own",
]  # fmt: skip
setting = st.builds("{}={}".format, st.sampled_from(VARIABLES), word)
host_line = st.builds(lambda host, words: " ".join([host, *words]), word, st.lists(setting, max_size=2))
wild_ini = st.lists(st.sampled_from([*SECTIONS, "slurm-master", "slurm-node"]) | host_line | setting, max_size=14)
TAME = [
    "gpu[01:04] ansible_host=192.0.2.1", "n[1:9:2]", "x.example.com ansible_port=22", "[slurm-login]\nlogin1",
    "[kube-node]\nk1",
    "[slurm-cluster:children]\nslurm-node", "[all:vars]\nnfs_server_group=slurm-master[0]", "[slurm-metric]\nm2",
    "[slurm-node:vars]\nslurm_max_job_timelimit=60", "[all:vars]\nansible_user=ada\nslurm_user_uid=7 # seven",
    "[all:vars]\nansible_ssh_common_args='-o ProxyJump=ada@gate'", "[slurm-cluster]\nfront1",
]  # fmt: skip
tame_ini = st.lists(st.sampled_from(TAME), max_size=6, unique=True).map(lambda lines: ["n77", *lines])
ini = (wild_ini | tame_ini).map(lambda lines: "[slurm-master]\nm1\n[slurm-node]\n" + "\n".join(lines))

row = st.builds(
    "{},{},{},{},{}".format,
    name, st.sampled_from(["", "192.0.2.1", "192.0.2.2", "2001:db8::1"]),
    st.sampled_from(["compute", "login", "compute+dbd", ""]), st.sampled_from(["", "0", "4"]), st.just(""),
)  # fmt: skip
rows = st.lists(st.lists(word, max_size=5).map(",".join), max_size=6) | st.lists(row, max_size=4, unique_by=str)
table = rows.map(
    lambda rows: "name,address,role,gpus,gpu_type\nc1,192.0.2.9,controller,,\nn777,,compute,,\n" + "\n".join(rows)
)
wild_entry = st.builds("  - {{names: {!r}, addresses: {!r}, roles: [{}]}}".format, word, word, word) | st.text(
    max_size=20
)
tame_entry = st.builds(
    '  - {{names: "{}", roles: [{}], gpus: {{count: {}}}, features: [{}]}}'.format,
    st.sampled_from(["n[1-3]", "m[01-02],k9", "c9", "x-1"]), st.sampled_from(["compute", "compute, login", "dbd"]),
    st.integers(0, 300), st.sampled_from(["ib", "a b", "x, y"]),
)  # fmt: skip
entries = st.lists(wild_entry, max_size=5) | st.lists(
    tame_entry, min_size=1, max_size=2, unique_by=lambda line: line[12:16]
)
spec_text = entries.map(
    lambda lines: "schema: 1\nnodes:\n  - {names: c1, roles: [controller, compute]}\n" + "\n".join(lines)
)
# names with and without padding, numbers in several places, runs, gaps and repeats of a prefix
run_of_names = st.builds(
    lambda prefix, width, suffix, start, count: [f"{prefix}{start + n:0{width}d}{suffix}" for n in range(count)],
    st.sampled_from(["n", "gpu", "r1-n", "10.0.", "a01b"]), st.integers(1, 3), st.sampled_from(["", "-ib", "x2"]),
    st.sampled_from([0, 1, 8, 9, 98, 99]) | st.integers(0, 2000), st.sampled_from([1, 2, 5, 15]),
)  # fmt: skip
node_names = st.lists(run_of_names | name.map(lambda name: [name]), min_size=1, max_size=20).map(
    lambda runs: list(dict.fromkeys(name for run in runs for name in run))
)
wild_hostlist = st.lists(word | st.builds("{}={}".format, word, word), max_size=6)
hostlist = (wild_hostlist | st.lists(name, min_size=1, max_size=6, unique_by=str.lower)).map("\n".join)

NODE_LISTS = [path.read_bytes() for path in sorted((ROOT / "inventory" / "node-lists").iterdir())]
PIECES = [
    b"[", b"]", b"{{", b"{", b"}", b"&a", b"*a", b"!!x", b"\xff", b"\x00", b"\xef\xbb\xbf", b"\n", b"\r", b'"', b"'",
    b",", b"\t", b":", b"- ", b"#", b"=", b"[1-99999999]", b"\x1b[0m", "é".encode(), b"null", b"? ", b"|\n", b"-9", b"",
]  # fmt: skip
# what takes the place of so many bytes where
damage = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 30), st.sampled_from(PIECES)), min_size=1, max_size=6)


def outcome(data: bytes) -> InitResult | InputError:
    """What `init --from -` makes of a file; anything but these two is a crash."""
    try:
        return read_request(InitRequest(Path("hpc"), controller=("ctl1",), stdin=io.BytesIO(data)))
    except InputError as error:
        return error


def check(text: str | bytes) -> None:
    result = outcome(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    if isinstance(result, InputError):
        assert all(problem.where and problem.message and problem.hint for problem in result.problems)
        return
    assert parse_spec(render_spec(result.cluster), "cluster.yml") == result.cluster
    assert "{{ x" not in render_inventory(result.cluster)
    assert "{{" not in str(result.carryover.settings)
    for note in (*result.carryover.not_carried, *result.carryover.to_check):
        assert note.name
        assert note.where
        assert note.reason


@pytest.mark.parametrize(
    "texts",
    [slurm_conf, ini, table, spec_text, hostlist | st.text()],
    ids=["slurm.conf", "DeepOps inventory", "table", "cluster.yml", "any text"],
)
@bounded
@given(data=st.data())
def test_any_node_list_gives_a_cluster_or_listed_errors(texts: st.SearchStrategy[str], data: st.DataObject) -> None:
    check(data.draw(texts))


@bounded
@given(st.sampled_from(NODE_LISTS), damage)
def test_any_damaged_example_gives_a_cluster_or_listed_errors(data: bytes, edits: list[tuple[int, int, bytes]]) -> None:
    for place, length, piece in edits:
        start = place % (len(data) or 1)
        data = data[:start] + piece + data[start + length :]
    check(data)


@bounded
@given(st.lists(setting, max_size=6), word)
def test_any_group_vars_give_a_cluster_or_listed_errors(lines: list[str], outlier: str) -> None:
    text = "\n".join(line.replace("=", ": ", 1) for line in lines) + f"\nodd: {outlier}\n"
    with tempfile.TemporaryDirectory() as directory:
        site = Path(directory)
        (site / "group_vars").mkdir()
        (site / "group_vars" / "all.yml").write_bytes(text.encode("utf-8", "surrogatepass"))
        (site / "inventory").write_text("[slurm-master]\nm1\n[slurm-node]\nn1\n")
        try:
            result = read_request(InitRequest(Path("hpc"), source=site))
        except InputError as error:
            assert all(problem.where and problem.hint for problem in error.problems)  # noqa: PT017 (it may be raised, or not)
        else:
            assert result.cluster.compute
            assert "{{" not in str(result.carryover.settings)


@few
@given(slurm_conf | ini | table)
def test_a_refused_node_list_leaves_no_directory_and_an_accepted_one_a_whole_one(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory) / "source" / "list", Path(directory) / "made" / "hpc"
        source.parent.mkdir()
        target.parent.mkdir()
        source.write_bytes(text.encode("utf-8", "surrogatepass"))
        code = run_command_line(["init", str(target), "--from", str(source)])
        left = {path.name for path in target.parent.rglob("*")}
        assert code in (0, 3)
        assert {"cluster.yml", "hosts.yml", "settings.yml", "secrets.yml", ".vault-password"} <= left or code == 3
        assert left == set() or code == 0


@bounded
@given(node_names)
def test_what_is_folded_expands_to_the_same_names_in_the_same_order(names: list[str]) -> None:
    assert list(expand(fold_in_order(names))) == names
    expanded = expand(fold(names))
    assert set(expanded) == set(names)
    assert len(expanded) == len(set(names))
    # Slurm knows no steps
    assert "/" not in fold(names)


@bounded
@given(node_names, st.lists(st.builds("10.{}.0.{}".format, st.integers(0, 2), st.integers(1, 250)), min_size=60))
def test_folded_pairs_keep_every_pair_in_order_and_no_line_is_long(names: list[str], addresses: list[str]) -> None:
    pairs = list(zip(names, addresses, strict=False))
    entries = list(fold_pairs(pairs, 4))

    assert [item for entry in entries for item in pair(*entry)] == pairs
    assert all(text.count(",") < 4 for entry in entries for text in entry)


@bounded
@given(st.text(alphabet="n01-9[],/=@:", max_size=20))
def test_any_expression_expands_or_is_refused_with_a_hint(text: str) -> None:
    try:
        names = expand(text)
    except RefusedError as refusal:
        assert refusal.hint  # noqa: PT017 (it may be raised, or not)
    else:
        assert names
        assert pair(text, text) == tuple(zip(names, names, strict=True))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A whole cluster as cluster.yml may describe it."""
    names = draw(st.lists(name, min_size=2, max_size=12, unique_by=str.lower))
    gpus = st.none() | st.builds(Gpus, st.sampled_from(["", "h100", "a100"]), st.integers(1, 16))
    nodes = [Node(names[0], frozenset({Role.CONTROLLER}), "192.0.2.1")]
    for number, node in enumerate(names[1:], start=2):
        address = f"192.0.2.{number}" if draw(st.booleans()) else ""
        features = tuple(draw(st.lists(st.sampled_from(["ib", "nvlink"]), unique=True)))
        weight = draw(st.none() | st.integers(1, 99))
        nodes.append(
            Node(node, frozenset({Role.COMPUTE}), address, draw(st.sampled_from([0, 2222])), draw(gpus), features,
                 {"Weight": str(weight)} if weight else {})
        )  # fmt: skip
    partition = Partition("all", tuple(names[1:]), draw(st.booleans()), draw(st.sampled_from(["", "1-00:00:00"])), {})
    return Cluster("hpc", Access("ubuntu", draw(st.sampled_from([0, 22]))), tuple(nodes), (partition,))


@settings(bounded, max_examples=50)
@given(clusters())
def test_a_cluster_comes_back_from_its_files_unchanged(cluster: Cluster) -> None:
    again = parse_spec(render_spec(cluster), "cluster.yml")

    assert again == cluster
    assert build_inventory(again) == build_inventory(cluster)
    assert group_members(cluster)["slurm_compute"] == tuple(node.name for node in cluster.compute)
