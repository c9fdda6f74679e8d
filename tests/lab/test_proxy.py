"""The cluster's own proxy: jobs reach allowed hosts by TLS and nothing else, and the log has their user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab.harness import SETTINGS, LabCluster, edit, wait_until
from tests.lab.smoke import Result, damaged, validate

PROXY, NODE, SERVER = "ctl1", "gpu01", "gpu02"
ALLOWED, REFUSED = "environment-proxy-allowed", "environment-proxy-refused"
# a TLS server of the test stands for an allowed host; Squid reads /etc/hosts
MIRROR = "mirror.lab.example"
SERVE = (
    "cd /root && openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=x 2>&1 && "
    "systemd-run --unit=test-mirror openssl s_server -accept 443 -key /root/key.pem -cert /root/cert.pem -www"
)


@pytest.fixture(scope="module")
def site(deployed: LabCluster) -> Iterator[LabCluster]:
    """The cluster with a proxy on its controller, that may reach one internal address: the server's."""
    spec, settings = deployed.directory / "cluster.yml", deployed.directory / SETTINGS
    before, before_settings = spec.read_text(encoding="utf-8"), settings.read_text(encoding="utf-8")
    address = deployed.root(SERVER, "hostname -I").split()[0]
    lines = f"environment_proxy_nodes: [{PROXY}]\nenvironment_proxy_hosts: [{MIRROR}, inside.lab.example]\n"
    try:
        deployed.root(SERVER, SERVE)
        deployed.root(PROXY, f"echo '{address} {MIRROR}' >> /etc/hosts")
        deployed.root(PROXY, "echo '192.168.1.1 inside.lab.example' >> /etc/hosts")
        edit(spec, "components: [slurm]", "components: [slurm, environment]")
        edit(settings, "---\n", f"---\n{lines}http_proxy_internal_allowed: [{address}]\n")
        deployed.deepopsctl("deploy", "environment")
        yield deployed
    finally:
        settings.write_text(before_settings, encoding="utf-8")
        deployed.deepopsctl("deploy", "environment", ok=False)
        spec.write_text(before, encoding="utf-8")
        deployed.root(SERVER, "systemctl stop test-mirror; rm -f /root/key.pem /root/cert.pem", ok=False)
        hosts = "grep -v 'lab.example$' /etc/hosts > /tmp/hosts; cat /tmp/hosts > /etc/hosts; rm /tmp/hosts"
        deployed.root(PROXY, hosts, ok=False)


def proxied(cluster: LabCluster, request: str) -> str:
    """The status of the proxy's answer to ubuntu on the node."""
    script = f"exec 3<>/dev/tcp/{PROXY}/3128; printf '{request} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; head -n1 <&3"
    return cluster.user(NODE, f'bash -c "{script}"').split(" ")[1]


def statuses(result: Result) -> dict[tuple[str, str], str]:
    return {key: each["status"] for key, each in result.checks.items() if key[0] in (ALLOWED, REFUSED)}


def test_users_reach_allowed_hosts_by_tls_and_the_refusal_has_their_name(site: LabCluster) -> None:
    result = validate(site, suite="environment")

    assert statuses(result) == {(name, node): "pass" for name in (ALLOWED, REFUSED) for node in (PROXY, NODE, SERVER)}
    through = f"openssl s_client -proxy {PROXY}:3128 -connect {MIRROR}:443 </dev/null 2>&1"
    assert "subject=CN=x" in site.user(NODE, through).replace(" ", "")


def test_nothing_else_gets_out(site: LabCluster) -> None:
    requests = {
        "CONNECT inside.lab.example:443": "403",
        f"CONNECT {MIRROR}:22": "403",
        f"CONNECT {site.root(SERVER, 'hostname -I').split()[0]}:443": "403",
        f"GET http://{MIRROR}:8080/": "403",
        f"GET http://{PROXY}:3128/squid-internal-mgr/info": "403",
        "CONNECT localhost:22": "403",
    }

    assert {request: proxied(site, request) for request in requests} == requests
    address = site.root(PROXY, "hostname -I").split()[0]
    assert site.root(PROXY, "ss -Hltn 'sport = :3128'").split()[3] == f"{address}:3128"


# an IPv4 address inside of an IPv6 address, and what is in no network of the internet
FORMS = (
    "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2002:a00:1::", "2001:0:a00:1::1", "::ffff:10.0.0.1", "::10.0.0.1",
    "::ffff:0:10.0.0.1", "fe80::5efe:a00:1", "fec0::1", "fd00::1", "100::1", "5f00::1", "::1", "ff02::1", "0.0.0.1",
    "198.18.0.1", "192.0.0.170",
)  # fmt: skip


def test_no_form_of_an_internal_address_gets_out(site: LabCluster) -> None:
    names = {f"form{number}.lab.example": address for number, address in enumerate(FORMS)}
    for name, address in names.items():
        site.root(PROXY, f"echo '{address} {name}' >> /etc/hosts")
    edit(site.directory / SETTINGS, "inside.lab.example]", "inside.lab.example, .lab.example]")
    site.deepopsctl("deploy", "environment")
    wait_until("Squid has read the list", lambda: proxied(site, "CONNECT unknown.lab.example:443") == "503")

    answers = {address: proxied(site, f"CONNECT {name}:443") for name, address in names.items()}

    assert answers == dict.fromkeys(FORMS, "403")
    literals = ("0x7f000001", "2130706433", "0177.0.0.1", "127.1", "[::ffff:10.0.0.1]", "[64:ff9b::a00:1]")
    assert {proxied(site, f"CONNECT {literal}:443") for literal in literals} == {"403"}


def test_a_user_that_connects_and_says_nothing_stops_the_proxy_for_nobody(site: LabCluster) -> None:
    silent = (
        "import resource, socket, time; resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)); "
        f'held = [socket.create_connection(("{PROXY}", 3128)) for _ in range(3000)]; print("held", flush=True); '
        "time.sleep(600)"
    )
    try:
        site.root(SERVER, f"systemd-run --quiet --uid=ubuntu --unit=silent python3 -c '{silent}'")
        wait_until("they are connected", lambda: site.holds(SERVER, "journalctl -q -o cat -u silent | grep -x held"))

        assert proxied(site, "CONNECT stranger.example:22") == "403"
        open_ones = "ss -Htn state established 'sport = :3128' | wc -l"
        wait_until("those that say nothing are closed", lambda: int(site.root(PROXY, open_ones)) < 20)
    finally:
        site.root(SERVER, "systemctl stop silent", ok=False)


def test_the_log_has_the_user_and_the_host(site: LabCluster) -> None:
    proxied(site, "CONNECT stranger.example:443")

    log = "grep stranger.example /var/log/squid/access.log"
    wait_until("the refusal is in the log", lambda: site.holds(PROXY, log))
    assert " ubuntu " in site.root(PROXY, log)
    assert " TCP_DENIED/403 CONNECT stranger.example:443 " in site.root(PROXY, log)


def test_a_node_that_does_not_tell_the_user_is_named(site: LabCluster) -> None:
    with damaged(site, (NODE, "systemctl stop deepops-ident", "systemctl start deepops-ident")):
        result = validate(site, suite="environment")

    assert {key for key, status in statuses(result).items() if status == "fail"} == {(REFUSED, NODE)}


def test_a_second_deploy_changes_nothing_and_another_list_restarts_nothing(site: LabCluster) -> None:
    started = "systemctl show -p ActiveEnterTimestamp --value squid"
    before = site.root(PROXY, started)

    assert site.parsed("deploy", "environment", "--full")["changes"] == []
    edit(site.directory / SETTINGS, f"[{MIRROR}, ", f"[{MIRROR}, stranger.example, ")
    site.deepopsctl("deploy", "environment")

    wait_until("Squid has read the list", lambda: proxied(site, "CONNECT stranger.example:443") == "503")
    assert site.root(PROXY, started) == before


def test_without_the_setting_it_is_removed(site: LabCluster) -> None:
    module = "test -e /opt/deepopsctl/modulefiles/httpproxy"
    assert site.holds(NODE, module)
    edit(site.directory / SETTINGS, f"environment_proxy_nodes: [{PROXY}]", "environment_proxy_nodes: []")
    site.deepopsctl("deploy", "environment")

    assert not site.holds(PROXY, "dpkg-query --status squid | grep -q '^Status: install ok'")
    assert not site.holds(NODE, "systemctl is-active deepops-ident || ls /usr/local/sbin/deepops-ident")
    assert not site.holds(NODE, module)
