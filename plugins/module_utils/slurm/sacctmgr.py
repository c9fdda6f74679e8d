"""Ask and change Slurm's accounting database by sacctmgr."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command as node_command
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.errors import HintedError
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node.waiting import wait_until
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    accounting as slurm_accounting,
    accounting_diff as slurm_accounting_diff,
)

ANSWER_S = 60
# a slurmdbd that is just starting
PATIENCE_S = 60
# slurmctld registers its cluster moments after its start
REGISTRATION_S = 20
NOTHING_TO_DO = ("Nothing new added", "Nothing modified", "didn't affect anything")


class AccountingError(HintedError):
    """slurmdbd does not answer, or refuses a change."""


class Sacctmgr:
    """sacctmgr with the node's slurm.conf, or with one that is not in its place yet."""

    def __init__(self, slurm_conf: str = "") -> None:
        settings = {"SLURM_CONF": slurm_conf} if slurm_conf else {}
        self.environment = node_command.slurm_environment(**settings)

    def call(self, *words: str) -> node_command.Result:
        """How a command ended, and its output."""
        argv = ["sacctmgr", "--immediate", "--noheader", "--parsable2", *words]
        return node_command.run_merged(argv, ANSWER_S, env=self.environment)

    def show(self, *words: str) -> str:
        """Lines of a `show`, tolerating a slurmdbd that is just starting. Raises AccountingError."""
        result = wait_until(
            lambda: self.call("show", *words),
            PATIENCE_S,
            0.5,
            lambda r: r.ok or r.status == node_command.MISSING,
        )
        if result.ok:
            return result.output.strip()
        if result.status == node_command.MISSING:
            raise AccountingError("Slurm is not installed here", "deploy it first: `deepopsctl deploy slurm`")
        message = f"sacctmgr show {words[0]}: {result.message}"
        raise AccountingError(message, "see `journalctl -u slurmdbd` on the accounting host")

    def qos_names(self) -> list[str]:
        """The names of all QOS. Raises AccountingError."""
        return self.show("qos", "format=name").splitlines()

    def state(self, cluster: str) -> dict[str, dict[str, dict[str, str]]]:
        """What Slurm has, in four calls. Raises AccountingError."""
        columns = {object_type: "format=" + ",".join(names) for object_type, names in slurm_accounting.COLUMNS.items()}
        where = ["where", "cluster=" + cluster]
        return slurm_accounting.state(
            {
                "qos": self.show("qos", columns["qos"]),
                "accounts": self.show("account", columns["accounts"]),
                "users": self.show("user", columns["users"]),
                # without what is inherited: a limit of the parent is none of the child's own
                "associations": self.show("association", *(where + ["wopl", columns["associations"]])),
            }
        )

    def apply(self, changes: Iterable[slurm_accounting_diff.Change], cluster: str) -> None:
        """Make the changes; one that is refused may need another one first, so it is tried again after them.

        Raises AccountingError.
        """
        todo = slurm_accounting_diff.commands(changes, cluster)
        while todo:
            refused = []
            for some, words in todo:
                result = self.call(*words)
                if not result.ok and not any(sentence in result.output for sentence in NOTHING_TO_DO):
                    refused.append((some, words, result.message))
            if len(refused) == len(todo):
                _some, words, error = refused[0]
                hint = "correct it in cluster.yml; what was done before it stays, and the next deploy continues"
                raise AccountingError(f"sacctmgr {' '.join(words)}: {error}", hint)
            todo = [(some, words) for some, words, _error in refused]

    def ensure_cluster(self, cluster: str) -> None:
        """Add the cluster, if slurmctld does not register it itself. Raises AccountingError."""
        shown = ["cluster", "format=cluster"]
        if not wait_until(lambda: cluster in self.show(*shown).splitlines(), REGISTRATION_S, 0.3):
            self.call("add", "cluster", cluster)
