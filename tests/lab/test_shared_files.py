"""The environment on Debian 12, with homes and spaces on a file system that all nodes mount; in order.

The kernel below a lab has no NFS. GlusterFS is a real network file system, mounted by FUSE, which can squash root, too.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.smoke import validate

VOLUMES = {"home": "/shared/home", "scratch": "/scratch", "project": "/project"}
SERVE = """
export DEBIAN_FRONTEND=noninteractive; exec 2>&1; set -e
apt-get -qq update; apt-get -qq install --no-install-recommends glusterfs-server >/tmp/log
systemctl start glusterd
for volume in home scratch project; do
    mkdir -p /srv/brick/$volume
    gluster --mode=script volume create $volume $(hostname -I | cut -d' ' -f1):/srv/brick/$volume force
    gluster --mode=script volume start $volume
done
"""
PEOPLE = """\
schema: 1
groups:
  - {name: def-curie, gid: 60001}
people:
  - {name: alice, uid: 60010, groups: [def-curie]}
"""
# takes every mail
RELAY = """\
import socketserver

class Relay(socketserver.StreamRequestHandler):
    def handle(self):
        self.say("220 relay")
        for line in self.rfile:
            word = line[:4].upper().strip()
            self.say({b"QUIT": "221 bye", b"DATA": "354 go"}.get(word, "250 ok"))
            if word == b"DATA":
                with open("/root/mails", "ab") as mails:
                    for text in iter(self.rfile.readline, b".\\r\\n"):
                        mails.write(text)
                self.say("250 ok")

    def say(self, text):
        self.wfile.write((text + "\\r\\n").encode())

socketserver.ThreadingTCPServer(("127.0.0.1", 2525), Relay).serve_forever()
"""
NODES = ("ctl1", "gpu01", "gpu02")

# the first test's time is that of the first deploy: everything that users find, and a file server
pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """A controller that serves three volumes, and two nodes; everything is deployed."""
    name = f"{PREFIX}-shared-files"
    with fresh_cluster(name, tmp_path_factory, "--compute", "2", "--gpus", "a100:2", os="debian12") as made:
        if not made.holds("gpu01", "test -e /dev/fuse"):
            pytest.skip("this machine has no FUSE")
        made.root("ctl1", SERVE)
        made.root("ctl1", f"printf %s {shlex.quote(RELAY)} >/root/relay.py; systemd-run python3 /root/relay.py")
        server = made.root("ctl1", "hostname -I").split()[0]
        entries = "".join(
            f'  - {{name: {volume}, type: glusterfs, source: "{server}:/{volume}", path: {path}, required: true}}\n'
            for volume, path in VOLUMES.items()
        )
        spec = made.directory / "cluster.yml"
        spaces = ", ".join(f"{volume}: {{storage: {volume}}}" for volume in VOLUMES)
        edit(spec, "components: [nvidia, slurm]", "components: [storage, slurm, environment]")
        with spec.open("a", encoding="utf-8") as stream:
            stream.write(f"storage:\n{entries}spaces: {{{spaces}}}\njob_directories: {{method: prolog}}\n")
        relay = "job_mail_relay: 127.0.0.1\njob_mail_relay_port: 2525\njob_mail_relay_starttls: false\n"
        edit(made.directory / SETTINGS, "---\n", f"---\nenvironment_home: /shared/home\n{relay}")
        (made.directory / "people.yml").write_text(PEOPLE, encoding="utf-8")
        deploy(made)
        yield made


def deploy(cluster: LabCluster, *components: str) -> dict[str, Any]:
    """`deploy --json`, parsed."""
    document: dict[str, Any] = json.loads(cluster.deepopsctl("deploy", *components, "--json").stdout)
    return document


def alice(cluster: LabCluster, node: str, script: str) -> str:
    """What a script prints in a login shell of alice's."""
    return cluster.root(node, f"su - alice -c {shlex.quote(script)}")


def test_a_second_deploy_changes_nothing(cluster: LabCluster) -> None:
    assert set(cluster.changed(deploy(cluster)).values()) == {0}


def test_everything_that_is_validated_passes(cluster: LabCluster) -> None:
    result = validate(cluster, suite="environment")

    assert result.code == 0, result.shown
    assert not [key for key, check in result.checks.items() if check["status"] == "skip"]


def test_a_home_is_made_once_and_found_everywhere(cluster: LabCluster) -> None:
    alice(cluster, "gpu01", "echo here >file")

    assert [alice(cluster, node, "pwd; cat file; stat -c %U:%a .").split() for node in NODES] == [
        ["/shared/home/alice", "here", "alice:700"]
    ] * 3


STAGING = """#!/bin/bash
stage-in ~/data.tar.gz || exit 1
srun sh -c 'mkdir $SLURM_TMPDIR/results && cat $SLURM_TMPDIR/data/* >$SLURM_TMPDIR/results/$(hostname)'
stage-out results
"""


def test_a_job_of_two_nodes_stages_from_a_shared_home_to_shared_scratch(cluster: LabCluster) -> None:
    alice(cluster, "ctl1", "mkdir data; echo 42 >data/answer; tar -czf data.tar.gz data")

    job = alice(cluster, "ctl1", f"cat >job.sh <<'E'\n{STAGING}E\nsbatch --parsable --wait --nodes=2 job.sh")

    for node in ("gpu01", "gpu02"):
        assert alice(cluster, "ctl1", f"cat $SCRATCH/{job}/{node}/results/{node}") == "42"


def test_a_mail_about_a_job_reaches_the_relay(cluster: LabCluster) -> None:
    alice(cluster, "ctl1", "sbatch --wait --wrap hostname --mail-type=END --mail-user=alice@example.com")

    wait_until("the mail has come", lambda: cluster.holds("ctl1", "grep -q '^To: alice@example.com' /root/mails"))


def test_where_root_is_squashed_the_file_server_makes_homes_and_the_deploy_names_them(cluster: LabCluster) -> None:
    edit(
        cluster.directory / "people.yml",
        "groups: [def-curie]}",
        "groups: [def-curie]}\n  - {name: bob, uid: 60011, groups: [def-curie]}",
    )
    squash(cluster, "on")

    warnings = deploy(cluster, "environment")["warnings"]

    reported = "root is squashed?): make on its server: bob"
    assert warnings == [f"ctl1: root may not make homes in /shared/home ({reported}",
                        f"ctl1: root may not make directories in /scratch ({reported}"]  # fmt: skip
    # jobs of who has them continue
    assert alice(cluster, "ctl1", "srun --nodes=2 sh -c 'echo $HOME >>$SCRATCH/$(hostname)'; cat $SCRATCH/gpu*") == (
        "/shared/home/alice\n/shared/home/alice"
    )
    # what a file server's administrator does
    for path in ("home", "scratch"):
        cluster.root("ctl1", f"cd /srv/brick/{path} && mkdir -m 700 bob && chown 60011:60011 bob")
    assert deploy(cluster, "environment")["warnings"] == []
    assert validate(cluster, suite="environment").code == 0


def squash(cluster: LabCluster, how: str) -> None:
    """Whether root of the clients may write where others may not."""
    for volume in VOLUMES:
        cluster.root("ctl1", f"gluster --mode=script volume set {volume} server.root-squash {how}")
