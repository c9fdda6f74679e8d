"""What users find on the nodes: where homes are made, and the Slurm accounts of people."""

from datetime import datetime, timezone

from deepopsctl.environment import accounts, homes
from deepopsctl.node_programs._shared import identities
from deepopsctl.storage import writer


def environment_homes(entries, host, home, first_choice):
    """Where a node makes homes: {directory, mounted}."""
    made = homes.homes_on(writer.from_variable(entries), host, home, first_choice)
    return {"directory": made.directory, "mounted": made.mounted}


def environment_policy(policy, people):
    """The policy of cluster.yml with the accounts and users of people.yml, as of today."""
    return accounts.with_people(policy, people, _today()) if people else policy


def environment_expired(people):
    """The names of everybody whose account has expired."""
    return accounts.expired(people, _today()) if people else []


def environment_conflicts(names, hostvars):
    """What nodes refuse as one text, with the node in front of each; '' for nothing."""
    results = ((name, hostvars[name].get("deepops_people_conflicts") or {}) for name in names)
    listed = [f"{name}: {sentence}" for name, result in results for sentence in result.get("conflicts", ())]
    return identities.first_few(listed)


def _today():
    # as nodes do: shadow(5) counts days of UTC
    return datetime.now(timezone.utc).date()


class FilterModule:
    """Registers the filters."""

    def filters(self):
        """Name -> function."""
        return {
            "environment_conflicts": environment_conflicts,
            "environment_homes": environment_homes,
            "environment_policy": environment_policy,
            "environment_expired": environment_expired,
        }
