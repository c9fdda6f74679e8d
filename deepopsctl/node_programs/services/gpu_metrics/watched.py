"""nvitop-exporter's metrics of GPUs, and no others of its own.

Its node metrics are node exporter's task here; its process metrics would show every user's command lines to
anyone who reaches the port.
"""

from __future__ import annotations

from typing import Any

from nvitop import Device, PhysicalDevice
from nvitop_exporter.exporter import PrometheusExporter
from prometheus_client import CollectorRegistry

_NOT_OURS = ("host_", "process_")


class GpuExporter(PrometheusExporter):  # type: ignore[misc]  # nvitop has no types
    """GPUs, and the instances of those in MIG mode."""

    def __init__(self, devices: list[Any], hostname: str, registry: CollectorRegistry) -> None:
        super().__init__(devices, hostname, registry=registry)
        for name, metric in list(vars(self).items()):
            if name.startswith(_NOT_OURS):
                registry.unregister(metric)
        for device in devices:
            # called on every update
            device.processes = dict

    def update(self) -> None:
        """Read all GPUs once."""
        for device in self.devices:
            self.update_device(device)


def devices() -> list[Any]:
    """All GPUs and instances; one that is lost is among them, without a name."""
    physical: list[Any] = PhysicalDevice.from_indices(range(Device.count()))
    return physical + [instance for gpu in physical for instance in gpu.mig_devices()]
