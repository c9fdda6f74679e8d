"""What users find on the nodes: homes, spaces, modules, the way out, examples, and the Slurm accounts of people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from ansible.errors import AnsibleFilterError
from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.content import content_dir
from deepopsctl.environment import (
    accounts,
    directory as directory_service,
    environments,
    homes,
    modules,
    proxy,
    reserved_names,
    spaces as spaces_of_users,
    subordinate_ids,
    wheels,
)
from deepopsctl.node_programs._shared import identities
from deepopsctl.storage import writer
from deepopsctl.text.problems import RefusedError

_T = TypeVar("_T")


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


def environment_spaces_on(
    entries: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]], host: str
) -> list[dict[str, str]]:
    """The spaces that users of a node find: [{name, path, by, variable, link}]."""
    return spaces_of_users.spaces_on(entries, writer.from_variable(mounts), host)


def environment_spaces_made(
    entries: Sequence[Mapping[str, Any]], mounts: Sequence[Mapping[str, Any]], host: str, first_choice: Sequence[str]
) -> list[dict[str, object]]:
    """Where a node makes the directories of users and groups: [{path, by, mounted}]."""
    return spaces_of_users.spaces_made_on(entries, writer.from_variable(mounts), host, first_choice)


def environment_declared_modules(
    declared: Mapping[str, Any], directory: str, lines: Any, distributed: Any
) -> dict[str, Any]:
    """Templates, packages, and files of packages: {templates, packages, fetched, archives}."""
    return _refusing(modules.declared_modules, declared, directory, lines, distributed)


def environments_on_nodes(
    setting: Mapping[str, Any], cluster_directory: str, declared: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Every version of the environments of Python packages, by the locks of the cluster directory."""
    return _refusing(environments.on_nodes, setting, Path(cluster_directory), declared)


def environments_templates(versions: Sequence[Mapping[str, Any]], directory: str) -> list[dict[str, Any]]:
    """Files of a node with these versions, for M(deepopsctl.cluster.node_state)."""
    return environments.templates(versions, directory)


def environment_proxy(
    expressions: Iterable[object], host: str, nodes: Iterable[str], addresses: Mapping[str, str] | None, port: int
) -> dict[str, Any]:
    """What a node has to know of the cluster's proxies: {url, addresses, listen}."""
    names = [str(each) for each in expressions]
    return asdict(_refusing(proxy.proxy_of, names, host, list(nodes), addresses, int(port)))


def environment_proxy_clients(nodes: Iterable[str], addresses: Mapping[str, str] | None) -> list[str]:
    """Addresses of the nodes that may use the proxies."""
    return _refusing(proxy.clients, list(nodes), addresses)


def environment_proxy_allowed(
    hosts: Iterable[str],
    services: Any,
    chosen: Iterable[str],
    nodes: Iterable[str] = (),
    addresses: Mapping[str, str] | None = None,
) -> list[str]:
    """Names of the hosts that the proxies let pass."""
    own = [*nodes, *(addresses or {}).values()]
    return _refusing(proxy.allowed, list(hosts), services, list(chosen), own)


def environment_subordinate_ids(
    people: Mapping[str, Any] | None, directory: Mapping[str, Any] | None, first: int, login: str
) -> str:
    """The lines of subuid(5) for all users, and for who deploys and validates."""
    return _refusing(subordinate_ids.block, people or {}, directory or {}, int(first), login)


def example_files(directory: str) -> list[dict[str, str]]:
    """All scripts and programs of examples/, in a directory of the node."""
    source = content_dir() / "examples"
    paths = sorted(path for path in source.rglob("*") if path.suffix in (".sh", ".py"))
    return [
        {"path": f"{directory}/{path.relative_to(source)}", "content": path.read_text(encoding="utf-8")}
        for path in paths
    ]


def _today() -> date:
    # as nodes do: shadow(5) counts days of UTC
    return datetime.now(timezone.utc).date()


def _refusing(function: Callable[..., _T], *arguments: Any) -> _T:
    try:
        return function(*arguments)
    except RefusedError as error:
        raise AnsibleFilterError(f"{error.message}: {error.hint}") from error


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
