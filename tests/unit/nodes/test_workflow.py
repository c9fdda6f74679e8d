"""Machines that come and go: what they are like, what is written and put back, which nodes are visited."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.editor import SpecFile
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import ExitCode, InputError
from deepopsctl.model.cluster import Gpus, Node, Role
from deepopsctl.nodes.host_keys import forget
from deepopsctl.nodes.new_nodes import AddRequest, describe, parse_hosts, resolve_new_nodes, split_known
from deepopsctl.nodes.remove import chosen
from deepopsctl.nodes.replace import ReplaceRequest, replace
from deepopsctl.nodes.wait_for_jobs import job_words
from deepopsctl.nodes.workflow import Report, StoppedError, dependent_nodes, deployed_from_here, untouched_nodes
from deepopsctl.run.events import Totals
from deepopsctl.run.outcome import Failure
from deepopsctl.run.request import RunRequest
from deepopsctl.run.workspace import Workspace
from deepopsctl.slurm.state import SlurmJob
from tests.support.runs import cluster_dir, console, flow, run_of

TEXT = """\
schema: 1
cluster: {name: hpc, user: ubuntu}
nodes:
  - {names: ctl1, addresses: "10.0.0.1", roles: [controller]}
  - {names: login1, addresses: "10.0.0.2", roles: [login]}
  - {names: "gpu[01-02]", addresses: "10.0.1.[11-12]", roles: [compute], gpus: {type: a100, count: 2}, features: [ib]}
  - {names: cpu1, addresses: "10.0.2.1", roles: [compute]}
partitions:
  - {name: gpu, nodes: "gpu[01-02]", default: true}
  - {name: cpu, nodes: cpu1}
  - {name: any, nodes: all}
"""
CLUSTER = parse_spec(TEXT, "cluster.yml")


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDir:
    result = cluster_dir(tmp_path, TEXT)
    result.refresh_inventory(CLUSTER)
    return result


def replace_refused(directory: ClusterDir, node: str) -> InputError:
    with pytest.raises(InputError) as refused:
        replace(directory, ReplaceRequest(node, "", 60), RunRequest(directory, ""), console(directory))
    return refused.value


def test_a_controller_is_not_replaced_like_another_node(directory: ClusterDir) -> None:
    hint = replace_refused(directory, "ctl1").hint

    assert "`deepopsctl ssh setup --accept-new-keys ctl1`, and `deepopsctl restore`" in hint


SHARED = """\
storage:
  - {name: state, type: nfs, source: "filer.example.com:/slurm", path: /srv/slurm, nodes: controller}
slurm_state: state
"""


@pytest.mark.parametrize(
    ("roles", "state"), [("controller", ""), ("controller, dbd", SHARED), ("controller, monitoring", SHARED)]
)
def test_a_second_controller_is_not_replaced_where_it_alone_has_something(
    directory: ClusterDir, roles: str, state: str
) -> None:
    directory.spec.write_text(TEXT.replace("[login]", f"[{roles}]") + state)

    assert f"login1 is {roles}: " in replace_refused(directory, "login1").message


def test_a_new_node_is_like_those_with_such_a_name() -> None:
    new = resolve_new_nodes(CLUSTER, AddRequest("gpu03"), [("gpu03", "10.0.1.13")])

    assert new.model.gpus == Gpus("a100", 2)
    assert new.model.features == ("ib",)
    assert new.partitions == ("gpu", "any")
    assert new.like == "gpu02"
    assert describe(new) == "like gpu02: compute, a100:2, features ib, partitions gpu, any"


def test_what_is_said_wins_over_what_it_resembles() -> None:
    new = resolve_new_nodes(
        CLUSTER, AddRequest("gpu03", "h100:8", "nvlink,ib", partitions=("cpu",)), [("gpu03", "10.0.1.13")]
    )

    assert new.model.gpus == Gpus("h100", 8)
    assert new.model.features == ("nvlink", "ib")
    assert new.partitions == ("cpu",)


def test_a_node_can_have_no_gpus() -> None:
    assert resolve_new_nodes(CLUSTER, AddRequest("gpu03", "none"), [("gpu03", "10.0.1.13")]).model.gpus is None


def test_a_node_that_resembles_nothing_is_plain_and_goes_where_all_are() -> None:
    new = resolve_new_nodes(CLUSTER, AddRequest("big1"), [("big1", "10.0.3.1")])

    assert (new.like, new.model.gpus, new.partitions) == ("", None, ("any",))


def test_a_login_node_is_in_no_partition() -> None:
    new = resolve_new_nodes(CLUSTER, AddRequest("login2", like="login1"), [("login2", "10.0.0.3")])

    assert new.model.roles == {Role.LOGIN}
    assert new.partitions == ()


@pytest.mark.parametrize(
    ("asked_for", "message"),
    [
        (AddRequest("x1", like="gpu09"), "--like: the cluster has no node or group gpu09"),
        (AddRequest("x1", like="ctl1"), "--like: ctl1 is a controller"),
        (AddRequest("x1", partitions=("big",)), "--partition: there is no partition big"),
        (AddRequest("x1", gpus="h100"), "TYPE:COUNT"),
        (AddRequest("x1", gpus="h100:many"), "not a number of GPUs"),
        (AddRequest("x1", features="a b"), "not a feature"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(asked_for: AddRequest, message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_new_nodes(CLUSTER, asked_for, [("x1", "10.0.3.1")])


def test_a_partition_has_to_be_named_where_nothing_tells() -> None:
    cluster = parse_spec(TEXT.replace("  - {name: any, nodes: all}\n", ""), "cluster.yml")

    with pytest.raises(InputError, match="the partition of the new nodes is unknown"):
        resolve_new_nodes(cluster, AddRequest("big1"), [("big1", "10.0.3.1")])


@pytest.mark.parametrize("text", ["gpu[01-", "gpu01,gpu01", "gpu03=10.0.0.[1-2]", "gpu03=", "{{ x }}", "a_b c"])
def test_names_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_hosts(text)


def test_names_and_addresses_are_paired() -> None:
    assert parse_hosts("gpu[03-04]=10.0.1.9,10.0.1.7") == (("gpu03", "10.0.1.9"), ("gpu04", "10.0.1.7"))


def test_a_node_that_is_there_already_is_no_new_one() -> None:
    fresh, there = split_known(CLUSTER, [("gpu02", "10.0.1.12"), ("gpu01", ""), ("gpu03", "10.0.1.13")])

    assert fresh == [("gpu03", "10.0.1.13")]
    assert there == [("gpu02", "10.0.1.12"), ("gpu01", "10.0.1.11")]


def test_another_host_under_a_known_name_is_no_new_node() -> None:
    with pytest.raises(InputError, match="gpu02 is in the cluster with the address") as caught:
        split_known(CLUSTER, [("gpu02", "10.0.9.9")])
    assert "node replace gpu02 --address 10.0.9.9" in caught.value.hint


@pytest.mark.parametrize(("text", "message"), [("gpu09", "no node or group gpu09"), ("ctl1", "ctl1 is controller")])
def test_what_the_cluster_stands_on_is_not_removed(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        chosen(CLUSTER, text)


def test_dependent_nodes_are_visited_and_untouched_nodes_are_not() -> None:
    assert [node.name for node in dependent_nodes(CLUSTER)] == ["ctl1", "login1"]
    assert untouched_nodes(CLUSTER, [named("gpu02")]) == ("gpu01", "cpu1")


def test_all_nodes_get_the_host_key_of_a_node_where_users_log_in() -> None:
    assert untouched_nodes(CLUSTER, [named("login1")]) == ()
    assert untouched_nodes(CLUSTER, [named("ctl1")]) == ("gpu01", "gpu02", "cpu1")


def named(name: str) -> Node:
    return next(node for node in CLUSTER.nodes if node.name == name)


def test_cluster_yml_and_inventory_change_together_and_come_back(directory: ClusterDir) -> None:
    spec, hosts = SpecFile.open(directory), directory.hosts.read_text()
    directory.spec.chmod(0o640)

    spec.write(TEXT.replace("cpu1", "cpu7"))

    assert "cpu7" in directory.spec.read_text()
    assert "cpu7" in directory.hosts.read_text()
    assert directory.spec.stat().st_mode & 0o777 == 0o640
    assert spec.restore()
    assert directory.spec.read_text() == TEXT
    assert directory.hosts.read_text() == hosts
    assert not spec.restore()


def test_a_text_that_is_no_cluster_is_not_written(directory: ClusterDir) -> None:
    with pytest.raises(InputError):
        SpecFile.open(directory).write(TEXT.replace("roles: [controller]", "roles: [king]"))
    assert directory.spec.read_text() == TEXT


def test_host_keys_are_forgotten_by_name_and_by_address(directory: ClusterDir) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE5vdEFLZXlKdXN0QVRlc3RWYWx1ZU9mMzJCeXRlc1gx"
    directory.known_hosts.write_text(f"gpu01,10.0.1.11 {key}\ngpu02,10.0.1.12 {key}\n")

    forget(directory, CLUSTER, ["gpu02"])

    assert directory.known_hosts.read_text() == f"gpu01,10.0.1.11 {key}\n"


def test_jobs_are_named_with_their_owners() -> None:
    jobs = [SlurmJob(str(number), "alice", "RUNNING", "gpu", ("gpu01",)) for number in range(1, 11)]

    assert job_words(jobs[:1]) == "job 1 (alice) is"
    assert job_words(jobs).endswith("8 (alice) and 2 more are")


def test_a_report_that_was_stopped_says_why_and_fails() -> None:
    report = Report("node add", ("gpu03",), stopped=StoppedError("it burns", "put it out", ExitCode.UNREACHABLE))

    assert report.exit_code is ExitCode.UNREACHABLE
    assert report.as_object()["stopped"] == {"message": "it burns", "hint": "put it out"}
    assert report.as_object()["ok"] is False


PROTECTED = parse_spec(TEXT.replace("name: hpc,", "name: hpc, protected: true,"), "cluster.yml")


def test_yes_does_not_answer_for_a_protected_cluster_but_its_name_does(directory: ClusterDir) -> None:
    with pytest.raises(click.UsageError, match="give --confirm hpc"):
        console(directory).confirm("remove gpu01 from hpc?", PROTECTED)
    with pytest.raises(click.UsageError, match="'lab' is not the name"):
        console(directory, confirmed="lab").confirm("remove gpu01 from hpc?", PROTECTED)
    console(directory, confirmed="hpc").confirm("remove gpu01 from hpc?", PROTECTED)


def test_without_a_terminal_nothing_is_agreed(directory: ClusterDir) -> None:
    with pytest.raises(click.UsageError, match="give --yes"):
        console(directory, yes=False).confirm("remove gpu01 from hpc?", CLUSTER)


class TestWhatKeepsANewNodeFromService:
    def evaluate(self, directory: ClusterDir, failure: Failure, **hosts: Totals) -> None:
        new = [node for node in CLUSTER.nodes if node.name == "gpu02"]
        outcome = run_of(failure, hosts=hosts, code=2)
        flow(directory, "node add", "gpu02").require_service(outcome, CLUSTER, new, "it stays out", "mend it")

    @pytest.mark.parametrize("host", ["ctl1", "gpu02"])
    def test_not_what_comes_on_top_of_slurm(self, directory: ClusterDir, host: str) -> None:
        self.evaluate(directory, Failure(host, "monitoring", "Configure Grafana's repository", "no key", ""))

    @pytest.mark.parametrize("component", ["stop-slurmd", "nvidia", "storage", "slurm"])
    def test_what_its_jobs_need(self, directory: ClusterDir, component: str) -> None:
        with pytest.raises(StoppedError) as caught:
            self.evaluate(directory, Failure("gpu02", component, "Work", "broken", ""))
        assert (caught.value.message, caught.value.exit_code) == ("gpu02 failed: it stays out", ExitCode.FAILED)

    @pytest.mark.parametrize(("host", "component"), [("ctl1", "slurm"), ("", "")])
    def test_a_controller_whose_slurm_failed_and_an_ansible_that_gave_up(
        self, directory: ClusterDir, host: str, component: str
    ) -> None:
        with pytest.raises(StoppedError):
            self.evaluate(directory, Failure(host, component, "Work", "broken", ""))

    def test_not_another_node(self, directory: ClusterDir) -> None:
        self.evaluate(directory, Failure("login1", "slurm", "Work", "broken", ""))

    def test_silence_whenever_it_begins(self, directory: ClusterDir) -> None:
        silence = Failure("gpu02", "monitoring", "Work", "no route", "", unreachable=True)
        with pytest.raises(StoppedError) as caught:
            self.evaluate(directory, silence, gpu02=Totals(ok=3, unreachable=1))
        assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_components_of_earlier_runs_count_where_these_came_to_their_end(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "runs")
    for playbooks, more, ok in (
        (["slurm"], {}, True),
        (["nvidia", "storage"], {}, False),
        (["monitoring"], {"check": True}, True),
        (["operate/nodes/stop-slurmd", "nvidia"], {}, True),
    ):
        run_dir = workspace.new_run("deploy")
        run_dir.write(run_dir.request, {"playbooks": playbooks, **more})
        run_dir.write(run_dir.summary, {"ok": ok})

    assert deployed_from_here(workspace) - {"operate/nodes/stop-slurmd"} == {"slurm", "nvidia"}
