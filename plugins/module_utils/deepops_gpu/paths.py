"""Where libraries for measurements are kept on a node."""

from __future__ import annotations

import os
from typing import Any, Mapping


def home(directory: str, name: str, library: Mapping[str, Any]) -> str:
    """The directory of one library version."""
    return os.path.join(directory, "{}-{}".format(name, library["version"]))


def loaded(directory: str, libraries: Mapping[str, Any], name: str) -> str:
    """The file that is loaded; '' where the library was not asked for."""
    if name not in libraries:
        return ""
    return os.path.join(home(directory, name, libraries[name]), os.path.basename(libraries[name]["files"][0]))
