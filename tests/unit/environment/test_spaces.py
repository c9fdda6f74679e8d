"""`spaces:` of cluster.yml, and what nodes make of it."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.inventory import build_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.environment.spaces import spaces_made_on, spaces_on
from deepopsctl.model.cluster import Cluster
from tests.support.problems import problems_of

CLUSTER = """\
schema: 1
nodes:
  - {names: ctl1, roles: [controller, nfs_server]}
  - {names: login1, roles: [login]}
  - {names: "n[1-2]", roles: [compute]}
storage:
  - {name: scratch, type: nfs, source: "ctl1:/srv/scratch", path: /scratch}
  - {name: filer, type: nfs, source: "filer.example.com:/vol", path: /project}
  - {name: disk, type: local, source: LABEL=scratch, path: /local, nodes: compute}
  - {name: old, type: nfs, source: "filer.example.com:/old", path: /old, options: [ro]}
  - {name: memory, type: tmpfs, path: /memory}
spaces:
"""
SPACES = "  scratch: {storage: scratch}\n  project: {storage: filer}\n  local: {storage: disk}\n"


def cluster(spaces: str = SPACES) -> Cluster:
    return parse_spec(CLUSTER + spaces, "cluster.yml")


def variables(of: Cluster) -> list[dict[str, str]]:
    return [{key: str(value) for key, value in space.variable().items()} for space in of.spaces]


def test_spaces_survive_being_written() -> None:
    assert parse_spec(render_spec(cluster()), "").spaces == cluster().spaces


def test_a_cluster_with_spaces_gets_the_environment() -> None:
    inventory = str(build_inventory(cluster()))

    assert "'environment_spaces': [{'name': 'scratch', 'storage': 'scratch', 'by': 'user'}" in inventory
    assert "'environment_nodes': {'hosts': {'ctl1': None" in inventory


@pytest.mark.parametrize(
    ("spaces", "message"),
    [
        (
            "  scratch: {storage: scrach}",
            "cluster.yml:13: spaces.scratch.storage: storage has no entry scrach; did you mean scratch?",
        ),
        ("  scrtch: {storage: scratch}", "cluster.yml:13: spaces.scrtch: is not a name of a space"),
        ("  scratch: {}", "cluster.yml:13: spaces.scratch.storage: is missing"),
        ("  work: {storage: old}", "cluster.yml:13: spaces.work.storage: old is mounted read-only"),
        ("  work: {storage: memory}", "cluster.yml:13: spaces.work.storage: memory is memory"),
        ("  work: {storage: scratch, by: team}", "cluster.yml:13: spaces.work.by: 'team' has no directories"),
        ("  home: {storage: scratch, by: group}", "cluster.yml:13: spaces.home.by: homes are users'"),
        (
            "  work: {storage: scratch}\n  scratch: {storage: scratch}",
            "cluster.yml:14: spaces.scratch.storage: scratch is already the space work",
        ),
        ("  [scratch]", "cluster.yml:12: spaces: must be keys with values"),
    ],
)
def test_refuses_with_the_line_and_what_was_probably_meant(spaces: str, message: str) -> None:
    problems = problems_of(cluster, spaces)

    assert message in "\n".join(f"{problem.where}: {problem.message}; {problem.hint}" for problem in problems)


def test_users_find_what_their_node_mounts() -> None:
    of = cluster()

    result = {
        host: [each["name"] for each in spaces_on(variables(of), of.storage, host)] for host in ("ctl1", "login1", "n1")
    }

    assert result == {"ctl1": ["project"], "login1": ["scratch", "project"], "n1": ["scratch", "project", "local"]}


def test_a_directory_is_made_once_where_its_file_system_belongs() -> None:
    of = cluster()

    made = {
        host: [
            (each["path"], each["mounted"])
            for each in spaces_made_on(variables(of), of.storage, host, ["login1", "ctl1"])
        ]
        for host in ("ctl1", "login1", "n1", "n2")
    }

    assert made == {
        "ctl1": [("/srv/scratch", False)],
        "login1": [("/project", True)],
        "n1": [("/local", True)],
        "n2": [("/local", True)],
    }


def test_users_files_are_counted_where_nothing_else_knows_them() -> None:
    of = cluster()

    counted = {
        each["path"]: each["counted"]
        for host in ("ctl1", "login1", "n1")
        for each in spaces_made_on(variables(of), of.storage, host, ["login1", "ctl1"])
    }

    assert counted == {"/srv/scratch": True, "/project": True, "/local": True}
