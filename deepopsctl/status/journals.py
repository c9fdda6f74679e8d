"""Reading the journals that the monitoring host collects: journalctl there, through ssh."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO, cast

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.ssh_login import AS_DECLARED, Login
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.model.json_objects import LogLine
from deepopsctl.node_programs.services.log_collector.places import DIRECTORY, files_of
from deepopsctl.ssh.node_command import NodeCommand, command_on

# keys of a line's JSON object, with journald's names
FIELDS: Mapping[str, str] = {
    "host": "_HOSTNAME",
    "unit": "_SYSTEMD_UNIT",
    "identifier": "SYSLOG_IDENTIFIER",
    "priority": "PRIORITY",
    "message": "MESSAGE",
}
_CHUNK = 1 << 16


# exit code of a host that has no collected journals
NOTHING_COLLECTED = 66
# As links in a directory: of --file, journalctl reads nothing if one file is damaged or a node has none.
_READ = f"""
cd {DIRECTORY} 2>/dev/null || exit {NOTHING_COLLECTED}
links=$(mktemp -d) && trap 'rm -r "$links"' EXIT && ln -s -t "$links" {{files}} &&
journalctl --no-pager --quiet --directory="$links" "$@"
"""
# In such a directory it does not notice new lines, so it gets the files that it can read; it reports the others.
_FOLLOW = f"""
test -d {DIRECTORY} || exit {NOTHING_COLLECTED}
for file in {{files}}; do
    test -f "$file" || continue
    if journalctl --quiet --file="$file" --lines=0 >/dev/null 2>&1; then set -- --file="$file" "$@"
    else echo "$file is damaged, ignoring file" >&2; fi
done
case "${{{{1-}}}}" in --file=*) exec journalctl --no-pager --quiet "$@" ;; esac
exit 1
"""


@dataclass(frozen=True, slots=True)
class Question:
    """Query of the journals, with journalctl's values; '' and 0 for no limit."""

    units: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    priority: str = ""
    lines: int = 0
    follow: bool = False
    # an object for each line, as `lines_of` reads them
    objects: bool = False

    def arguments(self) -> list[str]:
        """The options of journalctl."""
        limits = {"--since": self.since, "--until": self.until, "--priority": self.priority}
        return [
            *(f"--unit={unit}" for unit in self.units),
            *(f"{option}={value}" for option, value in limits.items() if value),
            *([f"--lines={self.lines}"] if self.lines else []),
            *(["--follow"] if self.follow else []),
            # --all: long texts would be left out
            *(["--output=json", "--all", f"--output-fields={','.join(FIELDS.values())}"] if self.objects else []),
        ]


def log_host(cluster: Cluster) -> Node:
    """The host that collects the journals."""
    return cluster.with_role(Role.MONITORING)[0]


def ssh_command(
    directory: ClusterDir, cluster: Cluster, nodes: Sequence[Node], question: Question, login: Login = AS_DECLARED
) -> AbstractContextManager[NodeCommand]:
    """The ssh command that reads the journals of these nodes, for `pass_on`."""
    words = _journalctl(nodes, question)
    return command_on(directory, cluster, log_host(cluster), words, as_root=True, login=login)


def pass_on(argv: Sequence[str], out: BinaryIO, data: bytes = b"") -> tuple[int, bool]:
    """Run a command and copy its output to `out`; returns its exit code, and whether it printed anything."""
    some = False
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        assert process.stdout is not None  # noqa: S101 - it was asked for
        try:
            with suppress(BrokenPipeError), process.stdin as words:
                words.write(data)
            while chunk := process.stdout.read(_CHUNK):
                some = True
                out.write(chunk)
                out.flush()
        except BaseException:
            # the reader is gone, and the next line may take long
            process.kill()
            raise
    return process.returncode, some


def lines_of(printed: bytes) -> list[LogLine]:
    """The lines that journalctl printed as JSON: `time` in UTC, and FIELDS; '' for what a line has not."""
    return [_line(json.loads(each)) for each in printed.splitlines() if each]


def _line(entry: Mapping[str, object]) -> LogLine:
    moment = datetime.fromtimestamp(int(str(entry["__REALTIME_TIMESTAMP"])) / 1e6, UTC)
    fields = {key: _text(entry.get(name)) for key, name in FIELDS.items()}
    priority = int(fields["priority"]) if fields["priority"].isdigit() else None
    return cast("LogLine", {"time": moment.isoformat(), **fields, "priority": priority})


def _text(value: object) -> str:
    """journalctl writes bytes that are not text as a list of numbers, and a field that is there twice as a list."""
    if isinstance(value, list):
        if all(isinstance(each, int) for each in value):
            return bytes(value).decode("utf-8", "replace")
        return "\n".join(_text(each) for each in value)
    return "" if value is None else str(value)


def _journalctl(nodes: Sequence[Node], question: Question) -> list[str]:
    """From the node's own files: the sender of a line is known by its certificate, not by the line's text."""
    files = " ".join(files_of(node.name) for node in nodes)
    return ["sh", "-c", (_FOLLOW if question.follow else _READ).format(files=files), "-", *question.arguments()]
