"""Facts of one node that monitoring follows from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class MonitoredNode:
    """Facts of one node, as the inventory has them."""

    name: str
    cluster: str
    # of cluster.yml: slurm_controller, slurm_compute, slurm_dbd, monitoring, nvidia_gpu ...
    groups: frozenset[str]
    # where exporters listen: its management address
    address: str
    # the first of each: Slurm is queried on the controller; the monitoring host scrapes and receives
    controller: str = ""
    monitoring_host: str = ""
    monitoring_address: str = ""
    # the node's GPUs and slices in Slurm's order (slurmgres.device_names)
    gpus: Sequence[str] = ()
    # `storage_mounts`, as the inventory has it
    mounts: Sequence[Mapping[str, object]] = ()
    # `deepops_monitoring_settings` of group_vars/all/monitoring.yml: switches by name
    settings: Mapping[str, object] = field(default_factory=dict)
    # `deepops_monitoring_secrets`, from the vault
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def is_first_controller(self) -> bool:
        """Whether Slurm is queried here for the whole cluster."""
        return self.name == self.controller

    @property
    def runs_jobs(self) -> bool:
        """Whether it is a compute node."""
        return "slurm_compute" in self.groups

    @property
    def speaks_tls(self) -> bool:
        """Whether its exporters use TLS: not before a run has reached both the node and Prometheus."""
        return self.is_on("exporter_tls") and not self.is_on("exporter_in_clear")

    def is_on(self, switch: str) -> bool:
        """Whether a switch of `deepops_monitoring_settings` is on; one that is not there is off."""
        return self.settings.get(switch) is True


def at(address: str, port: int) -> str:
    """Where a daemon listens, or is reached: `192.0.2.1:9100`, `[2001:db8::1]:9100`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
