"""Makes the Python package `deepopsctl` importable: the installed one, else the copy that the collection has."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("deepopsctl") is None:
    # last: nothing else of the collection takes the place of another module
    sys.path.append(str(Path(__file__).resolve().parents[2]))
