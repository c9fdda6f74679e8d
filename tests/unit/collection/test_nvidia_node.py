"""What a node says of its GPUs, on trees like those of /sys and /proc; and how a repository's key is told."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared.node_states import is_empty_and_drained
from tests.support import node_modules as nodeside
from tests.support.files import write_files

packages_query = nodeside.load("node.packages_query")
nvidia_node = nodeside.load("nvidia.facts")
openpgp = nodeside.load("node.openpgp")

# made by gpg for this test; its fingerprint is gpg's word
KEY = """\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawIj1RYJKwYBBAHaRw8BAQdAM5bNtSWIrpE88Jo9/1naxGDEfY2GGdIgAfNY
JAq9JI60F1Rlc3QgPHRlc3RAZXhhbXBsZS5jb20+iJAEExYIADgWIQTbhJ7+qZwn
L6k8tQlmESMArD4/PwUCawIj1QIbAwULCQgHAgYVCgkICwIEFgIDAQIeAQIXgAAK
CRBmESMArD4/P/KdAP9BgsWjNA6yzgZ9w4am7bUNtzJGNIiL5PwgWsIHBPHQzwD/
Uw/U+V0FZBxmRV6UHrXt9qmXh/cSVcoFoCsAPw+cpgQ=
=TAyt
-----END PGP PUBLIC KEY BLOCK-----
"""
FINGERPRINT = "DB849EFEA99C272FA93CB50966112300AC3E3F3F"


def device(root: Path, address: str, vendor: str, kind: str, number: str) -> None:
    """One device of the PCI bus."""
    texts = {"vendor": vendor, "class": kind, "device": number}
    write_files(root / "sys/bus/pci/devices" / address, {name: f"{text}\n" for name, text in texts.items()})


def test_an_empty_node_has_nothing_of_nvidia(tmp_path: Path) -> None:
    assert nvidia_node.devices(tmp_path) == {"gpus": [], "nvswitches": 0}
    assert nvidia_node.loaded(tmp_path) == {"version": "", "open": False}
    assert nvidia_node.library_version(tmp_path) == nvidia_node.run_installer(tmp_path) == ""
    assert nvidia_node.secure_boot(tmp_path) is False


def test_finds_gpus_and_nvswitches_and_nothing_else(tmp_path: Path) -> None:
    device(tmp_path, "0000:1b:00.0", "0x10de", "0x030200", "0x2330")
    device(tmp_path, "0009:01:00.0", "0x10de", "0x030000", "0x2684")
    device(tmp_path, "0009:01:00.1", "0x10de", "0x040300", "0x22ba")
    device(tmp_path, "0000:05:00.0", "0x10de", "0x068000", "0x22a3")
    device(tmp_path, "0000:02:00.0", "0x1a03", "0x030000", "0x2000")

    assert nvidia_node.devices(tmp_path) == {
        "gpus": [{"address": "0000:1b:00.0", "device": "0x2330"}, {"address": "0009:01:00.0", "device": "0x2684"}],
        "nvswitches": 1,
    }


def test_tells_the_running_driver_and_its_flavour(tmp_path: Path) -> None:
    banner = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05\n"
    write_files(tmp_path, {"sys/module/nvidia/version": "580.95.05\n", "proc/driver/nvidia/version": banner})

    assert nvidia_node.loaded(tmp_path) == {"version": "580.95.05", "open": True}


@pytest.mark.parametrize("place", ["usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current"])
def test_the_user_space_is_as_old_as_its_library(tmp_path: Path, place: str) -> None:
    write_files(tmp_path / place, {"libnvidia-ml.so.1": "", "libnvidia-ml.so.550.163.01": ""})

    assert nvidia_node.library_version(tmp_path) == "550.163.01"


@pytest.mark.parametrize(("value", "on"), [(b"\x06\x00\x00\x00\x01", True), (b"\x06\x00\x00\x00\x00", False)])
def test_reads_secure_boot_from_the_firmware(tmp_path: Path, value: bytes, on: bool) -> None:
    path = tmp_path / nvidia_node.SECURE_BOOT
    path.parent.mkdir(parents=True)
    path.write_bytes(value)

    assert nvidia_node.secure_boot(tmp_path) is on


def test_an_uninstaller_that_no_package_owns_is_the_run_installers(tmp_path: Path) -> None:
    write_files(tmp_path, {"usr/bin/nvidia-uninstall": ""})

    assert nvidia_node.run_installer(tmp_path) == "/usr/bin/nvidia-uninstall"


def test_a_driver_is_all_of_nvidias_packages_of_one_version_whatever_their_revision() -> None:
    installed = """\
libcuda1 install installed 550.163.01-2
libnvidia-ml1 install installed 550.163.01-2
nvidia-persistenced install installed 550.163.01-1
nvidia-support install installed 20240109+1
nvidia-container-toolkit install installed 1.17.8-1
linux-headers-amd64 install installed 6.12.107-1
nvidia-settings deinstall config-files 550.163.01-1
"""
    states = packages_query.states_in(installed)
    there = {name: state.version for name, state in states.items() if state.status == "installed"}

    assert nvidia_node.driver_packages(there, ["libcuda1", "linux-headers-amd64", "nvidia-smi"]) == [
        "libcuda1", "libnvidia-ml1", "nvidia-persistenced",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "drained"),
    [
        ("IDLE+DRAIN", True),
        ("DOWN+DRAIN", True),
        ("DOWN+COMPLETING+DRAIN", False),
        ("DOWN*+DRAIN", False),
        ("DOWN+DRAIN*", False),
        ("DOWN", False),
        ("IDLE+DRAIN*", True),
        ("IDLE", False),
        ("MIXED+DRAIN", False),
        ("ALLOCATED+DRAIN", False),
        ("IDLE+COMPLETING+DRAIN", False),
    ],
)
def test_only_a_drained_node_without_jobs_may_be_rebooted(state: str, drained: bool) -> None:
    assert is_empty_and_drained(state) is drained


class TestFingerprint:
    def test_is_gpgs_of_a_key_in_armour_and_of_one_without(self) -> None:
        raw = base64.b64decode("".join(KEY.splitlines()[2:-2]))

        assert openpgp.fingerprints(KEY.encode()) == [FINGERPRINT]
        assert openpgp.fingerprints(raw + raw) == [FINGERPRINT, FINGERPRINT]
        assert openpgp.fingerprints(raw[:20] + bytes([raw[20] ^ 1]) + raw[21:]) != [FINGERPRINT]

    @pytest.mark.parametrize(
        "data",
        [
            b"<html>blocked by policy</html>",
            KEY.encode()[:200],
            (KEY + KEY).encode(),
            KEY.replace("mDME", "!!!!").encode(),
            openpgp.dearmored(KEY.encode())[:40],
        ],
    )
    def test_what_is_no_whole_key_is_refused(self, data: bytes) -> None:
        with pytest.raises(ValueError, match=r"^it"):
            openpgp.fingerprints(data)
