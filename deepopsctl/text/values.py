"""Checks of single values of a node list; each returns the value or raises a RefusedError."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from deepopsctl.model.cluster import Role
from deepopsctl.node_programs._shared.slurm_words import is_unlimited
from deepopsctl.text.node_sets import is_prefixed, prefixed, shorten
from deepopsctl.text.problems import RefusedError

# Names that Ansible, Slurm or the resolver reserve, and the groups of the inventory.
RESERVED_NAMES = frozenset({
    "all", "ungrouped", "localhost", "default", "slurm_cluster", "slurm_controller", "slurm_compute", "slurm_login",
    "slurm_dbd", "nfs_server", "monitoring", "nvidia_gpu", "storage_nodes", "environment_nodes", "directory_nodes",
})  # fmt: skip

# Written by deepopsctl from other fields of cluster.yml.
OWNED_NODE_KEYS = {
    "nodename": "names", "nodehostname": "names", "nodeaddr": "addresses", "cpus": "hardware.yml",
    "procs": "hardware.yml", "boards": "hardware.yml", "sockets": "hardware.yml",
    "socketsperboard": "hardware.yml", "corespersocket": "hardware.yml", "threadspercore": "hardware.yml",
    "gres": "gpus", "feature": "features", "features": "features", "state": "`deepopsctl node drain`",
}  # fmt: skip
OWNED_PARTITION_KEYS = {
    "partitionname": "name", "nodes": "nodes", "default": "default", "maxtime": "max_time",
}  # fmt: skip

_ROLES = MappingProxyType({role.value: role for role in Role})
# Slurm, systemd and ssh take underscores, which RFC 1123 has not
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
# more digits than any year needs are more than Slurm counts
_TIME = re.compile(r"[0-9]{1,9}(?:(?::[0-9]{1,2}){0,2}|-[0-9]{1,2}(?::[0-9]{1,2}){0,2})")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*")
_JUMP = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def check_template(text: str) -> str:
    """Refuse template markers: Ansible trusts the inventory, so it would run what stands between them."""
    match = _TEMPLATE.search(text)
    if match:
        raise RefusedError(
            f"the template marker {match[0]} is not allowed", "node lists are data: write the value itself"
        )
    return text


def check_name(name: str) -> str:
    """A node name: one label of a hostname (RFC 1123), as Slurm's NodeName needs it."""
    if "." in name:
        if _is_address(name):
            raise RefusedError(f"{name} is an address where a name is expected", f"write NAME={name}")
        short = name.partition(".")[0]
        raise RefusedError(
            f"{name} has a domain, but Slurm knows nodes by their short names",
            f"name the node {short or 'NAME'}; {name} can be its address: {short or 'NAME'}={name}, or in a column",
        )
    if not _LABEL.fullmatch(name):
        raise RefusedError(
            f"{shorten(name)!r} is not a valid hostname",
            "use 1 to 63 letters, digits, - and _, with a letter or digit at both ends",
        )
    if name.isdigit():
        raise RefusedError(
            f"{name} has only digits, so tools take it for an address", "let the name begin with a letter"
        )
    if name.lower() == "localhost":
        raise RefusedError("localhost is the name of every host itself", "use the one that `hostname -s` prints there")
    if name.lower() in RESERVED_NAMES:
        raise RefusedError(
            f"{name} has a meaning of its own in Ansible or Slurm",
            f"name the node {name}1, with its address: {name}1={name}",
        )
    return name


def check_address(address: str) -> str:
    """An IPv4 or IPv6 address, or a name that resolves."""
    if is_prefixed(address):
        raise prefixed(address)
    if _is_address(address) or re.fullmatch(r"[0-9.]+", address):
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError as error:
            hint = "write it without leading zeros" if re.search(r"(^|\.)0[0-9]", address) else "check its numbers"
            raise RefusedError(f"{address} is not an IP address", hint) from error
        # a link-local one is on every interface: without `%`, which Slurm does not take, it can't be reached
        is_local = parsed.version == 6 and parsed.is_link_local
        if is_local or parsed.is_unspecified or parsed.is_multicast or address == "255.255.255.255" or "%" in address:
            raise RefusedError(f"{address} is not the address of one host", "give the address the node is reached by")
        return address
    if len(address) > 253 or not all(_LABEL.fullmatch(label) for label in address.split(".")):
        raise RefusedError(
            f"{shorten(address)!r} is neither an address nor a hostname",
            "write 10.0.1.11 or node.example.com",
        )
    return address


def address_key(address: str) -> str:
    """The canonical spelling of an address, to find duplicates."""
    return str(ipaddress.ip_address(address)) if ":" in address else address.lower()


def parse_role(text: str) -> Role:
    """A role by its name; `nfs-server` is as good as `nfs_server`."""
    cleaned = text.strip().lower().replace("-", "_")
    if cleaned not in _ROLES:
        raise RefusedError(f"{shorten(text)!r} is not a role", suggest(cleaned, _ROLES))
    return _ROLES[cleaned]


def parse_port(text: str) -> int:
    """A TCP port; '' and 0 mean ssh's default."""
    if not re.fullmatch(r"[0-9]{0,5}", text) or int(text or 0) > 65535:
        raise RefusedError(f"{shorten(text)!r} is not a valid port", "give a number from 1 to 65535")
    return int(text or 0)


def check_feature(text: str) -> str:
    """A Slurm node feature: one word."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*", text):
        raise RefusedError(f"{shorten(text)!r} is not a feature", "features are single words: [ib, nvlink]")
    return text


def check_domain_name(name: str) -> str:
    """A name of an NVLink domain: it becomes part of a Slurm feature, and a block's name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}", name):
        raise RefusedError(f"{shorten(name)!r} is not a name of a domain", "use letters, digits and underscores: rack1")
    return name


def check_partition_name(name: str) -> str:
    """A Slurm partition name."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}", name) or name.upper() == "DEFAULT":
        raise RefusedError(
            f"{shorten(name)!r} can't be a partition's name",
            "use letters, digits, hyphens; not DEFAULT",
        )
    return name


def check_max_time(text: str) -> str:
    """A time limit as Slurm writes it."""
    if is_unlimited(text):
        # Slurm also reads -1, which YAML and people do not
        return "UNLIMITED" if text == "-1" else text
    if text and not _TIME.fullmatch(text):
        raise RefusedError(
            f"{shorten(text)!r} is not a valid time limit of Slurm's",
            "write minutes (90), [days-]hours:minutes:seconds (12:00:00, 2-00:00:00) or UNLIMITED",
        )
    return text


def check_slurm_options(options: Mapping[str, str], owned: Mapping[str, str]) -> Mapping[str, str]:
    """Further Slurm keys of a node or partition line; keys that deepopsctl writes itself are refused."""
    seen: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() in seen:
            raise RefusedError(f"{seen[key.lower()]} and {key} are one key to Slurm", "keep one of them")
        seen[key.lower()] = key
        if not re.fullmatch(r"[A-Za-z]+", key):
            raise RefusedError(f"{shorten(key)!r} is not a key of slurm.conf", "keys have letters only: OverSubscribe")
        if key.lower() in owned:
            raise RefusedError(f"{key} is written by deepopsctl", f"use {owned[key.lower()]} instead")
        if not value or not re.fullmatch(r"[!-~]+", value) or re.search(r"[#\"'\\]", value):
            raise RefusedError(
                f"{key}: {shorten(value)!r} can't stand in slurm.conf",
                "a value is one word without spaces, quotes or #",
            )
        check_template(value)
    return options


def check_cluster_name(name: str) -> str:
    """Slurm's ClusterName, which is part of its database's table names."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}", name):
        raise RefusedError(
            f"{shorten(name)!r} can't be a cluster's name", "use up to 40 lower-case letters, digits, - and _"
        )
    return name


def check_user(user: str) -> str:
    """A login name on the nodes."""
    if user and (not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?", user) or len(user) > 64):
        raise RefusedError(f"{shorten(user)!r} is not a login name", "give the user to log in as, for example ubuntu")
    return user


def check_key(path: str) -> str:
    """The path of a private SSH key."""
    check_template(path)
    if not path.isprintable() or '"' in path or "'" in path:
        raise RefusedError(f"{shorten(path)!r} can't be used as a path", "move the key to a path without quotes")
    if path.endswith(".pub"):
        raise RefusedError(f"{shorten(path)} is the public half of a key", f"give the private one: {path[:-4]}")
    return path


def check_jump_host(text: str) -> str:
    """ssh's ProxyJump: [USER@]HOST[:PORT], several joined by commas; an IPv6 address is in brackets."""
    if text and not all(_JUMP.fullmatch(hop) for hop in text.split(",")):
        raise RefusedError(
            f"{shorten(text)!r} is not a valid jump host", "write [USER@]HOST[:PORT], an IPv6 address as [2001:db8::1]"
        )
    return text


def check_login_name(text: str) -> str:
    """A host name or address that stands for all login nodes."""
    if text and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}", text):
        raise RefusedError(f"{shorten(text)!r} is not a host name", "write it like login.hpc.example.com")
    return text


def suggest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    words = list(known)
    close = get_close_matches(word, words, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(words)}"


def _is_address(text: str) -> bool:
    return ":" in text or bool(re.fullmatch(r"[0-9]+(\.[0-9]+){3}", text))
