"""Who may use how much, as cluster.yml declares it: read, checked as a whole, and handed on."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.model.cluster import Cluster
from deepopsctl.policy.values import ASSOCIATION_LIMITS, QOS_LIMITS
from tests.support import node_modules as nodeside
from tests.support.problems import faults as faults_of

HEAD = """\
schema: 1
nodes:
  - {names: ctl1, roles: [controller]}
  - {names: "gpu[1-2]", roles: [compute], gpus: {type: a100, count: 4}}
"""
WHOLE = (
    HEAD
    + """\
partitions:
  - {name: gpu, nodes: all, default: true, options: {QOS: high, AllowAccounts: "physics,astro"}}
priority: {weights: {fairshare: 10000, age: 500}, decay_half_life: "14-0", usage_reset: Monthly, favor_small: true}
preemption: {by: qos, mode: requeue, exempt_time: "00:10:00"}
qos:
  - {name: normal, priority: 10}
  - {name: high, priority: 100, preempts: [normal], flags: [denyonlimit], limits: {maxtresperuser: gres/gpu:a100=2}}
accounts:
  - {name: astro, parent: physics, fairshare: parent, users: [carol]}
  - {name: physics, description: Physics dept, fairshare: 20, qos: [normal, high], default_qos: normal, users: [alice]}
users:
  - {names: [alice], account: physics, default: true, limits: {MaxJobs: 4}}
"""
)


def faults(*lines: str) -> list[str]:
    return faults_of(parse_spec, HEAD + "".join(f"{line}\n" for line in lines), "cluster.yml")


def variable(cluster: Cluster) -> object:
    inventory = build_inventory(cluster)
    top = inventory["all"]
    assert isinstance(top, dict)
    return top["vars"].get("slurm_policy")


def test_a_whole_policy_becomes_what_the_roles_read() -> None:
    assert variable(parse_spec(WHOLE, "cluster.yml")) == {
        "config": {
            "PriorityWeightFairshare": "10000",
            "PriorityWeightAge": "500",
            "PriorityDecayHalfLife": "14-0",
            "PriorityUsageResetPeriod": "MONTHLY",
            "PriorityFavorSmall": "YES",
            "PreemptType": "preempt/qos",
            "PreemptMode": "REQUEUE",
            "PreemptExemptTime": "00:10:00",
        },
        "qos": [
            {"name": "normal", "settings": {"Priority": "10"}},
            {
                "name": "high",
                "settings": {
                    "Priority": "100", "Preempt": "normal", "Flags": "DenyOnLimit", "MaxTRESPU": "gres/gpu:a100=2",
                },
            },
        ],
        "accounts": [
            {
                "name": "physics",
                "settings": {
                    "ParentName": "root", "Descr": "Physics dept", "Share": "20", "QOS": "normal,high",
                    "DefaultQOS": "normal",
                },
            },
            {"name": "astro", "settings": {"ParentName": "physics", "Share": "parent"}},
        ],
        "users": [
            {"name": "alice", "account": "physics", "default": True, "settings": {"MaxJobs": "4"}},
            {"name": "carol", "account": "astro", "settings": {}},
        ],
    }  # fmt: skip


def test_a_cluster_without_policy_has_no_such_variable() -> None:
    assert variable(parse_spec(HEAD, "cluster.yml")) is None


def test_what_is_written_reads_back_as_the_same_policy() -> None:
    cluster = parse_spec(WHOLE, "cluster.yml")

    assert parse_spec(render_spec(cluster), "cluster.yml").policy == cluster.policy


def test_every_limit_is_known_on_the_nodes() -> None:
    tables = nodeside.load("slurm.accounting")

    assert set(QOS_LIMITS) <= set(tables.QOS)
    assert set(ASSOCIATION_LIMITS) <= set(tables.ASSOCIATION)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("qos: [{name: High}]", "qos[0].name: 'High' can't be a name here (Slurm's accounting keeps names in lower"),
        ("qos: [{name: a, priority: high}]", "qos[0].priority: 'high' is not a whole number"),
        ("qos: [{name: a, flags: [DenyLimit]}]", "qos[0].flags: 'DenyLimit' is not a flag of a QOS"),
        ("qos: [{name: a, preempt_mode: kill}]", "qos[0].preempt_mode: 'kill' is not known here"),
        ("qos: [{name: a, limits: {MaxJobs: 3}}]", "qos[0].limits.MaxJobs: is not a limit that can be set here"),
        ("qos: [{name: a, limits: {MaxWall: 2d}}]", "qos[0].limits.MaxWall: '2d' is not a valid time limit of Slurm's"),
        ("qos: [{name: a, limits: {MaxWall: UNLIMITED}}]", "qos[0].limits.MaxWall: UNLIMITED is not a limit"),
        ("qos: [{name: a, limits: {GrpTRES: gpu=3}}]", "qos[0].limits.GrpTRES: gpu is not a TRES of Slurm's"),
        ("qos: [{name: a, limits: {GrpTRES: cpu}}]", "qos[0].limits.GrpTRES: 'cpu' is not a TRES with an amount"),
        ('qos: [{name: a, limits: {GrpTRES: "cpu=1,cpu=2"}}]', "qos[0].limits.GrpTRES: cpu=1,cpu=2 names a TRES"),
        ("qos: [{name: a, limits: {GrpTRES: cpu=4G}}]", "qos[0].limits.GrpTRES: 'cpu=4G': only mem has a unit"),
        ("qos: [{name: a, limits: {GrpTRES: gres/gpu:h100=1}}]", "qos[0].limits: GrpTRES: no node has GPUs of type"),
        (
            "qos: [{name: a, limits: {MaxTRESPU: cpu=1, MaxTRESPerUser: cpu=2}}]",
            "qos[0].limits.MaxTRESPerUser: MaxTRESPU is given",
        ),
        ("qos: [{name: a, preempts: [normal]}]", "qos[0].preempts: a would preempt nothing: preemption by QOS is off"),
        ("qos: [{name: a}, {name: a}]", "qos[1]: the qos a is already declared at cluster.yml:5"),
        ("qos: [{name: a, nam: b}]", "qos[0].nam: unknown key"),
        ("accounts: [{name: a, parent: b}]", "accounts[0].parent: the account b is not declared"),
        ("accounts: [{name: a, qos: [fast]}]", "accounts[0].qos: the QOS fast is not declared"),
        ("accounts: [{name: a, default_qos: fast}]", "accounts[0].default_qos: the QOS fast is not declared"),
        ("accounts: [{name: a, fairshare: much}]", "accounts[0].fairshare: 'much' is not a number of shares"),
        ("accounts: [{name: a, description: 'x | y'}]", "accounts[0].description: 'x | y' can't be a description"),
        ("accounts: [{name: root}]", "accounts[0].name: root is Slurm's own account"),
        ("accounts: [{name: a, users: [Bob]}]", "accounts[0].users: 'Bob' can't be a name here"),
        ("users: [{names: [bob], account: a}]", "users[0].account: the account a is not declared"),
        ("priority: {weights: {fairshare: -1}}", "priority.weights: fairshare: '-1' is not a valid weight"),
        ("priority: {weights: {fair: 1}}", "priority.weights: fair is not a factor of the priority"),
        ("priority: {decay_half_life: fortnight}", "priority.decay_half_life: 'fortnight' is not a valid time limit"),
        (f"priority: {{max_age: {'1' * 5000}}}", "priority.max_age: '1"),
        ("priority: {usage_reset: sometimes}", "priority.usage_reset: 'sometimes' is not known here"),
        ("preemption: {by: account}", "preemption.by: 'account' is not known here"),
        ("preemption: {mode: cancel}", "preemption.by: is missing"),
    ],
)
def test_refuses_a_bad_value_and_names_its_line(line: str, fault: str) -> None:
    (message,) = faults(line)
    assert message.startswith(f"cluster.yml:5: {fault}")


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        (
            ["accounts:", "  - {name: a, parent: b}", "  - {name: b, parent: a}"],
            ["6: accounts[0].parent: a is, over its parents, below itself"],
        ),
        (
            ["preemption: {by: qos}", "qos: [{name: a, preempts: [b]}]"],
            ["6: qos[0].preempts: the QOS b is not declared"],
        ),
        (
            [
                "preemption: {by: qos}",
                "qos:",
                "  - {name: a, preempts: [b]}",
                "  - {name: b, preempts: [c]}",
                "  - {name: c, preempts: [a]}",
            ],
            ["7: qos[0].preempts: a would in the end preempt itself"],
        ),
        (
            [
                "qos: [{name: a}, {name: b}]",
                "accounts:",
                "  - {name: x, qos: [a]}",
                "  - {name: y, parent: x, default_qos: b}",
                "  - {name: z, default_qos: a}",
            ],
            [
                "8: accounts[1].default_qos: b is not among the QOS allowed here: a",
                "9: accounts[2].default_qos: a is not among the QOS allowed here: normal",
            ],
        ),
        (
            [
                "accounts: [{name: x}, {name: y}]",
                "users:",
                "  - {names: [bob], account: x, default: true}",
                "  - {names: [bob], account: y, default: true}",
            ],
            ["8: users[1].default: bob has the default account x already"],
        ),
        (
            ["partitions: [{name: p, nodes: all, options: {QOS: fast, DenyQos: slow}}]", "qos: [{name: slow}]"],
            ["5: partitions[0].options.QOS: the QOS fast is not declared"],
        ),
    ],
    ids=[
        "accounts in a circle",
        "preempts what is not declared",
        "preempt each other over others",
        "default QOS not allowed there or above",
        "two default accounts",
        "partition names what is not declared",
    ],
)
def test_refuses_what_does_not_fit_together_and_names_its_line(lines: list[str], refused: list[str]) -> None:
    assert faults(*lines) == [f"cluster.yml:{fault}" for fault in refused]


def test_a_site_that_keeps_its_qos_by_sacctmgr_may_name_them_in_partitions() -> None:
    text = HEAD + "partitions: [{name: p, nodes: all, options: {QOS: fast, AllowAccounts: x}}]\n"

    assert parse_spec(text, "cluster.yml").partitions[0].options["QOS"] == "fast"


@pytest.mark.parametrize("word", ["ALL", "all"])
def test_all_is_no_name_of_an_account_or_a_qos(word: str) -> None:
    partition = f"{{name: p, nodes: all, options: {{AllowAccounts: {word}, AllowQos: {word}}}}}"
    text = f"{HEAD}partitions: [{partition}]\nqos: [{{name: q}}]\naccounts: [{{name: x}}]\n"

    assert parse_spec(text, "cluster.yml").partitions[0].options["AllowQos"] == word


def test_does_not_call_missing_what_a_faulty_entry_would_have_declared() -> None:
    messages = faults("qos: [{nam: fast}]", "accounts: [{name: a, qos: [fast]}]")
    assert [line.split(": ")[1] for line in messages] == ["qos[0].name", "qos[0].nam"]
