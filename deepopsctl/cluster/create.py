"""Writes a cluster directory: all of it or nothing."""

from __future__ import annotations

import importlib.resources
import shutil
import tempfile
import time
from pathlib import Path

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.editor_schemas import DIRECTORY, copy_schemas
from deepopsctl.cluster.import_report import FILE_NAME, Carryover, render_report
from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.cluster.secrets import add_missing, encrypt, new_password, new_secrets
from deepopsctl.cluster.settings import site_values
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import FULL, ControlMachineError, DeepOpsError, InputError
from deepopsctl.files import naming, write_atomic
from deepopsctl.model.cluster import Cluster
from deepopsctl.text.yaml_editor import with_settings

# Files that may be in a directory before it becomes a cluster directory.
HARMLESS = frozenset({".git", ".gitattributes", ".gitignore", "README.md", "README", "LICENSE", ".DS_Store"})

# The key of the secrets, and files that can be generated again.
PRIVATE = (".vault-password", "ssh/", "runs/")


def check_target(path: Path) -> None:
    """Refuse a directory with other content; one with a cluster needs `replace_cluster`."""
    path = path.expanduser()
    unsafe = sorted(set("'\"%$\\\n") & set(str(path.resolve())))
    if unsafe:
        raise InputError.single(
            str(path), f"holds {unsafe[0]!r}, which ssh reads in its own way", "choose another path"
        )
    if ClusterDir(path).spec.exists():
        raise InputError.single(
            str(path),
            "already holds a cluster",
            "edit its cluster.yml, or replace that file by --force (secrets and settings stay)",
        )
    if path.exists() and not path.is_dir():
        raise InputError.single(str(path), "is a file", "give a directory, or one that does not exist yet")
    entries = sorted({item.name for item in path.iterdir()} - HARMLESS) if path.exists() else []
    if entries:
        raise InputError.single(
            str(path), f"is not empty: it holds {', '.join(entries[:3])}{' ...' if len(entries) > 3 else ''}",
            "give an empty directory, or one that does not exist yet",
        )  # fmt: skip


def create_cluster(path: Path, cluster: Cluster, carryover: Carryover | None = None, source: str = "") -> ClusterDir:
    """Create a cluster directory; leaves nothing behind on failure."""
    check_target(path)
    target = path.expanduser().resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
            made = ClusterDir(Path(temporary) / "new")
            made.path.mkdir()
            _complete(made, carryover)
            _write_cluster(made, cluster)
            _write_report(made, cluster, carryover, source)
            _move(made.path, target)
    except OSError as error:
        raise _unwritten(path, error, "choose another directory") from error
    return ClusterDir(target)


def replace_cluster(
    path: Path, cluster: Cluster, carryover: Carryover | None = None, source: str = ""
) -> tuple[ClusterDir, list[Path]]:
    """Replace cluster.yml and hosts.yml of a cluster directory; everything else in it stays.

    Returns the backup copies of the files that changed.
    """
    directory = ClusterDir(path.expanduser().resolve())
    if not directory.spec.exists():
        return create_cluster(path, cluster, carryover, source), []
    cluster = directory.with_people(cluster)
    if carryover is not None:
        _leave_settings(directory, carryover)
    try:
        copies = _copies(directory.spec, directory.path / FILE_NAME)
        _complete(directory)
        _write_cluster(directory, cluster)
        _write_report(directory, cluster, carryover, source)
    except OSError as error:
        raise _unwritten(path, error, "check its permissions") from error
    for path, copy in list(copies.items()):
        if copy.read_bytes() == path.read_bytes():
            copies.pop(path).unlink()
    return directory, list(copies.values())


def _copies(*paths: Path) -> dict[Path, Path]:
    """Backup copies of the existing files, in the same directory."""
    copies = {path: path.with_name(f"{path.name}.{time.strftime('%Y%m%d-%H%M%S')}") for path in paths if path.exists()}
    for path, copy in copies.items():
        with naming(copy):
            shutil.copy2(path, copy)
    return copies


def _unwritten(path: Path, error: OSError, hint: str) -> DeepOpsError:
    if error.errno in FULL:
        # the request itself is valid
        return ControlMachineError(f"{path}: can't be written: {error.strerror}", f"make room: df -h {path.parent}")
    return InputError.single(str(path), f"can't be written: {error.strerror}", hint)


def _leave_settings(directory: ClusterDir, carryover: Carryover) -> None:
    """Existing settings.yml and vault are not changed: report what would have gone into them."""
    hint = f"set it in {directory.settings.name}, or import into a new directory"
    present = site_values(directory) if carryover.direct_settings else {}
    direct = [name for name, value in carryover.direct_settings.items() if present.get(name) != value]
    for name in (*direct, *carryover.settings, *carryover.secrets):
        carryover.leave(name, str(directory.settings), "settings and secrets of an existing cluster stay", hint)
    carryover.direct_settings.clear()
    carryover.settings.clear()
    carryover.secrets.clear()


def _write_report(directory: ClusterDir, cluster: Cluster, carryover: Carryover | None, source: str) -> None:
    if carryover:
        write_atomic(directory.path / FILE_NAME, render_report(source, cluster, carryover))


def _complete(directory: ClusterDir, carryover: Carryover | None = None) -> None:
    """Create what is missing, except for the two files generated from the cluster."""
    imported = Carryover() if carryover is None else carryover
    for subdirectory, mode in (
        (directory.settings.parent, 0o755),
        (directory.inventory_dir / "host_vars", 0o755),
        (directory.path / DIRECTORY, 0o755),
        (directory.ssh_key.parent, 0o700),
        (directory.runs, 0o700),
    ):
        if not subdirectory.exists():
            subdirectory.mkdir(parents=True)
            subdirectory.chmod(mode)
    settings = importlib.resources.files("deepopsctl").joinpath("templates", "settings.yml").read_text("utf-8")
    for path, text, mode in (
        (directory.settings, with_settings(settings, {**imported.direct_settings, **imported.settings}), 0o644),
        (directory.known_hosts, "", 0o644),
        (directory.vault_password, new_password() + "\n", 0o600),
    ):
        if not path.exists():
            write_atomic(path, text, mode)
    copy_schemas(directory.path)
    _update_gitignore(directory.path)
    if not directory.secrets.exists():
        password = directory.vault_password.read_bytes().strip()
        write_atomic(directory.secrets, encrypt({**new_secrets(), **imported.secrets}, password), 0o600)
    else:
        add_missing(directory.secrets, directory.vault_password)


def _update_gitignore(directory: Path) -> None:
    """Add the private files to .gitignore; existing lines stay, in whatever encoding."""
    path = directory / ".gitignore"
    content = path.read_bytes() if path.exists() else b""
    lines = content.decode("utf-8", "replace").splitlines()
    missing = [line for line in PRIVATE if line not in lines]
    if missing:
        begin = "" if content.endswith(b"\n") or not content else "\n"
        with naming(path), path.open("a", encoding="utf-8") as stream:
            stream.write(begin + "\n".join(missing) + "\n")


def _write_cluster(directory: ClusterDir, cluster: Cluster) -> None:
    write_atomic(directory.hosts, render_inventory(cluster))
    write_atomic(directory.spec, render_spec(cluster))


def _move(made: Path, target: Path) -> None:
    """Move a finished directory to its target; cluster.yml, which makes it a cluster directory, comes last."""
    if not target.exists():
        made.chmod(0o755)
        made.rename(target)
        return
    _update_gitignore(target)
    moved: list[Path] = []
    try:
        for item in sorted(made.iterdir(), key=lambda entry: entry.name == "cluster.yml"):
            place = target / item.name
            if not place.exists():
                item.rename(place)
                moved.append(place)
    except OSError:
        for place in moved:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
        raise
