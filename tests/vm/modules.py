"""NVIDIA's kernel modules for a guest, built by DKMS on this host from the guest's source and its kernel's headers.

An emulated processor takes most of an hour for them, this one a few minutes. Only the modules of a build are stored.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from deepopsctl.lab.image import CODENAMES, Notify, run_mmdebstrap
from tests.vm.box.build import cache_directory

# Debian's default for this branch. Its open modules of 550.163.01-2 do not compile for Debian 13's own kernel 6.12.107,
# where pci_resize_resource() has one argument more
PACKAGE, MODULE = "nvidia-kernel-dkms", "nvidia-current"
# dkms does with any compiler that is there, and asks for none
TOOLS = ("dkms", "gcc", "make", "libc6-dev", "kmod", "xz-utils")
BUILD = f"""set -e
{{{{ dkms add -m {MODULE} -v {{version}} &&
    dkms build -m {MODULE} -v {{version}} -k {{kernel}} -j "$(nproc)"; }}}} >/var/tmp/build.log 2>&1 || {{{{
    grep -h 'rror' /var/tmp/build.log /var/lib/dkms/{MODULE}/{{version}}/build/make.log | sed 's/^/E: /' | head -n 9 >&2
    exit 1; }}}}
mkdir /var/tmp/modules
cp /var/lib/dkms/{MODULE}/{{version}}/{{kernel}}/*/module/*.ko* /var/tmp/modules/
"""


def built_modules(
    os_name: str, kernel: str, version: str, fetch_source: Callable[[Path], None], notify: Notify
) -> Path:
    """A directory with the modules of a driver's version for a kernel; built unless they are there. Needs root.

    `fetch_source` writes a tar file with the directory of the version below the guest's /usr/src.
    """
    directory = cache_directory().with_name("modules") / kernel / version
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=directory.parent) as name:
        source = Path(name, "source.tar")
        fetch_source(source)
        run_mmdebstrap(build_argv(os_name, kernel, version, source), notify)
        shutil.move(Path(name, "modules"), directory)
    return directory


def build_argv(os_name: str, kernel: str, version: str, source: Path) -> tuple[str, ...]:
    """Make a root, build the source in it, copy the directory `modules` out of it to the source, and forget it."""
    build = shlex.quote(BUILD.format(kernel=kernel, version=version))
    return (
        "mmdebstrap",
        "--variant=minbase",
        "--format=null",
        f"--include={','.join((*TOOLS, f'linux-headers-{kernel}'))}",
        "--dpkgopt=force-unsafe-io",
        f"--customize-hook=tar-in {source} /usr/src",
        f'--customize-hook=chroot "$1" /bin/sh -c {build}',
        f"--customize-hook=copy-out /var/tmp/modules {source.parent}",
        CODENAMES[os_name],
        "/dev/null",
    )
