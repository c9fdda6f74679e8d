"""Node lists of other tools as inventories: `ansible-inventory --list` in JSON, Warewulf's nodes.conf, OpenCHAMI.

Their hosts, groups and variables are those of an Ansible inventory, so roles come from groups as in one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from deepopsctl.imports.ansible_inventory import Inventory, Opaque, Setting
from deepopsctl.imports.detect import is_ip_address
from deepopsctl.text.answers import items, mapping
from deepopsctl.text.node_sets import shorten
from deepopsctl.text.problems import Problems
from deepopsctl.text.yaml_reader import Document, parse_yaml

_LIST_AGAIN = "write it again: ansible-inventory -i INVENTORY --list"
# what SMD calls a compute node; nodes of other roles (Service, Management) are left out
_SMD_COMPUTE = "compute"
_COMPUTE_GROUP = "slurm_compute"


def parse_json_inventory(text: str, source: str, problems: Problems) -> Inventory:
    """The inventory that `ansible-inventory --list` prints; what all hosts share is a variable of the group all."""
    inventory = Inventory()
    try:
        document = mapping(json.loads(text))
    except json.JSONDecodeError as error:
        problems.add(f"{source}:{error.lineno}", f"not valid JSON: {error.msg}", _LIST_AGAIN)
        return inventory
    except RecursionError:
        problems.add(source, "not valid JSON: nested too deep", _LIST_AGAIN)
        return inventory
    hostvars = mapping(mapping(document.get("_meta")).get("hostvars"))
    for name, content in document.items():
        if name != "_meta":
            _add_group(inventory, name, content, source)
    if not hostvars and not inventory.hosts:
        hint = "its own messages say why: the source did not answer, or has no hosts that fit"
        problems.add(source, "ansible-inventory printed no hosts", hint)
    for host in hostvars:
        inventory.hosts.setdefault(host, f"{source}: {shorten(host)}")
    settings = {host: _settings(mapping(hostvars.get(host)), where) for host, where in inventory.hosts.items()}
    common = _common(list(settings.values()))
    inventory.group_vars.setdefault("all", {}).update(common)
    inventory.host_vars = {
        host: {name: setting for name, setting in own.items() if name not in common} for host, own in settings.items()
    }
    return inventory


def parse_warewulf(text: str, source: str, problems: Problems) -> Inventory:
    """The nodes of Warewulf's nodes.conf, or of `wwctl node export`; each profile is a group."""
    inventory = Inventory()
    document = parse_yaml(text, source, problems)
    root = mapping(document.value if document else None)
    path: tuple[str | int, ...] = ("nodes",) if "nodes" in root else ()
    for name, content in mapping(root["nodes"] if path else root).items():
        node = mapping(content)
        networks = mapping(node.get("network devices"))
        primary = str(node.get("primary network") or "default")
        first = networks.get(primary) or next(iter(networks.values()), None)
        address = str(mapping(first).get("ipaddr") or "")
        groups = [str(profile) for profile in items(node.get("profiles"))]
        _add_node(inventory, name, address, groups, _where(source, document, (*path, name)))
    return inventory


def parse_openchami(text: str, source: str, problems: Problems) -> Inventory:
    """OpenCHAMI's nodes: the file of `ochami discover static`, or SMD's components or Ethernet interfaces."""
    inventory = Inventory()
    document = parse_yaml(text, source, problems)
    value = document.value if document else None
    path: tuple[str | int, ...] = ()
    if isinstance(value, dict):
        path = next(((key,) for key in ("nodes", "Components") if key in value), ())
        value = value[path[0]] if path else None
    for index, content in enumerate(items(value)):
        entry, where = mapping(content), _where(source, document, (*path, index))
        if "xname" in entry or "bmc_mac" in entry:
            groups = [str(entry["group"])] if entry.get("group") else []
            _add_node(inventory, str(entry.get("name") or entry.get("xname") or ""), _first_ip(entry), groups, where)
        elif entry.get("Type") == "Node":
            name = str(entry.get("ComponentID") or entry.get("ID") or "")
            role = str(entry.get("Role") or "")
            groups = [_COMPUTE_GROUP if role.lower() == _SMD_COMPUTE else role] if role else []
            _add_node(inventory, name, _first_ip(entry), groups, where)
    return inventory


def _add_group(inventory: Inventory, name: str, content: object, source: str) -> None:
    # the short form of a group: its hosts alone
    group = {"hosts": content} if isinstance(content, list) else mapping(content)
    inventory.where.setdefault(name, f"{source}: {shorten(name)}")
    members = inventory.members.setdefault(name, [])
    for host in map(str, items(group.get("hosts"))):
        inventory.hosts.setdefault(host, f"{source}: {shorten(host)}")
        members.append(host)
    inventory.children.setdefault(name, []).extend(map(str, items(group.get("children"))))
    variables = _settings(mapping(group.get("vars")), inventory.where[name])
    inventory.group_vars.setdefault(name, {}).update(variables)


def _settings(variables: Mapping[str, object], where: str) -> dict[str, Setting]:
    return {name: Setting(_plain(value), where) for name, value in variables.items()}


def _plain(value: object) -> object:
    """A value of Ansible's JSON: text that it marks as not to be evaluated is text, an encrypted one is unknown."""
    if isinstance(value, dict):
        if "__ansible_vault" in value:
            return Opaque()
        return _plain(value["__ansible_unsafe"]) if "__ansible_unsafe" in value else value
    return value


def _common(variables: Sequence[Mapping[str, Setting]]) -> dict[str, Setting]:
    """What several hosts all have, with the same value: ansible-inventory lists variables of groups by host."""
    if len(variables) < 2:
        return {}
    first, *others = variables
    return {
        name: setting
        for name, setting in first.items()
        if all(name in other and other[name].value == setting.value for other in others)
    }


def _add_node(inventory: Inventory, name: str, address: str, groups: Sequence[str], where: str) -> None:
    inventory.hosts.setdefault(name, where)
    settings = {"ansible_host": Setting(address, where)} if address else {}
    inventory.host_vars.setdefault(name, {}).update(
        {key: setting for key, setting in settings.items() if key not in inventory.host_vars.get(name, {})}
    )
    for group in groups or ["ungrouped"]:
        inventory.where.setdefault(group, where)
        inventory.members.setdefault(group, []).append(name)


def _first_ip(entry: Mapping[str, object]) -> str:
    """The first address of a node's interfaces, as both of OpenCHAMI's forms write them."""
    return next(filter(is_ip_address, _addresses(entry)), "")


def _addresses(entry: Mapping[str, object]) -> Iterator[str]:
    for interface in map(mapping, items(entry.get("interfaces"))):
        yield from (str(mapping(item).get("ip_addr") or "") for item in items(interface.get("ip_addrs")))
    yield from (str(mapping(item).get("IPAddress") or "") for item in items(entry.get("IPAddresses")))


def _where(source: str, document: Document | None, path: tuple[str | int, ...]) -> str:
    return f"{source}:{document.line(path)}" if document else source
