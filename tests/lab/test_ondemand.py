"""Open OnDemand's role on a node: its package is a stand-in; Apache, mod_auth_openidc and the provider are real."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
import yaml
from playwright.sync_api import Page

from tests.lab import ondemand_stubs
from tests.lab.aptrepo import build, serve, signers
from tests.lab.chromium import needs_chromium
from tests.lab.harness import PREFIX, SETTINGS, LabCluster, edit, fresh_cluster, wait_until
from tests.lab.oidc import Provider, authorize

pytestmark = needs_chromium
HOST = "ctl1"
OWN = "/etc/deepopsctl/ondemand"
SECRET = "told-to+no.one="
STAGE = "/usr/local/sbin/deepops-ondemand-stage"
ASKS = """\
import socket, ssl, time
begin = time.monotonic()
with socket.create_connection(("127.0.0.1", 443), 60) as raw:
    client = ssl._create_unverified_context().wrap_socket(raw)
    client.sendall(b"HEAD / HTTP/1.0\\r\\n\\r\\n")
    assert client.recv(9).startswith(b"HTTP/")
print(time.monotonic() - begin)
"""
ESTABLISHED = "ss -Htn state established '( dport = :443 )' | wc -l"
CALLS = "/run/nginx_stage.calls"
# connections that send a byte of TLS, or all of it and a header line a second, and begin again when they are closed
SLOW = """\
import socket, ssl, sys, threading, time
context = ssl._create_unverified_context()
def hold():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", 443), 30) as client:
                if sys.argv[1] == "byte":
                    client.sendall(bytes([22]))
                    client.recv(1)
                    continue
                client = context.wrap_socket(client)
                client.sendall(b"GET / HTTP/1.1\\r\\n")
                while True:
                    client.sendall(b"X-Slow: yes\\r\\n")
                    time.sleep(1)
        except OSError:
            time.sleep(0.2)
for _ in range(200):
    threading.Thread(target=hold, daemon=True).start()
time.sleep(60)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """One node with two users, Slurm, and Open OnDemand of a repository that the node serves itself."""
    with fresh_cluster(f"{PREFIX}-ondemand", tmp_path_factory, "--single") as made:
        root = tmp_path_factory.mktemp("mirror") / "root"
        with signers(1) as (signer,):
            build(root, "Open OnDemand", ondemand_stubs.packages(), signer)
            (root / "key.asc").write_bytes(signer.public)
            url = serve(made, HOST, root)
        Provider(made, HOST, OWN).deploy(
            SECRET, web_host="", ondemand_host=HOST, web_oidc_groups=["hpc"], ondemand_desktop="xfce",
            ondemand_repository_url=url, ondemand_repository_suite="/", ondemand_repository_sections=[],
            ondemand_key_url=f"{url}/key.asc", ondemand_key_fingerprint=signer.fingerprint,
        )  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def provider(cluster: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Provider:
    return Provider(cluster, HOST, OWN).start(tmp_path_factory.mktemp("provider"))


def stage(cluster: LabCluster, words: str) -> str:
    """What the portal would get: Apache's user calls it by sudo."""
    return cluster.root(HOST, f"su www-data -s /bin/sh -c 'sudo -n {STAGE} {words}' 2>&1", ok=False).strip()


@pytest.mark.parametrize(("groups", "status"), [(["staff", "hpc"], 200), (["staff"], 401), ([], 401)])
def test_apache_lets_in_whom_the_provider_and_the_groups_say(
    provider: Provider, page: Page, groups: list[str], status: int
) -> None:
    provider.knows("4711", preferred_username="alice", groups=groups)
    page.goto(f"https://{HOST}/pun/")

    answer = authorize(page, "4711", f"https://{HOST}/pun/")

    assert answer.status == status
    assert answer.headers.get("x-user", "") == ("alice" if status == 200 else "")


def test_a_users_server_starts_for_an_open_account_of_a_user(cluster: LabCluster) -> None:
    cluster.root(HOST, f"rm -f {CALLS}")

    assert stage(cluster, "pun -u alice -a %2Fnginx%2Finit") == ""
    assert cluster.root(HOST, f"cat {CALLS}").strip() == "pun -u alice -a %2Fnginx%2Finit"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("pun -u root", "no such user"),
        ("pun -u 0", "no such user"),
        ("pun -u 2001", "no such user"),
        ("pun -u www-data", "no such user"),
        ("pun -u ubuntu", "does not use these pages"),
        ("pun -u ..%2Falice", "no such user"),
        ("pun -u alice -u root", "does not call"),
        ("pun -u alice --user=root", "does not call"),
        ("pun -u alice -uroot", "does not call"),
        ("nginx_clean --force", "does not call"),
        ("", "does not call"),
    ],
)
def test_it_starts_for_no_one_else(cluster: LabCluster, words: str, text: str) -> None:
    cluster.root(HOST, f"rm -f {CALLS}")

    assert text in stage(cluster, words)
    assert not cluster.holds(HOST, f"test -e {CALLS}")


def test_a_closed_account_is_refused(cluster: LabCluster) -> None:
    cluster.root(HOST, "usermod --expiredate 1 mallory")

    assert "closed" in stage(cluster, "pun -u mallory")


def test_what_is_written_is_of_the_cluster(cluster: LabCluster) -> None:
    definition = yaml.safe_load(cluster.root(HOST, f"cat /etc/ood/config/clusters.d/{cluster.name}.yml"))
    desktop = yaml.safe_load(cluster.root(HOST, f"cat /etc/ood/config/apps/bc_desktop/{cluster.name}.yml"))

    assert definition["v2"]["login"] == {"host": HOST}
    assert definition["v2"]["job"]["adapter"] == "slurm"
    assert desktop["cluster"] == cluster.name
    assert desktop["attributes"]["bc_queue"]["options"] == ["cpu"]
    assert cluster.root(HOST, "stat -c '%a %U' /etc/ood/config/ood_portal.yml").split() == ["600", "root"]


def test_the_secret_is_in_no_log(cluster: LabCluster) -> None:
    runs = [path for path in (cluster.directory / "runs").rglob("*") if path.is_file()]
    assert runs
    assert not [path for path in runs if SECRET.encode() in path.read_bytes()]
    assert SECRET not in cluster.root(HOST, "journalctl -o cat --no-pager | grep -v 'grep\\|journalctl'")


@pytest.mark.parametrize("how", ["byte", "header"])
def test_slow_clients_keep_no_one_else_waiting(cluster: LabCluster, how: str) -> None:
    cluster.root(
        HOST, f"printf %s {shlex.quote(SLOW)} >/root/slow.py; setsid python3 /root/slow.py {how} >/dev/null 2>&1 &"
    )
    try:
        wait_until("they are all there", lambda: int(cluster.root(HOST, ESTABLISHED)) >= 200, 30)
        # Debian's values: none within 25 seconds
        for _ in range(5):
            seconds = cluster.root(HOST, f"python3 -c {shlex.quote(ASKS)}")
            assert float(seconds) < 10
    finally:
        cluster.root(HOST, "pkill -f root/[s]low.py")


def test_a_check_and_a_second_deploy_change_nothing(cluster: LabCluster) -> None:
    for options in (("--check",), ()):
        assert set(cluster.changed(cluster.parsed("deploy", "web", *options)).values()) == {0}


def test_it_goes_again(cluster: LabCluster) -> None:
    edit(cluster.directory / SETTINGS, f'ondemand_host: "{HOST}"', 'ondemand_host: ""')

    cluster.deepopsctl("deploy", "web")

    left = f"ls -d {OWN}/stage.json {STAGE} /etc/ood/config/ood_portal.yml /etc/sudoers.d/deepops-ondemand 2>/dev/null"
    assert cluster.root(HOST, left, ok=False) == ""
    assert not cluster.holds(HOST, "dpkg -s ondemand >/dev/null 2>&1")
