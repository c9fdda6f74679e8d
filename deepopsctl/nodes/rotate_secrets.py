"""`secrets rotate`: a new munge key on all nodes at once, new passwords, and no job is lost.

munged has one key at a time, so nodes can't authenticate each other while it is changed. Running jobs need nothing
signed; jobs started in this time would fail, so slurmctld is stopped for these seconds. The vault has
the new key as `munge_key_next` until all nodes use it. A deploy before that goes back to the old key
everywhere, one after that finishes the rotation: either command recovers from an interruption at any point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from deepopsctl.certificates.authority import new_authority
from deepopsctl.certificates.validity import today
from deepopsctl.cluster import secrets
from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.settings import site_values
from deepopsctl.errors import InputError
from deepopsctl.files import write_atomic
from deepopsctl.model.cluster import Cluster, Node, Role
from deepopsctl.nodes.workflow import SLURM, Flow, Operator, Report, StoppedError, dependent_nodes, require_success
from deepopsctl.run.outcome import RunOutcome
from deepopsctl.run.request import RunRequest
from deepopsctl.slurm.state import SlurmState
from deepopsctl.text.amounts import amount
from deepopsctl.text.node_sets import fold

KEY, NEXT, PASSWORD = "munge_key", "munge_key_next", "slurm_dbd_password"
WEB_PASSWORDS = ("monitoring_web_password", "grafana_admin_password")
_LEAVE_OUT = "a compute node that is off for long: --exclude NODE"
REASON = "secrets rotate: it has the old munge key"


class Secret(StrEnum):
    """The secrets that can be rotated, by their names on the command line."""

    MUNGE_KEY = "munge-key"
    DATABASE_PASSWORD = "database-password"  # noqa: S105 (its name)
    MONITORING_PASSWORDS = "monitoring-passwords"
    BACKUP_PASSWORD = "backup-password"  # noqa: S105 (its name)
    AUTHORITY = "authority"
    SIGNING_KEY = "signing-key"
    BIND_PASSWORD = "bind-password"  # noqa: S105 (its name)


# what a deploy of each changes: the components that use them
_COMPONENTS = {
    "slurm": {Secret.MUNGE_KEY, Secret.DATABASE_PASSWORD, Secret.BACKUP_PASSWORD, Secret.SIGNING_KEY},
    "monitoring": {Secret.MONITORING_PASSWORDS, Secret.AUTHORITY},
    "environment": {Secret.BIND_PASSWORD},
}
# on all nodes, not only where the central services are
_EVERYWHERE = {
    Secret.MUNGE_KEY,
    Secret.MONITORING_PASSWORDS,
    Secret.AUTHORITY,
    Secret.SIGNING_KEY,
    Secret.BIND_PASSWORD,
}
# of the repositories of backups, which have both while it is changed
BACKUP_PASSWORDS = ("backup_password", "backup_monitoring_password")
BIND = "directory_bind_password"
_NAMES = {
    Secret.DATABASE_PASSWORD: "database password", Secret.MONITORING_PASSWORDS: "monitoring passwords",
    Secret.BACKUP_PASSWORD: "backup passwords", Secret.AUTHORITY: "authority and certificates",
    Secret.SIGNING_KEY: "signing key of the packages", Secret.BIND_PASSWORD: "bind password of the directory service",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rotation:
    """The options of `secrets rotate`; nodes that are left out keep the old key until a deploy reaches them."""

    secrets: frozenset[Secret]
    left_out: tuple[Node, ...] = ()
    # the one that the directory service has already
    bind_password: str = ""
    # signs the packages of the cluster's repository with a new key
    sign_again: Callable[[], None] | None = None


def rotate(directory: ClusterDir, rotation: Rotation, base: RunRequest, operator: Operator) -> Report:
    """Run the whole workflow; a second run resumes where the first one stopped."""
    cluster = directory.cluster()
    _require_center(cluster, rotation.left_out)
    if Secret.DATABASE_PASSWORD in rotation.secrets:
        _require_own_database(directory)
    if Secret.BACKUP_PASSWORD in rotation.secrets and not site_values(directory).get("slurm_backup_repository"):
        raise InputError.single("backup-password", "this cluster makes no backups", "see docs/operate/backup.md")
    flow = Flow(directory, base, operator, Report("secrets rotate", tuple(node.name for node in cluster.nodes)))
    with flow.reporting(), flow.lock():
        _Rotate(flow, cluster, rotation).rotate_all()
    return flow.report


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

    def rotate_all(self) -> None:
        """All steps in order."""
        directory = self.flow.directory
        self.resumed = NEXT in secrets.read(directory.secrets, directory.vault_password)
        with_key = self.resumed or Secret.MUNGE_KEY in self.rotation.secrets
        # what Prometheus scrapes follows from all nodes of a run
        nodes = self._nodes if with_key or self.rotation.secrets & _EVERYWHERE else dependent_nodes(self.cluster)
        # neither another run nor a newer clone, whose vault has another key
        self._refuse_to_lose_jobs(self.flow.survey(self.cluster, slurm=bool(self.rotation.left_out)))
        for name in self._components:
            if name not in self.flow.deployed:
                raise StoppedError(f"{name} is not deployed: nothing was changed", "it has no such secret before that")
        self.flow.confirm(self._question(nodes, with_key=with_key), self.cluster)
        if Secret.BIND_PASSWORD in self.rotation.secrets:
            self._try_bind()
        if not self.resumed and self._with_slurm:
            self._compare(nodes)
        if with_key:
            self._drain_left_out()
            self._stage(nodes)
            self._swap(nodes)
        if Secret.BACKUP_PASSWORD in self.rotation.secrets:
            self._stage_backup()
        self._commit(with_key=with_key)
        if self.rotation.sign_again:
            self.flow.operator.info("sign the packages with a new key")
            self.rotation.sign_again()
        self._end(nodes, with_key=with_key)
        if Secret.BACKUP_PASSWORD in self.rotation.secrets:
            self._drop_backup()

    @property
    def _components(self) -> tuple[str, ...]:
        return tuple(name for name, secrets_of in _COMPONENTS.items() if secrets_of & self.rotation.secrets)

    @property
    def _with_slurm(self) -> bool:
        return SLURM in self._components

    @property
    def _savers(self) -> tuple[Node, ...]:
        """The nodes that know a repository: the first of each has its password changed."""
        nodes = (*self.cluster.controllers[:1], *self.cluster.with_role(Role.MONITORING)[:1])
        return tuple({node.name: node for node in nodes}.values())

    def _try_bind(self) -> None:
        """SSSD would say nothing about a password that is not the directory's: it has its cache."""
        directory, asked = self.flow.directory, self.cluster.controllers[:1]
        self.flow.operator.info("try the new bind password")
        # as it was, to the byte: another text of the same secrets is another desired state
        before = directory.secrets.read_text(encoding="utf-8")
        secrets.change(directory.secrets, directory.vault_password, {f"{BIND}_next": self.rotation.bind_password})
        try:
            outcome = self._run(asked, "operate/rotate/rotate-bind")
        finally:
            write_atomic(directory.secrets, before, 0o600)
        require_success(outcome, asked, "nothing was changed", "change it in the directory service first")

    def _stage_backup(self) -> None:
        """The repositories open with both passwords; the new ones are in the vault first, as a rerun needs them."""
        directory = self.flow.directory
        known = secrets.read(directory.secrets, directory.vault_password)
        staged = {f"{name}_next": known.get(f"{name}_next") or secrets.new_password() for name in BACKUP_PASSWORDS}
        secrets.change(directory.secrets, directory.vault_password, staged)
        self.flow.operator.info("add the new password to the repository of backups, alongside the old one")
        outcome = self._run(self._savers, "operate/rotate/rotate-backup-add")
        require_success(outcome, self._savers, "the old password is in force", "then run it again")

    def _drop_backup(self) -> None:
        self.flow.operator.info("remove the old password from the repository of backups")
        outcome = self._run(self._savers, "operate/rotate/rotate-backup-drop")
        require_success(outcome, self._savers, "the old password opens the repository as well", "then run it again")

    @property
    def _nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.cluster.nodes if node not in self.rotation.left_out)

    def _question(self, nodes: tuple[Node, ...], *, with_key: bool) -> str:
        if not with_key:
            what = " and ".join(_NAMES[each] for each in Secret if each in self.rotation.secrets)
            rest = "slurmdbd restarts" if Secret.DATABASE_PASSWORD in self.rotation.secrets else "jobs are not touched"
            return f"change the {what} of {self.cluster.name}? {rest}"
        again = "finish changing" if self.resumed else "change"
        return (
            f"{again} the munge key of {amount(len(nodes), 'node')} of {self.cluster.name}? "
            "slurmctld stops for some seconds; running jobs continue, an `srun` that starts meanwhile fails"
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
        outcome = self._run(nodes, "operate/rotate/rotate-check")
        hint = f"`deepopsctl deploy slurm` first; {_LEAVE_OUT}"
        require_success(outcome, nodes, "nothing was changed", hint)

    def _drain_left_out(self) -> None:
        names = [node.name for node in self.rotation.left_out if Role.COMPUTE in node.roles]
        if not names:
            return
        self.flow.operator.info(f"drain {fold(names)}")
        hint = "see `deepopsctl status`"
        self.flow.set_node_state(self.cluster, "drained", names, "nothing was changed", hint, REASON)

    def _stage(self, nodes: tuple[Node, ...]) -> None:
        """All that can fail, fails in this step. The new key is in the vault first: later runs need it to finish."""
        directory = self.flow.directory
        if not self.resumed:
            secrets.change(directory.secrets, directory.vault_password, {NEXT: secrets.new_munge_key()})
        self.flow.operator.info("copy the new munge key to the nodes, alongside the old one")
        outcome = self._run(nodes, "operate/rotate/rotate-stage")
        require_success(outcome, nodes, "the old key is in force everywhere", f"then run it again; {_LEAVE_OUT}")

    def _swap(self, nodes: tuple[Node, ...]) -> None:
        self.flow.operator.info("change the munge key, with slurmctld and slurmdbd stopped")
        outcome = self._run(nodes, "operate/rotate/rotate-swap")
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
        if Secret.MONITORING_PASSWORDS in self.rotation.secrets:
            values.update({name: secrets.new_password() for name in WEB_PASSWORDS})
        if Secret.BACKUP_PASSWORD in self.rotation.secrets:
            known = secrets.read(directory.secrets, directory.vault_password)
            for name in BACKUP_PASSWORDS:
                values.update({name: known[f"{name}_next"], f"{name}_next": None})
        if Secret.AUTHORITY in self.rotation.secrets:
            values["cluster_authority"] = new_authority(today())
        if Secret.BIND_PASSWORD in self.rotation.secrets:
            # a trial that was cut off left the other
            values.update({BIND: self.rotation.bind_password, f"{BIND}_next": None})
        secrets.change(directory.secrets, directory.vault_password, values)

    def _end(self, nodes: tuple[Node, ...], *, with_key: bool) -> None:
        self.flow.operator.info("deploy the new secrets, and verify that every node uses them")
        components = self._components if self._with_slurm or not with_key else (SLURM, *self._components)
        outcome = self._run(nodes, *(("operate/rotate/rotate-start",) if with_key else ()), *components)
        # of the others no other node has one; of these a node without it is one that the next deploy finishes
        needed = nodes if with_key else [node for node in dependent_nodes(self.cluster) if node in nodes]
        require_success(outcome, needed, "secrets.yml has the new secrets already", "`deepopsctl deploy` finishes it")
        left_out = [node.name for node in self.rotation.left_out]
        if with_key and left_out:
            self.flow.report.warnings.append(
                f"{fold(left_out)} has the old munge key and is drained: `deepopsctl deploy slurm` once it answers, "
                f"then `deepopsctl node resume {fold(left_out)}`"
            )
        new = [f"munge key on {amount(len(nodes), 'node')}"] if with_key else []
        new += [_NAMES[each] for each in Secret if each in self.rotation.secrets and each in _NAMES]
        self.flow.report.closing = (
            f"new {' and '.join(new)}; back up secrets.yml with the rest of the cluster directory"
        )

    def _run(self, nodes: tuple[Node, ...], *playbooks: str) -> RunOutcome:
        return self.flow.run_playbooks(self.cluster, playbooks, [node.name for node in nodes])
