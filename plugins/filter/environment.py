"""What users find on the nodes: where homes are made, and the Slurm accounts of people."""

from datetime import datetime, timezone
from pathlib import Path

from deepopsctl.environment import accounts, directory as directory_service, homes, reserved_names, wheels
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


def environment_sorted(people):
    """The names that job_submit.lua sorts jobs by, as a Lua table; '' without people."""
    return accounts.sorting_table(people) if people else ""


def environment_wheel_hashes(cluster_directory):
    """The hashes of the wheels that were added, by file name."""
    return {wheel.file: wheel.sha256 for wheel in wheels.read(Path(cluster_directory))}


def environment_dates(people, cluster):
    """Who opens or closes on which day."""
    return accounts.dates(people, cluster)


def environment_conflicts(names, hostvars, variable="deepops_people_conflicts"):
    """What nodes refuse as one text, with the node in front of each; '' for nothing."""
    results = ((name, hostvars[name].get(variable) or {}) for name in names)
    listed = [f"{name}: {sentence}" for name, result in results for sentence in result.get("conflicts", ())]
    return identities.first_few(listed)


def environment_with_members(people, directory, answer):
    """The people and groups of people.yml, with the accounts that follow the directory and their members."""
    return directory_service.with_members(people, directory, answer or {}) if directory else people


def environment_followed(directory, answer):
    """The accounts in which nobody else than members of the directory's groups may submit jobs."""
    return directory_service.followed(directory, answer or {}) if directory else []


def environment_with_listed(policy, directory, answer):
    """The policy of cluster.yml, with everybody whom a group of the directory lists as a user of its accounts."""
    listed = directory_service.listed(directory, answer or {}) if directory else []
    return {**policy, "users": [*policy.get("users", ()), *listed]}


def environment_directory_accounts(directory):
    """All accounts that follow the directory."""
    return directory_service.account_names(directory) if directory else []


def environment_hidden(names):
    """These names, and all that nobody of a directory service may have."""
    return sorted({*names, *reserved_names.hidden_names()})


def _today():
    # as nodes do: shadow(5) counts days of UTC
    return datetime.now(timezone.utc).date()


class FilterModule:
    """Registers the filters."""

    def filters(self):
        """Name -> function."""
        return {
            "environment_conflicts": environment_conflicts,
            "environment_hidden": environment_hidden,
            "environment_homes": environment_homes,
            "environment_with_members": environment_with_members,
            "environment_followed": environment_followed,
            "environment_with_listed": environment_with_listed,
            "environment_directory_accounts": environment_directory_accounts,
            "environment_policy": environment_policy,
            "environment_dates": environment_dates,
            "environment_wheel_hashes": environment_wheel_hashes,
            "environment_expired": environment_expired,
            "environment_sorted": environment_sorted,
        }
