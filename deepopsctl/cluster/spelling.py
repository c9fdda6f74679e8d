"""Likely spelling errors in cluster.yml: words close to ones that Slurm or NVIDIA know. Warnings only.

slurmctld reports unknown keys only when it starts; a GPU type can be any word, so jobs would request it in vain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import PurePosixPath

from deepopsctl.errors import Problem
from deepopsctl.gpus.models import MODELS
from deepopsctl.model.cluster import Cluster, Gpus
from deepopsctl.model.storage import NETWORKED
from deepopsctl.slurm.releases import NODE_KEY_NAMES, PARTITION_KEY_NAMES
from deepopsctl.text.node_sets import fold_in_order, shorten
from deepopsctl.text.values import OWNED_NODE_KEYS, OWNED_PARTITION_KEYS

_WHERE = "cluster.yml"
_NEAR = 0.75
# in addition to slurm.releases: attributes that only some of Slurm 22.05 to 26.05 know (slurm.conf(5))
_MORE_NODE_KEYS = ("Parameters", "RestrictedCoresPerGPU", "Topology")
_MORE_PARTITION_KEYS = (
    "ExclusiveTopo", "JobDefaults", "MaxCPUsPerSocket", "PowerDownOnIdle", "Priority", "Shared", "Topology",
)  # fmt: skip
# letters that look like digits
_LOOKALIKES = str.maketrans("oil", "011")


def misspelt_values(cluster: Cluster) -> Iterator[Problem]:
    """Keys of `slurm` and `options`, and GPU types, close to known ones; each once, with the nodes or partitions."""
    known = _settable((*NODE_KEY_NAMES, *_MORE_NODE_KEYS), OWNED_NODE_KEYS)
    node_keys = _having((key, node.name) for node in cluster.nodes for key in node.slurm)
    for key, names in node_keys.items():
        yield from _problem(f"slurm: {key} of {names}", _near_key(key, known), "key of a node in slurm.conf")
    known = _settable((*PARTITION_KEY_NAMES, *_MORE_PARTITION_KEYS), OWNED_PARTITION_KEYS)
    partition_keys = _having((key, each.name) for each in cluster.partitions for key in each.options)
    for key, names in partition_keys.items():
        near = _near_key(key, known)
        yield from _problem(f"options: {key} of {names}", near, "key of a partition in slurm.conf")
    types = _having((gpu_type, node.name) for node in cluster.nodes for gpu_type in _types(node.gpus))
    for gpu_type, names in types.items():
        yield from _problem(f"gpus: {gpu_type} of {names}", near_type(gpu_type), "type of GPU that deepopsctl knows")


def shared_login_home(cluster: Cluster) -> Iterator[Problem]:
    """Storage that would hold the usual home of the user that deploys: users who write there are root on every node."""
    user = cluster.access.user or "the user that deploys"
    home = PurePosixPath("/home", cluster.access.user or "USER")
    for mount in cluster.storage:
        if user != "root" and mount.type in NETWORKED and home.is_relative_to(mount.path):
            message = f"storage {mount.name} is mounted at {mount.path}, and {user} has root's rights on every node"
            hint = f"give {user} a home on the nodes' own disks (docs/deploy/ssh.md); `doctor` shows where it is"
            yield Problem(_WHERE, message, hint)


def near_type(gpu_type: str) -> str:
    """The known GPU type that was probably meant; '' for a known type or a site's own name."""
    word = gpu_type.lower()
    types = sorted({word for model in MODELS for word in (model.type, model.typed_with_memory)})
    if word in types or any(word == model.detected_type for model in MODELS):
        return ""
    lookalikes = [each for each in types if each.translate(_LOOKALIKES) == word.translate(_LOOKALIKES)]
    if lookalikes:
        return lookalikes[0]
    # v100l, a100-80: a site's own name for a variant
    if any(word.startswith(each) and not word[len(each)].isdigit() for each in types):
        return ""
    return next(iter(get_close_matches(word, types, n=1, cutoff=_NEAR)), "")


def _types(gpus: Gpus | None) -> Iterator[str]:
    if gpus:
        yield from (group.type for group in gpus.groups or (gpus,))


def _settable(names: Iterable[str], owned: Iterable[str]) -> Mapping[str, str]:
    """Spellings by key in lower case, without those that deepopsctl writes itself."""
    return {name.lower(): name for name in names if name.lower() not in owned}


def _near_key(key: str, spellings: Mapping[str, str]) -> str:
    if key.lower() in spellings:
        return ""
    return next((spellings[near] for near in get_close_matches(key.lower(), spellings, n=1, cutoff=_NEAR)), "")


def _having(pairs: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    names_by_key: dict[str, list[str]] = {}
    for key, name in pairs:
        names_by_key.setdefault(key, []).append(name)
    return {key: shorten(fold_in_order(names), 60) for key, names in names_by_key.items()}


def _problem(what: str, near: str, known: str) -> Iterator[Problem]:
    if near:
        yield Problem(_WHERE, f"{what} is not a {known}", f"did you mean {near}?")
