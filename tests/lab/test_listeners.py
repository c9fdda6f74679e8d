"""Every listener of a cluster under many clients that say nothing: it stays, and its memory stays within its bounds."""

from __future__ import annotations

import re

import pytest

from tests.lab.harness import wait_until
from tests.lab.monitored import MonitoredCluster
from tests.support.paths import ROOT

TABLE = ROOT / "docs" / "reference" / "listeners.md"
ROW = re.compile(r"^\| (\d+)(?:/udp)? \| `([a-z-]+)` \|", re.MULTILINE)
MANY = 1500
# from another node, as a user; it says nothing until it is stopped
SILENT = f"""\
import resource, socket, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
clients = []
for _ in range({MANY}):
    try:
        clients.append(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5))
    except OSError:
        break
print(len(clients), flush=True)
time.sleep(600)
"""
UNITS = {
    6817: "slurmctld", 6819: "slurmdbd", 9090: "prometheus", 9093: "prometheus-alertmanager",
    9100: "prometheus-node-exporter", 9104: "prometheus-mysqld-exporter", 19532: "deepops-logs",
}  # fmt: skip
# of these the clients take all connections
HELD = (6817, 6819, 9090, 9093)
MB = 1 << 20
RULES = re.compile(r"^```nft\n(.+?)^```$", re.MULTILINE | re.DOTALL)
BOUND = 64


def silent(unit: str, address: str, port: int) -> str:
    """A command that starts the clients."""
    return f"systemd-run --quiet --uid=ubuntu --unit={unit} python3 -c '{SILENT}' {address} {port}"


def listeners(cluster: MonitoredCluster, node: str) -> dict[int, str]:
    """The program at each TCP port of a node, in the node's own network."""
    lines = cluster.root(node, "ss -Hltnp").splitlines()
    result = ((line.split()[3].rpartition(":")[2], re.search(r'users:\(\("([^"]+)"', line)) for line in lines)
    return {int(port): program[1] for port, program in result if program}


@pytest.mark.parametrize("node", ["ctl1", "gpu01"])
def test_whatever_listens_is_in_the_table(monitored: MonitoredCluster, node: str) -> None:
    rows = {int(port): name for port, name in ROW.findall(TABLE.read_text(encoding="utf-8"))}

    # the kernel has the first 15 letters of a name
    strangers = {
        port: name
        for port, name in listeners(monitored, node).items()
        if not (rows.get(port, "").startswith(name) or name.startswith(rows.get(port, "?")))
    }
    assert strangers == {}


def memory(cluster: MonitoredCluster, unit: str) -> tuple[int, str]:
    """Memory of a unit's main process in bytes, and which process that is."""
    script = f"p=$(systemctl show -p MainPID --value {unit}); echo $p $(grep VmRSS /proc/$p/status)"
    pid, _, kilobytes, _ = cluster.root("ctl1", script).split()
    return int(kilobytes) * 1024, pid


@pytest.mark.parametrize("port", UNITS)
def test_many_silent_clients_neither_stop_it_nor_fill_memory(monitored: MonitoredCluster, port: int) -> None:
    unit = UNITS[port]
    before, process = memory(monitored, unit)
    try:
        monitored.root("gpu01", silent(f"silent-{port}", monitored.address("ctl1"), port))
        connected = f"journalctl -q -o cat -u silent-{port} | grep -x '[0-9]*'"
        wait_until("they are connected", lambda: monitored.holds("gpu01", connected))

        during, same = memory(monitored, unit)
        assert same == process
        assert during < before + 64 * MB
        if port not in HELD:
            assert monitored.query("up == 0") == []
    finally:
        monitored.root("gpu01", f"systemctl stop silent-{port}", ok=False)
    monitored.wait_until_up()
    assert memory(monitored, unit)[1] == process


def test_a_node_sends_its_journal_while_its_users_hold_the_log_hosts_port(monitored: MonitoredCluster) -> None:
    start = (
        f"systemd-run --quiet --uid=ubuntu --unit=silent-logs python3 -c '{SILENT}' {monitored.address('ctl1')} 19532"
    )
    try:
        monitored.root("gpu01", start)
        monitored.root("gpu01", "systemctl restart systemd-journal-upload; logger -t crowded still heard")
        query = "journalctl -D /var/log/journal/remote -q --no-pager -o cat -t crowded | grep 'still heard'"
        wait_until("the line is on the log host", lambda: monitored.holds("ctl1", query))
    finally:
        monitored.root("gpu01", "systemctl stop silent-logs", ok=False)
    assert "was refused: too many connections" in monitored.root("ctl1", "journalctl -q -o cat -u deepops-logs")


@pytest.mark.parametrize("port", HELD)
def test_with_the_pages_rules_one_address_has_its_share_and_the_others_are_served(
    monitored: MonitoredCluster, port: int
) -> None:
    (rules,) = RULES.findall(TABLE.read_text(encoding="utf-8"))
    assert f"ct count over {BOUND}" in rules
    monitored.root("ctl1", "command -v nft || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nftables")
    try:
        monitored.root("ctl1", f"nft -f - <<'END'\n{rules}END")
        monitored.root("gpu01", silent(f"bounded-{port}", monitored.address("ctl1"), port))
        # the node's own daemon may have one or two
        connected = f"journalctl -q -o cat -u bounded-{port} | grep -xE '6[0-4]'"
        wait_until("the next one is refused", lambda: monitored.holds("gpu01", connected))

        asked = {6817: "squeue -h", 6819: "sacct -n"}.get(port)
        if asked:
            monitored.root("ctl1", f"timeout 30 {asked}")
        else:
            # this machine is another client
            assert monitored.status(port, password=monitored.password()) == 200
    finally:
        monitored.root("gpu01", f"systemctl stop bounded-{port}", ok=False)
        monitored.root("ctl1", "nft delete table inet deepops_clients", ok=False)
    monitored.wait_until_up()
