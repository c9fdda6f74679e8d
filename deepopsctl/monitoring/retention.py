"""Prometheus' retention by time and size: its arguments. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deepopsctl.monitoring.resources import File
from deepopsctl.node_programs.shipping import LIBRARY
from deepopsctl.text.header import MANAGED_HEADER

LAUNCHER = f"{LIBRARY}/prometheus-within"
_TIME = re.compile(r"(?=[0-9])([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?")
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?([KMGTP]i?)?B")
_SHARE = re.compile(r"([1-9][0-9]?|100)%")
# The share is of free space plus Prometheus' own data: without its own data the limit would fall with
# each start. It is never 0, which would mean no limit.
_LAUNCH = f"""\
#!/bin/sh
{MANAGED_HEADER}\
# Starts Prometheus with a share of what its disk has for it as the limit of its data: it takes sizes alone.
# prometheus-within PERCENT FOLDER PROGRAM [ARGUMENT...]
set -eu
percent=$1 folder=$2
shift 2
own=$(du -sk "$folder" | cut -f 1)
free=$(df -k --output=avail "$folder" | tail -n 1)
limit=$(((own + free) * percent / 100 + 1))
echo "data may take $limit KB: $percent % of $own KB that it has and $free KB that are free" >&2
exec "$@" "--storage.tsdb.retention.size=${{limit}}KB"
"""


@dataclass(frozen=True, slots=True)
class RetentionFlags:
    """`command_prefix` precedes the program on its command line, `arguments` follow it."""

    command_prefix: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    problems: tuple[str, ...] = ()


def retention_flags(settings: Mapping[str, object], directory: str) -> RetentionFlags:
    """Flags for `monitoring_retention` and `monitoring_retention_size`; `directory` has the data."""
    time, size = str(settings["retention"]), str(settings.get("retention_size") or "")
    share = _SHARE.fullmatch(size)
    problems = []
    if not _TIME.fullmatch(time):
        problems.append(f"monitoring_retention: {time} is not a time: write 90d, 26w or 1y")
    if size and not share and not _SIZE.fullmatch(size):
        problems.append(f"monitoring_retention_size: {size} is neither a size nor a share: write 100GB or 50%")
    return RetentionFlags(
        command_prefix=(LAUNCHER, share[1], directory) if share else (),
        arguments=(
            f"--storage.tsdb.retention.time={time}",
            *([f"--storage.tsdb.retention.size={size}"] if size and not share else []),
        ),
        files=(File(LAUNCHER, _LAUNCH, mode="0755"),) if share else (),
        problems=tuple(problems),
    )
