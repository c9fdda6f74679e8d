"""What a box consists of, and the name that follows from it."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass
from pathlib import Path

from deepopsctl.lab import image
from deepopsctl.lab.rootfs import RootFile
from tests.vm.box import disk, rootfs

# QEMU 7.2's emulation lies about two features that trixie's kernel uses: five-level page tables hang the boot, and
# with cmpxchg16b the allocator takes wrong branches. Without emulation the options cost nothing worth measuring.
KERNEL_OPTIONS = {"debian12": "mitigations=off", "debian13": "mitigations=off no5lvl clearcpuid=cx16"}
SYSTEMS = tuple(KERNEL_OPTIONS)
PACKAGES = (
    *image.PACKAGES,
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "zstd",
    "grub-pc-bin",
    "grub-common",
    "udev",
    "systemd-resolved",
    "netbase",
    "e2fsprogs",
)


@dataclass(frozen=True, slots=True)
class BoxRecipe:
    """Everything the content of a box depends on; `extra` are packages beyond a bare machine's."""

    os: str
    mirror: str = ""
    extra: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The box's name in Vagrant. One with extra packages has another: no test uses it as a bare machine."""
        return f"deepopsctl/{self.os}" + (f"-{self.digest}" if self.extra else "")

    @property
    def digest(self) -> str:
        """Another recipe has another digest: a cached image is always the right one."""
        digest = hashlib.sha256(disk.LAYOUT.encode())
        for part in (*self.mmdebstrap_argv(Path("/files"), Path("/root")), repr(sorted(self.files().items()))):
            digest.update(part.encode() + b"\0")
        return digest.hexdigest()[:12]

    def files(self) -> dict[str, RootFile]:
        """What is laid over the packages."""
        own = {
            "boot/grub/grub.cfg": rootfs.grub_config(KERNEL_OPTIONS[self.os]),
            "etc/hostname": RootFile(0o644, f"{self.os}\n"),
        }
        return rootfs.FILES | own

    def mmdebstrap_argv(self, files: Path, root: Path) -> tuple[str, ...]:
        """Build the root file system in the directory `root`."""
        # the initramfs is made as the kernel is installed: its content must be configured before
        early = "; ".join(
            f'mkdir -p "$1/{Path(name).parent}"; printf "{text}" > "$1/{name}"' for name, text in rootfs.EARLY
        )
        user = f'chroot "$1" useradd --create-home --shell /bin/bash --groups sudo,adm {rootfs.USER}'
        return (
            "mmdebstrap",
            "--variant=minbase",
            "--format=directory",
            f"--include={','.join((*PACKAGES, *self.extra))}",
            "--skip=cleanup/apt,check/empty",
            "--dpkgopt=force-unsafe-io",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            f"--essential-hook={early}",
            f"--customize-hook={user}",
            f"--customize-hook=sync-in {files} /",
            f'--customize-hook=chroot "$1" /bin/sh -c {shlex.quote(rootfs.FINISH)}',
            image.CODENAMES[self.os],
            str(root),
            *((self.mirror,) if self.mirror else ()),
        )
