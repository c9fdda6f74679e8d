"""Saves what a cluster can't be made again without: slurmctld's state and the accounting database, into restic."""

CONFIG = "/etc/deepopsctl/backup.json"
DIRECTORY = "/var/lib/deepopsctl/backup"
# how the last run ended; `deepopsctl status` reads it
LAST = DIRECTORY + "/last.json"
RESTORED = "/var/lib/deepopsctl/restore"
# there while an upgrade of Slurm stops slurmdbd and has its tables converted
CONVERTING = "/var/lib/deepopsctl/upgrade/converting"
# while one of these is there, a set would be of something half done; the unit of the timer asks the same
UNDER_WAY = {RESTORED + "/current.json": "a restore", CONVERTING: "an upgrade of Slurm"}
# what a set has; a host that runs slurmctld and slurmdbd has both in one
STATE, ACCOUNTING = "state", "accounting"
MANIFEST, DUMP = "manifest.json", "accounting.sql"


class BackupError(Exception):
    """A sentence about what went wrong, without the repository's password."""
