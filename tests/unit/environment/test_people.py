"""people.yml: what is read, and every fault with its line."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.environment import values
from deepopsctl.environment.people import parse_people
from deepopsctl.errors import InputError
from deepopsctl.model.people import Group, Person
from deepopsctl.text.problems import RefusedError
from tests.data.people_samples import CLUSTER, KEY
from tests.support.problems import faults as faults_of

HEAD = """\
schema: 1
groups:
  - {name: def-curie, gid: 60001, pi: curie}
  - {name: rrg-curie, gid: 60002, pi: curie, start: 2026-04-01, end: 2027-03-31, shares: 2000}
people:
"""
ALICE = f"""\
  - name: alice
    uid: 60010
    full_name: Alice Ball
    mail: alice@example.com
    groups: [def-curie, rrg-curie]
    keys: ["{KEY}"]
    expires: 2027-08-31
    sponsor: curie
"""


def faults(*entries: str, cluster: str = "") -> list[str]:
    """Where and what of every fault, with these people from line 6 on."""
    text = HEAD + "".join(f"  - {entry}\n" for entry in entries)
    return faults_of(parse_people, text, "people.yml", parse_spec(CLUSTER + cluster, "cluster.yml"))


def test_reads_everything_that_people_and_groups_may_have() -> None:
    people = parse_people(HEAD + ALICE, "people.yml", parse_spec(CLUSTER, "cluster.yml"))

    assert people.groups[1] == Group(
        "rrg-curie", 60002, pi="curie", start=date(2026, 4, 1), end=date(2027, 3, 31), shares=2000
    )
    assert people.people == (
        Person(
            name="alice",
            uid=60010,
            groups=("def-curie", "rrg-curie"),
            full_name="Alice Ball",
            mail="alice@example.com",
            keys=(KEY,),
            expires=date(2027, 8, 31),
            sponsor="curie",
        ),
    )


def test_the_inventory_has_what_nodes_need_and_no_mail_address() -> None:
    cluster = parse_spec(CLUSTER, "cluster.yml")
    people = parse_people(HEAD + ALICE, "people.yml", cluster)

    assert people.variable()["people"] == [
        {"name": "alice", "uid": 60010, "groups": ["def-curie", "rrg-curie"], "full_name": "Alice Ball", "keys": [KEY],
         "shell": "/bin/bash", "expires": "2027-08-31"}
    ]  # fmt: skip


RESERVED = "is the name of an account or group of the system, of Slurm or of a package"


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("{name: bob, groups: [def-curie]}", "name: bob has no uid"),
        ("{name: bob, uid: 60003}", "groups: is missing"),
        ("{name: Bob, uid: 60003, groups: [def-curie]}", "name: 'Bob' is not a login name"),
        ("{name: root, uid: 60003, groups: [def-curie]}", f"name: root {RESERVED}"),
        ("{name: docker, uid: 60003, groups: [def-curie]}", f"name: docker {RESERVED}"),
        ("{name: systemd-x, uid: 60003, groups: [def-curie]}", f"name: systemd-x {RESERVED}"),
        ("{name: _ssh, uid: 60003, groups: [def-curie]}", f"name: _ssh {RESERVED}"),
        ("{name: bob, uid: 999, groups: [def-curie]}", "uid: 999 is not between 1000 and 99999"),
        (
            "{name: bob, uid: 61184, groups: [def-curie]}",
            "uid: 61184 is one of the ids that systemd gives to services (61184 to 65535)",
        ),
        (
            "{name: bob, uid: 60001, groups: [def-curie]}",
            "uid: 60001 is already at people.yml:3 (groups[0])",
        ),
        (
            "{name: def-curie, uid: 60003, groups: [def-curie]}",
            "name: def-curie is already at people.yml:3 (groups[0])",
        ),
        (
            "{name: ubuntu, uid: 60003, groups: [def-curie]}",
            "name: ubuntu is the user that deepopsctl connects as (`cluster.user` of cluster.yml)",
        ),
    ],
)
def test_refuses_ids_and_names_that_cannot_be(entry: str, fault: str) -> None:
    assert faults(entry) == [f"people.yml:6: people[0].{fault}"]


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("groups: []", "people[0].groups: is empty"),
        ("groups: [def-curi]", "people[0].groups[0]: there is no group def-curi"),
        ("groups: [def-curie, def-curie]", "people[0].groups[1]: def-curie is listed twice"),
        ("expires: 2027-02-30", "people[0].expires: '2027-02-30' is not a valid date"),
        ("mail: bob", "people[0].mail: 'bob' is not a mail address"),
        ("shell: bash", "people[0].shell: 'bash' is not a path of a shell"),
        ("full_name: 'a:b'", "people[0].full_name: 'a:b' can't be a name in /etc/passwd"),
        ("full_name: '{{ 7 }}'", "the template marker {{ is not allowed"),
        ("password: x", "people[0].password: unknown key"),
        ("keys: [ssh-dss AAAA]", "people[0].keys[0]: 'ssh-dss AAAA' is not a public key"),
        (f"keys: ['{KEY} {KEY}']", "people[0].keys[0]: is more than one key"),
        ("keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5]", "people[0].keys[0]: the ssh-ed25519 key is cut off or damaged"),
    ],
)
def test_refuses_values_with_their_line(value: str, fault: str) -> None:
    groups = "" if value.startswith("groups") else ", groups: [def-curie]"

    assert faults(f"{{name: bob, uid: 60003{groups}, {value}}}") == [f"people.yml:6: {fault}"]


def test_reports_all_faults_at_once_in_the_order_of_their_lines() -> None:
    problems = faults("{name: bob, uid: 1, groups: [def-curie]}", "{name: eve, uid: 2, groups: [x]}")

    assert [fault.split()[0] for fault in problems] == ["people.yml:6:", "people.yml:7:", "people.yml:7:"]


@pytest.mark.parametrize(
    ("groups", "fault"),
    [
        (["{name: '', gid: 60001}"], "3: groups[0].name: '' is not a name of a group"),
        (
            ["{name: def-curie_gpu, gid: 60001}", "{name: def-curie, gid: 60002}"],
            "4: groups[1]: the account def-curie_gpu belongs to the group def-curie_gpu as well",
        ),
    ],
)
def test_refuses_groups_without_a_name_or_an_account_of_their_own(groups: list[str], fault: str) -> None:
    text = "schema: 1\ngroups:\n" + "".join(f"  - {group}\n" for group in groups)

    assert faults_of(parse_people, text, "people.yml", parse_spec(CLUSTER, "cluster.yml")) == [f"people.yml:{fault}"]


def test_cluster_yml_declares_no_account_of_a_group_and_no_second_default_of_a_person() -> None:
    accounts = "accounts: [{name: def-curie_gpu}, {name: lab}]\n"
    users = "users: [{names: [bob], account: lab, default: true}]\n"

    assert faults("{name: bob, uid: 60003, groups: [def-curie]}", cluster=accounts + users) == [
        "people.yml:3: groups[0]: the account def-curie_gpu is declared in cluster.yml as well (`accounts:`)",
        "people.yml:6: people[0].groups: bob has a default account in cluster.yml (`users:`, lab)",
    ]


@pytest.mark.parametrize(
    ("key", "refused"),
    [(f'command="sh" {KEY}', "is not a public key"), ("-----BEGIN OPENSSH PRIVATE KEY-----", "^is a private key$")],
    ids=["options before it", "a private one, which is not shown"],
)
def test_what_is_no_plain_public_key_is_refused(key: str, refused: str) -> None:
    with pytest.raises(RefusedError, match=refused):
        values.check_public_key(key)


def test_no_id_of_systemds_is_given_to_anybody() -> None:
    assert next(values.free_ids(61184, range(0))) == 65536


def test_a_group_is_open_from_its_start_until_the_day_before_its_end() -> None:
    group = Group("rrg-x", 60001, start=date(2026, 4, 1), end=date(2027, 3, 31))

    days = [date(2026, 3, 31), date(2026, 4, 1), date(2027, 3, 30), date(2027, 3, 31)]
    assert [group.is_open(day) for day in days] == [False, True, True, False]


class TestClusterDirectory:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> ClusterDir:
        (tmp_path / "cluster.yml").write_text(CLUSTER)
        return ClusterDir(tmp_path)

    @pytest.mark.parametrize(
        ("people", "components", "members"),
        [
            ("", "", "{}"),
            (HEAD + ALICE, "", "{'ctl1': None, 'n1': None}"),
            ("", "components: [environment]\n", "{'ctl1': None, 'n1': None}"),
        ],
        ids=["nothing", "people", "the component is listed"],
    )
    def test_all_nodes_are_in_the_group_where_there_are_people_or_the_component_is_listed(
        self, directory: ClusterDir, people: str, components: str, members: str
    ) -> None:
        directory.spec.write_text(CLUSTER + components)
        if people:
            directory.people.write_text(people)

        inventory = str(build_inventory(directory.cluster()))

        assert f"'environment_nodes': {{'hosts': {members}}}" in inventory
        assert ("environment_people" in inventory, "'uid': 60010" in inventory) == (bool(people), bool(people))

    def test_partitions_may_name_accounts_of_both_files_and_no_others(self, directory: ClusterDir) -> None:
        allowed = "chem,root,rrg-curie_gpu,chemm"
        partition = f"partitions: [{{name: p, nodes: all, options: {{AllowAccounts: '{allowed}'}}}}]\n"
        directory.spec.write_text(f"{CLUSTER}{partition}accounts: [{{name: chem}}]\n")
        directory.people.write_text(HEAD + ALICE)

        with pytest.raises(InputError) as refused:
            directory.cluster()

        (problem,) = refused.value.problems
        assert (problem.where, problem.message) == (
            "cluster.yml:6", "partitions[0].options.AllowAccounts: the account chemm is not declared",
        )  # fmt: skip
        assert problem.hint.startswith("did you mean chem?")
