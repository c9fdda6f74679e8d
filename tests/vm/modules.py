"""NVIDIA's kernel modules for a guest, built by DKMS on this host against the guest's own headers.

An emulated processor takes most of an hour for them, this one a few minutes. Only the modules of a build are stored.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path

from deepopsctl.lab.image import SUITES, Notify, run_mmdebstrap
from tests.vm.box.build import cache_directory

# Debian's default for this branch. Its open modules of 550.163.01-2 do not compile for Debian 13's own kernel 6.12.107,
# where pci_resize_resource() has one argument more
PACKAGE, MODULE = "nvidia-kernel-dkms", "nvidia-current"
# dkms does with any compiler that is there, and asks for none
TOOLS = ("gcc", "make", "libc6-dev", "kmod", "xz-utils")
BUILD = f"""set -e
version=$(ls /usr/src | sed -n 's/^{MODULE}-//p')
dkms build -m {MODULE} -v "$version" -k %s -j "$(nproc)" >/var/tmp/build.log 2>&1 || {{
    grep -h 'rror' /var/tmp/build.log /var/lib/dkms/{MODULE}/"$version"/build/make.log | sed 's/^/E: /' | head -n 9 >&2
    exit 1; }}
mkdir /var/tmp/modules
cp /var/lib/dkms/{MODULE}/"$version"/%s/*/module/*.ko* /var/tmp/modules/
"""


def built_modules(os_name: str, kernel: str, notify: Notify) -> Path:
    """A directory with the modules for a kernel of a Debian release; built unless they are there. Needs root."""
    directory = cache_directory().with_name("modules") / kernel
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=directory.parent) as name:
        run_mmdebstrap(build_argv(os_name, kernel, Path(name)), notify)
        shutil.move(Path(name, "modules"), directory)
    return directory


def build_argv(os_name: str, kernel: str, target: Path) -> tuple[str, ...]:
    """Make a root, build in it, copy the directory `modules` out of it, and forget it."""
    build = shlex.quote(BUILD % (kernel, kernel))
    return (
        "mmdebstrap",
        "--variant=minbase",
        "--format=null",
        "--components=main,contrib,non-free,non-free-firmware",
        f"--include={','.join((*TOOLS, f'linux-headers-{kernel}', PACKAGE))}",
        "--dpkgopt=force-unsafe-io",
        # the packages would build for every kernel whose headers they see
        '--essential-hook=mkdir -p "$1/etc/dkms" && touch "$1/etc/dkms/no-autoinstall"',
        f'--customize-hook=chroot "$1" /bin/sh -c {build}',
        f"--customize-hook=copy-out /var/tmp/modules {target}",
        SUITES[os_name],
        "/dev/null",
    )
