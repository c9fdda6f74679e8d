"""The node image: one per Debian release, built once with mmdebstrap and stored in podman."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from deepopsctl.errors import ControlMachineError, DeepOpsError, InputError
from deepopsctl.lab.podman import INSTALL_HINT, last_words, podman, podman_json, podman_succeeds
from deepopsctl.lab.rootfs import FILES, FINISH, INIT_PATH, write_rootfs

Notify = Callable[[str], None]

REPOSITORY = "localhost/deepopsctl-lab"
LABEL = "deepopsctl.lab.image"
APT_SOURCES = ("apt-get", "indextargets", "--format", "$(REPO_URI)")
CODENAMES = {"debian12": "bookworm", "debian13": "trixie", "sid": "sid"}
# mmdebstrap's output that shows its progress.
TELLING = tuple(
    f"I: {word}" for word in ("running apt-get", "downloading", "extracting", "installing", "creating", "building:")
)
PACKAGES = (
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "python3",
    "sudo",
    "iproute2",
    "iputils-ping",
    "ca-certificates",
    "kmod",
    "procps",
)
# sid's openssh-server comes without it
ALSO = {"sid": ("openssh-client",)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything the content of an image depends on."""

    os: str
    suite: str
    mirror: str

    @classmethod
    def for_os(cls, os: str, mirror: str = "") -> Recipe:
        """The recipe of one of the lab's systems; without a mirror, from mmdebstrap's own choice."""
        if os not in CODENAMES:
            raise InputError.single("--os", f"no lab system is called {os!r}", f"choose from {', '.join(CODENAMES)}")
        return cls(os, CODENAMES[os], mirror)

    @property
    def reference(self) -> str:
        """The image's name. Another recipe has another name: a cached image is always the right one."""
        digest = hashlib.sha256()
        for part in (*self.mmdebstrap_argv(Path("/files"), Path("/root.tar")), repr(sorted(FILES.items()))):
            digest.update(part.encode() + b"\0")
        return f"{REPOSITORY}:{self.os}-{digest.hexdigest()[:12]}"

    def mmdebstrap_argv(self, files: Path, tarball: Path) -> tuple[str, ...]:
        """Build the root file system: packages, files from the directory `files`, then FINISH."""
        return (
            "mmdebstrap",
            "--variant=minbase",
            f"--include={','.join((*PACKAGES, *ALSO.get(self.suite, ())))}",
            # lists and cache are kept: the first `apt-get install` on a node needs no `apt-get update`
            "--skip=cleanup/apt",
            "--dpkgopt=force-unsafe-io",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            # unstable's signed index expires within days and mirrors may lag
            *(('--aptopt=Acquire::Check-Valid-Until "false"',) if self.suite == "sid" else ()),
            f"--customize-hook=sync-in {files} /",
            f'--customize-hook=chroot "$1" /bin/sh -c {_quoted(FINISH)}',
            self.suite,
            str(tarball),
            *((self.mirror,) if self.mirror else ()),
        )


def own_mirror(label: str = "Debian") -> str:
    """The mirror of Debian that this machine itself uses; '' where it has none (then mmdebstrap knows one).

    `label` is that of the archive: `Debian`, or `Debian-Security`.
    """
    try:
        uris = subprocess.run(
            [*APT_SOURCES, "Created-By: Packages", "Origin: Debian", f"Label: {label}"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
    except OSError:
        return ""
    return uris[0].rstrip("/") if uris else ""


def ensure_image(recipe: Recipe, notify: Notify) -> str:
    """The image's name; built first unless it is there."""
    if not podman_succeeds("image", "exists", recipe.reference):
        build_image(recipe, notify)
    return recipe.reference


def build_image(recipe: Recipe, notify: Notify) -> None:
    """Build the image, replacing an existing one."""
    if not shutil.which("mmdebstrap"):
        raise ControlMachineError("mmdebstrap is not installed on this machine", INSTALL_HINT)
    notify(f"building the {recipe.os} node image, once for all labs (half a minute or more)")
    with tempfile.TemporaryDirectory(prefix="deepopsctl-lab-") as scratch:
        files, tarball = Path(scratch, "files"), Path(scratch, "root.tar")
        write_rootfs(files, FILES)
        run_mmdebstrap(recipe.mmdebstrap_argv(files, tarball), notify)
        notify("storing the image")
        changes = (f'--change=CMD ["/{INIT_PATH}"]', f"--change=LABEL {LABEL}={recipe.os}")
        podman("import", *changes, str(tarball), recipe.reference, timeout_s=300)
    remove_images(f"label={LABEL}={recipe.os}", excluded=recipe.reference)


def remove_images(chosen: str = f"label={LABEL}", excluded: str = "") -> tuple[list[str], list[str]]:
    """Remove node images, all or those of a podman filter; returns those removed and those still in use."""
    images = podman_json("images", "--filter", chosen, "--format", "json")
    removed: list[str] = []
    in_use: list[str] = []
    for image in images if isinstance(images, list) else []:
        for name in image.get("Names") or [image["Id"]]:
            if name != excluded:
                (removed if podman_succeeds("rmi", str(name)) else in_use).append(str(name))
    return removed, in_use


def run_mmdebstrap(
    argv: tuple[str, ...],
    notify: Notify,
    output: Notify | None = None,
    stdin: IO[bytes] | None = None,
    stdout: IO[bytes] | None = None,
) -> None:
    """Run mmdebstrap; on Ctrl-C it cleans up. `output` gets every line of it and of what it runs.

    With `stdin` and `stdout` it runs on another machine: they are its data, and its lines are on stderr.
    """
    tail: deque[str] = deque(maxlen=30)
    # An own session, as in podman.py: on Ctrl-C it is ended in order and removes its temporary tree.
    process = subprocess.Popen(
        argv,
        stdin=stdin or subprocess.DEVNULL,
        stdout=stdout or (subprocess.PIPE if output else subprocess.DEVNULL),
        stderr=subprocess.STDOUT if output and not stdout else subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        # the time that all files made here get; rootfs.FINISH needs to know it
        env={**os.environ, "SOURCE_DATE_EPOCH": str(int(time.time()))},
    )
    try:
        for line in process.stdout or process.stderr or ():
            tail.append(line.rstrip())
            if output:
                output(tail[-1])
            if line.startswith(TELLING):
                notify(f"  {line[3:].rstrip()}")
        code = process.wait()
    finally:
        if process.poll() is None:
            # the whole group, as a terminal would: alone, mmdebstrap waits for what it has begun
            os.killpg(process.pid, signal.SIGINT)
            process.wait(timeout=60)
    if code != 0:
        errors = [line for line in tail if line.startswith(("E:", "W:", "Err:"))]
        raise DeepOpsError(
            f"mmdebstrap failed: {last_words(chr(10).join(errors or tail))}",
            "the package mirror must be reachable and the package debian-archive-keyring installed",
        )


def _quoted(script: str) -> str:
    return "'" + script.replace("'", "'\\''") + "'"
