"""Saves what a cluster can't be made again without into restic: slurmctld's state, accounting, monitoring."""

# of the monitoring host it is a set of its own, made less often: it is large, and nothing waits for it
CONFIG, MONITORING_CONFIG = "/etc/deepopsctl/backup.json", "/etc/deepopsctl/backup-monitoring.json"
DIRECTORY = "/var/lib/deepopsctl/backup"
# in the directory: how the last run ended; `deepopsctl status` reads it
LAST = "last.json"
RESTORED = "/var/lib/deepopsctl/restore"
# which sets are brought back; there until the restore has ended
CURRENT = RESTORED + "/current.json"
# there while an upgrade of Slurm stops slurmdbd and has its tables converted
CONVERTING = "/var/lib/deepopsctl/upgrade/converting"
# while one of these is there, a set would be of something half done; the units of the timers ask the same
UNDER_WAY = {CURRENT: "a restore", CONVERTING: "an upgrade of Slurm"}
# what a set has; a host that runs slurmctld and slurmdbd has both in one
STATE, ACCOUNTING, MONITORING = "state", "accounting", "monitoring"
MANIFEST, DUMP = "manifest.json", "accounting.sql"


class BackupError(Exception):
    """A sentence about what went wrong, without the repository's password."""
