"""The jobs of one validation: start them as the user, wait with a limit, leave nothing behind."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

from .._shared import command, slurm_client, slurm_output
from . import slurm

# what srun, sbatch and salloc read a reservation from
RESERVATION = ("SLURM_RESERVATION", "SBATCH_RESERVATION", "SALLOC_RESERVATION")
COMMENT = "deepopsctl validate {}: short, cancelled at its end"
# how often the queue is asked about a running job (seconds)
POLL_INTERVAL_S = 3.0
# the scheduler considers a new job within some seconds
REASON_ATTEMPTS = 25
# Slurm's reasons for a pending job that say "busy or limited now", not "broken"
BUSY = (
    "None",
    "Resources",
    "Priority",
    "ReqNodeNotAvail",
    "BeginTime",
    "Reservation",
    "Licenses",
    "QOS",
    "Assoc",
    "Max",
)


def job_name(suite: str, token: str, what: str) -> str:
    """Names the owner, the validation and the purpose of a job."""
    return "-".join(["deepopsctl", suite, token, what])


def is_busy(reason: str) -> bool:
    """True when a pending job's reason passes by itself."""
    return reason.strip("()").startswith(BUSY)


class Outcome(NamedTuple):
    """How a job went: `ended`, or `waiting` for resources too long, or `hung` while running."""

    state: str
    rc: int
    out: str
    err: str
    reason: str = ""

    @property
    def ended(self) -> bool:
        """True when the command itself came to an end."""
        return self.state == "ended"

    @property
    def busy(self) -> bool:
        """True when Slurm kept the job waiting for a reason that passes by itself."""
        return self.state == "waiting" and is_busy(self.reason)

    @property
    def why(self) -> str:
        """What went wrong, in words."""
        if self.state == "waiting":
            return f"the job did not start in time; Slurm's reason: {self.reason or 'none given'}"
        if self.state == "hung":
            return "the job started but did not end in time"
        return self.err.strip() or f"exit code {self.rc}"


class Running:
    """A started tool whose output is collected as it comes."""

    def __init__(self, argv: Sequence[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            universal_newlines=True,
            errors="replace",
            env=environment,
        )
        self._changed = threading.Condition()
        self._lines: dict[str, list[str]] = {"out": [], "err": []}
        self._readers = [
            threading.Thread(target=self._read, args=(stream, name), daemon=True)
            for name, stream in (("out", self._process.stdout), ("err", self._process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str], name: str) -> None:
        for line in stream:
            with self._changed:
                self._lines[name].append(line)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def text(self, name: str) -> str:
        """What has come so far on `out` or `err`."""
        with self._changed:
            return "".join(self._lines[name])

    def wait_for(self, mark: str, count: int, timeout: float) -> bool:
        """Wait until `count` lines with `mark` have come; False when the tool ended or time is up."""
        until = time.monotonic() + timeout
        with self._changed:
            while sum(mark in line for line in self._lines["out"]) < count:
                left = until - time.monotonic()
                # not the tool itself: when that ends, the last of its output may not have been read yet
                if left <= 0 or not self._readers[0].is_alive():
                    return False
                self._changed.wait(min(left, 0.5))
        return True

    def send(self, text: str, *, more: bool = False) -> None:
        """Give it this input, and end it unless `more` comes; nothing waits, as a job in the queue does not read."""

        def write(stream: IO[str]) -> None:
            # the job may be over, or the tool stopped, before all of it was read
            with contextlib.suppress(OSError, ValueError):
                stream.write(text)
                stream.flush()
                if not more:
                    stream.close()

        if self._process.stdin:
            threading.Thread(target=write, args=(self._process.stdin,), daemon=True).start()

    def release(self) -> None:
        """End its input: a probe that holds its allocation continues."""
        if self._process.stdin and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def ended(self, timeout: float) -> int | None:
        """Its exit code, None when it still runs after `timeout` seconds."""
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        for reader in self._readers:
            reader.join(2)
        return code

    def stop(self) -> None:
        """End it, whatever it does."""
        self.release()
        self._process.terminate()
        if self.ended(3) is None:
            self._process.kill()
            self.ended(2)


class Session:
    """Jobs of one validation, recognisable by their names, and their limits (seconds; Slurm's: minutes).

    They run in `reservation` where that is not ''.
    """

    def __init__(
        self,
        suite: str,
        token: str,
        user: str,
        queue_timeout: float = 20,
        run_timeout: float = 60,
        minutes: int = 2,
        reservation: str = "",
    ) -> None:
        self.token, self.user, self.suite = token, user, suite
        self.queue_timeout, self.run_timeout, self.reservation = queue_timeout, run_timeout, reservation
        self.common = ["--comment=" + COMMENT.format(suite), f"--time={minutes}"]
        self._ids: list[str] = []

    def name(self, what: str) -> str:
        """The job's name, with the validation that made it."""
        return job_name(self.suite, self.token, what)

    def environment(self, **extra: str) -> dict[str, str]:
        """What a tool that submits jobs runs in."""
        reserved = dict.fromkeys(RESERVATION, self.reservation) if self.reservation else {}
        return command.slurm_environment(**reserved, **extra)

    def start(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Running:
        """Start an srun and hand it back running."""
        own = ["--job-name=" + self.name(what), *self.common, "--chdir=/", "--mpi=none"]
        return Running(["srun", *own, *options, *argv], self.environment())

    def srun(self, what: str, options: Sequence[str], argv: Sequence[str]) -> Outcome:
        """Run a job to its end."""
        running = self.start(what, options, argv)
        running.release()
        return self.finish(what, running)

    def typed(self, what: str, argv: Sequence[str]) -> Outcome:
        """Run an srun exactly as a person types it; the environment carries its name, so that it is found again."""
        running = Running(argv, self.environment(SLURM_JOB_NAME=self.name(what)))
        running.release()
        return self.finish(what, running)

    def start_batch(self, what: str, options: Sequence[str], script: str) -> Running:
        """Submit a batch script and hand back the sbatch that waits for it: it exits as the job does."""
        own = ["--job-name=" + self.name(what), *self.common]
        running = Running(["sbatch", "--wait", *own, *options], self.environment())
        running.send(script)
        return running

    def finish(self, what: str, running: Running) -> Outcome:
        """Wait for a started srun or sbatch: not longer in the queue than allowed, not longer running than allowed."""
        began = time.monotonic()
        waited, state, reason = 0.0, "ended", ""
        code = running.ended(POLL_INTERVAL_S)
        while code is None:
            job_state, reason = self.queued(self.name(what))
            elapsed = time.monotonic() - began
            pending = job_state == "PENDING"
            waited = elapsed if pending else waited
            if elapsed - waited > self.run_timeout or waited > self.queue_timeout:
                state = "waiting" if pending else "hung"
                self.cancel(["--name=" + self.name(what)])
                running.stop()
                break
            code = running.ended(POLL_INTERVAL_S)
        return Outcome(state, -1 if code is None else code, running.text("out"), running.text("err"), reason)

    def sbatch(self, what: str, options: Sequence[str], script: str) -> command.Result:
        """Submit a batch script; its answer's `output` is the job id."""
        # the session's first: of options given twice the last one counts
        own = ["--job-name=" + self.name(what), *self.common] if what else self.common[:1]
        answer = command.run(["sbatch", "--parsable", *own, *options], 15, script, self.environment())
        identifier = answer.output.strip().split(";")[0]
        if answer.ok and identifier:
            self._ids.append(identifier)
        return answer._replace(output=identifier)

    def submit(self, argv: Sequence[str]) -> tuple[command.Result, list[str]]:
        """Run what a user types to submit batch scripts; the numbers that it prints are the ids of their jobs."""
        answer = command.run(argv, 30, "", self.environment())
        # not those in the name of a cluster: 12;cluster2
        identifiers = re.findall(r"(?<![\w;])\d+", answer.output)
        self._ids += identifiers
        return answer, identifiers

    def wait(self, identifiers: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Wait until these batch jobs, with all tasks, have left the queue; (state, reason) of those that have not."""
        started, columns = time.monotonic(), "%F|%T|%r"
        while True:
            answer = slurm.ask(slurm_client.squeue(columns, "--jobs=" + ",".join(identifiers)))
            rows = slurm_output.rows(answer.output, columns)
            left = {array: (state, reason) for array, state, reason in rows if state != "COMPLETING"}
            waited = time.monotonic() - started
            # squeue exits with an error once the controller has forgotten all of the jobs: they are over
            if not left and (answer.ok or "Invalid job id" in answer.errors):
                return {}
            pending = all(state == "PENDING" for state, _reason in left.values())
            if waited > (self.queue_timeout if pending else self.run_timeout):
                self.cancel(identifiers)
                return left
            time.sleep(0.3)

    def queued(self, name: str) -> tuple[str, str]:
        """State and reason of the user's job of that name; empty when the queue has none."""
        answer = slurm.ask(slurm_client.squeue("%T|%r", "--user=" + self.user, "--name=" + name))
        state, _separator, reason = answer.output.strip().split("\n")[0].partition("|")
        return state, reason

    def pending_reason(self, identifier: str) -> str:
        """Why Slurm keeps a job pending, asked again until it has made up its mind; '' when the job is not pending."""
        for _attempt in range(REASON_ATTEMPTS):
            answer = slurm.ask(slurm_client.squeue("%r", "--jobs=" + identifier, "--states=PENDING"))
            reason = answer.output.strip()
            if reason not in ("None", "Priority"):
                return reason
            time.sleep(0.3)
        return reason

    def cancel(self, selection: Sequence[str]) -> None:
        """Cancel jobs by id or by scancel's own options, quietly: they may be over."""
        slurm.ask(["scancel", "--user=" + self.user, *selection])

    def close(self) -> list[str]:
        """Cancel whatever is left of this validation; the names of what there was."""
        answer = slurm.ask(slurm_client.squeue("%F|%j", "--user=" + self.user))
        mine = self.name("")
        rows = [line.split("|") for line in answer.output.splitlines() if "|" in line]
        left = {row[0]: row[1] for row in rows if row[0] in self._ids or row[1].startswith(mine)}
        if left:
            self.cancel(sorted(left))
        return sorted(left.values())
