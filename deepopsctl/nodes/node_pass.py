"""One pass over compute nodes: take them out of service, wait, lock the cluster, work, reboot, admit.

What the commands have in common that do so. Slurm remembers how far they are: every step can be repeated. The cluster
is not locked while it waits for jobs or reboots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from deepopsctl.model.cluster import Cluster
from deepopsctl.nodes.admit import NotAdmittedError, try_out
from deepopsctl.nodes.wait_for_jobs import Wait
from deepopsctl.nodes.workflow import Flow, StoppedError
from deepopsctl.run.lock import ClusterBusyError
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.node_sets import fold


@dataclass(slots=True)
class NodePass:
    """Nodes that are still to be begun, that are done, and that failed, with the reason; `again` is the command."""

    flow: Flow
    cluster: Cluster
    _: KW_ONLY
    again: str = ""
    queue: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def goes_on(self) -> str:
        """The hint of all that stops it."""
        return f"`deepopsctl {self.again}` continues from here"

    def follow(self, wait: Wait, progress: Callable[[], None]) -> None:
        """Step after step until nothing is pending; `progress` is called after each that did something."""
        while self.is_pending:
            if self._advance():
                progress()
            elif wait.is_over:
                raise self.late()
            else:
                self.flow.idle(wait.pause)

    def _advance(self) -> bool:
        """One step, where there is one to do now."""
        slurm = self.flow.slurm_now()
        if not slurm.controller_up:
            return False
        changed = self.observe(slurm)
        try:
            with self.flow.lock():
                return self.step(slurm) or changed
        except ClusterBusyError:
            # another deploy: that does not disturb, and ends
            return False

    @property
    def is_pending(self) -> bool:
        """Whether a further step may find something to do."""
        raise NotImplementedError

    def observe(self, _slurm: SlurmState) -> bool:
        """Note what has become of the nodes; whether anything has changed."""
        return False

    def step(self, slurm: SlurmState) -> bool:
        """Do what can be done now, in the cluster's lock; whether there was anything."""
        raise NotImplementedError

    def late(self) -> StoppedError:
        """What it stops with after the timeout."""
        raise NotImplementedError

    def resume(self, names: Sequence[str]) -> None:
        """Nodes that this command drained take jobs again."""
        if names:
            stands = f"{fold(names)} may be drained"
            self.flow.set_node_state(self.cluster, "resumed", names, stands, self.goes_on)

    def admit(self, names: Sequence[str]) -> dict[str, StoppedError]:
        """Validate nodes whose slurmd runs; they take jobs, but those that are returned, which stay drained."""
        try:
            try_out(self.flow, self.cluster, tuple(node for node in self.cluster.nodes if node.name in names))
        except NotAdmittedError as refused:
            return dict.fromkeys(refused.nodes, refused)
        return {}
