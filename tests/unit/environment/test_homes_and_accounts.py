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


def homes(storage: str = "", home: str = "/home") -> dict[str, Homes]:
    """Where each node makes homes, without those that make none."""
    mounts = parse_spec(f"{HEAD}storage:\n{storage}" if storage else HEAD, "cluster.yml").storage
    made = {host: homes_on(mounts, host, home, ["login1", "ctl1"]) for host in ("ctl1", "n1", "n2", "login1")}
    return {host: where for host, where in made.items() if where.directory}


class TestHomes:
    def test_without_shared_storage_every_node_makes_its_own(self) -> None:
        assert homes() == dict.fromkeys(("ctl1", "n1", "n2", "login1"), Homes("/home"))

    def test_a_server_of_the_cluster_makes_them_for_all_in_its_directory(self) -> None:
        entry = '  - {name: home, type: nfs, source: "ctl1:/srv/home", path: /home}\n'

        assert homes(entry) == {"ctl1": Homes("/srv/home")}

    def test_below_a_shared_directory_as_well(self) -> None:
        entry = '  - {name: shared, type: nfs, source: "ctl1:/srv", path: /shared}\n'

        assert homes(entry, "/shared/home") == {"ctl1": Homes("/srv/home")}

    def test_of_a_server_elsewhere_the_first_login_node_makes_them_while_it_is_mounted(self) -> None:
        entry = '  - {name: home, type: nfs, source: "filer.example.com:/vol", path: /home}\n'

        assert homes(entry) == {"login1": Homes("/home", mounted="/home")}

    def test_a_node_that_does_not_mount_it_has_local_homes(self) -> None:
        entry = '  - {name: home, type: nfs, source: "ctl1:/srv/home", path: /home, nodes: "n[1-2],ctl1"}\n'

        assert homes(entry) == {"ctl1": Homes("/srv/home"), "login1": Homes("/home")}

    def test_a_local_disk_is_each_nodes_own(self) -> None:
        entry = '  - {name: disk, type: local, source: LABEL=home, path: /home, nodes: "n[1-2]"}\n'

        assert homes(entry)["n1"] == Homes("/home", mounted="/home")

    def test_homes_below_a_mount_point_need_what_is_mounted_there(self) -> None:
        entry = '  - {name: shared, type: glusterfs, source: "192.0.2.9:/vol", path: /shared}\n'

        assert homes(entry, "/shared/home") == {"login1": Homes("/shared/home", mounted="/shared")}

    def test_where_only_compute_nodes_mount_it_the_first_of_them_makes_them(self) -> None:
        entry = '  - {name: home, type: nfs, source: "filer:/vol", path: /home, nodes: "n[1-2]"}\n'

        assert homes(entry) == {"ctl1": Homes("/home"), "login1": Homes("/home"), "n1": Homes("/home", "/home")}


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

    @pytest.mark.parametrize(("expires", "limits"), [("2026-11-25", {"MaxSubmit": "0"}), ("2026-11-26", {}), ("", {})])
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
