"""What a machine's podman and kernel need of the lab: decided from recorded facts."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from deepopsctl.errors import ControlMachineError, ExitCode
from deepopsctl.lab.podman import (
    OwnProcess,
    PodmanError,
    PodmanHost,
    check_room,
    decide,
    last_words,
    parse_capabilities,
    parse_info,
)

ALL_CAPABILITIES = (1 << 41) - 1
SYS_RESOURCE = 1 << 24
NET_RAW = 1 << 13
ROOT = OwnProcess(nofile=1_048_576, nproc=-1, capabilities=ALL_CAPABILITIES)
CONFINED = OwnProcess(nofile=20_000, nproc=96_365, capabilities=ALL_CAPABILITIES & ~SYS_RESOURCE)


def recorded(version: str, runtime: str, cgroups: str) -> PodmanHost:
    """What is read of the answers of Debian 12's and 13's podman."""
    host = {"cgroupVersion": cgroups, "ociRuntime": {"name": runtime}, "security": {"rootless": False}}
    return parse_info({"host": host, "version": {"Version": version}})


@pytest.fixture
def hybrid() -> PodmanHost:
    return recorded("4.3.1", "runc", "v1")


@pytest.fixture
def modern() -> PodmanHost:
    return recorded("5.4.2", "crun", "v2")


def test_reads_what_podman_4_and_5_say_of_their_machines(hybrid: PodmanHost, modern: PodmanHost) -> None:
    assert modern == PodmanHost(version=(5, 4), runtime="crun", cgroups="v2", rootless=False)
    assert hybrid == PodmanHost(version=(4, 3), runtime="runc", cgroups="v1", rootless=False)


def test_info_without_the_expected_fields_is_an_error_that_names_the_field() -> None:
    with pytest.raises(PodmanError, match="ociRuntime"):
        parse_info({"host": {"security": {}}, "version": {"Version": "9.0.0"}})


def test_podmans_own_runtime_is_used_where_it_serves(hybrid: PodmanHost, modern: PodmanHost) -> None:
    assert decide(hybrid, ROOT, runc_installed=True).global_options == ()
    assert decide(modern, ROOT, runc_installed=False).global_options == ()
    assert decide(replace(hybrid, runtime="crun"), ROOT, runc_installed=True).global_options == ("--runtime=runc",)


@pytest.mark.parametrize(
    ("machine", "message", "hint"),
    [
        ({"runtime": "crun"}, "crun", "apt-get install --no-install-recommends podman runc"),
        ({"rootless": True}, "as root", "sudo deepopsctl lab up"),
        ({"version": (3, 4)}, "podman 3.4 is too old", ""),
    ],
    ids=["crun alone on cgroup v1", "rootless", "podman 3"],
)
def test_a_podman_that_cannot_run_a_lab_is_refused_with_the_way_out(
    hybrid: PodmanHost, machine: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(ControlMachineError, match=re.escape(message)) as caught:
        decide(replace(hybrid, **machine), ROOT, runc_installed=False)
    assert caught.value.exit_code == ExitCode.CONTROL_MACHINE
    assert hint in caught.value.hint


def test_the_cgroup_tree_is_opened_and_nothing_else_is_unmasked(hybrid: PodmanHost) -> None:
    options = decide(hybrid, ROOT, runc_installed=True).run_options
    assert "--cap-add=SYS_ADMIN" in options
    assert "--security-opt=unmask=/sys/fs/cgroup" in options
    assert not any("seccomp" in option or "privileged" in option for option in options)


def test_nodes_get_what_device_programs_and_private_networks_need(hybrid: PodmanHost, modern: PodmanHost) -> None:
    for host in (hybrid, modern):
        assert "--cap-add=NET_ADMIN" in decide(host, ROOT, runc_installed=True).run_options
    assert "--cgroupns=private" in decide(modern, ROOT, runc_installed=False).run_options


def test_nodes_have_fuse_where_this_machine_has_it(hybrid: PodmanHost) -> None:
    assert "--device=/dev/fuse" in decide(hybrid, replace(ROOT, fuse=True), runc_installed=True).run_options
    assert "--device=/dev/fuse" not in decide(hybrid, ROOT, runc_installed=True).run_options


@pytest.mark.parametrize(
    ("own", "limits"),
    [
        # it may raise its limits: podman's own
        (ROOT, []),
        (CONFINED, ["--ulimit=nofile=20000:20000", "--ulimit=nproc=32768:32768"]),
        # unlimited: podman's own ceiling
        (OwnProcess(-1, 4096, 0), ["--ulimit=nofile=1048576:1048576", "--ulimit=nproc=4096:4096"]),
    ],
)
def test_a_process_asks_for_no_higher_limits_than_it_may_have(
    hybrid: PodmanHost, own: OwnProcess, limits: list[str]
) -> None:
    assert [option for option in decide(hybrid, own, runc_installed=True).run_options if "ulimit" in option] == limits


def test_only_capabilities_this_process_has_are_handed_on(hybrid: PodmanHost) -> None:
    options = decide(hybrid, OwnProcess(-1, -1, SYS_RESOURCE | NET_RAW), runc_installed=True).run_options
    assert "--cap-add=NET_RAW" in options
    assert "--cap-add=SYS_PTRACE" not in options


def test_effective_capabilities_are_read_from_proc() -> None:
    status = "Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000001fffeffffff\n"
    assert not OwnProcess(0, 0, parse_capabilities(status)).may(24)
    assert OwnProcess(0, 0, parse_capabilities(status)).may(21)


def test_more_nodes_than_inotify_allows_are_refused_with_the_command_to_type() -> None:
    check_room(32, inotify_instances=128)
    with pytest.raises(ControlMachineError, match="enough for 32") as caught:
        check_room(33, inotify_instances=128)
    assert "sysctl -w fs.inotify.max_user_instances=1024" in caught.value.hint


def test_last_words_leave_out_what_has_no_bearing() -> None:
    noise = 'level=warning msg="Error validating CNI config file /etc/x"\n\nfirst\nsecond\n'
    assert last_words(noise) == "first / second"
    assert last_words("\n") == ""
