"""Jinja filters for the roles storage and nfs_server: thin wrappers over deepopsctl.storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.plugin_utils.filters import filters_of

from deepopsctl.model.storage import Platform
from deepopsctl.storage import (
    health_check,
    node_plan,
    node_plan as server_exports,
    quota,
    secret_files,
    snapshots,
    user_tools,
    writer,
)


def storage_plan(
    entries: Sequence[Mapping[str, Any]],
    host: str,
    addresses: Mapping[str, str],
    platform: object,
    kernel: object,
    is_compute: object,
    slurm_config: Mapping[str, Any],
    program: Any,
    secrets: Mapping[str, Any],
) -> dict[str, Any]:
    """All that a node needs, as node_state and node_mounts take it."""
    mounts = writer.from_variable(entries)
    plan = node_plan.plan_node(mounts, host, addresses, Platform(str(platform), str(kernel)))
    files = [*plan.files, *user_tools.node_files(mounts, host)]
    files += health_check.node_files(mounts, host, slurm_config, program) if is_compute else []
    node_mounts = [_as_argument(mount) for mount in plan.mounts]
    before = server_exports.under_exports(mounts, host)
    return {
        "packages": {**plan.packages, **user_tools.packages(mounts, host)},
        "timers": user_tools.timers(mounts, host),
        "takes_snapshots": bool(snapshots.snapshots_on(mounts, host)),
        "files": [{"path": file.path, "content": file.content, "mode": file.mode} for file in files]
        + [
            {"path": secret.path, "secret_base64": secret_files.content_base64(secret, secrets), "mode": secret.mode}
            for secret in plan.secrets
        ],
        "mounts": node_mounts,
        # without them another directory would be exported in their place
        "under_exports": [{**mount, "required": True} for mount in node_mounts if mount["name"] in before],
        # those of a kernel's: storage_client says which packages they are on this node
        "clients": [asdict(client) for client in plan.clients],
        "checks": {name: [list(argv) for argv in commands] for name, commands in plan.checks.items()},
        "problems": [*plan.problems, *secret_files.why_unusable(plan.secrets, secrets)],
    }


def _as_argument(mount: Any) -> dict[str, Any]:
    names = ("name", "path", "unit", "text", "automount", "required", "client")
    return {name: getattr(mount, name) for name in names}


def storage_steps(entries: Sequence[Mapping[str, Any]], host: str, others: Iterable[str]) -> list[str]:
    """The steps that a node takes part in: `others`, and one more where clients belong to its kernel."""
    plan = node_plan.plan_node(writer.from_variable(entries), host, {}, Platform("", ""))
    return [*others, *(["clients"] if plan.clients else [])]


def storage_outside(entries: Sequence[Mapping[str, Any]], host: str) -> list[dict[str, Any]]:
    """What a node fetches for clients: [{what, url, unless}], as node_doctor takes it."""
    plan = node_plan.plan_node(writer.from_variable(entries), host, {}, Platform("", ""))
    return [
        {"what": f"{client.name} with {', '.join(m.name for m in plan.mounts if m.client == client.name)}", **address}
        for client in plan.clients
        for address in _addresses(client)
    ]


def _addresses(client: Any) -> list[dict[str, Any]]:
    # as module_utils/storage/client_sources.py has them
    if client.archives:
        cache = f"/var/cache/deepopsctl/storage-{client.name}"
        return [{"url": a.url, "unless": [f"{cache}/{a.url.rsplit('/', 1)[1]}"]} for a in client.archives]
    source = f"/etc/apt/sources.list.d/deepopsctl-storage-{client.name}.sources"
    return [{"url": client.repository.url, "unless": [source]}] if client.repository else []


def storage_exports(
    entries: Sequence[Mapping[str, Any]], host: str, addresses: Mapping[str, str]
) -> list[dict[str, str]]:
    """What a node hands out: [{path, line}]."""
    exports = server_exports.exports_of(writer.from_variable(entries), host, addresses)
    return [{"path": export.path, "line": export.line} for export in exports]


def storage_rdma(entries: Sequence[Mapping[str, Any]], host: str) -> bool:
    """Whether a node serves over RDMA."""
    return server_exports.uses_rdma(writer.from_variable(entries), host)


def storage_quotas(entries: Sequence[Mapping[str, Any]], host: str) -> list[dict[str, object]]:
    """What a node serves with quotas, as the module storage_quota takes it."""
    return quota.served(writer.from_variable(entries), host)


def storage_expected(
    entries: Sequence[Mapping[str, Any]], host: str, hostvars: Mapping[str, Any]
) -> list[dict[str, object]]:
    """What a node must have mounted, as the node program validate_storage takes it."""
    mounts = writer.from_variable(entries)
    return node_plan.expected_on(mounts, host, node_plan.addresses_of(mounts, hostvars))


def storage_wanted(
    entries: Sequence[Mapping[str, Any]], among: Iterable[str], hostvars: Mapping[str, Any]
) -> list[dict[str, object]]:
    """Every entry with those of these nodes that have it, as the node program validate_storage takes it."""
    mounts = writer.from_variable(entries)
    return node_plan.wanted_on(mounts, among, node_plan.addresses_of(mounts, hostvars))


def storage_seen(names: Sequence[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """What the nodes' own checks returned for the trials; {} for a node without storage."""
    return {name: (hostvars[name].get("deepops_storage_look") or {}).get("seen", {}) for name in names}


def storage_health_check(slurm_config: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """`slurm_config` with the node check where storage is required."""
    return health_check.with_health_check(slurm_config, writer.from_variable(entries))


def storage_unconfirmed(names: Sequence[str], hostvars: Mapping[str, Any]) -> list[str]:
    """The nodes that may still use what they no longer are to have: kept it, or took no part in this run."""
    return [name for name in names if not _is_done(hostvars[name])]


def storage_unmanaged_mounts(
    names: Sequence[str], hostvars: Mapping[str, Any], addresses: Mapping[str, str]
) -> list[dict[str, Any]]:
    """NFS mounts that deepopsctl does not manage, as the nodes reported them in this run."""
    results = ((name, hostvars[name].get("storage_result") or {}) for name in names)
    reported = ((name, mount) for name, result in results for mount in result.get("unmanaged_mounts", ()))
    # with version 3 the kernel does not say by which address
    return [{**mount, "node": name, "client": mount["client"] or addresses.get(name, "")} for name, mount in reported]


def _is_done(host: Mapping[str, Any]) -> bool:
    # its last gate may have reported another component
    if "deepops_storage_done" in host.get("group_names", ()):
        return True
    result = host.get("storage_result", {})
    return bool(result) and not result.get("failed") and not result.get("unreachable") and not result.get("deferred")


class FilterModule:
    """Registers the filters."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return filters_of(globals())
