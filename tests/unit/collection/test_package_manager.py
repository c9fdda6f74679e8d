"""One seam for packages: what names apt or dpkg outside of module_utils/node/packages*.py is listed here, with why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

SEAM = ROOT / "plugins" / "module_utils" / "node"
# its commands, files and directories; what a message or a docstring says about apt is for people
NAMED = re.compile(r"(apt|dpkg)(-[a-z]+)?|/(etc|var/lib|var/cache)/(apt|dpkg)(/.*)?")
# Shorten this list; a new entry needs a reason.
ALLOWED = {
    "plugins/filter/storage.py": "the file that a role's module writes, for doctor",
    "deepopsctl/doctor/single_node.py": "the manager's name in doctor's answer",
    "deepopsctl/storage/values.py": "directories that no file system may hide",
    "deepopsctl/monitoring/collectors.py": "the keys whose end is watched",
    "deepopsctl/node_programs/operations/node_doctor/packages.py": "the manager's name in doctor's answer",
    "deepopsctl/node_programs/operations/node_doctor/restarts.py": "where hooks of a site may be",
    "deepopsctl/node_programs/operations/slurm_upgrade/transaction.py": "Slurm's own transaction: fetch, try, dpkg -i",
    # these run on no node of a cluster: they build packages, images and repositories of packages
    "deepopsctl/lab/image.py": "machines of the lab",
    "deepopsctl/lifecycle/build_host.py": "builds packages",
    "deepopsctl/lifecycle/package_files.py": "reads files of packages on the control machine",
    "deepopsctl/lifecycle/package_build.py": "builds packages",
    "deepopsctl/lifecycle/package_repository.py": "makes a repository",
    "deepopsctl/lifecycle/package_sources.py": "builds packages",
}


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _named_in(path: Path) -> bool:
    source = path.read_text(encoding="utf-8")
    return bool(NAMED.search(source)) and any(NAMED.fullmatch(text) for text in _texts(ast.parse(source)))


def test_only_the_seam_and_those_listed_name_the_package_manager() -> None:
    files = [path for part in ("plugins", "deepopsctl") for path in (ROOT / part).rglob("*.py")]
    outside = [
        path for path in files if not path.resolve().is_relative_to(SEAM) or "packages" not in path.resolve().name
    ]

    named = {path.relative_to(ROOT).as_posix() for path in outside if "_content" not in path.parts and _named_in(path)}

    assert named - ALLOWED.keys() == set()
    assert ALLOWED.keys() - named == set()
