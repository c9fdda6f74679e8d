"""One node keeps packages for all: the second gets them from it, no one else is served, and apt works without it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit

CACHE, FIRST, SECOND = "ctl1", "gpu01", "gpu02"
LOG = "/var/log/apt-cacher-ng/apt-cacher.log"
PORT = 3142
# small, needs nothing, and no deploy installs it
PACKAGE, ANOTHER = "hello", "tree"


@pytest.fixture(scope="module")
def site(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with a cache on its controller."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before, before_settings = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    try:
        edit(spec, "components: [slurm]", "components: [package_cache, slurm]")
        edit(settings, "---\n", f"---\npackage_cache_host: {CACHE}\n")
        deployed.deepopsctl("deploy", "package_cache")
        yield deployed
    finally:
        settings.write_text(before_settings, encoding="utf-8")
        deployed.deepopsctl("deploy", "package_cache", ok=False)
        spec.write_text(before, encoding="utf-8")
        for node in (FIRST, SECOND):
            deployed.root(node, f"apt-get purge -y {PACKAGE} {ANOTHER}", ok=False)


def install(cluster: LabCluster, node: str, package: str) -> None:
    cluster.root(node, f"apt-get clean && apt-get update && apt-get install -y --no-install-recommends {package}")


def transfers(cluster: LabCluster, package: str) -> list[tuple[str, str]]:
    """(way, node's address) of each transfer of the package: `I` from outside, `O` to a node."""
    lines = [
        line.split("|") for line in cluster.root(CACHE, f"grep '/{package}_[^/]*deb$' {LOG}", ok=False).splitlines()
    ]
    return [(fields[1], fields[3]) for fields in lines]


def test_the_second_node_gets_its_package_from_the_cache(site: LabCluster) -> None:
    install(site, FIRST, PACKAGE)
    # acng writes its log at intervals
    site.root(CACHE, "systemctl restart apt-cacher-ng")
    install(site, SECOND, PACKAGE)
    site.root(CACHE, "systemctl restart apt-cacher-ng")

    ways = transfers(site, PACKAGE)

    addresses = {node: site.root(node, "hostname -I").split()[0] for node in (FIRST, SECOND)}
    assert [way for way, _address in ways].count("I") == 1
    assert [address for way, address in ways if way == "O"] == [addresses[FIRST], addresses[SECOND]]


def test_a_host_that_is_no_node_is_not_served(site: LabCluster) -> None:
    address = site.root(CACHE, "hostname -I").split()[0]

    with socket.create_connection((address, PORT), 10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""

    assert f"http://{address}:{PORT}/" in site.root(FIRST, "/etc/apt/deepopsctl-package-cache http://deb.debian.org/")


def test_a_dead_cache_stops_no_installation(site: LabCluster) -> None:
    site.root(CACHE, "systemctl stop apt-cacher-ng")
    try:
        install(site, FIRST, ANOTHER)
    finally:
        site.root(CACHE, "systemctl start apt-cacher-ng")

    assert transfers(site, ANOTHER) == []


def test_a_second_deploy_changes_nothing(site: LabCluster) -> None:
    assert set(site.changed(site.parsed("deploy", "package_cache")).values()) == {0}


def test_without_the_setting_all_of_it_is_removed(site: LabCluster) -> None:
    edit(site.directory / SETTINGS, f"package_cache_host: {CACHE}\n", "")

    site.deepopsctl("deploy", "package_cache")

    for node in (CACHE, FIRST, SECOND):
        site.root(node, "! ls /etc/apt/deepopsctl-package-cache /etc/apt/apt.conf.d/94deepopsctl-package-cache")
    site.root(CACHE, "! dpkg-query -W apt-cacher-ng | grep -q . && ! grep apt-cacher /etc/hosts.allow")
