"""Settings that had another name: a site's name is the role's name since 0.1.0. The old names work until 0.2.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

RENAMED: Mapping[str, str] = MappingProxyType({
    "environment_spack_version": "site_software_spack_version",
    "monitoring_alert_email": "alertmanager_email",
    "monitoring_alert_grouping": "alertmanager_grouping",
    "monitoring_alert_receivers": "alertmanager_receivers",
    "monitoring_alert_routes": "alertmanager_routes",
    "monitoring_job_endings": "monitoring_node_job_endings",
    "monitoring_job_summaries": "monitoring_node_job_summaries",
    "monitoring_logs_keep_days": "monitoring_node_logs_keep_days",
    "monitoring_logs_keep_gb": "monitoring_node_logs_keep_gb",
    "monitoring_retention": "prometheus_retention",
    "monitoring_retention_size": "prometheus_retention_size",
    "slurm_accounts": "slurm_accounts_names",
    "slurm_adopt_admin_groups": "login_access_admin_groups",
    "slurm_converged_timeout": "slurmctld_verify_timeout",
    "slurm_job_submit": "slurm_conf_job_script",
    "slurm_login_limits": "login_access_limits",
    "slurm_time_servers": "node_common_time_servers",
    "slurm_users": "slurm_accounts_users",
    "slurmd_converged_timeout": "slurmd_verify_timeout",
})  # fmt: skip


def is_now(old: str) -> str:
    """The message for an old name."""
    return f"{old} is now {RENAMED[old]}"


def old_names(names: Iterable[str]) -> tuple[str, ...]:
    """The old names among `names` whose new ones are not there."""
    present = set(names)
    return tuple(old for old, new in RENAMED.items() if old in present and new not in present)


def references(names: Iterable[str]) -> dict[str, str]:
    """The new names as templates of the old ones: variables for Ansible to read next to `names`."""
    return {RENAMED[old]: f"{{{{ {old} }}}}" for old in old_names(names)}


def with_new_names(values: Mapping[str, object]) -> dict[str, object]:
    """Values under the names of today; one that has both names keeps that of the new one."""
    return {RENAMED.get(name, name): value for name, value in values.items()} | {
        name: value for name, value in values.items() if name not in RENAMED
    }
