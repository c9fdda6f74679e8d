"""The examples for users as files of node_state."""

from __future__ import annotations

from typing import Any

from deepopsctl.content import content_dir


def example_files(directory: str) -> list[dict[str, str]]:
    """All scripts of examples/, in a directory of the node."""
    scripts = sorted((content_dir() / "examples").glob("*.sh"))
    return [{"path": f"{directory}/{path.name}", "content": path.read_text(encoding="utf-8")} for path in scripts]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Name -> function."""
        return {"example_files": example_files}
