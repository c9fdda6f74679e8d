"""`deepops-purge NAME` lists what is due; with `--apply` (the timer's call) it notifies and deletes as configured."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict

from ..._shared.settings import SettingsError
from .ageing import in_days
from .records import Record, quoted
from .run import BusyError, Summary, apply, list_due
from .settings import Settings, load, path_of
from .tree import TreeError
from .warned import WarnedError

OK, PROBLEMS, USAGE, INVALID, BUSY = 0, 1, 2, 3, 75


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deepops-purge", description=__doc__.replace("`", ""))
    parser.add_argument("name", help="of the storage entry, or the path of a configuration")
    parser.add_argument(
        "--apply", action="store_true", help="notify users and, with mode delete, delete; without it nothing changes"
    )
    parser.add_argument("--print0", action="store_true", help="list plain paths, each ended by a NUL")
    parser.add_argument("--json", action="store_true", help="the summary as one object on stdout, in place of the list")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run it; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        settings = load(path_of(options.name))
        summary = _run(settings, options)
    except SettingsError as error:
        return _fail(str(error), INVALID)
    except BusyError as error:
        return _fail(str(error), BUSY)
    except (TreeError, WarnedError, OSError) as error:
        return _fail(str(error), PROBLEMS)
    if options.json:
        sys.stdout.write(
            json.dumps({"schema": 1, "command": "deepops-purge", "ok": summary.ok, **asdict(summary)}) + "\n"
        )
    else:
        sys.stdout.flush()
        sys.stderr.write(words(settings, summary))
    return OK if summary.ok else PROBLEMS


def _run(settings: Settings, options: argparse.Namespace) -> Summary:
    now = int(time.time())
    if options.apply:
        return apply(settings, now)
    return list_due(settings, now, _silent if options.json else _show0 if options.print0 else _show)


def _silent(_: Record) -> None:
    pass


def _show(record: Record) -> None:
    sys.stdout.write(f"{time.strftime('%Y-%m-%d', time.localtime(record.used))}  {quoted(record.path)}\n")


def _show0(record: Record) -> None:
    sys.stdout.buffer.write(record.path + b"\0")


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"error: {message}\n")
    return status


def words(settings: Settings, summary: Summary) -> str:
    """The summary as text."""
    seen = summary.looked_at
    checked = f"{seen.get('files', 0)} files in {seen.get('directories', 0)} directories checked"
    due = f"{summary.due} due ({summary.due_bytes / (1 << 30):.1f} GiB), {settings.unused} for {in_days(settings.age)}"
    lines = [f"{settings.root}: {checked}; {due}"]
    if summary.applied and not settings.deletes:
        lines.append("nothing deleted: mode is list")
    if summary.applied and settings.deletes:
        lines.append(f"{summary.deleted} deleted ({summary.deleted_bytes / (1 << 30):.1f} GiB)")
        lines += [f"{count} kept: {why}" for why, count in sorted(summary.kept.items())]
    if summary.users_warned:
        lines.append(
            f"{summary.warned} files of {summary.users_warned} users will be deleted soon; {summary.mails} mails"
        )
    for what in ("dated in the future", "special", "excluded", "not entered", "problems"):
        if seen.get(what):
            lines.append(f"{seen[what]} {what}")
    lines += summary.notes + ["problem: " + text for text in summary.problems]
    return "".join(line + "\n" for line in lines)
