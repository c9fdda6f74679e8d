"""The section `directory` of people.yml: what is read, every fault with its line, and the accounts that follow it."""

from __future__ import annotations

from base64 import b64decode
from datetime import date
from pathlib import Path

import pytest

from deepopsctl.certificates.authority import new_authority
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.environment import directory as service, edit
from deepopsctl.environment.people import parse_people
from deepopsctl.errors import InputError
from deepopsctl.model.directory import Directory, DirectoryAccount
from tests.data import people_samples
from tests.support.problems import faults as faults_of

CLUSTER = f"{people_samples.CLUSTER}accounts: [{{name: teaching}}]\n"
SECTION = {
    "servers": "[ldaps://ldap.example.com]",
    "base": "dc=example,dc=com",
    "ca": "directory-ca.pem",
    "access_groups": "[hpc]",
}


def written(**keys: str) -> str:
    """A people.yml with these keys of `directory` from line 3 on; '' leaves one out."""
    lines = "".join(f"  {key}: {text}\n" for key, text in {**SECTION, **keys}.items() if text)
    return f"schema: 1\ndirectory:\n{lines}"


def read(text: str) -> Directory:
    directory = parse_people(text, "people.yml", parse_spec(CLUSTER, "cluster.yml")).directory
    assert directory
    return directory


def faults(text: str) -> list[str]:
    return faults_of(parse_people, text, "people.yml", parse_spec(CLUSTER, "cluster.yml"))


def test_reads_everything_that_a_directory_may_have() -> None:
    text = written(
        schema="rfc2307bis", bind_dn='"cn=reader,dc=example,dc=com"', ids="20000-29999", ssh_keys="true",
        passwords="true", accounts='[{group: "Curie Lab", account: def-curie, shares: 100}]',
    )  # fmt: skip

    assert read(text) == Directory(
        servers=("ldaps://ldap.example.com",), base="dc=example,dc=com", ca="directory-ca.pem", schema="rfc2307bis",
        bind_dn="cn=reader,dc=example,dc=com", first_id=20000, last_id=29999, access_groups=("hpc",), ssh_keys=True,
        passwords=True, accounts=(DirectoryAccount("Curie Lab", "def-curie", 100),),
    )  # fmt: skip


NEVER_ASKED = "is the name of a group of the system or of a package: nodes never ask the directory for it"


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"servers": "[http://x]"}, "3: directory.servers[0]: 'http://x' is not an address of a directory server"),
        ({"servers": '["ldap://x\\nldap_tls_reqcert = never"]'}, "3: directory.servers[0]: "),
        ({"base": "example.com"}, "4: directory.base: 'example.com' is not a distinguished name"),
        ({"ca": "../ca.pem"}, "5: directory.ca: '../ca.pem' is not a file of the cluster directory"),
        ({"ca": "/etc/ca.pem"}, "5: directory.ca: '/etc/ca.pem' is not a file of the cluster directory"),
        ({"access_groups": ""}, "2: directory: needs access_groups or access_filter, and one of them only"),
        ({"access_filter": "(a=b)"}, "2: directory: needs access_groups or access_filter, and one of them only"),
        ({"access_groups": "", "access_filter": "a=b"}, "6: directory.access_filter: 'a=b' is not an LDAP filter"),
        ({"access_groups": "[docker]"}, f"6: directory.access_groups[0]: docker {NEVER_ASKED}"),
        ({"access_groups": "['a, b']"}, "6: directory.access_groups[0]: 'a, b' is not a name of a directory's group"),
        ({"schema": "rfc"}, "7: directory.schema: 'rfc' is not a valid schema"),
        ({"ids": "20000"}, "7: directory.ids: '20000' is not a range of ids"),
        ({"ids": "500-900"}, "7: directory.ids: 500-900 is not a range between 1000 and 671088639"),
        (
            {"accounts": "[{group: a, account: def-a}, {group: b, account: def-a}]"},
            "7: directory.accounts[1].account: def-a is listed twice",
        ),
        (
            {"accounts": "[{group: a, account: teaching}]"},
            "7: directory.accounts[0]: the account teaching is declared in cluster.yml as well (`accounts:`)",
        ),
        ({"password": "secret"}, "7: directory.password: unknown key"),
    ],
)
def test_a_fault_is_named_with_its_line(keys: dict[str, str], fault: str) -> None:
    (result,) = faults(written(**keys))
    assert result.startswith(f"people.yml:{fault}")


PEOPLE = """\
groups: [{name: def-lab, gid: 20500}]
people:
  - {name: ada, uid: 60001, groups: [def-lab]}
"""


def test_an_id_of_people_yml_is_none_of_the_directorys() -> None:
    (fault,) = faults(written(ids="20000-29999") + PEOPLE)

    assert fault.startswith("people.yml:8: groups[0]: 20500 is one of the directory's ids (20000 to 29999")


def test_new_people_get_ids_that_the_directory_has_not() -> None:
    text, cluster = written(ids="60002-60100") + PEOPLE, parse_spec(CLUSTER, "cluster.yml")

    assert "uid: 60101" in edit.add(text, "people", {"name": "bea", "groups": ["def-lab"]}, cluster)
    assert "uid: 60101" in edit.give_ids(f"{text}  - {{name: bea, groups: [def-lab]}}\n", cluster)


class TestTheAuthority:
    def directory(self, path: Path, text: str) -> ClusterDir:
        (path / "cluster.yml").write_text(CLUSTER)
        (path / "people.yml").write_text(written())
        (path / "directory-ca.pem").write_text(text)
        return ClusterDir(path)

    def test_is_in_the_inventory_and_no_node_asks_without_it(self, tmp_path: Path) -> None:
        whole = b64decode(new_authority(date(2026, 11, 1))).decode()
        certificate = whole[whole.index("-----BEGIN CERTIFICATE") :]
        inventory = str(build_inventory(self.directory(tmp_path, certificate).cluster()))

        assert certificate.splitlines()[1] in inventory
        assert "'directory_nodes': {'hosts': {'ctl1': None, 'n1': None}}" in inventory
        # it would be readable for all users of the nodes
        with pytest.raises(InputError, match="private key"):
            self.directory(tmp_path, whole).cluster()

    def test_has_to_be_one(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no certificate that can be read"):
            self.directory(tmp_path, "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n").cluster()
        with pytest.raises(InputError, match="no certificate that can be read"):
            self.directory(tmp_path, "just text\n").cluster()


VARIABLE = {
    "accounts": [
        {"group": "curie-lab", "account": "def-curie", "shares": 5},
        {"group": "noether-lab", "account": "def-noether"},
        {"group": "gone", "account": "def-gone"},
    ]
}
ANSWER = {
    "groups": [
        {"name": "curie-lab", "gid": 20001, "members": ["grace", "lise"]},
        {"name": "noether-lab", "gid": 20002, "members": []},
    ],
    # lise could not be asked for
    "people": [{"name": "grace", "uid": 20010, "gid": 20000}],
}


def test_members_charge_the_account_of_their_group() -> None:
    people = service.with_members({"groups": [], "people": []}, VARIABLE, ANSWER)

    assert people["people"] == [{"name": "grace", "groups": ["def-curie"]}]
    assert people["groups"] == [{"name": "def-curie", "shares": 5}, {"name": "def-noether"}, {"name": "def-gone"}]


def test_nobody_is_closed_by_a_directory_that_answers_half() -> None:
    # neither where a group is missing or empty
    assert service.followed(VARIABLE, ANSWER) == ["def-curie", "def-curie_cpu", "def-curie_gpu"]
    assert service.followed(VARIABLE, {}) == []
    # nor where a member is listed and not found
    assert {"name": "lise", "account": "def-curie_gpu", "settings": {}} in service.listed(VARIABLE, ANSWER)
