"""Delete what was listed, and nothing else: every name is looked at again, in a folder that is held open."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import Iterable, Iterator, Optional

from .ageing import Ages, folder_last_used
from .records import FOLDER, Record
from .tree import LeftAloneError, Way


@dataclass(frozen=True)
class Outcome:
    """What became of one; `kept` says why it is still there, '' where it is deleted."""

    record: Record
    kept: str = ""
    is_trouble: bool = False


def delete(way: Way, records: Iterable[Record], ages: Ages) -> Iterator[Outcome]:
    """One after the other, in the order of the list."""
    for record in records:
        try:
            way.go(record.parts[:-1])
            yield Outcome(record, _delete(way, record, ages) or "")
        except FileNotFoundError:
            yield Outcome(record, "gone")
        except LeftAloneError as error:
            yield Outcome(record, str(error))
        except OSError as error:
            yield Outcome(record, str(error.strerror), is_trouble=True)


def _delete(way: Way, record: Record, ages: Ages) -> Optional[str]:
    if not way.is_intact():
        return "moved out of its folder"
    name = record.parts[-1]
    status = way.look(name)
    if (status.st_dev, status.st_ino) != (way.device, record.inode):
        return "replaced since it was listed"
    if stat.S_IFMT(status.st_mode) != record.format:
        return "replaced since it was listed"
    if _is_used(record, status, ages):
        return "used since it was listed"
    # between this look and the deletion nothing else is done
    if record.kind == FOLDER:
        os.rmdir(name, dir_fd=way.here.handle)
    else:
        os.unlink(name, dir_fd=way.here.handle)
    return None


def _is_used(record: Record, status: os.stat_result, ages: Ages) -> bool:
    if record.kind == FOLDER:
        return folder_last_used(status) != record.used
    if record.names > 1:
        # another of its names may have gone a moment ago, by this very run
        return ages.last_opened(status) > record.used
    return ages.last_used(status) != record.used
