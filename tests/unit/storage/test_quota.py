"""`quota` and `purge` of storage in cluster.yml: what is refused, and what servers and nodes are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.node_programs.services.scratch_purge.settings import from_object
from deepopsctl.storage.purge import files, purges_on
from deepopsctl.storage.quota import Limits, QuotaType, number_of, quota_of, served
from deepopsctl.storage.values import parse_count, parse_size, parse_time
from tests.data.storage_samples import HOME, PROJECT, SCRATCH, SERVED, read
from tests.support.cluster_yml import faults
from tests.support.systemd import verify

# --- what people write


@pytest.mark.parametrize(
    ("read_it", "text", "number"),
    [
        (parse_size, "500M", 500 << 20),
        (parse_size, "50GB", 50 << 30),
        (parse_size, "50GiB", 50 << 30),
        (parse_count, "100000", 100_000),
        (parse_count, "2M", 2_000_000),
        (parse_time, "12h", 43200),
        (parse_time, "8w", 56 * 86400),
    ],
)
def test_sizes_are_powers_of_1024_and_counts_of_1000(read_it: Callable[[str], int], text: str, number: int) -> None:
    assert read_it(text) == number


def test_reads_limits_of_users() -> None:
    quota = quota_of(read(HOME)[0])

    assert quota is not None
    assert (quota.kind, quota.grace) == (QuotaType.USER, 7 * 86400)
    assert quota.default == Limits(50 << 30, 45 << 30, 500_000)
    assert quota.users == {"alice": Limits(2 << 40)}


def test_a_server_gets_its_own_exports_in_the_order_of_setquota() -> None:
    mounts = read(HOME + PROJECT + SCRATCH)

    home, project = served(mounts, "nfs1")

    assert served(mounts, "ctl1") == []
    assert (home["path"], home["default"]) == ("/srv/home", [45 << 20, 50 << 20, 0, 500_000])
    assert home["users"] == {"alice": [0, 2 << 30, 0, 0]}
    # one without limits of its own has the default
    projects: Any = project["projects"]
    limits = [("def-prof", number_of("def-prof"), [0, 1 << 30, 0, 0]), ("prof-b", 4242, [0, 10 << 30, 0, 5_000_000])]
    assert [(each["name"], each["id"], each["limits"]) for each in projects] == limits
    assert [each["path"] for each in projects] == ["/srv/project/def-prof", "/srv/project/rrg/prof-b"]


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("50G", "50 gigs", "cluster.yml:13 storage[0].quota.default.space: '50 gigs' is not a valid size"),
        ("500k", "many", "cluster.yml:13 storage[0].quota.default.files: 'many' is not a number of files"),
        ("45G", "60G", "cluster.yml:13 storage[0].quota.default.space_soft: is more than space"),
        (
            "alice",
            "alice.b: {space: x}, alice",
            "cluster.yml:14 storage[0].quota.users.alice.b.space: 'x' is not a valid size",
        ),
        ("alice", "root", "cluster.yml:14 storage[0].quota.users: root has no limits"),
        ("space: 2T", "room: 2T", "cluster.yml:14 storage[0].quota.users.alice.room"),
        (
            "default:",
            "kind: group\n      default:",
            "cluster.yml:13 storage[0].quota.kind: 'group' is not a type of quota",
        ),
        (
            "default:",
            "grace: soon\n      default:",
            "cluster.yml:13 storage[0].quota.grace: 'soon' is not a valid time",
        ),
        ("default:", "kind: project\n      default:", "cluster.yml:15 storage[0].quota.users: are for kind: user"),
        ("nfs1:/srv", "192.0.2.99:/srv", "cluster.yml:12 storage[0].quota: limits can only be set where"),
    ],
)
def test_refuses_quotas_that_cannot_be(before: str, after: str, fault: str) -> None:
    (result,) = faults(SERVED + HOME.replace(before, after, 1))

    assert result.startswith(fault)


def test_two_entries_of_one_export_have_the_same_limits() -> None:
    again = HOME.replace("name: home", "name: again").replace("path: /home", "path: /again")

    assert faults(SERVED + HOME + again.replace("50G", "60G")) == [
        "cluster.yml:19 storage[1].quota: differs from home's at cluster.yml:8, which is the same export"
    ]
    assert len(served(read(HOME + again), "nfs1")) == 1
    assert len(read(HOME + again.partition("    quota")[0])) == 2


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("rrg/prof-b", "../prof-b", "'../prof-b' is not a directory below /project"),
        ("rrg/prof-b", "def-prof/b", "has the same directory as def-prof"),
        ("rrg/prof-b", "def-prof", "has the same directory as def-prof"),
        ("id: 4242", f"id: {number_of('def-prof')}", "is already that of def-prof"),
        ("id: 4242", "id: 0", "'0' is not a number of a project"),
        ("id: 4242", f"id: {2**32}", "is not a number of a project"),
        ("prof-b:", '"a:b":', "'a:b' is not a project"),
    ],
)
def test_refuses_projects_that_cannot_be(before: str, after: str, fault: str) -> None:
    (result,) = faults(SERVED + PROJECT.replace(before, after, 1))

    assert fault in result


# --- purge


def test_a_purge_gets_every_age_in_seconds_on_the_node_that_has_it() -> None:
    (purge,) = purges_on(read(SCRATCH), "ctl1")
    elsewhere = read(SCRATCH.replace("age: 60d", "age: 60d, node: gpu2"))

    assert purge.unit == "deepops-purge-scratch"
    assert purge.settings == {
        "name": "scratch", "root": "/scratch", "age": 60 * 86400, "mode": "delete", "warn": 14 * 86400,
        "mail": "hpc.example.com", "exclude": ["*.keep", "shared/data"], "empty_directories": False,
        "ignore_reads": False, "mounted": True,
    }  # fmt: skip
    # the program takes what it is told
    settings = from_object(json.loads(files(purge)["/etc/deepopsctl/purge/scratch.json"]))
    assert (settings.root, settings.warns) == ("/scratch", True)
    assert ([each.name for each in purges_on(elsewhere, "gpu2")], purges_on(elsewhere, "ctl1")) == (["scratch"], [])


def test_what_we_serve_is_purged_where_it_is_served() -> None:
    mounts = read(PROJECT.partition("    quota")[0] + "    purge: {age: 30d}\n")

    (purge,) = purges_on(mounts, "nfs1")
    assert purges_on(mounts, "ctl1") == []
    assert [purge.settings[key] for key in ("root", "mounted", "mode")] == ["/srv/project", False, "list"]


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ("60d", "sixty", "purge.age: 'sixty' is not a valid time"),
        ("60d", "3d", "purge.age: is too short"),
        ("14d", "90d", "purge.warn: is more than the age"),
        ("delete", "remove", "purge.mode: 'remove' is not a valid mode"),
        ("hpc.example.com", "all users", "purge.mail: 'all users' is not a mail domain"),
        ('"*.keep"', '"../x"', "purge.exclude: '../x' matches nothing"),
        ('"*.keep"', '"/"', "purge.exclude: '/' matches nothing"),
        ("warn: 14d", "node: elsewhere", "purge.node: elsewhere neither mounts nor serves scratch"),
        ("age: 60d, ", "", "purge.age"),
        ("path: /scratch", "path: /home", "purge: /home: holds the homes of users"),
        ("99:/scratch", "99:/export/home", "purge: /export/home: holds the homes of users"),
        # what a machine of the cluster exports is purged there, whatever clients call it
        (
            '"192.0.2.99:/scratch"\n    path: /scratch',
            "nfs1:/srv/users\n    path: /home",
            "/home: holds the homes of users",
        ),
        ('"192.0.2.99:/scratch"', "nfs1:/srv/home", "purge: /srv/home: holds the homes of users"),
        (
            'type: nfs\n    source: "192.0.2.99:/scratch"',
            "type: glusterfs\n    source: g1:/vol",
            "glusterfs does not note",
        ),
    ],
)
def test_refuses_purges_that_nobody_can_mean(before: str, after: str, fault: str) -> None:
    (result,) = faults(SERVED + SCRATCH.replace(before, after, 1))

    assert fault in result


ALL = """\
  - {name: all, type: nfs, source: "nfs1:/data", path: /data, purge: {age: 30d}}
"""


@pytest.mark.parametrize(
    ("other", "fault"),
    [
        ("type: nfs, source: 'nfs1:/data/people', path: /home", "people in it is other's, mounted at /home"),
        ("type: nfs, source: '192.0.2.2:/data/p/x', path: /project", "p/x in it is other's, mounted at /project"),
        ("type: nfs, source: 'nfs1:/data', path: /home", "it is other's as well, mounted at /home: holds the homes"),
        ("type: local, source: /data/people, path: /home", "people in it is other's, mounted at /home"),
    ],
)
def test_a_tree_from_which_other_storage_is_served_is_no_scratch(other: str, fault: str) -> None:
    (result,) = faults(SERVED + ALL + f"  - {{name: other, {other}}}\n")

    assert fault in result


def test_what_others_are_served_can_be_excluded_from_a_purge() -> None:
    other = "  - {name: other, type: nfs, source: 'nfs1:/data/people', path: /home}\n"

    assert len(read(ALL.replace("age: 30d", "age: 30d, exclude: [people]") + other)) == 2


def test_reads_need_not_be_noted_where_they_are_not_counted() -> None:
    mount = "name: s, type: local, local: {shared: true}, source: /gpfs/s, path: /s, options: [noatime]"
    gpfs = f"  - {{{mount}, purge: {{age: 30d}}}}\n"

    assert "noatime: it is not noted when a file is read" in faults(SERVED + gpfs)[0]
    (purge,) = purges_on(read(gpfs.replace("age: 30d", "age: 30d, ignore_reads: true")), "ctl1")
    assert purge.settings["ignore_reads"] is True


def test_memory_has_no_quota_and_no_purge() -> None:
    result = faults(SERVED + "  - {name: fast, type: tmpfs, path: /fast, quota: {kind: user}, purge: {age: 30d}}\n")

    assert len(result) == 2
    assert all("can't be set for type tmpfs" in fault for fault in result)


def test_of_a_nodes_own_disks_only_what_nodes_share_is_purged() -> None:
    text = "  - {name: gpfs, type: local, source: /gpfs/scratch, path: /scratch, purge: {age: 30d}"

    assert "every node has its own here" in faults(SERVED + text + "}\n")[0]
    assert [purge.settings["mounted"] for purge in purges_on(read(text + ", local: {shared: true}}\n"), "ctl1")] == [
        True
    ]


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    (purge,) = purges_on(read(SCRATCH), "ctl1")
    units = {Path(path).name: text for path, text in files(purge).items() if not path.endswith(".json")}

    verify(tmp_path, {name: text.replace("/usr/local/sbin/deepops-purge", "/bin/true") for name, text in units.items()})
