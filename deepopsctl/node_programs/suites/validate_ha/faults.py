"""What happens to the first controller, each for some seconds: it heals by itself, also without this program."""

from __future__ import annotations

from ..._shared import command

# so that the answer still comes
DELAY_S = 2
UNIT = "deepops-validate-ha"
_SLURMCTLD, _SLURMDBD = "slurmctld.service", "slurmdbd.service"
# below /run: a reboot removes it; the last name wins
_DROP_IN = "/run/systemd/system/$unit.d/zz-deepops-validate-ha.conf"

# {seconds} is how long it lasts
SCRIPTS: dict[str, str] = {
    # a machine without power: nothing starts it again
    "killed": """
for unit in {killed}; do mkdir -p "{directory}"; printf '[Service]\\nRestart=no\\n' >"{drop_in}"; done
systemctl daemon-reload; systemctl kill --signal=KILL {killed}
sleep {seconds}
for unit in {killed}; do rm -f "{drop_in}"; done
systemctl daemon-reload; systemctl reset-failed {killed}; systemctl start {killed}
""",
    "frozen": """
pid=$(systemctl show --property=MainPID --value {unit})
# 0 would be this shell itself, which nothing would wake
[ "$pid" -gt 0 ] || exit 1
kill -STOP "$pid"
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


def script(fault: str, seconds: int, *, with_slurmdbd: bool) -> str:
    """The shell text of a fault."""
    killed = f"{_SLURMCTLD} {_SLURMDBD}" if with_slurmdbd else _SLURMCTLD
    words = {"unit": _SLURMCTLD, "killed": killed, "drop_in": _DROP_IN, "directory": _DROP_IN.rpartition("/")[0]}
    return SCRIPTS[fault].format(seconds=seconds, **words)


def start(fault: str, seconds: int, *, with_slurmdbd: bool) -> command.Result:
    """Have systemd run it: it continues without the connection, which it may cut."""
    options = ["--unit=" + UNIT, "--collect", f"--on-active={DELAY_S}", "--timer-property=AccuracySec=100ms"]
    text = script(fault, seconds, with_slurmdbd=with_slurmdbd)
    return command.run(["systemd-run", *options, "/bin/sh", "-c", text], 30)
