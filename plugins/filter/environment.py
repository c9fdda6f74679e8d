"""What users find on the nodes: where homes are made, and the Slurm accounts of people."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from deepopsctl.environment import accounts, directory as directory_service, homes, reserved_names, wheels
from deepopsctl.node_programs._shared import identities
from deepopsctl.storage import writer


def environment_homes(
    entries: Sequence[Mapping[str, Any]], host: str, home: str, first_choice: Sequence[str]
) -> dict[str, Any]:
    """Where a node makes homes: {directory, mounted}."""
    made = homes.homes_on(writer.from_variable(entries), host, home, first_choice)
    return {"directory": made.directory, "mounted": made.mounted}


def environment_policy(policy: Mapping[str, Any], people: Mapping[str, Any]) -> Mapping[str, Any]:
    """The policy of cluster.yml with the accounts and users of people.yml, as of today."""
    return accounts.with_people(policy, people, _today()) if people else policy


def environment_expired(people: Mapping[str, Any]) -> list[str]:
    """The names of everybody whose account has expired."""
    return accounts.expired(people, _today()) if people else []


def environment_sorted(people: Mapping[str, Any]) -> str:
    """The names that job_submit.lua sorts jobs by, as a Lua table; '' without people."""
    return accounts.sorting_table(people) if people else ""


def environment_wheel_hashes(cluster_directory: str) -> dict[str, Any]:
    """The hashes of the wheels that were added, by file name."""
    return {wheel.file: wheel.sha256 for wheel in wheels.read(Path(cluster_directory))}


def environment_dates(people: Mapping[str, Any], cluster: str) -> dict[str, Any]:
    """Who opens or closes on which day."""
    return accounts.dates(people, cluster)


def environment_conflicts(
    names: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Mapping[str, Any]]],
    variable: str = "deepops_people_conflicts",
) -> str:
    """What nodes refuse as one text, with the node in front of each; '' for nothing."""
    results = ((name, hostvars[name].get(variable) or {}) for name in names)
    listed = [f"{name}: {sentence}" for name, result in results for sentence in result.get("conflicts", ())]
    return identities.first_few(listed)


def environment_with_members(
    people: Mapping[str, Any], directory: Mapping[str, Any], answer: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """The people and groups of people.yml, with the accounts that follow the directory and their members."""
    return directory_service.with_members(people, directory, answer or {}) if directory else people


def environment_followed(directory: Mapping[str, Any], answer: Mapping[str, Any] | None) -> list[str]:
    """The accounts in which only members of the directory's groups may submit jobs."""
    return directory_service.followed(directory, answer or {}) if directory else []


def environment_with_listed(
    policy: Mapping[str, Any], directory: Mapping[str, Any], answer: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The policy of cluster.yml, with everybody whom a group of the directory lists as a user of its accounts."""
    listed = directory_service.listed(directory, answer or {}) if directory else []
    return {**policy, "users": [*policy.get("users", ()), *listed]}


def environment_directory_accounts(directory: Mapping[str, Any]) -> list[str]:
    """All accounts that follow the directory."""
    return directory_service.account_names(directory) if directory else []


def environment_counted(
    spaces: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], people: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The settings of space_usage: the directories that it counts in, and whose use it counts there."""
    numbers = {group["name"]: group["gid"] for group in groups}
    names = [person["name"] for person in people]
    counted = [
        {"path": space["path"], **({"groups": numbers} if space["by"] == "group" else {"users": names})}
        for space in spaces
        if space["counted"]
    ]
    return {"schema": 1, "spaces": counted}


def environment_hidden(names: Sequence[str]) -> list[str]:
    """These names, and all that no user of a directory service may have."""
    return sorted({*names, *reserved_names.hidden_names()})


def _today() -> date:
    # as nodes do: shadow(5) counts days of UTC
    return datetime.now(timezone.utc).date()


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return {
            "environment_conflicts": environment_conflicts,
            "environment_counted": environment_counted,
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
