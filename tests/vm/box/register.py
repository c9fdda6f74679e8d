"""Making a built image known to Vagrant, and removing what it replaces: from Vagrant and from libvirt's pool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from deepopsctl.errors import ControlMachineError, DeepOpsError
from deepopsctl.lab.image import Notify
from deepopsctl.lab.podman import last_words
from tests.vm.box.build import Image
from tests.vm.box.disk import SIZE_GIB

PROVIDER = "libvirt"
POOL = "default"
LIBVIRT = "qemu:///system"
METADATA = {"provider": PROVIDER, "format": "qcow2", "virtual_size": SIZE_GIB}
BOX_VAGRANTFILE = 'Vagrant.configure("2") { |config| config.vm.synced_folder ".", "/vagrant", disabled: true }\n'


def register(name: str, image: Image, notify: Notify) -> None:
    """Make `image` the one version of box `name` that Vagrant knows."""
    versions = registered_versions(name)
    if image.version not in versions:
        notify(f"adding {name} {image.version} to Vagrant's boxes")
        with tempfile.TemporaryDirectory(prefix=".box-", dir=image.path.parent) as directory:
            catalogue = _write_catalogue(Path(directory), name, image)
            _run("vagrant", "box", "add", "--provider", PROVIDER, str(catalogue))
    for old in sorted(set(versions) - {image.version}):
        remove_version(name, old, notify)


def registered_versions(name: str) -> list[str]:
    """The versions of a box that Vagrant has for libvirt."""
    if not shutil.which("vagrant"):
        raise ControlMachineError("vagrant is not installed on this machine", "`make tools-vm` installs it")
    directory = _boxes() / name.replace("/", "-VAGRANTSLASH-")
    return sorted(path.parent.name for path in directory.glob(f"*/{PROVIDER}"))


def remove_version(name: str, version: str, notify: Notify) -> None:
    """Remove a version, unless machines were made from it."""
    volume = f"{name.replace('/', '-VAGRANTSLASH-')}_vagrant_box_image_{version}_box.img"
    if volume in _backing_volumes():
        notify(f"{name} {version} stays: machines were made from it (`vagrant global-status` names them)")
        return
    notify(f"removing {name} {version}")
    _run("vagrant", "box", "remove", name, "--box-version", version, "--provider", PROVIDER, "--force")
    # Vagrant leaves its upload in libvirt's pool. It is not there where no machine was made from the box.
    _virsh("vol-delete", "--pool", POOL, volume)


def _write_catalogue(directory: Path, name: str, image: Image) -> Path:
    """A box file and the catalogue that gives it its version: a bare file would have version 0 for ever."""
    (directory / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    (directory / "Vagrantfile").write_text(BOX_VAGRANTFILE, encoding="utf-8")
    box = directory / "package.box"
    with tarfile.open(box, "w") as archive:
        for file in (directory / "metadata.json", directory / "Vagrantfile"):
            archive.add(file, file.name)
        archive.add(image.path, "box.img")
    provider = {"name": PROVIDER, "url": box.as_uri()}
    catalogue = directory / "catalogue.json"
    catalogue.write_text(
        json.dumps({"name": name, "versions": [{"version": image.version, "providers": [provider]}]}), encoding="utf-8"
    )
    return catalogue


def _backing_volumes() -> set[str]:
    """Names of the pool's volumes that disks of machines are made from."""
    volumes = set()
    for line in _virsh("vol-list", "--pool", POOL).splitlines()[2:]:
        described = _virsh("vol-dumpxml", "--pool", POOL, line.split()[0]) if line.strip() else ""
        _, _, backing = described.partition("<backingStore>")
        volumes.add(Path(backing.partition("<path>")[2].partition("</path>")[0]).name)
    return volumes


def _boxes() -> Path:
    return Path(os.environ.get("VAGRANT_HOME") or Path.home() / ".vagrant.d") / "boxes"


def _virsh(*arguments: str) -> str:
    """What virsh prints; '' where it fails, as it does without a pool or a daemon."""
    try:
        done = subprocess.run(["virsh", "--connect", LIBVIRT, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _run(*argv: str) -> None:
    # not in a project's directory: its Vagrantfile is none of this command's business
    done = subprocess.run(
        argv,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "VAGRANT_CHECKPOINT_DISABLE": "1"},
    )
    if done.returncode != 0:
        raise DeepOpsError(f"{' '.join(argv[:3])} failed: {last_words(done.stderr or done.stdout)}")
