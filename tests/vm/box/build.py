"""Building a box's image once for each recipe, and storing it below $XDG_CACHE_HOME/deepopsctl/boxes."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.errors import ControlMachineError
from deepopsctl.lab.image import Notify, run_mmdebstrap
from deepopsctl.lab.rootfs import write_rootfs
from tests.vm.box.disk import make_disk, missing_tools
from tests.vm.box.recipe import BoxRecipe


@dataclass(frozen=True, slots=True)
class Image:
    """A built image; its version is the time it was built, as Vagrant can order it."""

    path: Path
    version: str


def cache_directory() -> Path:
    """Where images are stored: XDG base directory rules."""
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache_home) if cache_home.startswith("/") else Path.home() / ".cache"
    return base / "deepopsctl" / "boxes"


def image_path(recipe: BoxRecipe) -> Path:
    """Where the recipe's image is, once it is built."""
    return cache_directory() / f"{_label(recipe)}-{recipe.digest}.qcow2"


def ensure_image(recipe: BoxRecipe, notify: Notify, *, rebuild: bool = False) -> Image:
    """The recipe's image; built first unless it is there. Older ones of the same name go."""
    label, path = _label(recipe), image_path(recipe)
    directory = path.parent
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(directory / f"{label}.lock") as lock:
        if rebuild or not path.exists():
            _build(recipe, path, notify)
            _hand_over(directory, lock, path)
            for old in set(directory.glob(f"{label}-*.qcow2")) - {path}:
                # an image with extra packages has a digest more in its name
                if old.stem.removeprefix(f"{label}-").isalnum():
                    old.unlink()
        return Image(path, time.strftime("%Y%m%d.%H%M%S", time.gmtime(path.stat().st_mtime)))


def _build(recipe: BoxRecipe, path: Path, notify: Notify) -> None:
    if missing := missing_tools():
        raise ControlMachineError(f"not installed on this machine: {missing}", "`make tools-vm` installs it")
    if os.geteuid() != 0:
        raise ControlMachineError("building a box needs root: its files are root's", "`sudo scripts/make-box`")
    started = time.monotonic()
    notify(f"building the image of {recipe.name} (a minute or two)")
    # next to the result: a temporary directory in memory may be too small
    with tempfile.TemporaryDirectory(prefix=".build-", dir=path.parent) as name:
        files, root, image = (Path(name, part) for part in ("files", "root", "image.qcow2"))
        write_rootfs(files, recipe.files())
        root.mkdir()
        run_mmdebstrap(recipe.mmdebstrap_argv(files, root), notify)
        notify("  writing the disk")
        make_disk(root, image)
        image.rename(path)
    notify(f"{path}: {path.stat().st_size >> 20} MB after {time.monotonic() - started:.0f} s")


def _hand_over(*paths: Path) -> None:
    """What was built by sudo belongs to the user who typed it."""
    if owner := os.environ.get("SUDO_UID"):
        for path in paths:
            os.chown(path, int(owner), -1)


def _label(recipe: BoxRecipe) -> str:
    return recipe.name.replace("/", "-")


@contextmanager
def _locked(path: Path) -> Iterator[Path]:
    """One process builds for all; who comes meanwhile waits and finds the image there."""
    with path.open("a", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield path
