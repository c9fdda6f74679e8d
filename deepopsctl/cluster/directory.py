"""A cluster directory: the paths in it, and how to read it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from deepopsctl import __version__
from deepopsctl.errors import ControlMachineError, InputError
from deepopsctl.files import read_file, read_text, write_atomic
from deepopsctl.model.cluster import Cluster

MISSING_HINT = (
    "bring back secrets.yml and .vault-password from where you keep the directory; the munge key of a cluster that "
    "runs can be read again: docs/operate/worst-night.md; for a new cluster: `deepopsctl init DIR --force --from "
    "DIR/cluster.yml`"
)


@dataclass(frozen=True, slots=True)
class ClusterDir:
    """Paths inside a cluster directory (DESIGN, section 4)."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> ClusterDir:
        """An existing cluster directory, by its absolute path; an InputError if there is none."""
        directory = cls(path.expanduser().resolve())
        if not directory.spec.is_file():
            raise InputError.single(
                str(path),
                "is not a cluster directory: it has no cluster.yml",
                "give one with -C DIR or $DEEPOPSCTL_CLUSTER, or make one: deepopsctl init DIR ...",
            )
        return directory

    @property
    def spec(self) -> Path:
        """cluster.yml: the nodes of the cluster."""
        return self.path / "cluster.yml"

    @property
    def people(self) -> Path:
        """people.yml: the cluster's users, where deepopsctl manages them."""
        return self.path / "people.yml"

    @property
    def hardware(self) -> Path:
        """hardware.yml: the hardware that deploy detected on them."""
        return self.path / "hardware.yml"

    @property
    def inventory_dir(self) -> Path:
        """The inventory directory for plain Ansible's -i."""
        return self.path / "inventory"

    @property
    def hosts(self) -> Path:
        """The generated inventory."""
        return self.inventory_dir / "hosts.yml"

    @property
    def settings(self) -> Path:
        """Ansible variables that the user edits."""
        return self.inventory_dir / "group_vars" / "all" / "settings.yml"

    def settings_text(self) -> str:
        """Their text; '' where there is no such file, as a site may have it."""
        return read_text(self.settings) if self.settings.exists() else ""

    @property
    def secrets(self) -> Path:
        """Random keys and passwords, encrypted by ansible-vault."""
        return self.inventory_dir / "group_vars" / "all" / "secrets.yml"

    @property
    def known_hosts(self) -> Path:
        """Host keys, pinned at first contact."""
        return self.path / "known_hosts"

    @property
    def ssh_key(self) -> Path:
        """The cluster's own private key."""
        return self.path / "ssh" / "id_ed25519"

    @property
    def vault_password(self) -> Path:
        """The password of the vault."""
        return self.path / ".vault-password"

    @property
    def gpu_history(self) -> Path:
        """The last good measurements of each GPU: one line per card, for git."""
        return self.path / "gpu-history.jsonl"

    @property
    def rate_history(self) -> Path:
        """What suites measured on nodes, in this run and earlier ones: a line for each check and node, for git."""
        return self.path / "rate-history.jsonl"

    @property
    def runs(self) -> Path:
        """Private directories, one per run."""
        return self.path / "runs"

    def cluster(self) -> Cluster:
        """The cluster that cluster.yml and people.yml describe; an InputError reports everything wrong with them."""
        from deepopsctl.cluster.spec import load_spec

        return self.with_people(load_spec(self.spec))

    def with_people(self, cluster: Cluster) -> Cluster:
        """A cluster that cluster.yml describes, with the people of people.yml if there is one."""
        from deepopsctl.policy.builder import check_accounts

        if self.people.exists():
            from deepopsctl.environment.people import load_people

            cluster = replace(cluster, people=load_people(self.people, cluster))
        check_accounts(cluster.policy, cluster.people.accounts() if cluster.people else ())
        return cluster

    def refresh_inventory(self, cluster: Cluster) -> bool:
        """Update inventory/hosts.yml, and what editors read; returns whether the inventory changed."""
        from deepopsctl.cluster.editor_schemas import copy_schemas
        from deepopsctl.cluster.inventory import render_inventory

        copy_schemas(self.path)
        text = render_inventory(cluster)
        if self.hosts.is_file() and self.hosts.read_bytes() == text.encode():
            return False
        write_atomic(self.hosts, text)
        return True

    def require_secrets(self) -> None:
        """Raise if the file of secrets is missing: without it, a run would fail on every node."""
        if not self.secrets.is_file():
            where = str(self.secrets.relative_to(self.path))
            raise InputError.single(where, "is missing: the cluster's munge key and passwords are in it", MISSING_HINT)

    def refresh_secrets(self) -> tuple[str, ...]:
        """Add secrets that newer versions need to the vault; returns their names."""
        self.require_secrets()
        seen = self.runs / ".secrets"
        as_they_are = self._secrets_as_they_are()
        if seen.is_file() and seen.read_text("utf-8") == as_they_are:
            return ()
        from deepopsctl.cluster.secrets import add_missing

        try:
            added = add_missing(self.secrets, self.vault_password)
        except ControlMachineError:
            # encrypted with another password: Ansible takes it from its own settings or reports an error
            return ()
        if self.runs.is_dir():
            write_atomic(seen, self._secrets_as_they_are(), 0o600)
        return added

    def _secrets_as_they_are(self) -> str:
        try:
            content = read_file(self.secrets)
        except OSError as error:
            where = str(self.secrets.relative_to(self.path))
            what = f"can't be read: {error.strerror}"
            raise InputError.single(where, what, "check the path and its permissions") from error
        # another version of deepopsctl may need more secrets
        return f"{__version__} {hashlib.sha256(content).hexdigest()}\n"
