"""The journals of a cluster's nodes on its monitoring host, by real systemd-journal-upload and -remote."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from threading import Timer

import pytest

from deepopsctl.certificates import validity
from deepopsctl.certificates.authority import Authority, new_authority
from deepopsctl.node_programs.services.log_collector.places import files_of
from tests.lab.foreign_slurm import put
from tests.lab.monitored import MonitoredCluster
from tests.support.cluster import DEEPOPSCTL, wait_until

COLLECTED = "journalctl -D /var/log/journal/remote -q --no-pager -o cat"
AT_THE_DOOR = "deepops-logs.socket deepops-logs.service"
# prints what an HTTP server answers, or the error, which varies; the arguments are certificate and key
KNOCK = """
import socket, ssl, sys
tls = ssl.create_default_context(cafile="/etc/deepopsctl/pki/authority.crt")
if len(sys.argv) > 2:
    tls.load_cert_chain(*sys.argv[2:])
try:
    stream = tls.wrap_socket(socket.create_connection((sys.argv[1], 19532), 30), server_hostname=sys.argv[1])
    stream.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    print(stream.recv(12).decode() or "closed")
except (ssl.SSLError, ConnectionError) as error:
    print(error)
"""


def wait_for_lines(cluster: MonitoredCluster, matches: str, wanted: set[str]) -> None:
    """Until the log host has them all; a line may be there twice."""

    def lines() -> set[str]:
        return set(cluster.root("ctl1", f"{COLLECTED} {matches}", ok=False).splitlines())

    wait_until(
        f"{matches} is on the log host", lambda: wanted <= lines(), details=lambda: str(sorted(wanted - lines()))
    )


def test_logs_can_be_selected_by_node_and_unit(monitored: MonitoredCluster) -> None:
    monitored.root(
        "gpu01", "systemd-run -q --wait --unit=probe-unit echo said by a unit; logger -t probe said by gpu01"
    )

    wait_for_lines(monitored, "_HOSTNAME=gpu01 -u probe-unit", {"said by a unit"})
    wait_for_lines(monitored, "_HOSTNAME=gpu01 -t probe", {"said by gpu01"})
    asked = ("--unit", "probe-unit", "--since", "-1h")
    assert "said by a unit" in monitored.deepopsctl("logs", "gpu01", *asked).stdout
    lines = json.loads(monitored.deepopsctl("logs", "gpu01", *asked, "--json").stdout)["lines"]
    assert ("gpu01", "probe-unit.service", "said by a unit") in {
        (line["host"], line["unit"], line["message"]) for line in lines
    }


@pytest.fixture
def damaged_file(monitored: MonitoredCluster) -> Iterator[str]:
    """One more file of gpu01's journal, which nothing can read."""
    path = files_of("gpu01").replace("[.@]*", "@damaged.journal")
    monitored.root("ctl1", f"head -c 8388608 /dev/zero > {path}")
    yield path
    monitored.root("ctl1", f"rm {path}")


def test_logs_reads_past_a_damaged_file(monitored: MonitoredCluster, damaged_file: str) -> None:
    monitored.root("gpu01", "logger -t readable of another file")
    wait_for_lines(monitored, "-t readable", {"of another file"})

    done = monitored.deepopsctl("logs", "gpu01", "--since", "-1h")

    assert "of another file" in done.stdout
    assert f"{damaged_file.rpartition('/')[2]} corrupted, ignoring file" in done.stderr


def test_new_lines_are_printed_as_they_come_past_a_damaged_file(monitored: MonitoredCluster, damaged_file: str) -> None:
    words = [DEEPOPSCTL, "-C", str(monitored.directory), "logs", "gpu01", "-f", "-n", "1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        limit = Timer(monitored.patience_s, following.kill)
        limit.start()
        # the last line from before
        assert following.stdout.readline()
        monitored.root("gpu01", "logger -t followed a new line")
        assert any("a new line" in line for line in iter(following.stdout.readline, ""))
        limit.cancel()
        following.send_signal(signal.SIGINT)
        assert f"{damaged_file} is damaged, ignoring file" in following.stderr.read()
    assert following.returncode == 0


def test_slurms_own_messages_are_among_them(monitored: MonitoredCluster) -> None:
    monitored.root("ctl1", "scontrol setdebug debug && scontrol setdebug info")

    query = f"{COLLECTED} _HOSTNAME=ctl1 -u slurmctld | grep -F 'Set debug level'"
    wait_until("slurmctld's message is on the log host", lambda: monitored.holds("ctl1", query))


def request_through_proxy(cluster: MonitoredCluster, identity: str) -> str:
    """The answer through the TLS proxy to a client with these files of a certificate and a key."""
    return cluster.root("gpu01", f"python3 -c '{KNOCK}' {cluster.address('ctl1')} {identity}")


@pytest.mark.parametrize(
    ("who", "reason"), [("no one", "peer did not return a certificate"), ("stranger", "certificate verify failed")]
)
def test_nobody_hands_in_logs_without_a_certificate_of_the_cluster(
    monitored: MonitoredCluster, who: str, reason: str
) -> None:
    stranger = Authority(new_authority(validity.today())).identify("gpu01", [], validity.today())
    for ending, content in (("crt", stranger.certificate), ("key", stranger.key)):
        put(monitored, "gpu01", f"/run/stranger.{ending}", content.encode())
    refusals = f"journalctl -u deepops-logs -o cat --no-pager | grep -c '{reason}' || true"
    before = int(monitored.root("ctl1", refusals))

    answer = request_through_proxy(monitored, "" if who == "no one" else "/run/stranger.crt /run/stranger.key")

    assert "HTTP" not in answer
    wait_until("the TLS proxy logs why", lambda: int(monitored.root("ctl1", refusals)) == before + 1)


def test_a_node_hands_in_logs_by_its_certificate(monitored: MonitoredCluster) -> None:
    assert request_through_proxy(monitored, "/etc/deepopsctl/pki/node.crt /etc/deepopsctl/pki/node.key").startswith(
        "HTTP/1.1"
    )


# of a lab's container: what makes it that node, and what it may do beyond podman's own
OF_THE_LAB = ("--name", "--hostname", "--ip", "--mac", "--label", "--volume", "--device", "--cap-add", "--security-opt")
SENDS = "/etc/deepopsctl/pki /etc/systemd/journal-upload.conf.d /etc/systemd/system/systemd-journal-upload.service.d"


def test_a_node_without_the_capability_to_mount_sends_its_journal_too(monitored: MonitoredCluster) -> None:
    """A container as people start it: systemd can't give units their own mounts there."""
    form = "{{json .Config.CreateCommand}}"
    made: list[str] = json.loads(podman("inspect", "--format", form, f"{monitored.name}-gpu01"))
    name = f"{monitored.name}-plain"
    options = [word for word in made[made.index("run") + 1 :] if not word.startswith(OF_THE_LAB)]
    try:
        podman(*made[1 : made.index("run") + 1], f"--name={name}", *options)
        install = "apt-get -qq update && apt-get -qq install --yes --no-install-recommends systemd-journal-remote"
        inside = ("podman", "exec", "-i", name, "sh", "-c")
        wait_until(
            "systemd is up", lambda: subprocess.run([*inside, "systemctl is-system-running --wait"]).returncode < 2
        )
        subprocess.run([*inside, f"export DEBIAN_FRONTEND=noninteractive; {install}"], check=True, capture_output=True)
        files = subprocess.run(
            ["podman", "exec", f"{monitored.name}-gpu01", "tar", "c", *SENDS.split()], capture_output=True
        )
        subprocess.run([*inside, "tar x -C /"], input=files.stdout, check=True)

        subprocess.run(
            [*inside, "systemctl daemon-reload; systemctl start systemd-journal-upload; logger -t plain hello"]
        )

        wait_for_lines(monitored, "-t plain", {"hello"})
    finally:
        subprocess.run(["podman", "rm", "--force", name], capture_output=True)


def podman(*arguments: str) -> str:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, check=True).stdout


def test_behind_the_tls_proxy_is_a_network_that_nobody_else_on_the_log_host_is_in(monitored: MonitoredCluster) -> None:
    assert monitored.root("ctl1", "ss -Hltn 'sport = :19531'") == ""
    store = monitored.root("ctl1", "systemctl show -p MainPID --value deepops-logs-store.service")
    assert "19531" in monitored.root("ctl1", f"nsenter -t {store} -n ss -Hltn")


def test_what_is_logged_while_the_log_host_is_away_comes_when_it_is_back(monitored: MonitoredCluster) -> None:
    monitored.root("ctl1", f"systemctl stop {AT_THE_DOOR}")
    monitored.root("gpu01", 'for i in $(seq 100); do logger -t away "line $i"; done')
    failing = "systemctl show -p SubState --value systemd-journal-upload"
    wait_until("the sender has noticed", lambda: monitored.root("gpu01", failing) == "auto-restart")

    assert monitored.root("gpu01", "systemctl is-active slurmd") == "active"
    monitored.root("ctl1", f"systemctl start {AT_THE_DOOR}")
    wait_for_lines(monitored, "_HOSTNAME=gpu01 -t away", {f"line {number}" for number in range(1, 101)})


def test_what_is_collected_stays_within_its_bounds_and_the_next_line_comes_all_the_same(
    monitored: MonitoredCluster,
) -> None:
    assert monitored.root("ctl1", "systemctl is-active deepops-logs-tidy.timer") == "active"
    monitored.root("gpu01", "logger -t bounded before")
    wait_for_lines(monitored, "-t bounded", {"before"})

    done = monitored.root("ctl1", "deepops-logs tidy --days 30 --gigabytes 0.001")

    removed = [line.split()[1].rstrip(":") for line in done.splitlines() if line.endswith("made room")]
    assert removed
    assert not any(monitored.holds("ctl1", f"test -e {path}") for path in removed)
    # at once: that they come by themselves is shown above, and a deploy must not find one that waits for its next try
    for name in ("ctl1", "gpu01"):
        monitored.root(name, f"logger -t bounded after {name}; systemctl restart systemd-journal-upload")
    wait_for_lines(monitored, "-t bounded", {"after ctl1", "after gpu01"})


def test_a_clock_that_jumps_ahead_by_years_removes_nothing(monitored: MonitoredCluster) -> None:
    monitored.root("gpu01", "logger -t kept before the jump")
    wait_for_lines(monitored, "-t kept", {"before the jump"})
    program = (
        "import sys, time; real = time.time; time.time = lambda: real() + 3650 * 86400; "
        "sys.path.insert(0, '/usr/local/lib/deepopsctl/log_collector'); "
        "from node_programs.services.log_collector.cli import main; "
        "sys.exit(main(['tidy', '--days', '30', '--gigabytes', '20']))"
    )

    for _ in range(2):
        done = monitored.root("ctl1", f'python3 -Bc "{program}"')
        assert "removed" not in done
        assert "closed" not in done

    wait_for_lines(monitored, "-t kept", {"before the jump"})
