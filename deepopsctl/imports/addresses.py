"""`init --addresses FILE`: addresses for a node list without them."""

from __future__ import annotations

from pathlib import Path

from deepopsctl.cluster.builder import Draft
from deepopsctl.imports.detect import Form, detect
from deepopsctl.imports.plain_lists import addresses_by_name
from deepopsctl.imports.read import read_nodes
from deepopsctl.text.problems import Problems
from deepopsctl.text.source import read_source


def add_addresses(draft: Draft, path: Path | None) -> None:
    """Set missing addresses from a hosts file or another node list."""
    if path is None:
        return
    known = _addresses(path, draft.problems)
    for node in draft.nodes.values():
        node.address = node.address or known.get(node.name.lower(), "")
    missing = [node.name for node in draft.nodes.values() if not node.address]
    if missing and known and len(missing) == len(draft.nodes):
        draft.problems.add(str(path), "has no address of any node of this cluster", "compare the names in both files")


def _addresses(path: Path, problems: Problems) -> dict[str, str]:
    text = None if path.is_dir() else read_source(path, str(path), Problems())
    if text is not None and detect(text) is Form.HOSTS_FILE:
        return addresses_by_name(text)
    listed = read_nodes(path, None, problems)
    return {name: node.address for name, node in listed.nodes.items() if node.address}
