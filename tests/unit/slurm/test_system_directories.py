"""Folders of the system's are told from those that a daemon may have for itself."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs._shared.system_directories import is_system_directory
from deepopsctl.slurm.conf import directory_refusals

SYSTEMS = """
/ // /tmp /tmp/ /var/tmp /var/spool /var/spool/ /var//spool /var/spool/slurm/.. /var/log /var/lib /run /home
/home/ada /etc/slurm /usr/local /usr/lib/slurm /opt /srv /scratch /proc/1/cwd /dev/shm /var/spool/cron
/var/lib/mysql /mnt tmp /var/lock /run/munge
"""
SLURMS = """
/var/spool/slurm /var/spool/slurmctld /var/lib/slurm/slurmctld /tmp/slurmstate /srv/slurm/state /home/slurm
/home/slurm/state /opt/slurm /scratch/slurm /mnt/slurmfs/state /usr/local/slurm/state /slurm /etc/slurm/state
/dev/shm/slurm /var/slurm
"""


@pytest.mark.parametrize("path", SYSTEMS.split())
def test_what_others_use_too_is_the_systems(path: str) -> None:
    assert is_system_directory(path)


@pytest.mark.parametrize("path", SLURMS.split())
def test_a_directory_of_slurms_own_is_not(path: str) -> None:
    assert not is_system_directory(path)


def test_every_key_that_names_such_a_directory_is_refused_in_any_case() -> None:
    messages = directory_refusals({
        "statesavelocation": "/tmp", "SlurmdSpoolDir": "/var/spool/", "SlurmctldLogFile": "/var/log",
        "SlurmdPidFile": "/run/", "SlurmdLogFile": "/var/log/slurm/slurmd.log", "Prolog": "/etc",
        "SlurmSchedLogFile": None,
    })  # fmt: skip

    assert [sentence.partition(":")[0] for sentence in messages] == [
        "SlurmctldLogFile", "SlurmdPidFile", "SlurmdSpoolDir", "statesavelocation",
    ]  # fmt: skip
