"""What a node makes of apt's simulation, which packages it leaves alone, and why it has to reboot."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_files

packages_upgrade = nodeside.load("node.packages_upgrade")

SIMULATED = """\
Reading package lists...
Calculating upgrade...
The following packages have been kept back:
  htop vim-common
  vim-tiny
The following NEW packages will be installed:
  linux-image-6.12.48+deb13-amd64
The following packages will be upgraded:
  libc6 linux-image-amd64
2 upgraded, 1 newly installed, 0 to remove and 3 not upgraded.
Inst libc6 [2.41-12] (2.41-12+deb13u1 Debian:13.3/stable [amd64])
Conf libc6 (2.41-12+deb13u1 Debian:13.3/stable [amd64])
Inst linux-image-6.12.48+deb13-amd64 (6.12.48-1 Debian:13.3/stable [amd64])
Inst linux-image-amd64 [6.12.41-1] (6.12.48-1 Debian:13.3/stable [amd64]) []
"""


def test_the_simulation_is_read() -> None:
    assert packages_upgrade.upgrades_in(SIMULATED) == {
        "libc6": ["2.41-12", "2.41-12+deb13u1"],
        "linux-image-6.12.48+deb13-amd64": ["", "6.12.48-1"],
        "linux-image-amd64": ["6.12.41-1", "6.12.48-1"],
    }
    assert packages_upgrade.kept_back_in(SIMULATED) == ["htop", "vim-common", "vim-tiny"]
    assert packages_upgrade.kept_back_in("0 upgraded") == []


def test_packages_that_stay_come_before_what_the_site_prefers() -> None:
    own = "Package: *\nPin: release o=Site\nPin-Priority: 1001\n"

    assert packages_upgrade.pins(["slurm*", "libslurm*"], own) == (
        f"Package: slurm* libslurm*\nPin: release *\nPin-Priority: -1\n\n{own}"
    )
    assert packages_upgrade.pins([], own) == own


def test_a_new_kernel_is_an_image_with_a_version() -> None:
    assert packages_upgrade.new_kernel(packages_upgrade.upgrades_in(SIMULATED)) == "6.12.48+deb13-amd64"
    assert packages_upgrade.new_kernel({"linux-image-amd64": [], "linux-image-6.1.0-9-amd64-dbg": []}) == ""


@pytest.mark.parametrize(
    ("releases", "newest"),
    [
        (["6.12.9+deb13-amd64", "6.12.41+deb13-amd64"], "6.12.41+deb13-amd64"),
        (["6.1.0-9-amd64", "6.1.0-40-amd64", "5.10.0-99-amd64"], "6.1.0-40-amd64"),
        (["5.15.0-100-generic", "5.15.0-99-generic"], "5.15.0-100-generic"),
        ([], ""),
    ],
)
def test_kernels_are_compared_by_their_numbers(releases: list[str], newest: str) -> None:
    assert packages_upgrade.newest(releases) == newest


def test_a_kernel_that_came_after_the_boot_needs_a_reboot_and_one_that_was_passed_over_none(tmp_path: Path) -> None:
    write_files(tmp_path, {"boot/vmlinuz-6.12.48-amd64": ""})
    before, after = time.time() - 60, time.time() + 60

    assert packages_upgrade.kernel_since(before, "6.12.41-amd64", str(tmp_path)) == "6.12.48-amd64"
    assert packages_upgrade.kernel_since(after, "6.12.41-amd64", str(tmp_path)) == ""
    assert packages_upgrade.kernel_since(before, "6.12.48-amd64", str(tmp_path)) == ""
    assert packages_upgrade.kernel_since(before, "6.13.0-amd64", str(tmp_path)) == ""
    assert packages_upgrade.installed_kernel(str(tmp_path)) == "6.12.48-amd64"


def test_this_system_has_started_in_the_past() -> None:
    assert 0 < packages_upgrade.boot_time() <= time.time() + 1


def process(root: Path, pid: int, cgroup: str, mapped: str) -> None:
    maps = f"7f00-7f01 r-xp 00000000 08:01 42   {mapped}\n"
    write_files(root / str(pid), {"cgroup": f"0::{cgroup}\n", "maps": maps})


def test_services_that_use_a_replaced_library_are_named_and_users_sessions_are_not(tmp_path: Path) -> None:
    library = "/usr/lib/x86_64-linux-gnu/libssl.so.3"
    process(tmp_path, 1, "/init.scope", "/usr/lib/x86_64-linux-gnu/libc.so.6")
    process(tmp_path, 2, "/system.slice/ssh.service", f"{library} (deleted)")
    process(tmp_path, 3, "/user.slice/user-1000.slice/session-1.scope", f"{library} (deleted)")
    process(tmp_path, 4, "/system.slice/x.service", "/tmp/libssl.so.3 (deleted)")
    process(tmp_path, 5, "/system.slice/y.service", "/memfd:lib.so (deleted)")
    # one that ends meanwhile
    (tmp_path / "6").mkdir()

    assert packages_upgrade.replaced_libraries(str(tmp_path)) == {"ssh.service": library}


def test_new_versions_of_edited_files_are_named_where_this_call_left_them(tmp_path: Path) -> None:
    for name in ("a.conf", "a.conf.dpkg-dist", "b.conf.ucf-dist", "c.conf.dpkg-old"):
        (tmp_path / name).touch()

    assert [Path(path).name for path in packages_upgrade.left_behind(time.time() - 60, str(tmp_path))] == [
        "a.conf.dpkg-dist",
        "b.conf.ucf-dist",
    ]
    assert packages_upgrade.left_behind(time.time() + 60, str(tmp_path)) == []
