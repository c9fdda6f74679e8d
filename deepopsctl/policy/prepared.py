"""Partitions prepared for a purpose: what `prepared: interactive` and `prepared: whole` stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from deepopsctl.model.cluster import Partition
from deepopsctl.model.policy import Qos

INTERACTIVE, WHOLE = "interactive", "whole"
PURPOSES = (INTERACTIVE, WHOLE)
# short sessions that start soon: considered before other partitions' jobs, one a user
INTERACTIVE_TIME = "03:00:00"
_INTERACTIVE_OPTIONS = MappingProxyType({"DefaultTime": "01:00:00", "PriorityTier": "10"})
_INTERACTIVE_LIMITS = MappingProxyType({"MaxJobsPU": "1", "MaxTRESPU": "cpu=4,gres/gpu=1"})
_WHOLE_OPTIONS = MappingProxyType({"OverSubscribe": "EXCLUSIVE"})


def prepared(partition: Partition) -> Partition:
    """The partition with the settings of its purpose; those that cluster.yml has win."""
    if partition.prepared == INTERACTIVE:
        options = _over({**_INTERACTIVE_OPTIONS, "QOS": partition.name.lower()}, partition.options)
        return replace(partition, max_time=partition.max_time or INTERACTIVE_TIME, options=options)
    return replace(partition, options=_over(_WHOLE_OPTIONS, partition.options)) if partition.prepared else partition


def qos_of(partition: Partition) -> Qos | None:
    """The QOS that limits its users; None where it needs none, or cluster.yml names another."""
    name = partition.name.lower()
    if partition.prepared != INTERACTIVE or partition.options.get("QOS") != name:
        return None
    return Qos(name, flags=("DenyOnLimit",), limits=_INTERACTIVE_LIMITS)


def _over(defaults: Mapping[str, str], own: Mapping[str, str]) -> Mapping[str, str]:
    written = {key.lower() for key in own}
    return {**{key: value for key, value in defaults.items() if key.lower() not in written}, **own}
