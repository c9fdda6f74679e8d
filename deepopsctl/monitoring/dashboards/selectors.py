"""Selectors of series, each by the variables of a dashboard: the same names and filters in every panel.

A value is compared as it is; `~` before it makes it a pattern, `!` a pattern that must not match.
"""

from __future__ import annotations

# Grafana fills these in; a variable with several values becomes a pattern
_CLUSTER = 'cluster=~"$cluster"'
_PARTITION = 'partition=~"$partition"'
_NODE = 'node=~"$node"'
_ACCOUNT = 'account=~"$account"'
_USER = 'user=~"$user"'
_JOB = 'jobid=~"$jobid"'


# of file systems that hold nobody's files
NO_FILES = "!tmpfs|ramfs|squashfs|efivarfs|iso9660|autofs|devtmpfs"


def cluster(**labels: str) -> str:
    """Series of the chosen cluster."""
    return _selector(_CLUSTER, **labels)


def partitions(**labels: str) -> str:
    """Series of the chosen partitions."""
    return _selector(_CLUSTER, _PARTITION, **labels)


def nodes(**labels: str) -> str:
    """Series of the chosen nodes."""
    return _selector(_CLUSTER, _NODE, **labels)


def writable(metric: str) -> str:
    """A figure of file systems that can fill: what is mounted read-only (CVMFS, images) is full at all times."""
    files = nodes(fstype=NO_FILES)
    return f"({metric}{files} unless node_filesystem_readonly{files} == 1)"


def people(**labels: str) -> str:
    """Series of the chosen accounts and users."""
    return _selector(_CLUSTER, _ACCOUNT, _USER, **labels)


def jobs(**labels: str) -> str:
    """Series of the chosen users' jobs."""
    return _selector(_CLUSTER, _USER, **labels)


def job(**labels: str) -> str:
    """Series of the chosen job."""
    return _selector(_CLUSTER, _JOB, **labels)


def _selector(*fixed: str, **labels: str) -> str:
    return "{" + ", ".join([*fixed, *(_matcher(label, value) for label, value in labels.items())]) + "}"


def _matcher(label: str, value: str) -> str:
    operator = {"~": "=~", "!": "!~"}.get(value[:1], "=")
    return f'{label}{operator}"{value if operator == "=" else value[1:]}"'
