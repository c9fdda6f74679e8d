"""What happens to the first controller, each for some seconds: it heals by itself, whoever looks on."""

from __future__ import annotations

from typing import Dict

from .._shared import command

# so that the answer still comes
DELAY_S = 2
UNIT = "deepops-validate-ha"
_SLURMCTLD = "slurmctld.service"
# below /run: a reboot removes it; the last name wins
_DROP_IN = "/run/systemd/system/{}.d/zz-deepops-validate-ha.conf".format(_SLURMCTLD)

# {seconds} is how long it lasts
SCRIPTS: Dict[str, str] = {
    # a machine without power: nothing starts it again
    "killed": """
mkdir -p {directory}; printf '[Service]\\nRestart=no\\n' >{drop_in}; systemctl daemon-reload
systemctl kill --signal=KILL {unit}
sleep {seconds}
rm -f {drop_in}; systemctl daemon-reload; systemctl reset-failed {unit}; systemctl start {unit}
""",
    "frozen": """
pid=$(systemctl show --property=MainPID --value {unit}); kill -STOP "$pid"
sleep {seconds}
kill -CONT "$pid" 2>/dev/null || :
""",
    # from everything, its storage too: an answer finds no way back
    "cut-off": """
ip rule add pref 1 blackhole; ip -6 rule add pref 1 blackhole || :
sleep {seconds}
ip rule del pref 1; ip -6 rule del pref 1 || :
""",
}


def script(fault: str, seconds: int) -> str:
    """The shell text of a fault."""
    words = {"unit": _SLURMCTLD, "drop_in": _DROP_IN, "directory": _DROP_IN.rpartition("/")[0]}
    return SCRIPTS[fault].format(seconds=seconds, **words)


def start(fault: str, seconds: int) -> command.Result:
    """Have systemd run it: it goes on without the connection, which it may cut."""
    options = ["--unit=" + UNIT, "--collect", "--on-active={}".format(DELAY_S), "--timer-property=AccuracySec=100ms"]
    return command.run(["systemd-run", *options, "/bin/sh", "-c", script(fault, seconds)], 30)
