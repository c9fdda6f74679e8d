"""`secrets rotate`: a new munge key on all nodes at once, new passwords, and no job is lost.

munged has one key at a time, so nodes can't authenticate each other while it is changed. Running jobs need nothing
signed; jobs started in this time would fail, so slurmctld is stopped for these seconds. The vault has
the new key as `munge_key_next` until all nodes use it. A deploy before that goes back to the old key
everywhere, one after that finishes the rotation: either command recovers from an interruption at any point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from deepopsctl.cluster import secrets
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import site_values
from deepopsctl.errors import InputError
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.nodes.drain import encode_reason
from deepopsctl.nodes.workflow import Flow, Operator, Report, StoppedError, dependent_nodes, require_success
from deepopsctl.run.command_line import RunRequest
from deepopsctl.run.lock import cluster_lock
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.node_sets import fold

KEY, NEXT, PASSWORD = "munge_key", "munge_key_next", "slurm_dbd_password"
MONITORING, WEB_PASSWORDS = "monitoring", ("monitoring_web_password", "grafana_admin_password")
_LEAVE_OUT = "a compute node that is off for long: --exclude NODE"
REASON = "secrets rotate: it has the old munge key"


class Secret(StrEnum):
    """The secrets that can be rotated, by their names on the command line."""

    MUNGE_KEY = "munge-key"
    DATABASE_PASSWORD = "database-password"  # noqa: S105 (its name)
    MONITORING_PASSWORDS = "monitoring-passwords"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The options of `secrets rotate`; nodes that are left out keep the old key until a deploy reaches them."""

    secrets: frozenset[Secret]
    left_out: tuple[Node, ...] = ()


def rotate(directory: ClusterDir, rotation: Rotation, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    _require_center(cluster, rotation.left_out)
    if Secret.DATABASE_PASSWORD in rotation.secrets:
        _require_own_database(directory)
    report = Report("secrets rotate", tuple(node.name for node in cluster.nodes))
    rotation_run = _Rotate(Flow(directory, base, operator, report), cluster, rotation)
    try:
        with cluster_lock(directory.runs, "deepopsctl secrets rotate"):
            rotation_run.run()
    except StoppedError as stop:
        report.stopped = stop
    return report


def _require_center(cluster: Cluster, left_out: Iterable[Node]) -> None:
    center = {node.name for role in (Role.CONTROLLER, Role.DBD) for node in cluster.with_role(role)}
    names = [node.name for node in left_out if node.name in center]
    if names:
        hint = "rotate the key when they are up"
        raise InputError.single("--exclude", f"{fold(names)}: slurmctld or slurmdbd runs there", hint)


def _require_own_database(directory: ClusterDir) -> None:
    """A server that others run gets a new password from them."""
    settings = site_values(directory)
    server = settings.get("slurm_dbd_server")
    if server:
        user = settings.get("slurm_dbd_user", "slurm")
        raise InputError.single(
            "database-password",
            f"the accounting database is on {server}, which deepopsctl does not administer; nothing was changed",
            f"there: ALTER USER '{user}'@'HOST' IDENTIFIED BY 'NEW'; then set slurm_dbd_password in secrets.yml and "
            "`deepopsctl deploy slurm`. `secrets rotate munge-key` changes the other one",
        )


@dataclass(slots=True)
class _Rotate:
    flow: Flow
    cluster: Cluster
    rotation: Rotation
    resumed: bool = False

    def run(self) -> None:
        """All steps in order."""
        directory = self.flow.directory
        self.resumed = NEXT in secrets.read(directory.secrets, directory.vault_password)
        with_key = self.resumed or Secret.MUNGE_KEY in self.rotation.secrets
        # what Prometheus scrapes follows from all nodes of a run
        nodes = self._nodes if with_key or self._with_monitoring else dependent_nodes(self.cluster)
        # neither another run nor a newer clone, whose vault has another key
        self._refuse_to_lose_jobs(self.flow.survey(self.cluster, slurm=bool(self.rotation.left_out)))
        if self._with_monitoring and MONITORING not in self.flow.deployed:
            raise StoppedError("monitoring is not deployed: nothing was changed", "it has no passwords before that")
        self.flow.confirm(self._question(nodes, with_key=with_key), self.cluster)
        if not self.resumed and self._with_slurm:
            self._compare(nodes)
        if with_key:
            self._drain_left_out()
            self._stage(nodes)
            self._swap(nodes)
        self._commit(with_key=with_key)
        self._end(nodes, with_key=with_key)

    @property
    def _with_monitoring(self) -> bool:
        return Secret.MONITORING_PASSWORDS in self.rotation.secrets

    @property
    def _with_slurm(self) -> bool:
        return bool(self.rotation.secrets - {Secret.MONITORING_PASSWORDS})

    @property
    def _nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.cluster.nodes if node not in self.rotation.left_out)

    def _question(self, nodes: tuple[Node, ...], *, with_key: bool) -> str:
        if not with_key and not self._with_slurm:
            return f"change the passwords of {self.cluster.name}'s monitoring? Slurm and jobs are not touched"
        if not with_key:
            return f"change the password of {self.cluster.name}'s accounting database? slurmdbd restarts"
        again = "finish changing" if self.resumed else "change"
        return (
            f"{again} the munge key of {len(nodes)} nodes of {self.cluster.name}? slurmctld stops for some seconds; "
            "running jobs continue, an `srun` that starts meanwhile fails"
        )

    def _refuse_to_lose_jobs(self, slurm: SlurmState) -> None:
        """A node with another key can't report its jobs: slurmctld would give up on them."""
        if not self.rotation.left_out:
            return
        names = [node.name for node in self.rotation.left_out]
        jobs = slurm.jobs_on(names)
        if jobs:
            listed = ", ".join(f"{job.id} ({job.user})" for job in jobs)
            raise StoppedError(
                f"jobs run on {fold(names)}, which would be lost: {listed}; nothing was changed",
                "rotate after they have ended, or after Slurm has set the node down",
            )

    def _compare(self, nodes: tuple[Node, ...]) -> None:
        """The deploy at the end must change nothing else."""
        self.flow.operator.info("compare the nodes with their last deploy")
        outcome = self._run(nodes, "operate/rotate-check")
        hint = f"`deepopsctl deploy slurm` first; {_LEAVE_OUT}"
        require_success(outcome, nodes, "nothing was changed", hint)

    def _drain_left_out(self) -> None:
        names = [node.name for node in self.rotation.left_out if Role.COMPUTE in node.roles]
        if not names:
            return
        self.flow.operator.info(f"drain {fold(names)}")
        controller = self.cluster.controllers[0]
        reason = encode_reason(REASON)
        outcome = self.flow.set_node_state(self.cluster, "drained", names, deepops_drain_reason=reason)
        require_success(outcome, (controller,), "nothing was changed", "see `deepopsctl status`")

    def _stage(self, nodes: tuple[Node, ...]) -> None:
        """All that can fail, fails in this step. The new key is in the vault first: later runs need it to finish."""
        directory = self.flow.directory
        if not self.resumed:
            secrets.change(directory.secrets, directory.vault_password, {NEXT: secrets.new_munge_key()})
        self.flow.operator.info("copy the new munge key to the nodes, alongside the old one")
        outcome = self._run(nodes, "operate/rotate-stage")
        require_success(outcome, nodes, "the old key is in force everywhere", f"then run it again; {_LEAVE_OUT}")

    def _swap(self, nodes: tuple[Node, ...]) -> None:
        self.flow.operator.info("change the munge key, with slurmctld and slurmdbd stopped")
        outcome = self._run(nodes, "operate/rotate-swap")
        if outcome.stopped:
            raise StoppedError(
                "stopped while the key was changed: slurmctld is stopped; running jobs continue",
                "`deepopsctl secrets rotate` finishes it now, `deepopsctl deploy slurm` goes back to the old key",
                outcome.exit_code,
            )
        try:
            require_success(outcome, nodes, "the old key is in force again", f"then run it again; {_LEAVE_OUT}")
        except StoppedError:
            self._go_back(nodes)
            raise

    def _go_back(self, nodes: tuple[Node, ...]) -> None:
        """The vault has the old key: a deploy restores it and starts the stopped services."""
        self.flow.operator.info("go back to the old munge key")
        outcome = self._run(nodes, "slurm")
        center = [node for node in dependent_nodes(self.cluster) if node in nodes]
        require_success(
            outcome, center, "slurmctld may be stopped", "`deepopsctl deploy slurm` goes back to the old key"
        )
        # the next rotation makes a new key
        secrets.change(self.flow.directory.secrets, self.flow.directory.vault_password, {NEXT: None})

    def _commit(self, *, with_key: bool) -> None:
        """From here on a deploy finishes the rotation."""
        directory = self.flow.directory
        values: dict[str, str | None] = {}
        if with_key:
            values = {KEY: secrets.read(directory.secrets, directory.vault_password)[NEXT], NEXT: None}
        if Secret.DATABASE_PASSWORD in self.rotation.secrets:
            values[PASSWORD] = secrets.new_password()
        if self._with_monitoring:
            values.update({name: secrets.new_password() for name in WEB_PASSWORDS})
        secrets.change(directory.secrets, directory.vault_password, values)

    def _end(self, nodes: tuple[Node, ...], *, with_key: bool) -> None:
        self.flow.operator.info("deploy the new secrets, and verify that every node uses them")
        slurm = ("slurm",) if with_key or self._with_slurm else ()
        playbooks = (*(("operate/rotate-start",) if with_key else ()), *slurm)
        playbooks += (MONITORING,) if self._with_monitoring else ()
        outcome = self._run(nodes, *playbooks)
        # no other has a password
        needed = nodes if with_key else [node for node in dependent_nodes(self.cluster) if node in nodes]
        require_success(outcome, needed, "secrets.yml has the new secrets already", "`deepopsctl deploy` finishes it")
        left_out = [node.name for node in self.rotation.left_out]
        if with_key and left_out:
            self.flow.report.warnings.append(
                f"{fold(left_out)} has the old munge key and is drained: `deepopsctl deploy slurm` once it answers, "
                f"then `deepopsctl node resume {fold(left_out)}`"
            )
        new = [f"munge key on {len(nodes)} nodes"] if with_key else []
        new += ["database password"] if Secret.DATABASE_PASSWORD in self.rotation.secrets else []
        new += ["monitoring passwords"] if self._with_monitoring else []
        self.flow.report.closing = (
            f"new {' and '.join(new)}; back up secrets.yml with the rest of the cluster directory"
        )

    def _run(self, nodes: tuple[Node, ...], *playbooks: str) -> RunOutcome:
        return self.flow.run(self.cluster, playbooks, [node.name for node in nodes])
