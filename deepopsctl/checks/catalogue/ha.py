"""The checks of the suite `ha` by name, as docs/operate/two-controllers.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_GROUP = "Controllers"
_LOGS = "`journalctl -u slurmctld -u deepops-slurm-guard` on both controllers"
_SUBMIT = f"see {_LOGS}; SlurmctldTimeout decides when a standby takes over"
_LOST = f"see {_LOGS}; is the state directory the same on both?"

HA = {
    "ha-controllers": Entry(
        _GROUP, "controllers", "The first of several controllers is in control, and a job runs.",
        "`systemctl start slurmctld` on the first controller; without a second one there is nothing to test",
    ),
    "ha-killed": Entry(_GROUP, "killed", "When the first controller is killed, jobs are taken in time.", _SUBMIT),
    "ha-killed-after": Entry(_GROUP, "killed: afterwards", "It returns, and no job is lost.", _LOST),
    "ha-killed-accounting": Entry(
        _GROUP, "killed: accounting", "When the first slurmdbd is killed, too, the second one answers.",
        "`journalctl -u slurmdbd` on both hosts; does the second one reach the database server?",
    ),
    "ha-frozen": Entry(_GROUP, "frozen", "When its slurmctld hangs, jobs are taken in time.", _SUBMIT),
    "ha-frozen-after": Entry(_GROUP, "frozen: afterwards", "It continues, and no job is lost.", _LOST),
    "ha-cut-off": Entry(
        _GROUP, "cut off", "When the first controller is cut off from all networks, jobs are taken in time.", _SUBMIT
    ),
    "ha-cut-off-after": Entry(_GROUP, "cut off: afterwards", "It returns, and no job is lost.", _LOST),
}  # fmt: skip
