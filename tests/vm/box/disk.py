"""From a directory to a disk that boots: partition table, GRUB, ext4. Plain files only: no loop device, no mount."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from deepopsctl.errors import ControlMachineError, DeepOpsError
from deepopsctl.lab.podman import last_words
from tests.vm.box.rootfs import FILE_SYSTEM_LABEL

SECTOR = 512
SIZE_GIB = 20
FIRST_SECTOR = 2048
# part of the box's hash: raise the number when this module writes disks in another way
LAYOUT = f"1 {SIZE_GIB} {FIRST_SECTOR}"
TOOLS = ("mmdebstrap", "mke2fs", "qemu-img")

LINUX, BOOTABLE, SIGNATURE = 0x83, 0x80, b"\x55\xaa"
# Places in GRUB's boot.img that grub-install would fill in: where core.img begins, which drive it is on (0xff: the
# one the BIOS booted from), and two bytes that it turns into no-ops for BIOSes that pass a wrong drive number.
BOOT_CODE, KERNEL_SECTOR, BOOT_DRIVE, DRIVE_CHECK = 440, 0x5C, 0x64, 0x66
# The list of sectors at the end of core.img's first one: the rest of core.img follows it.
BLOCK_LIST = 0x1F4


def missing_tools() -> str:
    """The tools that are not installed, as words; '' where all are."""
    return ", ".join(tool for tool in TOOLS if not shutil.which(tool))


def make_disk(root: Path, image: Path) -> None:
    """Write the system in the directory `root` to `image`, a compressed qcow2."""
    raw = image.with_suffix(".raw")
    try:
        with raw.open("wb") as handle:
            handle.truncate(SIZE_GIB << 30)
            handle.write(boot_sectors(*((root / "boot/grub" / name).read_bytes() for name in ("boot.img", "core.img"))))
        start = FIRST_SECTOR * SECTOR
        kib = ((SIZE_GIB << 30) - start) >> 10
        layout = ("-t", "ext4", "-L", FILE_SYSTEM_LABEL, "-E", f"offset={start},root_owner=0:0", "-J", "size=64")
        _run("mke2fs", "-q", "-F", *layout, "-d", str(root), str(raw), f"{kib}k")
        _run("qemu-img", "convert", "-O", "qcow2", "-c", "-o", "compression_type=zstd", str(raw), str(image))
    finally:
        raw.unlink(missing_ok=True)


def boot_sectors(boot: bytes, core: bytes) -> bytes:
    """All that lies before the partition: the boot sector with its table, then core.img."""
    if len(core) > (FIRST_SECTOR - 1) * SECTOR:
        raise DeepOpsError(f"GRUB's core.img has {len(core)} bytes, too many for the gap before the partition")
    first, second = bytearray(boot[:SECTOR]), bytearray(core)
    first[BOOT_CODE:] = bytes(SECTOR - BOOT_CODE)
    struct.pack_into("<Q", first, KERNEL_SECTOR, 1)
    first[BOOT_DRIVE] = 0xFF
    first[DRIVE_CHECK : DRIVE_CHECK + 2] = b"\x90\x90"
    sectors = (SIZE_GIB << 30) // SECTOR - FIRST_SECTOR
    # addresses by head and cylinder are of another age: the largest there are
    struct.pack_into("<B3sB3sII", first, 446, BOOTABLE, b"\xfe\xff\xff", LINUX, b"\xfe\xff\xff", FIRST_SECTOR, sectors)
    first[510:] = SIGNATURE
    struct.pack_into("<Q", second, BLOCK_LIST, 2)
    return bytes(first + second)


def _run(*argv: str) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as err:
        raise ControlMachineError(f"{argv[0]} is not installed on this machine", "`make tools-vm` installs it") from err
    if done.returncode != 0:
        raise DeepOpsError(f"{argv[0]} failed: {last_words(done.stderr or done.stdout)}")
