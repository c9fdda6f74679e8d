"""The playbooks and roles: where they are, and the components they define."""

from __future__ import annotations

import re
from pathlib import Path

from deepopsctl.errors import ControlMachineError

# where Ansible looks for the content, which is a collection, below a directory of `collections_path`
COLLECTION = "ansible_collections/deepopsctl/cluster"
# `import_playbook: slurm.yml`, with or without the collection's name in front
_IMPORT = re.compile(r"import_playbook:\s*[\"']?([\w/-]+)\.yml")


def content_dir(override: Path | None = None) -> Path:
    """The directory that holds playbooks/, roles/, group_vars/ and plugins/.

    An installed package carries it inside itself; in a checkout it is the root of the repository.
    """
    package = Path(__file__).resolve().parent
    candidates = [override.resolve()] if override else [package / "_content" / COLLECTION, package.parent]
    for candidate in candidates:
        if (candidate / "playbooks").is_dir():
            return candidate
    raise ControlMachineError(
        f"no playbooks in {candidates[-1]}",
        "install deepopsctl again, or set DEEPOPSCTL_CONTENT to the directory with playbooks/ and roles/",
    )


def pages(content: Path | None = None) -> dict[str, Path]:
    """The pages of the documentation by name: `operate/backup`; `llms` is the list of all for programs."""
    root = (content or content_dir()) / "docs"
    files = sorted([*root.rglob("*.md"), *root.glob("*.txt")])
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in files}


def playbook(name: str, content: Path | None = None) -> Path:
    """The path of `playbooks/<name>.yml`; `name` may have a directory in it (`validate/smoke`)."""
    path = (content or content_dir()) / "playbooks" / f"{name}.yml"
    if not path.is_file():
        raise ControlMachineError(f"{path} does not exist", "install deepopsctl again: it is incomplete")
    return path


def components(content: Path | None = None) -> tuple[str, ...]:
    """The components that can be deployed alone, in the order of playbooks/site.yml."""
    playbooks = (content or content_dir()) / "playbooks"
    names = _IMPORT.findall((playbooks / "site.yml").read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(name for name in names if (playbooks / f"{name}.yml").is_file()))
