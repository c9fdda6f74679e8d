"""New secrets of what stands around Slurm, under a running job: the authority, the key of packages, the directory's.

On a cluster that has all of it: packages from its own repository, monitoring with TLS, users of an LDAP server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from deepopsctl.certificates.authority import Authority
from deepopsctl.cluster import secrets
from deepopsctl.monitoring.collectors import OF_EXPORTERS, OF_LOGS
from tests.lab import slapd
from tests.lab.faults import running_job
from tests.lab.harness import PREFIX, SETTINGS, edit, fresh_cluster, wait_until
from tests.lab.leaks import Leaks
from tests.lab.monitored import MonitoredCluster
from tests.lab.test_upgrade import ON, add_new_release

HOST, NODE = "ctl1", "cn01"
NODES = (HOST, NODE)
PEOPLE = f"""\
schema: 1
directory:
  servers: [ldap://{HOST}]
  base: {slapd.BASE}
  ca: directory-ca.pem
  bind_dn: {slapd.READER}
  access_groups: [ldapusers]
people: []
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHuKFJrFKlSN1oTvwmMQw0JpOPrYQo3qzbSgVhRTMEeP grace"
KEYRING, SSSD = "/etc/apt/keyrings/deepopsctl-packages.asc", "/etc/sssd/sssd.conf"
NEW_PASSWORD = "another-reader-password"


class DirectoryCluster(MonitoredCluster):
    """Its users come from a directory service."""

    components: ClassVar[tuple[str, ...]] = (*MonitoredCluster.components, "environment")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    """A controller and a node."""
    with fresh_cluster(f"{PREFIX}-services", tmp_path_factory, "--compute", "1", "--monitoring") as lab:
        made = DirectoryCluster(**vars(lab))
        edit(made.directory / "cluster.yml", "[slurm, monitoring]", "[slurm, monitoring, environment]")
        edit(made.directory / SETTINGS, "---\n", f"---\n{ON}modules_system: none\n")
        slapd.install(made, HOST, slapd.user("grace", 20010, KEY) + slapd.group("ldapusers", 20000))
        authority = made.root(HOST, f"cat {slapd.AUTHORITY}")
        (made.directory / "directory-ca.pem").write_text(f"{authority}\n", encoding="utf-8")
        (made.directory / "people.yml").write_text(PEOPLE, encoding="utf-8")
        password = {"directory_bind_password": slapd.PASSWORD}
        secrets.change(made.directory / SETTINGS.with_name("secrets.yml"), made.directory / ".vault-password", password)
        add_new_release(made, tmp_path_factory.mktemp("sid"))
        made.deploy()
        yield made


def rotate(cluster: MonitoredCluster, leaks: Leaks, *words: str) -> None:
    """The rotation under a job; Slurm's daemons are not restarted, and a deploy has nothing left to do."""
    since = "systemctl show -p ActiveEnterTimestampMonotonic slurmctld slurmdbd slurmd munge"
    before = [cluster.root(node, since) for node in NODES]
    with running_job(cluster, NODE) as job:
        done = leaks.run("secrets", "rotate", *words, "--yes", "--json")
        assert cluster.job_state(job) == "RUNNING"
    assert json.loads(done.stdout)["ok"]
    assert [cluster.root(node, since) for node in NODES] == before
    assert set(cluster.changed(cluster.deploy()).values()) == {0}
    leaks.forms()
    leaks.in_cluster_directory()
    assert leaks.seen == []


def on_nodes(cluster: MonitoredCluster, path: str) -> set[str]:
    """What the nodes have in a file."""
    return {cluster.root(node, f"cat {path}") for node in NODES}


def test_after_a_new_authority_the_old_one_is_nowhere_and_all_is_scraped(
    cluster: MonitoredCluster, leaks: Leaks
) -> None:
    places = (OF_EXPORTERS[0], OF_LOGS[0])
    before = {path: on_nodes(cluster, path) for path in places}
    cluster.wait_until_up()

    rotate(cluster, leaks, "authority")

    for path in places:
        assert on_nodes(cluster, path) == {Authority(cluster.secret("cluster_authority")).certificate.strip()}
        assert on_nodes(cluster, path).isdisjoint(before[path])
    cluster.wait_until_up()
    cluster.root(NODE, "logger -t rotated still heard")
    query = "journalctl -D /var/log/journal/remote -q --no-pager -o cat -t rotated | grep 'still heard'"
    wait_until("the node's journal arrives", lambda: cluster.holds(HOST, query))


def test_after_a_new_signing_key_apt_accepts_the_packages_by_it_alone(cluster: MonitoredCluster, leaks: Leaks) -> None:
    old_key, versions = on_nodes(cluster, KEYRING), cluster.root(NODE, "dpkg-query -W '*slurm*'")

    rotate(cluster, leaks, "signing-key")

    assert len(on_nodes(cluster, KEYRING)) == 1
    assert on_nodes(cluster, KEYRING).isdisjoint(old_key)
    for node in NODES:
        assert "W:" not in cluster.root(node, "apt-get update 2>&1 | grep -i -A3 deepopsctl", ok=False)
        assert "deepopsctl" in cluster.root(node, "apt-cache policy slurm-client")
    assert cluster.root(NODE, "dpkg-query -W '*slurm*'") == versions
    served = yaml.safe_load((cluster.directory / SETTINGS.with_name("packages.yml")).read_text(encoding="utf-8"))
    (suite,) = served["deepops_package_repositories"]["Debian 13"].values()
    assert {suite["key"].strip()} == {text.strip() for text in on_nodes(cluster, KEYRING)}


def test_after_a_new_bind_password_users_are_known_and_the_old_one_is_nowhere(
    cluster: MonitoredCluster, leaks: Leaks, tmp_path: Path
) -> None:
    change = f"dn: {slapd.READER}\nchangetype: modify\nreplace: userPassword\nuserPassword: {NEW_PASSWORD}"
    slapd.modify(cluster, HOST, change)
    file = tmp_path / "password"
    file.write_text(f"{NEW_PASSWORD}\n", encoding="utf-8")
    file.chmod(0o600)

    rotate(cluster, leaks, "bind-password", "--password-file", str(file))

    for node in NODES:
        assert cluster.root(node, f"grep authtok {SSSD}").split()[-1] == NEW_PASSWORD
        assert cluster.root(node, f"stat -c %a {SSSD}").endswith("0")
        # not from what it remembers
        cluster.root(node, "systemctl stop sssd; rm -f /var/lib/sss/db/*.ldb /var/lib/sss/mc/*; systemctl start sssd")
        wait_until(f"{node} knows grace", partial(cluster.holds, node, "getent passwd grace"))


def test_a_bind_password_that_the_directory_refuses_changes_nothing(cluster: MonitoredCluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong\n", encoding="utf-8")
    file.chmod(0o600)
    before = on_nodes(cluster, SSSD)

    done = cluster.deepopsctl("secrets", "rotate", "bind-password", "--password-file", str(file), "--yes", ok=False)

    assert done.returncode == 1
    assert "Invalid credentials" in done.stderr
    assert "nothing was changed" in done.stderr
    assert on_nodes(cluster, SSSD) == before
    assert cluster.secret("directory_bind_password") == NEW_PASSWORD
