"""One snapshot of Slurm: queries by squeue, sinfo and sdiag, one to slurmdbd, and the metrics text."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Callable

from ..._shared import slurm_client, slurm_output
from ..._shared.prometheus_text import Families
from . import control, jobs, native, nodes, own, statistics
from .asking import AskingError, ask
from .waits import Waits

# A slurmctld that is overloaded answers late, and asking more often makes it later.
COMMAND_LIMIT_S = 20.0
DATABASE_LIMIT_S = 10.0
ENDPOINT_LIMIT_S = 3.0
# longest user-supplied text in a label
LABEL_LIMIT = 200
# The page that costs slurmctld least: no jobs and no nodes. Without the plugin it is there as well, but empty.
ENDPOINT = "/metrics/scheduler"
_FIRST_BYTES = 1 << 12
_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+)?")

Ask = Callable[[Sequence[str], float], str]


@dataclass(frozen=True)
class Snapshot:
    """The metrics text, and one sentence for each problem."""

    text: str
    up: bool
    problems: tuple[str, ...]


class SlurmReader:
    """Reads snapshots, and keeps the wait times between them."""

    def __init__(
        self,
        endpoint: tuple[str, int] | None,
        asked: Ask = ask,
        controllers: Mapping[str, Any] | None = None,
    ) -> None:
        self._controllers = controllers
        self._endpoint = endpoint
        self._ask = asked
        self._waits = Waits()

    def read_snapshot(self, now: float) -> Snapshot:
        """Query everything once. If Slurm does not answer, only that is reported."""
        started = time.monotonic()
        families = Families(LABEL_LIMIT)
        problems = []
        up = True
        try:
            self._add(families, now)
        except AskingError as error:
            families, up = Families(LABEL_LIMIT), False
            problems.append(str(error))
        try:
            self._ask(slurm_client.CLUSTERS, DATABASE_LIMIT_S)
        except AskingError as error:
            problems.append(str(error))
            database = 0
        else:
            database = 1
        if self._controllers:
            control.add(families, self._controllers, self._pinged())
        families.add_value("deepops_slurmdbd_up", "Whether slurmdbd answers, with its database.", database)
        families.add_value("deepops_slurm_up", "Whether Slurm answered all queries of the last snapshot.", int(up))
        families.add_value(
            "deepops_slurm_collect_seconds", "How long the last snapshot took.", time.monotonic() - started
        )
        return Snapshot(families.text(), up, tuple(problems))

    def _add(self, families: Families, now: float) -> None:
        # the cheapest query first: if it fails, the others are skipped
        figures = statistics.parse(self._ask(statistics.COMMAND, COMMAND_LIMIT_S))
        if not figures:
            raise AskingError("sdiag: no scheduler statistics in its output")
        all_nodes, bad_nodes = nodes.parse(self._ask(nodes.COMMAND, COMMAND_LIMIT_S))
        all_jobs, bad_jobs = jobs.parse(self._ask(jobs.COMMAND, COMMAND_LIMIT_S))
        # from their nodes: one that has none would take one more question
        partitions = {name for node in all_nodes for name in node.partitions}
        # each time, as it costs slurmctld nothing: packages are replaced under a running program
        match = _VERSION.search(self._ask(slurm_client.VERSION, COMMAND_LIMIT_S))
        version = match[0] if match else ""
        if not self._is_native():
            native.add_nodes(families, all_nodes)
            native.add_jobs(families, all_jobs, all_nodes)
            native.add_partitions(families, partitions, all_jobs, all_nodes)
            for name, value in figures.items():
                families.add_value(name, "As reported by sdiag.", value)
        own.add_nodes(families, all_nodes)
        own.add_jobs(families, all_jobs)
        self._waits.see(all_jobs, now)
        own.add_starts(families, self._waits)
        own.add_queue(families, partitions, all_jobs, now)
        queue = figures.get("slurm_slurmdbd_queue_size", 0.0)
        families.add_value(
            "deepops_slurmdbd_queue_size", "Messages to slurmdbd that slurmctld keeps until it is back.", queue
        )
        unreadable = "Lines of Slurm's commands that could not be read; a text in them has control characters."
        families.add_value("deepops_slurm_unreadable_records", unreadable, bad_nodes + bad_jobs)
        families.family("deepops_slurm_version_info", "1 for the release of Slurm.").set(1, version=version)

    def _pinged(self) -> Mapping[str, bool]:
        """Whether each controller answers; {} where none does."""
        try:
            return slurm_output.pinged(self._ask(slurm_client.PING, COMMAND_LIMIT_S))
        except AskingError:
            return {}

    def _is_native(self) -> bool:
        """Whether slurmctld serves these metrics without authentication: then Prometheus reads them there."""
        if self._endpoint is None:
            return False
        asked = http.client.HTTPConnection(*self._endpoint, timeout=ENDPOINT_LIMIT_S)
        try:
            asked.request("GET", ENDPOINT)
            answer = asked.getresponse()
            return answer.status == http.client.OK and b"\nslurm_" in answer.read(_FIRST_BYTES)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            asked.close()
