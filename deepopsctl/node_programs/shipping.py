"""Programs for nodes: a package of plain files with a launcher. A node needs nothing but Python 3.9."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

LIBRARY = "/usr/local/lib/deepopsctl"
# -I: root must not import from a user's PYTHONPATH; -B: leave no bytecode files behind
_LAUNCHER = '''#!/usr/bin/python3 -IB
"""Written by deepopsctl; the next deploy overwrites changes made here."""

import sys

sys.path.insert(0, "{library}")

from {package}.{module} import main

sys.exit(main())
'''


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """One file of a program on the node."""

    path: str
    content: str
    mode: str = "0644"


def program(package: ModuleType, launcher: str, module: str = "cli") -> tuple[ProgramFile, ...]:
    """A package of deepopsctl and its launcher: `main` of `module` returns an exit status."""
    directory = Path(str(package.__file__)).parent
    name = directory.name
    sources = sorted(directory.rglob("*.py"))
    return (
        *(
            ProgramFile(f"{LIBRARY}/{name}/{path.relative_to(directory).as_posix()}", path.read_text(encoding="utf-8"))
            for path in sources
        ),
        ProgramFile(launcher, _LAUNCHER.format(library=LIBRARY, package=name, module=module), "0755"),
    )
