"""A cluster as tests drive it: the real command line, and a way to run things on its nodes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.support.json_schemas import require_documented

# a slow host that does other work as well may take ten times as long as a quiet one
PATIENCE_S = 300.0
# of a command that hangs: a deploy from bare nodes next to other suites has taken more than ten minutes
LONGEST_S = 1800.0
DEEPOPSCTL = str(Path(sys.executable).parent / "deepopsctl")


def command(*arguments: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
    """Run deepopsctl and return what it printed."""
    return subprocess.run([DEEPOPSCTL, *arguments], capture_output=True, text=True, timeout=seconds)


@contextmanager
def repeating(poll: Callable[[], None], pause_s: float) -> Iterator[None]:
    """Call `poll` repeatedly during a test; an error there fails the test."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(pause_s):
            poll()

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(loop)
        try:
            yield
        finally:
            over.set()
        looking.result()


def wait_until(
    what: str,
    condition: Callable[[], object],
    seconds: float = PATIENCE_S,
    details: Callable[[], str] = str,
    pause_s: float = 0.2,
) -> None:
    """Poll until a condition holds; after `seconds` fail with `what` and `details`."""
    deadline = time.monotonic() + seconds
    longest_s = 5 * pause_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; {details()}"
        time.sleep(pause_s)
        # a query of a node costs a fifth of a second of a processor that the awaited work could use
        pause_s = min(1.3 * pause_s, longest_s)


def changes(document: Mapping[str, Any], component: str = "") -> set[tuple[str, str, str, str]]:
    """Host, type, name and action of what a plan lists or a deploy did, or of one component's part."""
    return {
        (entry["host"], entry["kind"], entry["name"], entry["action"])
        for entry in document["changes"]
        if component in ("", entry["component"])
    }


def actions(document: Mapping[str, Any], host: str = "", component: str = "") -> set[tuple[str, str, str]]:
    """Type, name and action of the same, on all hosts or on one."""
    return {change[1:] for change in changes(document, component) if host in ("", change[0])}


@dataclass(frozen=True)
class DrivenCluster(ABC):
    """A cluster directory and its nodes, whatever these are: containers, virtual machines."""

    name: str
    os: str
    directory: Path
    patience_s: ClassVar[float] = PATIENCE_S
    # what its deploys name; nothing means all components
    components: ClassVar[tuple[str, ...]] = ("slurm",)
    # tasks on a node when such a deploy changes nothing
    unchanged_tasks: ClassVar[int] = 5

    @abstractmethod
    def root(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as root on a node and return its output."""

    @abstractmethod
    def user(self, node: str, script: str, ok: bool = True) -> str:
        """Run a shell script as the cluster's user on a node, in its home."""

    @abstractmethod
    def holds(self, node: str, test: str) -> bool:
        """Whether a shell test is true on a node, for root; false where the node is off."""

    @abstractmethod
    def power_on(self, node: str) -> None:
        """Start a node; does nothing where it runs."""

    @abstractmethod
    def power_cut(self, node: str) -> None:
        """Cut the power of a node, without a shutdown."""

    def deepopsctl(self, *arguments: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the command line on this cluster; with `ok`, a bad exit code fails the test with the output."""
        done = command("-C", str(self.directory), *arguments, seconds=max(LONGEST_S, self.patience_s))
        if ok:
            assert done.returncode == 0, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def deploy(self, *arguments: str, ok: bool = True) -> dict[str, Any]:
        """`deploy --json` of the cluster's components, parsed."""
        return self.parsed("deploy", *self.components, *arguments, ok=ok)

    def parsed(self, *words: str, ok: bool = True) -> dict[str, Any]:
        """A command with --json, parsed."""
        document: dict[str, Any] = json.loads(self.deepopsctl(*words, "--json", ok=ok).stdout)
        require_documented(document)
        return document

    def plan_and_deploy_twice(self, *components: str) -> dict[str, dict[str, Any]]:
        """What `plan` lists, what the first deploy does, and what a second one."""
        return {
            name: self.parsed(verb, *components)
            for name, verb in (("plan", "plan"), ("first", "deploy"), ("second", "deploy"))
        }

    def changed(self, summary: Mapping[str, Any]) -> dict[str, int]:
        """Changed tasks by host."""
        return {host: counts["changed"] for host, counts in summary["hosts"].items()}

    def submit(self, script: str, *options: str) -> int:
        """Submit a batch job as the user; returns its id."""
        words = " ".join(["sbatch", "--parsable", *options, f"--wrap '{script}'"])
        return int(self.user("ctl1", words))

    def job_state(self, job: int) -> str:
        """A job's state as Slurm's accounting has it, or squeue while it runs."""
        running = self.user("ctl1", f"squeue --noheader --format=%T --job {job}", ok=False)
        return running if running.isupper() else self.user("ctl1", f"sacct -nX -P -o state -j {job}", ok=False)

    def wait_for_job(self, job: int, state: str, seconds: float | None = None) -> None:
        """Wait until a job is in a state, at most for `patience_s`."""
        wait_until(
            f"job {job} is {state}",
            lambda: self.job_state(job) == state,
            self.patience_s if seconds is None else seconds,
            lambda: self.job_state(job),
        )

    def wait_until_idle(self) -> None:
        """Wait until all compute nodes answer, are in service and have no job."""
        query = "sinfo -h -N -o %T"
        wait_until(
            "all nodes are idle",
            lambda: set(self.root("ctl1", query, ok=False).split()) == {"idle"},
            self.patience_s,
            lambda: self.root("ctl1", "sinfo -N; squeue", ok=False),
        )
