"""Where homes are made, and which Slurm accounts people have."""

from __future__ import annotations

from datetime import date

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.environment.accounts import expired, with_people
from deepopsctl.environment.homes import Homes, homes_on

HEAD = """\
schema: 1
nodes:
  - {names: ctl1, addresses: "192.0.2.1", roles: [controller]}
  - {names: "n[1-2]", addresses: "192.0.2.[11-12]", roles: [compute]}
  - {names: login1, addresses: "192.0.2.2", roles: [login]}
"""
TODAY = date(2026, 11, 25)
PEOPLE = {
    "groups": [{"name": "def-curie", "gid": 60001, "shares": 2000}],
    "people": [{"name": "alice", "uid": 60010, "groups": ["def-curie"]}],
}


SHARED = 'type: nfs, source: "ctl1:/srv'
ELSEWHERE = 'type: nfs, source: "filer.example.com:/vol"'


@pytest.mark.parametrize(
    ("entry", "home", "made"),
    [
        ("", "/home", dict.fromkeys(("ctl1", "n1", "n2", "login1"), Homes("/home"))),
        (f'{SHARED}/home", path: /home', "/home", {"ctl1": Homes("/srv/home")}),
        (f'{SHARED}", path: /shared', "/shared/home", {"ctl1": Homes("/srv/home")}),
        (f"{ELSEWHERE}, path: /home", "/home", {"login1": Homes("/home", mounted="/home")}),
        (
            f'{SHARED}/home", path: /home, nodes: "n[1-2],ctl1"',
            "/home",
            {"ctl1": Homes("/srv/home"), "login1": Homes("/home")},
        ),
        (
            'type: local, source: LABEL=home, path: /home, nodes: "n[1-2]"',
            "/home",
            {
                **dict.fromkeys(("ctl1", "login1"), Homes("/home")),
                **dict.fromkeys(("n1", "n2"), Homes("/home", mounted="/home")),
            },
        ),
        (
            'type: glusterfs, source: "192.0.2.9:/vol", path: /shared',
            "/shared/home",
            {"login1": Homes("/shared/home", mounted="/shared")},
        ),
        (
            f'{ELSEWHERE}, path: /home, nodes: "n[1-2]"',
            "/home",
            {"ctl1": Homes("/home"), "login1": Homes("/home"), "n1": Homes("/home", "/home")},
        ),
    ],
    ids=[
        "without shared storage every node its own",
        "a server of the cluster for all, in its directory",
        "below a shared directory as well",
        "of a server elsewhere the first login node, while it is mounted",
        "local ones on a node that does not mount it",
        "a local disk is each node's own",
        "below a mount point, with what is mounted there",
        "where only compute nodes mount it, the first of them",
    ],
)
def test_homes_are_made_once_where_their_file_system_belongs(entry: str, home: str, made: dict[str, Homes]) -> None:
    storage = f"storage:\n  - {{name: disk, {entry}}}\n" if entry else ""
    mounts = parse_spec(HEAD + storage, "cluster.yml").storage
    homes = {host: homes_on(mounts, host, home, ["login1", "ctl1"]) for host in ("ctl1", "n1", "n2", "login1")}

    assert {host: where for host, where in homes.items() if where.directory} == made


class TestAccounts:
    def test_a_group_is_an_account_with_one_for_cpus_and_one_for_gpus(self) -> None:
        assert with_people({}, PEOPLE, TODAY)["accounts"] == [
            {"name": "def-curie", "settings": {"ParentName": "root", "Share": "2000"}},
            {"name": "def-curie_cpu", "settings": {"ParentName": "def-curie"}},
            {"name": "def-curie_gpu", "settings": {"ParentName": "def-curie"}},
        ]

    def test_a_person_may_charge_all_three_and_the_group_itself_is_the_default(self) -> None:
        users = with_people({}, PEOPLE, TODAY)["users"]

        assert [user["account"] for user in users] == ["def-curie", "def-curie_cpu", "def-curie_gpu"]
        assert [user["account"] for user in users if user.get("default")] == ["def-curie"]

    @pytest.mark.parametrize(
        ("expires", "limits"),
        [("2026-11-25", {"MaxSubmit": "0", "MaxJobs": "0"}), ("2026-11-26", {}), ("", {})],
    )
    def test_on_the_day_of_expiry_nothing_more_is_submitted(self, expires: str, limits: dict[str, str]) -> None:
        people = {**PEOPLE, "people": [{**PEOPLE["people"][0], "expires": expires}]}

        assert [user["settings"] for user in with_people({}, people, TODAY)["users"]] == [limits] * 3
        assert expired(people, TODAY) == (["alice"] if limits else [])

    @pytest.mark.parametrize(
        ("times", "closed"),
        [
            ({"start": "2026-11-26"}, True),
            ({"start": "2026-11-25"}, False),
            ({"end": "2026-11-25"}, True),
            ({"start": "2026-04-01", "end": "2027-03-31"}, False),
        ],
    )
    def test_a_group_out_of_its_time_is_closed(self, times: dict[str, str], closed: bool) -> None:
        people = {**PEOPLE, "groups": [{"name": "def-curie", "gid": 60001, "shares": 2000, **times}]}

        first, *others = with_people({}, people, TODAY)["accounts"]

        assert (first["settings"].get("GrpSubmit") == "0") is closed
        assert first["settings"]["Share"] == ("0" if closed else "2000")
        assert all("GrpSubmit" not in account["settings"] for account in others)

    def test_the_policy_of_cluster_yml_comes_first_and_stays(self) -> None:
        policy = {"config": {"PriorityWeightAge": "1"}, "qos": [], "accounts": [{"name": "lab", "settings": {}}]}

        merged = with_people(policy, PEOPLE, TODAY)

        assert merged["config"] == {"PriorityWeightAge": "1"}
        assert [account["name"] for account in merged["accounts"]][:2] == ["lab", "def-curie"]
