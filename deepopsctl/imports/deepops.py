"""A DeepOps inventory (INI, with its group_vars and host_vars) as nodes, one partition and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from deepopsctl.cluster import shared_state
from deepopsctl.cluster.builder import Draft, NodeEntry, PartitionEntry
from deepopsctl.imports.ansible_inventory import (
    Inventory,
    Opaque,
    Setting,
    as_text,
    layered,
    match_hosts,
    read_variables,
)
from deepopsctl.imports.deepops_vars import (
    CLIENTS,
    READ_ELSEWHERE,
    InventoryHosts,
    carry_nfs,
    carry_variable,
    is_on,
    is_template,
    refused_password,
)
from deepopsctl.imports.detect import is_ip_address
from deepopsctl.imports.slurm_nodes import short_name
from deepopsctl.model.cluster import Access, Partition, Role
from deepopsctl.text import values
from deepopsctl.text.node_sets import fold_in_order, shorten
from deepopsctl.text.problems import Problems, RefusedError

T = TypeVar("T")

# DeepOps's own state directory of several controllers
_STATE = "/sw/slurm"
# DeepOps's groups, and the roles of their nodes.
_ROLES: Mapping[str, Role] = {
    "slurm-master": Role.CONTROLLER, "slurm-node": Role.COMPUTE, "slurm-login": Role.LOGIN,
    "slurm-metric": Role.MONITORING, "slurm-nfs": Role.NFS_SERVER, "nfs-server": Role.NFS_SERVER, "slurm-dbd": Role.DBD,
}  # fmt: skip
# DeepOps's group names by role, and by the group names of deepopsctl's own inventory.
_NAMES = MappingProxyType({role: name for name, role in reversed(list(_ROLES.items()))})
_DEEPOPSCTL_GROUPS = MappingProxyType(
    {"slurm_controller": _NAMES[Role.CONTROLLER], "slurm_compute": _NAMES[Role.COMPUTE]}
)
_UNION = "slurm-cluster"
_CLIENTS = ("slurm-nfs-client", "nfs-clients")
_TOP = frozenset({"all", "ungrouped"})
_PROXY = re.compile(
    r"ssh\s+(?:-W\s+%h:%p\s+|-q\s+|-o\s*\S+\s+|-i\s*\S+\s+)*([A-Za-z0-9_.@:-]+)(?:\s+-W\s+%h:%p|\s+-q)*\s*"
)


def draft_inventory(
    parse: Callable[[str, str, Problems], Inventory],
    text: str,
    source: str,
    directory: Path | None,
    problems: Problems,
    chosen: Mapping[str, Role],
) -> Draft:
    """The cluster of an inventory that `parse` reads; `directory` is the inventory's, None for standard input.

    `chosen` has the roles of groups with other names than DeepOps's or deepopsctl's.
    """
    before = len(problems)
    draft = Draft(source, problems)
    reader = _Reader(parse(text, source, problems), draft, directory, chosen)
    draft.incomplete = len(problems) > before
    reader.read()
    return draft


class _Reader:
    def __init__(self, inventory: Inventory, draft: Draft, directory: Path | None, chosen: Mapping[str, Role]) -> None:
        self.inventory = inventory
        self.draft = draft
        self.carryover = draft.carryover
        self.directory = directory
        groups = inventory.groups()
        # Ansible allows both spellings, and sites mix them
        self.groups = {name.lower().replace("_", "-"): hosts for name, hosts in groups.items()}
        self.named = groups
        self.chosen = chosen
        self._map_group_names(groups)
        self.groups_of: dict[str, list[str]] = {}
        for name in inventory.by_precedence():
            for host in groups[name] if name not in _TOP else ():
                self.groups_of.setdefault(host, []).append(name)
        self.hosts = tuple(inventory.hosts)
        self.group_vars = {name: self._variables("group_vars", name) for name in ["all", *groups]}
        for name, settings in inventory.group_vars.items():
            self.group_vars[name] = layered(settings, self.group_vars.get(name, {}))
        self.host_vars = {
            host: layered(inventory.host_vars.get(host, {}), self._variables("host_vars", host)) for host in self.hosts
        }

    def _map_group_names(self, groups: Mapping[str, tuple[str, ...]]) -> None:
        unknown = [name for name in self.chosen if name not in groups]
        if unknown:
            known = ", ".join(name for name in groups if name not in _TOP)
            self.draft.problems.add("--group", f"there is no group {unknown[0]}", f"there are: {known}")
            self.draft.incomplete = True
        chosen_names = {name: _NAMES[role] for name, role in self.chosen.items()}
        for name, hosts in groups.items():
            deepops_name = chosen_names.get(name) or _DEEPOPSCTL_GROUPS.get(name.lower().replace("-", "_"))
            if deepops_name:
                self.groups[deepops_name] = tuple(dict.fromkeys([*self.groups.get(deepops_name, ()), *hosts]))
        if not any(self.groups.get(name) for name in (*_ROLES, _UNION)):
            self.draft.unknown_groups = {
                name: len(hosts) for name, hosts in groups.items() if name not in _TOP and hosts
            }

    def _is_slurms(self, group: str) -> bool:
        return group in _TOP or group in self.chosen or "slurm" in group or "nfs" in group

    def _variables(self, subdirectory: str, name: str) -> dict[str, Setting]:
        if self.directory is None or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
            return {}
        return read_variables(self.directory / subdirectory, name, self.carryover, self.draft.problems)

    def read(self) -> None:
        """Read the variables first: two of them name nodes."""
        settings = self._cluster_settings()
        for name, setting in settings.items():
            if refused_password(name, setting.value):
                self.draft.problems.add(
                    setting.where, f"{name} is the placeholder that DeepOps ships, which is public",
                    "remove the line: random secrets are made; `deepopsctl takeover` reads a running cluster's",
                )  # fmt: skip
            else:
                carry_variable(name, setting, self.carryover)
        self._note_what_is_left()
        cluster_name = settings.get("slurm_cluster_name")
        if cluster_name and (name := self._checked("slurm_cluster_name", cluster_name, str, "")):
            self.draft.take_name(name, cluster_name.where)
        self._add_nodes(settings)
        self._storage(settings)
        self._failover(settings)
        self._partition(settings)
        self._access()

    def _cluster_settings(self) -> dict[str, Setting]:
        """The variables of all groups; those of narrower groups override those of wider ones."""
        order = sorted(self.group_vars, key=lambda name: (name != "all", name.replace("_", "-") != _UNION))
        wanted = [name for name in order if self._is_slurms(name)]
        settings: dict[str, Setting] = {}
        for group in wanted:
            for name, setting in self.group_vars[group].items():
                if name in settings and settings[name].value != setting.value and not name.startswith("ansible_"):
                    self.carryover.leave(
                        name, settings[name].where, f"{setting.where} has another value, which is used"
                    )
                settings[name] = setting
        return settings

    def _note_what_is_left(self) -> None:
        """Add notes on groups and variables that are not read elsewhere."""
        for group in self.group_vars:
            if self._is_slurms(group):
                continue
            where = self.inventory.where.get(group, self.draft.source)
            count = len(self.named.get(group, ()))
            self.carryover.leave(
                f"[{group}]", where, f"not a group of Slurm's ({count} host{'' if count == 1 else 's'} in it)"
            )
            for name, setting in self.group_vars[group].items():
                self.carryover.leave(name, setting.where, f"it is set for the group {group}")
        alone: dict[str, list[tuple[str, str]]] = {}
        for host, variables in self.host_vars.items():
            for name, setting in variables.items():
                if name not in READ_ELSEWHERE:
                    alone.setdefault(name, []).append((short_name(host, "")[0], setting.where))
        for name, places in alone.items():
            hosts = [host for host, _ in places]
            scope = f"{hosts[0]} alone" if len(hosts) == 1 else f"single hosts ({len(hosts)}): {fold_in_order(hosts)}"
            hint = f"put it into inventory/host_vars/{hosts[0] if len(hosts) == 1 else 'NODE'}.yml"
            self.carryover.leave(name, places[0][1], f"it is set for {scope}", hint)

    def _roles(self, settings: Mapping[str, Setting]) -> dict[str, frozenset[Role]]:
        roles_by_host: dict[str, set[Role]] = {host: set() for host in self.hosts}
        for group, role in _ROLES.items():
            for host in self.groups.get(group, ()):
                roles_by_host.setdefault(host, set()).add(role)
        for name, role in (("nfs_server_group", Role.NFS_SERVER), ("slurm_monitoring_group", Role.MONITORING)):
            setting = settings.get(name)
            if setting and not any(role in roles for roles in roles_by_host.values()):
                for host in self._matching(name, setting)[:1]:
                    roles_by_host[host].add(role)
        for host in self.groups.get(_UNION, ()):
            # other nodes of the cluster have Slurm's commands: login nodes
            if not roles_by_host.setdefault(host, set()) & {Role.CONTROLLER, Role.COMPUTE}:
                roles_by_host[host].add(Role.LOGIN)
        return {host: frozenset(self._without_defaults(host, roles)) for host, roles in roles_by_host.items()}

    def _without_defaults(self, host: str, roles: set[Role]) -> set[Role]:
        """The roles without the first controller's default roles; controllers accept logins anyway."""
        masters = self.groups.get("slurm-master", ())
        if host in masters:
            roles = roles - {Role.LOGIN}
        return roles - {Role.DBD, Role.MONITORING, Role.NFS_SERVER} if masters[:1] == (host,) else roles

    def _matching(self, name: str, setting: Setting) -> list[str]:
        text = as_text(setting.value)
        if is_template(text) or isinstance(setting.value, Opaque):
            self.carryover.leave(name, setting.where, "its value is a template", "name the node with an option")
            return []
        hosts = match_hosts(text, {**self.groups, **self.named}, self.hosts)
        if not hosts:
            self.carryover.leave(name, setting.where, f"{shorten(text)} matches no host")
        return hosts

    def _add_nodes(self, settings: Mapping[str, Setting]) -> None:
        roles = self._roles(settings)
        is_slurm = any(roles.values())
        # the primary is the first controller, whatever is first in [all]
        order = [*self.groups.get("slurm-master", ()), *self.hosts]
        left = []
        for host in dict.fromkeys(order):
            if is_slurm and not roles[host]:
                left.append(host)
            else:
                self._add_node(host, roles[host])
        if left:
            self.carryover.leave(
                f"hosts {shorten(fold_in_order(left))}", self.inventory.hosts[left[0]], "in none of Slurm's groups",
                "name them by --compute or --login if they belong to the cluster",
            )  # fmt: skip
        nodes = set(self.groups.get("slurm-node", ()))
        for group in _CLIENTS:
            extra = [host for host in self.groups.get(group, ()) if host not in nodes]
            if extra and CLIENTS not in settings:
                where = self.inventory.where.get(group, self.draft.source)
                self.carryover.leave(f"[{group}]", where, f"{CLIENTS} says who mounts", "nodes: under storage:")

    def _storage(self, settings: Mapping[str, Setting]) -> None:
        """The NFS mounts; the default server is the first controller."""
        names = {host: short_name(host, "")[0] for host in self.hosts}
        known = {host: name for host, name in names.items() if name.lower() in self.draft.nodes}
        servers = [host for host, name in known.items() if Role.NFS_SERVER in self.draft.nodes[name.lower()].roles]
        servers = servers or list(self.groups.get("slurm-master", ()))[:1]

        def hosts(pattern: str) -> list[str]:
            return match_hosts(pattern, {**self.groups, **self.named}, self.hosts)

        carry_nfs(settings, InventoryHosts(hosts, known, frozenset(servers)), self.draft)

    def _failover(self, settings: Mapping[str, Setting]) -> None:
        """Several controllers, where the state directory is on a file system that outlives one of them."""
        enabled, location = settings.get("slurm_enable_ha"), settings.get("slurm_ha_state_save_location")
        if enabled is None or not is_on(enabled):
            return
        path = as_text(location.value).rstrip("/") if location else _STATE
        hint = "name an entry of storage: in slurm_state of cluster.yml; docs/operate/two-controllers.md"
        mounts = [mount for mount in self.draft.mounts() if path == mount.path or path.startswith(f"{mount.path}/")]
        if not mounts:
            self.carryover.leave("slurm_enable_ha", enabled.where, f"nfs_mounts has no {shorten(path)}", hint)
            return
        # the innermost
        mount = max(mounts, key=lambda mount: len(mount.path))
        for refusal in shared_state.refusals(mount.name, [mount], self.draft.controllers()):
            self.carryover.leave("slurm_enable_ha", enabled.where, refusal.message, hint)
            return
        self.draft.slurm_state = (enabled.where, mount.name)
        self.carryover.check(
            "slurm_enable_ha",
            enabled.where,
            f"all controllers serve, with their state in {mount.path}/{shared_state.DIRECTORY}",
            "an entry of its own is better: users' files fill it, and make it slow",
        )

    def _add_node(self, host: str, roles: frozenset[Role]) -> None:
        where = self.inventory.hosts.get(host, self.draft.source)
        variables = self._for_host(host)
        setting = variables.get("ansible_host") or variables.get("ansible_ssh_host")
        # Ansible would later evaluate a Jinja value
        address = self._checked("ansible_host", setting, values.check_address, "") if setting else ""
        if not address and is_ip_address(host):
            hint = f"write NAME ansible_host={host}"
            self.draft.refuse(where, RefusedError(f"{host} is an address, not a name", hint))
            return
        port = variables.get("ansible_port") or variables.get("ansible_ssh_port")
        name, address = short_name(host, address)
        self.draft.add(
            NodeEntry(
                where, name, addresses="" if address.lower() == name.lower() else address, roles=roles,
                port=self._checked("ansible_port", port, values.parse_port, 0) if port else 0,
            )
        )  # fmt: skip

    def _for_host(self, host: str) -> dict[str, Setting]:
        mine = (self.group_vars.get(group, {}) for group in self.groups_of.get(host, ()))
        return layered(self.group_vars.get("all", {}), *mine, self.host_vars[host])

    def _partition(self, settings: Mapping[str, Setting]) -> None:
        """DeepOps has one partition, `batch`, of all compute nodes."""
        if not self.groups.get("slurm-node"):
            return
        limit = settings.get("slurm_max_job_timelimit")
        options: dict[str, str] = {}
        nothing: Mapping[str, str] = {}
        for name, key in (("slurm_default_job_timelimit", "DefaultTime"), ("slurm_oversubscribe", "OverSubscribe")):
            setting = settings.get(name)
            if setting and as_text(setting.value):
                options.update(self._checked(name, setting, _option(key), nothing))
        max_time = self._checked("slurm_max_job_timelimit", limit, values.check_max_time, "") if limit else ""
        partition = Partition("batch", (), default=True, max_time=max_time, options=options)
        self.draft.partitions.append(PartitionEntry(self.draft.source, "partition batch", partition, "all"))

    def _checked(self, name: str, setting: Setting, check: Callable[[str], T], instead: T) -> T:
        """The checked value, or `instead` with a note or a problem."""
        if isinstance(setting.value, Opaque) or is_template(setting.value):
            self.carryover.leave(name, setting.where, "its value is a template", "write the value itself")
            return instead
        try:
            return check(as_text(setting.value))
        except RefusedError as refusal:
            self.draft.problems.refuse(setting.where, name, refusal)
            return instead

    def _access(self) -> None:
        """The user, key and jump host of the cluster: those of most nodes."""
        users = self._common(("ansible_user", "ansible_ssh_user"))
        keys = self._common(("ansible_ssh_private_key_file",))
        jumps = self._common(("ansible_ssh_common_args", "ansible_ssh_extra_args"))
        key = self._checked("ansible_ssh_private_key_file", keys, values.check_key, "") if keys else ""
        if key and not key.startswith(("/", "~")) and self.directory:
            key = str((self.directory / key).absolute())
        self.draft.access = Access(
            user=self._checked("ansible_user", users, values.check_user, "") if users else "",
            key=key,
            jump_host=self._jump(jumps) if jumps else "",
        )

    def _common(self, names: Sequence[str]) -> Setting | None:
        """The most frequent setting of the nodes, with notes on the others."""
        by_value: dict[str, list[Setting]] = {}
        for host in self.hosts:
            if short_name(host, "")[0].lower() in self.draft.nodes:
                variables = self._for_host(host)
                setting = next((variables[name] for name in names if name in variables), None)
                if setting:
                    by_value.setdefault(as_text(setting.value), []).append(setting)
        ranked = sorted(by_value.values(), key=len, reverse=True)
        for other in ranked[1:]:
            self.carryover.leave(
                names[0], other[0].where, "only one for the whole cluster is supported", "edit ~/.ssh/config"
            )
        return ranked[0][0] if ranked else None

    def _jump(self, setting: Setting) -> str:
        text = as_text(setting.value)
        option = re.search(r"(?:-J\s*|ProxyJump[ =])([A-Za-z0-9_.@:,-]+)", text)
        proxy = re.search(r"ProxyCommand[ =]['\"]?([^'\"]+)", text)
        inner = _PROXY.fullmatch(proxy[1]) if proxy else None
        host = option[1] if option else inner[1] if inner else ""
        if not host or is_template(text):
            self.carryover.leave(
                "ansible_ssh_common_args", setting.where, "no jump host is recognised in it", "--jump-host"
            )
            return ""
        try:
            return values.check_jump_host(host)
        except RefusedError as refusal:
            self.carryover.leave("ansible_ssh_common_args", setting.where, refusal.message, "--jump-host")
            return ""


def _option(key: str) -> Callable[[str], Mapping[str, str]]:
    return lambda text: values.check_slurm_options({key: text}, {})
