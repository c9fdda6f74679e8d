"""Reading what Slurm's tools print. The samples are real: Slurm 22.05 and 24.11."""

from __future__ import annotations

import pytest

from tests.support.node_modules import load

slurmtext = load("deepops_smoke.slurmtext")

NODE_24_11 = (
    "NodeName=gpu02 Arch=x86_64 CoresPerSocket=2 CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=1.93 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres=gpu:a100:2 NodeAddr=10.89.4.102 NodeHostName=gpu02 Version=24.11.5 "
    "OS=Linux 6.1.0 #1 SMP Debian 6.1.4 RealMemory=23622 AllocMem=0 FreeMem=1205 Sockets=1 Boards=1 "
    "State=IDLE+DRAIN+NOT_RESPONDING ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,night "
    "BootTime=2026-11-21T08:25:02 CfgTRES=cpu=2,mem=23622M,billing=2,gres/gpu=2 AllocTRES=cpu=1,gres/gpu=1 "
    "Reason=bad DIMM in slot 7 [root@2026-11-21T09:00:01]"
)


def test_a_value_may_hold_blanks_and_equal_signs() -> None:
    node = slurmtext.record(NODE_24_11)

    assert node["OS"] == "Linux 6.1.0 #1 SMP Debian 6.1.4"
    assert node["CfgTRES"] == "cpu=2,mem=23622M,billing=2,gres/gpu=2"
    assert node["Reason"] == "bad DIMM in slot 7 [root@2026-11-21T09:00:01]"
    assert node["Partitions"] == "gpu,night"


def test_lines_without_the_key_are_left_out() -> None:
    assert list(slurmtext.records(f"{NODE_24_11}\nSome message\n\n", "NodeName")) == ["gpu02"]


def test_the_configuration_includes_the_cgroup_section() -> None:
    text = (
        "Configuration data as of 2026-11-21T09:00:00\nTaskPlugin              = task/cgroup,task/affinity\n"
        "\nCgroup Support Configuration:\nConstrainDevices        = yes\n\nSlurmctld(primary) at ctl1 is UP\n"
    )
    config = slurmtext.config(text)

    assert config["TaskPlugin"] == "task/cgroup,task/affinity"
    assert config["ConstrainDevices"] == "yes"


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("gpu:a100:2", [("a100", 2)]),
        ("gpu:h100:8(S:0-1)", [("h100", 8)]),
        ("gpu:4", [("", 4)]),
        ("gpu", [("", 1)]),
        ("gpu:a100:2(S:0,1),gpu:v100:1,shard:8", [("a100", 2), ("v100", 1)]),
        ("craynetwork:4", []),
        ("(null)", []),
        ("", []),
    ],
)
def test_gpus_are_read_from_any_form_of_gres(gres: str, found: list[tuple[str, int]]) -> None:
    assert [tuple(entry) for entry in slurmtext.gpus(gres)] == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("02:00:00", 120),
        ("2-00:00:00", 2880),
        ("1-12", 2160),
        ("90", 90),
        ("90:30", 91),
        ("00:00:10", 1),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("", None),
    ],
)
def test_time_limits_are_read_in_every_form_slurm_takes(text: str, expected: int | None) -> None:
    assert slurmtext.minutes(text) == expected


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="tomorrow"):
        slurmtext.minutes("tomorrow")


@pytest.mark.parametrize("total", [1, 59, 120, 1440, 2881])
def test_a_time_limit_survives_the_way_there_and_back(total: int) -> None:
    assert slurmtext.minutes(slurmtext.clock(total)) == total


@pytest.mark.parametrize(("text", "expected"), [("32G", 32768), ("64000M", 64000), ("64000", 64000), ("1.5T", 1572864)])
def test_memory_is_read_in_every_unit(text: str, expected: int) -> None:
    assert slurmtext.mebibytes(text) == expected
