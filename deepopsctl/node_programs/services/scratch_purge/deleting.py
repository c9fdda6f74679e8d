"""Delete only what was listed: every name is checked again, in an open directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .ageing import Ages, directory_last_used
from .records import DIRECTORY, Record
from .tree import NotEnteredError, OpenPath


@dataclass(frozen=True)
class Outcome:
    """Result for one record; `why_kept` is why it was not deleted, '' if it was."""

    record: Record
    why_kept: str = ""
    is_trouble: bool = False


def delete(open_path: OpenPath, records: Iterable[Record], ages: Ages) -> Iterator[Outcome]:
    """One after the other, in the order of the list."""
    for record in records:
        try:
            open_path.move_to(record.parts[:-1])
            yield Outcome(record, _delete(open_path, record, ages) or "")
        except FileNotFoundError:
            yield Outcome(record, "gone")
        except NotEnteredError as error:
            yield Outcome(record, str(error))
        except OSError as error:
            yield Outcome(record, str(error.strerror), is_trouble=True)


def _delete(open_path: OpenPath, record: Record, ages: Ages) -> str | None:
    if not open_path.is_intact():
        return "moved out of its directory"
    name = record.parts[-1]
    status = open_path.status_of(name)
    if (status.st_dev, status.st_ino) != (open_path.device, record.inode):
        return "replaced since it was listed"
    if stat.S_IFMT(status.st_mode) != record.format:
        return "replaced since it was listed"
    if _is_used(record, status, ages):
        return "used since it was listed"
    # nothing else is done between this check and the deletion
    if record.file_type == DIRECTORY:
        os.rmdir(name, dir_fd=open_path.here.handle)
    else:
        os.unlink(name, dir_fd=open_path.here.handle)
    return None


def _is_used(record: Record, status: os.stat_result, ages: Ages) -> bool:
    if record.file_type == DIRECTORY:
        return directory_last_used(status) != record.used
    if record.names > 1:
        # this run may have deleted another of its hard links
        return ages.last_opened(status) > record.used
    return ages.last_used(status) != record.used
