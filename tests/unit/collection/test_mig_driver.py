"""MIG on a node: published output of nvidia-smi is read, and a stand-in with state (tests/standin) is told what to do.

Tables: NVIDIA/DCGM issue 138 (A100 80 GB), NVIDIA's MIG user guide (`-lci` without placements, the words of refusals);
that the compute instance of `1g.10gb+me` is a `1g.10gb`: output of `mig -cgi 20 -C` (xinyuwei-david/david-share).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_program
from tests.support.paths import FAKES

driver = nodeside.load("nvidia.mig")
judging = nodeside.load("nvidia.mig_check")

LGI = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        9          2:1     |
+-------------------------------------------------------+
|   0  MIG 1g.10gb+me      20       10          3:1     |
+-------------------------------------------------------+
|   0  MIG 2g.20gb         14        3          0:2     |
+-------------------------------------------------------+
|   1  MIG 3g.40gb          9        1          4:4     |
+-------------------------------------------------------+
"""
LCI = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      9       MIG 1g.10gb          0         0          0:1     |
+--------------------------------------------------------------------+
|   0     10       MIG 1g.10gb          0         0          0:1     |
+--------------------------------------------------------------------+
|   0      3       MIG 1c.2g.20gb       0         0          0:1     |
+--------------------------------------------------------------------+
|   0      3       MIG 1c.2g.20gb       0         1          1:1     |
+--------------------------------------------------------------------+
"""
OLD_LCI = """\
| Compute instances:                                    |
| GPU     GPU       Name             Profile   Instance |
|       Instance                       ID        ID     |
|         ID                                            |
|=======================================================|
|   1      1       MIG 3g.40gb          2         0     |
+-------------------------------------------------------+
"""
XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>580.95.05</driver_version>
  <gpu id="00000000:07:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name>
    <mig_mode><current_mig>Disabled</current_mig><pending_mig>Enabled</pending_mig></mig_mode>
    <minor_number>1</minor_number>
  </gpu>
  <gpu id="00000000:0F:00.0">
    <product_name>NVIDIA A40</product_name>
    <mig_mode><current_mig>N/A</current_mig><pending_mig>N/A</pending_mig></mig_mode>
    <minor_number>0</minor_number>
  </gpu>
</nvidia_smi_log>
"""


class TestReading:
    def test_gpus_go_by_the_number_of_their_device_file_not_by_nvidia_smis_index(self) -> None:
        gpus = driver.gpus_in(XML)

        assert (gpus[1]["address"], gpus[1]["index"]) == ("00000000:07:00.0", 0)
        assert (gpus[1]["current"], gpus[1]["pending"]) == (False, True)
        assert driver.current_text(gpus[1]) == "whole (MIG mode waits for a reset)"
        assert (gpus[0]["name"], gpus[0]["current"]) == ("NVIDIA A40", None)

    def test_slices_have_numbers_and_compute_instances_and_one_in_parts_or_without_is_named_so(self) -> None:
        slices = driver.slices_in(LGI, LCI)

        assert slices == {
            0: [
                ["1g.10gb", 9, ["1g.10gb"]],
                ["1g.10gb+me", 10, ["1g.10gb"]],
                ["2g.20gb", 3, ["1c.2g.20gb", "1c.2g.20gb"]],
            ],
            1: [["3g.40gb", 1, []]],
        }
        # as older drivers list them
        assert driver.slices_in(LGI, OLD_LCI)[1] == [["3g.40gb", 1, ["3g.40gb"]]]
        in_parts = "2g.20gb (in parts: 1c.2g.20gb, 1c.2g.20gb)"
        assert driver.names({"slices": slices[0]}) == ["1g.10gb", "1g.10gb+me", in_parts]
        assert driver.names({"slices": slices[1]}) == ["3g.40gb (without a compute instance)"]


class Machine:
    """A node whose nvidia-smi is the stand-in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()

    def set(self, **settings: Any) -> None:
        """What the stand-in is like."""
        (self.directory / "settings.json").write_text(json.dumps(settings), encoding="utf-8")

    @property
    def calls(self) -> list[str]:
        """Commands that changed something."""
        lines = (self.directory / "calls.log").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if not any(word in line for word in ("-q", "-lgi", "-lci", "--query"))]

    def now(self) -> dict[int, str]:
        """How the GPUs are cut, in words."""
        return {minor: driver.current_text(gpu) for minor, gpu in driver.read().items()}


def process(proc: Path, command: str, *, uid: int = 0, mode: int = 0o755) -> None:
    """A process as the kernel shows it: its names, which it chooses itself, its real user, the mode of its program."""
    program = proc / f"program {mode:o}"
    proc.mkdir(exist_ok=True)
    program.touch()
    program.chmod(mode)
    own = proc / str(sum(1 for _ in proc.iterdir()))
    own.mkdir()
    (own / "exe").symlink_to(program)
    (own / "comm").write_text("slurmstepd\n", encoding="utf-8")
    (own / "status").write_text(f"Name:\tslurmstepd\nUid:\t{uid}\t0\t0\t0\n", encoding="utf-8")
    (own / "cmdline").write_text(command, encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Two GPUs of 40 GB, whole, and no job; another cluster's containers on this machine may have some."""
    monkeypatch.setattr(driver, "PROC", str(tmp_path / "proc"))
    monkeypatch.setenv("PATH", str(FAKES), prepend=":")
    monkeypatch.setenv("STANDIN_NVIDIA", str(tmp_path / "standin"))
    monkeypatch.setenv("STANDIN_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("STANDIN_CAPS", str(tmp_path / "caps"))
    return Machine(tmp_path / "standin")


def desired(minor: int, *slices: str) -> dict[str, Any]:
    """How a GPU is to be cut."""
    return {"minor": minor, "slices": list(slices), "numbers": {}}


def apply(*wanted: dict[str, Any]) -> Sequence[tuple[int, str, str]]:
    """Read, change what differs; what refused."""
    refused: Sequence[tuple[int, str, str]] = driver.apply(wanted, driver.read())
    return refused


SEVEN = ("1g.5gb",) * 7


class TestChanging:
    def test_whole_gpus_are_cut_each_as_wanted_and_what_is_right_is_left_alone(self, machine: Machine) -> None:
        wanted = desired(0, *SEVEN), desired(1, "3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb+me")

        assert apply(*wanted) == []

        assert machine.now() == {0: "7 x 1g.5gb", 1: "3g.20gb + 2g.10gb + 1g.5gb + 1g.5gb+me"}
        assert machine.calls[-1].endswith("-cgi 3g.20gb,2g.10gb,1g.5gb,1g.5gb+me -C")
        assert driver.unmet([desired(1, "1g.5gb+me", "3g.20gb", "2g.10gb", "1g.5gb")], driver.read()) == []

        before = machine.calls
        assert apply(*wanted) == []
        assert machine.calls == before

    def test_another_layout_clears_the_gpu_first_and_leaves_the_mode_on(self, machine: Machine) -> None:
        apply(desired(0, *SEVEN), desired(1, "7g.40gb"))
        before = len(machine.calls)

        assert apply(desired(0, "3g.20gb", "3g.20gb"), desired(1, "7g.40gb")) == []

        assert machine.now() == {0: "2 x 3g.20gb", 1: "7g.40gb"}
        verbs = [line.split("00.0 ")[1] for line in machine.calls[before:]]
        assert verbs == ["-dci", "-dgi", "-cgi 3g.20gb,3g.20gb -C"]
        assert apply(desired(0), desired(1, "7g.40gb")) == []
        assert machine.now() == {0: "whole", 1: "7g.40gb"}

    def test_slices_without_compute_instances_are_made_again(self, machine: Machine) -> None:
        apply(desired(0, "3g.20gb"))
        # by hand
        subprocess.run(["nvidia-smi", "mig", "-i", "00000000:17:00.0", "-dci"], check=False)
        assert machine.now()[0] == "3g.20gb (without a compute instance)"

        assert apply(desired(0, "3g.20gb")) == []

        assert machine.now()[0] == "3g.20gb"

    def test_a_driver_that_refuses_is_reported_for_its_gpu_and_the_others_are_cut(self, machine: Machine) -> None:
        machine.set(refuses=["00000000:17:00.0"])

        ((minor, message, _),) = apply(desired(0, "3g.20gb"), desired(1, "3g.20gb"))

        assert (minor, message.count("Insufficient Resources")) == (0, 2)
        assert machine.now() == {0: "in MIG mode, without slices", 1: "3g.20gb"}

    def test_a_mode_that_waits_for_a_reset_asks_for_a_reboot_and_the_next_start_cuts_the_gpu(
        self, machine: Machine
    ) -> None:
        machine.set(reset=False)

        ((minor, message, hint),) = apply(desired(0, "3g.20gb"))

        assert minor == 0
        assert message.startswith("MIG mode on waits for a reset of the GPU, which was refused: Resetting GPU")
        assert "reboot the drained node" in hint
        assert machine.now()[0] == "whole (MIG mode waits for a reset)"
        # after a reboot
        mode = machine.directory / "mode.json"
        pending = {address: [wanted] * 2 for address, (_, wanted) in json.loads(mode.read_text("utf-8")).items()}
        mode.write_text(json.dumps(pending), encoding="utf-8")
        status, output = driver.boot([desired(0, "3g.20gb")])
        assert (status, output[0]) == (0, "GPU 0: 3g.20gb")

    def test_a_start_under_jobs_changes_nothing(self, machine: Machine, tmp_path: Path) -> None:
        process(tmp_path / "proc", "slurmstepd: [12.batch]\0")

        status, output = driver.boot([desired(0, "3g.20gb")])

        assert status == 1
        assert output[0].startswith("jobs run here, and the GPUs are not as")
        assert machine.now()[0] == "whole"


@pytest.mark.parametrize(
    ("command", "more", "counts"),
    [
        ("slurmstepd: [12.batch]\0", {}, True),
        ("/usr/sbin/slurmstepd\0", {}, True),
        ("", {}, True),
        # what holds the place of steps
        ("/usr/sbin/slurmstepd\0infinity\0", {}, False),
        # a user's process calls itself so; sudo, waiting for a password
        ("slurmstepd: [12.batch]\0", {"uid": 1000}, False),
        ("slurmstepd: [12.batch]\0", {"mode": 0o4755}, False),
    ],
)
def test_roots_slurmstepd_is_a_step_whatever_it_calls_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, more: dict[str, int], counts: bool
) -> None:
    monkeypatch.setattr(driver, "PROC", str(tmp_path))
    process(tmp_path, command, **more)

    assert driver.has_steps() is counts


class TestJudging:
    def test_a_gpu_without_mig_can_not_be_cut(self, machine: Machine) -> None:
        machine.set(mig=False, product="NVIDIA A40")

        problems = judging.impossible([desired(0, "3g.20gb"), desired(1)], driver.read())

        assert judging.sentences(problems) == "GPU 0: NVIDIA A40 has no MIG (take mig: out of cluster.yml)"

    def test_a_gpu_that_is_to_be_cut_must_be_there_and_a_whole_one_need_not(self, machine: Machine) -> None:
        problems = judging.impossible([desired(0), desired(2, "3g.20gb"), desired(3)], driver.read())

        assert [problem[:2] for problem in problems] == [
            (2, "nvidia-smi does not list it, but /dev/nvidia0, /dev/nvidia1")
        ]

    def test_other_numbers_than_slurm_was_told_come_with_what_to_write(self, machine: Machine) -> None:
        wanted = {**desired(0, "3g.20gb", "1g.5gb", "1g.5gb"), "numbers": {"3g.20gb": [1], "1g.5gb": [11, 12]}}
        apply(wanted)

        ((minor, message, hint),) = judging.misnumbered([wanted], driver.read())

        assert minor == 0
        assert '"1g.5gb": [7, 8]' in message
        assert hint == 'write mig: {"3g.20gb": [1], "1g.5gb": [7, 8]} for this GPU in cluster.yml, then deploy again'
        right = {**wanted, "numbers": {"3g.20gb": [1], "1g.5gb": [8, 7]}}
        assert judging.misnumbered([right], driver.read()) == []


class TestSilence:
    def test_a_driver_that_does_not_answer_is_an_error_and_no_whole_gpu(self, tmp_path: Path, monkeypatch: Any) -> None:
        write_program(tmp_path / "nvidia-smi", "echo NVIDIA-SMI has failed because it could not communicate; exit 9")
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

        with pytest.raises(driver.NvidiaSmiError, match="NVIDIA-SMI has failed"):
            driver.read()
        assert driver.boot([desired(0, "3g.20gb")]) == (
            1,
            ["nvidia-smi can't say how the GPUs are cut: NVIDIA-SMI has failed because it could not communicate"],
        )

    def test_a_list_that_can_not_be_read_is_no_empty_list(
        self, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        apply(desired(0, "3g.20gb"))
        outlier = tmp_path / "odd"
        refuses = f'[ "$1" = mig ] && echo Insufficient Permissions || exec {FAKES}/nvidia-smi "$@"'
        write_program(outlier / "nvidia-smi", refuses)
        monkeypatch.setenv("PATH", str(outlier), prepend=":")

        with pytest.raises(driver.NvidiaSmiError, match="mig -lgi: Insufficient Permissions"):
            driver.read()


def test_the_file_runs_by_itself_as_the_unit_runs_it(machine: Machine, tmp_path: Path) -> None:
    layout = tmp_path / "mig.json"
    layout.write_text(json.dumps({"gpus": [desired(0, *SEVEN), desired(1)]}), encoding="utf-8")
    source = (nodeside.MODULE_UTILS / "nvidia/mig.py").read_text(encoding="utf-8")
    program = tmp_path / "mig.py"
    # jobs of other clusters' containers may run on this machine
    source = source.replace(driver.LAYOUT, str(layout)).replace('PROC = "/proc"', f"PROC = {str(tmp_path)!r}")
    program.write_text(source, encoding="utf-8")

    done = subprocess.run([sys.executable, "-I", str(program)], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout) == (0, "GPU 0: 7 x 1g.5gb\nGPU 1: whole\n"), done.stderr
