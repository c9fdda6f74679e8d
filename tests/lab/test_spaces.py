"""Where users keep files: directories, variables and links for people, at a login and in real jobs; all is reverted.

The kernel below a lab has no NFS: each node has file systems of its own, and makes directories there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import LabCluster, changes, edit

SPACES = """
storage:
  - {name: scratch, type: local, source: /srv/scratch, path: /scratch}
  - {name: project, type: local, source: /srv/project, path: /project}
spaces: {scratch: {storage: scratch}, project: {storage: project}}
job_directories: {method: prolog}
"""
PEOPLE = """\
schema: 1
groups:
  - {name: def-curie, gid: 60001}
people:
  - {name: alice, uid: 60010, groups: [def-curie]}
"""
NODES = ("ctl1", "gpu01", "gpu02")
COMPONENTS = ("storage", "slurm", "environment")


@pytest.fixture(scope="module")
def deploys(battered: LabCluster) -> Iterator[dict[str, dict[str, Any]]]:
    """The changes that plan listed, those of the first deploy, and of a second one; all is removed at the end."""
    for name in NODES:
        battered.root(name, "mkdir -p /srv/scratch /srv/project")
    spec = battered.directory / "cluster.yml"
    before = spec.read_text(encoding="utf-8")
    spec.write_text(before + SPACES, encoding="utf-8")
    (battered.directory / "people.yml").write_text(PEOPLE, encoding="utf-8")
    battered.parsed("deploy", *COMPONENTS)
    yield {name: battered.parsed(verb, *COMPONENTS) for name, verb in (("plan", "plan"), ("second", "deploy"))}
    (battered.directory / "people.yml").unlink()
    spec.write_text(f"{before}storage: []\n", encoding="utf-8")
    battered.deepopsctl("deploy", "storage", "slurm")
    spec.write_text(before, encoding="utf-8")
    for name in NODES:
        battered.root(
            name,
            "userdel -r alice; groupdel def-curie; groupdel def-noether; rm -rf /srv/scratch /srv/project",
            ok=False,
        )


@pytest.fixture(scope="module")
def cluster(battered: LabCluster, deploys: dict[str, dict[str, Any]]) -> LabCluster:
    """The cluster with spaces."""
    assert deploys
    return battered


def alice(cluster: LabCluster, node: str, script: str) -> str:
    """What a script prints in a login shell of alice's."""
    return cluster.root(node, f"su - alice -c {shlex.quote(script)}")


def spaces_checks(cluster: LabCluster) -> dict[str, tuple[str, str]]:
    """Status and message of the check of spaces, by node."""
    done = cluster.deepopsctl("validate", "environment", "--json", ok=False)
    result = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "environment-spaces"]
    return {check["target"]: (check["status"], check["message"]) for check in result}


def test_a_second_deploy_changes_nothing(deploys: dict[str, dict[str, Any]]) -> None:
    assert changes(deploys["plan"], "environment") == set()
    assert changes(deploys["second"], "environment") == set()


def test_people_find_directories_variables_and_links_on_every_node(cluster: LabCluster) -> None:
    stat = "stat -c '%U:%G %a' /scratch/alice /project/def-curie"

    for node in NODES:
        assert cluster.root(node, stat).splitlines() == ["alice:alice 700", "root:def-curie 2770"]
        shown = alice(cluster, node, "echo $SCRATCH $PROJECT; readlink -f scratch projects/def-curie")
        assert shown.split() == ["/scratch/alice", "/project/def-curie"] * 2
    assert spaces_checks(cluster) == dict.fromkeys(NODES, ("pass", ""))


def test_a_job_that_inherits_nothing_has_the_variables(cluster: LabCluster) -> None:
    script = "srun --export=NONE -w gpu01 /bin/sh -c 'echo $SCRATCH $PROJECT; [ $TMPDIR = $SLURM_TMPDIR ] && echo same'"

    assert alice(cluster, "ctl1", script).split() == ["/scratch/alice", "/project/def-curie", "same"]


STAGING = """#!/bin/bash
stage-in ~/data.tar.gz || exit 1
srun sh -c 'mkdir $SLURM_TMPDIR/results && cat $SLURM_TMPDIR/data/* >$SLURM_TMPDIR/results/$(hostname)'
stage-out results
"""


def test_an_archive_is_unpacked_on_each_node_of_a_job_and_results_come_back(cluster: LabCluster) -> None:
    for node in ("gpu01", "gpu02"):
        alice(cluster, node, "mkdir data; echo 42 >data/answer; tar -czf data.tar.gz data")
    script = f"cat >job.sh <<'E'\n{STAGING}E\nsbatch --parsable --wait --nodes=2 --chdir=/tmp job.sh"

    job = alice(cluster, "ctl1", script)

    for node in ("gpu01", "gpu02"):
        assert cluster.root(node, f"cat /scratch/alice/{job}/{node}/results/{node}") == "42"


def test_members_see_who_has_how_much(cluster: LabCluster) -> None:
    alice(cluster, "gpu01", "echo x >$PROJECT/file; ln -s /etc $PROJECT/link")
    cluster.root("gpu01", "systemctl start deepops-space-usage.service")

    shown = alice(cluster, "gpu01", "diskusage_report --all_users")

    assert "/project/def-curie, counted 20" in shown
    assert shown.splitlines()[-1].split()[:2] == ["alice", "2"]
    assert not cluster.holds("gpu01", "su -s /bin/sh nobody -c 'cat /project/.stats/def-curie.json'")


def test_a_directory_that_is_gone_is_noticed_and_made_again(cluster: LabCluster) -> None:
    cluster.root("gpu01", "rm -r /scratch/alice")

    status, message = spaces_checks(cluster)["gpu01"]
    made = changes(cluster.parsed("deploy", *COMPONENTS), "environment")

    assert (status, message) == (
        "fail",
        "as alice: $SCRATCH: not set: /scratch/alice is missing, or belongs to another user",
    )
    assert made == {("gpu01", "directory", "/scratch/alice", "set")}


def test_a_link_that_a_user_has_in_place_of_a_directory_is_not_followed(cluster: LabCluster) -> None:
    cluster.root("gpu02", "rm -r /scratch/alice; chmod 1777 /srv/scratch; mkdir -m 755 /srv/victim")
    alice(cluster, "gpu02", "ln -s /srv/victim /scratch/alice")

    for_all = cluster.deepopsctl("deploy", *COMPONENTS, ok=False)
    cluster.root("gpu02", "chmod 755 /srv/scratch")
    done = [cluster.deepopsctl("deploy", *COMPONENTS, ok=False) for _ in range(2)]

    assert "others than root may write in /scratch (user id 0, mode 1777)" in for_all.stderr
    assert all("/scratch/alice is not a directory" in each.stderr for each in done)
    assert {each.returncode for each in (for_all, *done)} == {1}
    assert cluster.root("gpu02", "stat -c %U /srv/victim; readlink /scratch/alice").split() == ["root", "/srv/victim"]
    # at a login nothing leads there
    assert alice(cluster, "gpu02", "rm -f scratch; true") == ""
    assert alice(cluster, "gpu02", "echo ${SCRATCH-none}; ls -d scratch 2>/dev/null; true") == "none"
    cluster.root("gpu02", "rm /scratch/alice; rmdir /srv/victim")
    assert ("gpu02", "directory", "/scratch/alice", "set") in changes(
        cluster.parsed("deploy", *COMPONENTS), "environment"
    )


def test_the_link_of_a_group_goes_with_the_membership_and_the_data_stays(cluster: LabCluster) -> None:
    people = cluster.directory / "people.yml"
    edit(people, "gid: 60001}", "gid: 60001}\n  - {name: def-noether, gid: 60002}")
    edit(people, "groups: [def-curie]", "groups: [def-noether]")
    cluster.parsed("deploy", *COMPONENTS)

    assert alice(cluster, "gpu01", "ls projects; echo $PROJECT").split() == ["def-noether", "/project/def-noether"]
    assert cluster.holds("gpu01", "test -d /project/def-curie")
    edit(people, "groups: [def-noether]", "groups: [def-curie]")
    cluster.parsed("deploy", *COMPONENTS)
