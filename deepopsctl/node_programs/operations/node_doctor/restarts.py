"""What could restart daemons of the cluster, or replace them, while jobs run."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from typing import Any

from ..._shared import packages_query
from .query import output, read

NEEDRESTART = "/usr/sbin/needrestart"
UNATTENDED = "/usr/bin/unattended-upgrade"
# prints the units of the arguments that needrestart would restart
_ASK = """
our %nrconf = (override_rc => {}, restart => ''); my $nrconf = \\%nrconf;
do '/etc/needrestart/needrestart.conf' if -r '/etc/needrestart/needrestart.conf';
for my $file (sort glob('/etc/needrestart/conf.d/*.conf')) { eval do { local (@ARGV, $/) = $file; <> }; }
for my $unit (@ARGV) {
  my $restart = 1;
  for my $re (keys %{$nrconf{override_rc}}) { $restart = $nrconf{override_rc}{$re}, last if $unit =~ /$re/; }
  print "$unit\\n" if $restart;
}
"""
UNITS = ("slurmd.service", "slurmctld.service", "slurmdbd.service", "munge.service", "mariadb.service")
PACKAGES = ("slurm*", "munge", "mariadb-server*")
# of each a name that the exclusion list of unattended upgrades has to match
EXCLUDED = ("slurmd", "slurmctld", "slurmdbd", "munge", "mariadb-server", "nvidia-kernel-dkms", "linux-image-amd64")
_DAEMON = r"(?:slurm\w*|munged?|mariadb|mysqld?|nvidia-\w+|beegfs-\w+)"
_RESTARTS = re.compile(
    r"(?:systemctl|service|invoke-rc\.d|deb-systemd-invoke)\b[^;&|\n]*\b(?:restart|try-restart|stop|kill)\b"
    rf"[^;&|\n]*\b{_DAEMON}\b"
    rf"|\bservice\s+{_DAEMON}\s+(?:restart|stop)|\binvoke-rc\.d\b[^;&|\n]*\b{_DAEMON}\s+(?:restart|try-restart|stop)"
    rf"|\b(?:pkill|killall)\b(?![^;&|\n]*(?:HUP|USR[12]))[^;&|\n]*\b{_DAEMON}\b"
    r"|\bneedrestart\b[^;&|\n]*-r\s*a|\bapt(?:-get)?\b[^;&|\n]*\b(?:full-upgrade|dist-upgrade|upgrade)\b"
)
# where hooks of apt, log rotation and timers stand; what packages bring themselves is below /usr
PLACES = (
    "/etc/apt/apt.conf", "/etc/apt/apt.conf.d/*", "/etc/logrotate.conf", "/etc/logrotate.d/*", "/etc/crontab",
    "/etc/cron.d/*", "/etc/cron.hourly/*", "/etc/cron.daily/*", "/etc/cron.weekly/*", "/etc/cron.monthly/*",
    "/var/spool/cron/crontabs/*", "/etc/systemd/system/*.service",
)  # fmt: skip


def restarts() -> dict[str, Any]:
    """Sentences: what restarts or replaces daemons under jobs, and by what."""
    return {"causes": [*_needrestart(), *_unattended(), *_written()], "unheld": _unheld()}


def _needrestart() -> Iterator[str]:
    if os.path.exists(NEEDRESTART):
        units = output(["perl", "-e", _ASK, *UNITS]).split()
        if units:
            yield f"needrestart restarts {', '.join(units)} after a package's upgrade"


def _unattended() -> Iterator[str]:
    if not os.path.exists(UNATTENDED):
        return
    settings = packages_query.settings()
    if settings.get("APT::Periodic::Unattended-Upgrade", ["0"])[-1] in ("", "0"):
        return
    patterns = settings.get("Unattended-Upgrade::Package-Blacklist", [])
    free = [name for name in EXCLUDED if not any(_matches(pattern, name) for pattern in patterns)]
    if free:
        yield f"unattended-upgrades may upgrade {', '.join(free)}"
    if settings.get("Unattended-Upgrade::Automatic-Reboot", ["false"])[-1].lower() in ("true", "yes", "1"):
        yield "unattended-upgrades reboots the node (Unattended-Upgrade::Automatic-Reboot)"


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.match(pattern, name) is not None
    except re.error:
        return False


def _written() -> Iterator[str]:
    for path in sorted(path for place in PLACES for path in glob.glob(place)):
        for line in read(path).splitlines() if os.path.isfile(path) else ():
            match = _RESTARTS.search(line.split("#")[0] if not line.startswith("//") else "")
            if match:
                yield f"{path} has `{match.group(0)[:100].strip()}`"
                break


def _unheld() -> list[str]:
    """Packages of the cluster's daemons that apt would upgrade for anybody."""
    states = packages_query.states(PACKAGES).items()
    return sorted(name for name, state in states if state.wanted != "hold" and state.status == "installed")
