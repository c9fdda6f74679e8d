"""The role grafana on a real node, with a stand-in of its package from a signed repository: the real one is missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import aptrepo
from tests.lab.grafana_standin import grafana
from tests.lab.harness import SETTINGS, actions
from tests.lab.monitored import MonitoredCluster

OLD, NEW = "13.2.2", "13.2.3"
PASSWORD = "/etc/grafana/deepops-admin-password"
DATA_SOURCES = "/etc/grafana/provisioning/datasources/deepopsctl.yaml"
DASHBOARD = "/usr/local/share/deepopsctl/dashboards/deepops-gpus.json"


@dataclass(frozen=True)
class Site:
    """A cluster whose Grafana comes from a repository on its own node."""

    cluster: MonitoredCluster
    mirror: Path
    url: str
    fingerprint: str

    def deploy(self, *options: str, ok: bool = True) -> dict[str, Any]:
        return self._run("deploy", *options, ok=ok)

    def plan(self, *options: str) -> dict[str, Any]:
        return self._run("plan", *options, ok=True)

    def _run(self, command: str, *options: str, ok: bool) -> dict[str, Any]:
        return self.cluster.parsed(command, "monitoring", *options, ok=ok)

    def set(self, **settings: object) -> None:
        """Write these settings in place of earlier ones of Grafana."""
        path = self.cluster.directory / SETTINGS
        other_lines = [
            line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("grafana_")
        ]
        own = {
            "enabled": True,
            "repository_url": self.url,
            "key_url": f"{self.url}/key.asc",
            "key_fingerprint": self.fingerprint,
            "version": OLD,
            **settings,
        }
        lines = [f"grafana_{name}: {json.dumps(value)}" for name, value in own.items()]
        path.write_text("\n".join([*other_lines, *lines, ""]), encoding="utf-8")

    def root(self, script: str, ok: bool = True) -> str:
        return self.cluster.root("ctl1", script, ok)

    def archive(self, version: str) -> Path:
        """The package as a file of the control machine."""
        (package,) = self.mirror.glob(f"pool/grafana_{version}_*.deb")
        return package

    def version(self) -> str:
        return self.root("dpkg-query --show --showformat '${Version}' grafana 2>/dev/null || true")

    def asks(self, path: str, password_file: str = "") -> str:
        """What Grafana answers on the management address; HTTP's code where it refuses."""
        script = (
            "import base64, sys, urllib.error, urllib.request\n"
            "request = urllib.request.Request(sys.argv[1])\n"
            "if sys.argv[2:]:\n"
            '    login = base64.b64encode(b"admin:" + open(sys.argv[2], "rb").read()).decode()\n'
            '    request.add_header("Authorization", "Basic " + login)\n'
            "try:\n"
            "    print(urllib.request.urlopen(request).read().decode())\n"
            "except urllib.error.HTTPError as error:\n"
            "    print(error.code)\n"
        )
        address = self.root("hostname -I").split()[0]
        return self.root(f"python3 - http://{address}:3000{path} {password_file} <<'END'\n{script}END")

    def started(self) -> str:
        return self.root("systemctl show grafana-server -p ExecMainStartTimestampMonotonic --value")


@pytest.fixture(scope="module")
def site(monitored: MonitoredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    mirror = tmp_path_factory.mktemp("grafana") / "mirror"
    settings = monitored.directory / SETTINGS
    before = settings.read_text(encoding="utf-8")
    with aptrepo.signers(1) as (signer,):
        aptrepo.build_suite(mirror, "stable", "main", [grafana(OLD), grafana(NEW)], signer)
        (mirror / "key.asc").write_bytes(signer.public)
        url = aptrepo.serve(monitored, "ctl1", mirror)
        try:
            yield Site(monitored, mirror, url, signer.fingerprint)
        finally:
            settings.write_text(before, encoding="utf-8")
            monitored.deploy()
            monitored.root("ctl1", "systemctl stop mirror; rm -r /srv/mirror")


@pytest.fixture(scope="module")
def deploys(site: Site) -> dict[str, dict[str, Any]]:
    """What plan predicted, what the first deploy did, and a rerun."""
    site.set()
    return {"plan": site.plan(), "first": site.deploy(), "again": site.deploy("--full")}


def of_grafana(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {entry for entry in actions(document) if "grafana" in entry[1].lower() or "dashboards" in entry[1]}


def test_plan_predicts_what_the_deploy_does(deploys: dict[str, dict[str, Any]]) -> None:
    done = of_grafana(deploys["first"])

    assert {("package", "grafana", "install"), ("unit", "grafana-server.service", "start")} <= done
    assert {("file", DATA_SOURCES, "write"), ("file", DASHBOARD, "write")} <= done
    assert of_grafana(deploys["plan"]) == done


def test_the_second_run_changes_nothing(deploys: dict[str, dict[str, Any]]) -> None:
    assert deploys["again"]["changes"] == []
    assert {host["changed"] for host in deploys["again"]["hosts"].values()} == {0}


@pytest.mark.usefixtures("deploys")
def test_it_lets_its_administrator_in_and_nobody_else(site: Site) -> None:
    assert json.loads(site.asks("/api/health"))["database"] == "ok"
    assert site.asks("/api/user") == "401"
    assert json.loads(site.asks("/api/user", PASSWORD)) == {"login": "admin"}


@pytest.mark.usefixtures("deploys")
def test_the_data_sources_password_opens_prometheus_and_alertmanager(site: Site) -> None:
    script = (
        "import base64, re, urllib.request\n"
        "VALUE = '%s: \"?([^\",\\\\s}]+)'\n"
        f'text = open("{DATA_SOURCES}").read()\n'
        'for url, path in zip(re.findall(VALUE % "url", text), ("/api/v1/query?query=up", "/api/v2/status")):\n'
        '    login = "admin:" + re.search(VALUE % "basicAuthPassword", text)[1]\n'
        "    request = urllib.request.Request(url + path)\n"
        '    request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())\n'
        "    print(urllib.request.urlopen(request).status)\n"
    )

    assert site.root(f"python3 - <<'END'\n{script}END").split() == ["200", "200"]


@pytest.mark.usefixtures("deploys")
def test_secrets_are_readable_by_grafana_alone_and_printed_nowhere(
    site: Site, deploys: dict[str, dict[str, Any]]
) -> None:
    modes = site.root(f"stat -c '%a %U %G' {PASSWORD} {DATA_SOURCES}").splitlines()
    secret = site.root(f"cat {PASSWORD}")
    output = json.dumps(deploys) + site.root("journalctl --no-pager; systemctl cat grafana-server; ps -ef")
    runs = [path.read_text(errors="replace") for path in site.cluster.directory.glob("runs/*/**/*") if path.is_file()]

    assert modes == ["640 root grafana"] * 2
    assert len(secret) > 20
    assert secret not in output
    assert not [text for text in runs if secret in text]


@pytest.mark.usefixtures("deploys")
def test_a_dashboard_and_a_password_that_were_changed_are_set_back_without_a_restart(site: Site) -> None:
    before = site.started()
    site.root(f"echo '{{}}' > {DASHBOARD}; printf other | grafana-cli admin reset-admin-password --password-from-stdin")
    assert site.asks("/api/user", PASSWORD) == "401"

    done = site.deploy("--full")

    assert of_grafana(done) == {("file", DASHBOARD, "write"), ("password", "Grafana's admin", "set")}
    assert json.loads(site.asks("/api/user", PASSWORD)) == {"login": "admin"}
    assert site.started() == before


@pytest.mark.usefixtures("deploys")
def test_history_and_database_come_back_from_a_backup(site: Site) -> None:
    cluster, data = site.cluster, "/var/lib/prometheus/deepops"
    with (cluster.directory / SETTINGS).open("a", encoding="utf-8") as settings:
        settings.write("slurm_backup_repository: /backup\nmonitoring_backup: true\n")
    cluster.deepopsctl("deploy", "slurm")
    yesterday = int(site.root("date -d yesterday +%s"))
    # a block of Prometheus' own takes hours
    site.root(
        f"printf '# TYPE old gauge\nold 7 {yesterday}\n# EOF\n' > /tmp/old.om"
        f" && promtool tsdb create-blocks-from openmetrics /tmp/old.om {data} && chown -R prometheus: {data}"
        " && printf other | grafana-cli admin reset-admin-password --password-from-stdin"
    )
    cluster.deepopsctl("backup", "run")
    # a host with both repositories is listed once for each
    listed = [entry for node in cluster.parsed("backup", "list")["nodes"] for entry in node["snapshots"]]
    (saved,) = [entry["id"] for entry in listed if entry["parts"] == ["monitoring"]]
    verified = json.loads(cluster.deepopsctl("backup", "verify", saved, "--json").stdout)["nodes"][0]
    assert (verified["samples"], verified["blocks"], verified["grafana"]) == (1, 1, True)
    site.root(f"systemctl stop prometheus grafana-server; rm -r {data}/* /var/lib/grafana/grafana.db")
    cluster.deepopsctl("deploy", "monitoring")

    cluster.deepopsctl("restore", "--only", "monitoring", "--yes")

    result = cluster.ask("/api/v1/query", query="old", time=str(yesterday))["data"]["result"]
    assert [series["value"][1] for series in result] == ["7"]
    # the saved database has another password than secrets.yml
    assert json.loads(site.asks("/api/user", PASSWORD)) == {"login": "admin"}
    assert site.root("ls /var/lib/grafana").count("before-restore") == 1
    assert set(cluster.changed(cluster.deploy()).values()) == {0}
    assert "of monitoring on ctl1" in cluster.deepopsctl("status", ok=False).stdout


@pytest.mark.usefixtures("deploys")
def test_another_version_comes_when_it_is_asked_for(site: Site) -> None:
    site.set(version=NEW)

    done = site.deploy()

    assert ("package", "grafana", "upgrade") in of_grafana(done)
    assert site.version() == NEW


@pytest.mark.usefixtures("deploys")
def test_switched_off_it_goes_with_all_that_came_with_it(site: Site) -> None:
    site.set(enabled=False)

    done = site.deploy()
    places = "/etc/systemd /etc/grafana /etc/apt/sources.list.d /etc/apt/preferences.d /usr/local/share"
    left = site.root(f"find {places} -type f -path '*grafana*' -o -name 'deepops-*.json'", ok=False)

    assert ("package", "grafana", "remove") in of_grafana(done)
    assert site.version() == ""
    assert [line for line in left.splitlines() if "No such file" not in line] == []
    assert site.root("systemctl is-active grafana-server || true") == "inactive"
    assert site.root("systemctl list-units --failed --no-legend 'grafana*'") == ""


@pytest.mark.usefixtures("deploys")
def test_a_file_replaces_the_repository(site: Site) -> None:
    file = site.archive(NEW)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    site.set(version=NEW, repository_url="http://127.0.0.1:9", package=str(file), package_sha256="0" * 64)

    (failure,) = site.deploy(ok=False)["failures"]
    site.set(version=NEW, repository_url="http://127.0.0.1:9", package=str(file), package_sha256=digest)
    done = site.deploy()

    assert f"its sha256 is {digest}" in failure["message"]
    assert ("package", "grafana", "install") in of_grafana(done)
    assert json.loads(site.asks("/api/user", PASSWORD)) == {"login": "admin"}
    assert site.root("ls /etc/apt/sources.list.d/deepopsctl-grafana.sources", ok=False).endswith(
        "No such file or directory"
    )
