"""What the playbook hands to the suite."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from . import expected


class Inputs(NamedTuple):
    """`tested` are the compute nodes to test, `reports` the nodes' own, by name; silent ones have none.

    `directories` are the folders of jobs, where cluster.yml has `job_directories`.
    """

    cluster: str
    submit: str
    user: str
    tested: Sequence[str]
    reports: Mapping[str, Mapping[str, Any]]
    wanted: Dict[str, expected.Node]
    partitions: List[expected.Partition]
    directories: Mapping[str, Any] = {}

    def report(self, name: str) -> Mapping[str, Any]:
        """A node's own report; empty where it made none."""
        return self.reports.get(name, {})
