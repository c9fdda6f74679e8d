"""The program on nodes that answers questions: what it is made of, how it comes there and is started.

It lies below /var/lib/deepopsctl/programs under the hash of its content, so that a call has to bring nothing.
"""

from __future__ import annotations

import ast
import base64
import io
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

_UTILS = "ansible_collections.deepopsctl.cluster.plugins.module_utils"
_ENTRY = "node.questions"
# stands before its answers
MARK = "DEEPOPSCTL-ANSWER "
_PROGRAMS = "/var/lib/deepopsctl/programs"
_TIME = (2026, 1, 1, 0, 0, 0)
# the program of another release stays for another control machine
_KEPT = 3
ABSENT = 96
START = f"""
import sys
sys.path.insert(0, "{_PROGRAMS}/" + sys.argv[1])
try:
    from {_UTILS}.{_ENTRY} import main
except ModuleNotFoundError:
    sys.exit({ABSENT})
main()
"""
# whole or not at all; the second line of input has the archive, the first is for the program
INSTALL = f"""
import base64, compileall, io, os, shutil, sys, tempfile, zipfile
asked, data = sys.stdin.buffer.readline(), base64.b64decode(sys.stdin.buffer.readline())
os.makedirs("{_PROGRAMS}", 0o700, exist_ok=True)
new = tempfile.mkdtemp(dir="{_PROGRAMS}")
zipfile.ZipFile(io.BytesIO(data)).extractall(new)
compileall.compile_dir(new, quiet=2)
try:
    os.rename(new, "{_PROGRAMS}/" + sys.argv[1])
except OSError:
    shutil.rmtree(new)
old = sorted((each for each in os.scandir("{_PROGRAMS}")), key=lambda each: -each.stat().st_mtime)
for each in old[{_KEPT}:]:
    shutil.rmtree(each.path, ignore_errors=True)
sys.stdin = io.TextIOWrapper(io.BytesIO(asked))
"""


def version(content: Path) -> str:
    """The program's hash: of all that its files may be."""
    root, total = content / "plugins" / "module_utils", sha256(INSTALL.encode())
    for path in sorted(root.rglob("*.py")):
        data = path.read_bytes()
        total.update(f"{path.relative_to(root)}:{len(data)}:".encode() + data)
    return total.hexdigest()


def archive(content: Path) -> bytes:
    """The program for nodes, a line of base64."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as stream:
        for path, text in sorted(_sources(content / "plugins" / "module_utils").items()):
            stream.writestr(zipfile.ZipInfo(f"{_UTILS.replace('.', '/')}/{path}", _TIME), text, zipfile.ZIP_DEFLATED)
    return base64.b64encode(raw.getvalue()) + b"\n"


def _sources(root: Path) -> dict[str, str]:
    """The files that the answers need, by their path below module_utils."""
    texts: dict[str, str] = {}
    missing = {_ENTRY}
    while missing:
        name = missing.pop()
        path = root / f"{name.replace('.', '/')}.py"
        if not path.is_file():
            continue
        texts[path.relative_to(root).as_posix()] = text = path.read_text(encoding="utf-8")
        package = name.rpartition(".")[0]
        missing |= {each for each in _imports(text, package) if f"{each.replace('.', '/')}.py" not in texts}
    return texts


def _imports(text: str, package: str) -> Iterator[str]:
    """Names below module_utils that a file may import: modules, and what may be one."""
    for statement in ast.walk(ast.parse(text)):
        if not isinstance(statement, ast.ImportFrom):
            continue
        module = statement.module or ""
        if statement.level == 1:
            base = f"{package}.{module}".rstrip(".")
        elif module.startswith(_UTILS):
            base = module.removeprefix(_UTILS).lstrip(".")
        else:
            continue
        yield base
        yield from (f"{base}.{alias.name}" for alias in statement.names)
