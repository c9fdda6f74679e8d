"""Reading what Slurm's tools print. The samples are real: Slurm 22.05 and 24.11."""

from __future__ import annotations

import pytest

from deepopsctl.node_programs._shared import slurm_output
from deepopsctl.node_programs._shared.slurm_output import gpus, gpus_of_tres, tres

GIB = 1 << 30
NODE_24_11 = (
    "NodeName=gpu02 Arch=x86_64 CoresPerSocket=2 CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=1.93 AvailableFeatures=(null) "
    "ActiveFeatures=(null) Gres=gpu:a100:2 NodeAddr=10.89.4.102 NodeHostName=gpu02 Version=24.11.5 "
    "OS=Linux 6.1.0 #1 SMP Debian 6.1.4 RealMemory=23622 AllocMem=0 FreeMem=1205 Sockets=1 Boards=1 "
    "State=IDLE+DRAIN+NOT_RESPONDING ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,night "
    "BootTime=2026-11-21T08:25:02 CfgTRES=cpu=2,mem=23622M,billing=2,gres/gpu=2 AllocTRES=cpu=1,gres/gpu=1 "
    "Reason=bad DIMM in slot 7 [root@2026-11-21T09:00:01]"
)


def test_a_value_may_hold_blanks_and_equal_signs() -> None:
    node = slurm_output.record(NODE_24_11)

    assert node["OS"] == "Linux 6.1.0 #1 SMP Debian 6.1.4"
    assert node["CfgTRES"] == "cpu=2,mem=23622M,billing=2,gres/gpu=2"
    assert node["Reason"] == "bad DIMM in slot 7 [root@2026-11-21T09:00:01]"
    assert node["Partitions"] == "gpu,night"
    # lines without the key are left out
    assert list(slurm_output.records(f"{NODE_24_11}\nSome message\n\n", "NodeName")) == ["gpu02"]


def test_the_configuration_includes_the_cgroup_section() -> None:
    text = (
        "Configuration data as of 2026-11-21T09:00:00\nTaskPlugin              = task/cgroup,task/affinity\n"
        "\nCgroup Support Configuration:\nConstrainDevices        = yes\n\nSlurmctld(primary) at ctl1 is UP\n"
    )
    config = slurm_output.config(text)

    assert config["TaskPlugin"] == "task/cgroup,task/affinity"
    assert config["ConstrainDevices"] == "yes"


def test_gpus_are_read_from_any_form_of_gres() -> None:
    forms = {
        "gpu:a100:2": {"a100": 2},
        "gpu:h100:8(S:0-1)": {"h100": 8},
        "gpu:h100": {"h100": 1},
        "gpu:4": {"": 4},
        "gpu": {"": 1},
        "gpu:a100:2(S:0,1),gpu:v100:1,shard:8": {"a100": 2, "v100": 1},
        "gpu:a100_3g.20gb:2,nic:4,shard:8": {"a100_3g.20gb": 2},
        "gpu:1g.10gb:7": {"1g.10gb": 7},
        "(null)": {},
    }

    assert {text: gpus(text) for text in forms} == forms
    assert slurm_output.gpu_count("gpu:a100:2(S:0,1),gpu:v100:1,shard:8") == 3


def test_gpus_of_jobs_are_read_with_and_without_a_type() -> None:
    assert gpus_of_tres(tres("cpu=4,mem=1G,gres/gpu=3,gres/gpu:h100=2")) == {"h100": 2, "": 1}
    assert gpus_of_tres(tres("cpu=4,gres/gpu:h100=2")) == {"h100": 2}
    assert gpus_of_tres(tres("")) == {}


def test_time_limits_are_read_in_every_form_slurm_takes() -> None:
    limits = {
        "02:00:00": 120,
        "2-00:00:00": 2880,
        "1-12": 2160,
        "90": 90,
        "90:30": 91,
        "00:00:10": 1,
        "UNLIMITED": None,
        "INFINITE": None,
        "": None,
    }

    assert {text: slurm_output.minutes(text) for text in limits} == limits


def test_a_time_limit_survives_the_way_there_and_back() -> None:
    assert [slurm_output.minutes(slurm_output.clock(total)) for total in (1, 59, 1440, 2881)] == [1, 59, 1440, 2881]
    with pytest.raises(ValueError, match="tomorrow"):
        slurm_output.minutes("tomorrow")


def test_memory_is_read_in_bytes() -> None:
    sizes = {"500M": 500 << 20, "1.50G": 3 << 29, "2T": 2 << 40, "16000": 16000 << 20}
    nothing = ("N/A", "4Gn", "-1", "1e9", "")

    assert {text: slurm_output.size(text, "M") for text in sizes} == sizes
    assert [slurm_output.size(text, "M") for text in nothing] == [None] * 5
    # accounting has bytes where there is no unit
    assert (slurm_output.size("12"), slurm_output.size("12K"), slurm_output.size("1.5G")) == (12, 12288, 3 * GIB // 2)


def test_times_that_were_used_are_read() -> None:
    times = {"00:01.500": 1.5, "1-02:03:04": 93784, "02:03:04": 7384, "INVALID": None, "": None, "1:2:3:4": None}

    assert {text: slurm_output.seconds(text) for text in times} == times


def test_nothing_in_the_reason_of_a_node_is_a_field() -> None:
    line = NODE_24_11.replace("bad DIMM", "State=IDLE [x@1] Gres=gpu:9 bad") + " Comment=Weight=9"

    node = slurm_output.record(line)

    assert (node["State"], node["Gres"], node["Weight"]) == ("IDLE+DRAIN+NOT_RESPONDING", "gpu:a100:2", "1")


@pytest.mark.parametrize(
    ("printed", "start"),
    [
        ("sbatch: Job 9 to start at 1795896500 using 1 processors on nodes gpu01 in partition gpu\n", 1795896500),
        # 26.05
        ("sbatch: Job 263 to start at 1795969175 a using 1 processors on nodes ctl1 in partition all\n", 1795969175),
        ("allocation failure: Requested node configuration is not available\n", None),
    ],
)
def test_a_try_says_when_a_job_would_start(printed: str, start: int | None) -> None:
    assert slurm_output.would_start(printed) == start
