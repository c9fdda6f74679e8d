"""What the end of a deploy makes of Slurm's own words: recorded on Debian 13 (24.11) and 12 (22.05)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deepopsctl.node_programs._shared.command import Result
from tests.support import node_modules as nodeside

slurm = nodeside.load("slurm.readiness")
compute = nodeside.load("slurm.verify_compute")
controller = nodeside.load("slurm.verify_controller")
units = nodeside.load("node.services")

IDLE = "NodeName=gpu01 Arch=x86_64 Version=24.11.5 RealMemory=23622 State=IDLE ThreadsPerCore=1 AllocTRES= "
DOWN = "NodeName=gpu02 State=DOWN+NOT_RESPONDING ThreadsPerCore=1 Reason=Not responding [slurm@2026-11-21T19:30:01] "
REBOOTED = "NodeName=gpu03 State=DOWN TmpDisk=0 Reason=Node unexpectedly rebooted [slurm@2026-11-21T19:30:01] "
TAKEN_OUT = "NodeName=gpu04 State=DOWN TmpDisk=0 Reason=bad DIMM in slot 7 [root@2026-11-21T19:30:01] Comment=asked "
INVALID = "NodeName=gpu05 State=IDLE+DRAIN+INVALID_REG Reason=gres/gpu count reported lower than configured (1 < 2) [slurm@2026-11-21T19:30:01] "  # noqa: E501 (as Slurm writes it)
DRAINED = "NodeName=gpu06 State=IDLE+DRAIN Reason=bad fan [root@2026-11-21T19:30:01] "
BOTH = "NodeName=gpu07 State=DOWN+DRAIN Reason=Node unexpectedly rebooted [slurm@2026-11-21T19:30:01] "
OUTPUT = "\n".join([IDLE, DOWN, REBOOTED, TAKEN_OUT, INVALID, DRAINED, BOTH])

CREDENTIAL = """STATUS:          {}
ENCODE_HOST:     ctl1 (10.89.7.10)
ENCODE_TIME:     2026-11-21 19:11:04 +0000 (1795288264)
DECODE_TIME:     2026-11-21 19:11:04 +0000 ({})
LENGTH:          0
"""


def test_a_plugin_of_a_file_that_slurmd_has_yet_to_fetch_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute.slurm_spank, "obstacles", lambda _version: ["requires /x.so"])
    current, stale = compute.Observation(), compute.Observation()
    stale.add_problem("slurmd still has the plugstack.conf of 07:00")

    for observation in (current, stale):
        compute.check_plugins(observation)

    assert (current.lasting, stale.lasting) == (True, False)
    assert current.problems == stale.problems[1:] == ["requires /x.so"]


class Unregistered:
    """A slurmctld that started before slurmdbd listened, as its commands show it."""

    def __init__(self, *, hears: bool) -> None:
        self.calls: list[str] = []
        self._hears = hears

    def ask(self, argv: list[str]) -> Result:
        call = " ".join(argv[:2])
        self.calls.append(call)
        registered = self._hears and "scontrol reconfigure" in self.calls
        answers = {
            "scontrol show": "SLURM_VERSION = 24.11.5",
            "sacctmgr --noheader": "gpu|6817" if registered else "gpu|0",
        }
        return Result(argv[0], 0, answers.get(call, ""), "", 0.1)

    def reconfigure(self, _start_timeout: float) -> tuple[str, bool]:
        self.calls.append("scontrol reconfigure")
        return "", False


class Clock:
    """In place of the module `time`: it continues while a test sleeps."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


class TestRegistration:
    PARAMS: ClassVar[dict[str, Any]] = {"nodes": [], "cluster": "gpu", "timeout": 60}

    def slurmctld(self, monkeypatch: pytest.MonkeyPatch, *, hears: bool) -> Unregistered:
        fake = Unregistered(hears=hears)
        monkeypatch.setattr(controller.slurm_readiness, "ask", fake.ask)
        monkeypatch.setattr(controller.slurm_readiness, "credential", str)
        monkeypatch.setattr(controller.slurm_apply_config, "reconfigure", fake.reconfigure)
        clock = Clock()
        monkeypatch.setattr(controller, "time", clock)
        monkeypatch.setattr(nodeside.load("node.waiting"), "time", clock)
        monkeypatch.setattr(controller, "check_versions", lambda _observation: None)
        monkeypatch.setattr(controller, "hanging", lambda _problems: [])
        return fake

    def test_a_slurmctld_that_slurmdbd_does_not_know_reads_its_configuration_once_and_registers(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = self.slurmctld(monkeypatch, hears=True)

        ready = controller.verify(self.PARAMS)

        assert fake.calls.count("scontrol reconfigure") == 1
        assert [(change["name"], change["action"]) for change in ready.changes] == [
            ("slurmctld.service", "reconfigure")
        ]
        assert ready.warnings == ["slurmctld read its configuration again: it had not registered with slurmdbd"]

    def test_where_that_does_not_help_it_is_not_repeated_and_the_hint_names_what_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake = self.slurmctld(monkeypatch, hears=False)

        with pytest.raises(slurm.NotReadyError, match="slurmctld has not registered the cluster gpu") as raised:
            controller.verify(self.PARAMS)

        assert "systemctl restart slurmctld" in raised.value.hint
        assert fake.calls.count("scontrol reconfigure") == 1

    def test_it_is_not_done_where_more_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fake = self.slurmctld(monkeypatch, hears=True)

        with pytest.raises(slurm.NotReadyError, match="gpu01: not in slurm"):
            controller.verify({**self.PARAMS, "nodes": ["gpu01"]})

        assert "scontrol reconfigure" not in fake.calls


class TestNodes:
    @pytest.mark.parametrize(
        ("name", "bad", "rebooted"),
        [
            ("gpu01", False, False),
            ("gpu02", True, False),
            ("gpu03", True, True),
            ("gpu04", False, False),
            ("gpu05", True, False),
            ("gpu06", False, False),
            # `state=resume` would end the drain as well
            ("gpu07", True, False),
        ],
    )
    def test_slurms_own_reasons_count_and_peoples_do_not(self, name: str, bad: bool, rebooted: bool) -> None:
        node = slurm.parse_nodes(OUTPUT)[name]

        assert (node.bad, node.rebooted) == (bad, rebooted)

    def test_what_does_not_respond_is_unheard_and_the_reason_is_without_who_gave_it(self) -> None:
        result = slurm.parse_nodes(OUTPUT)

        assert [name for name, node in result.items() if node.unheard] == ["gpu02"]
        # as Slurm 22.05 has it, and after a restart of slurmctld
        assert slurm.NodeState("DOWN*").unheard
        assert slurm.NodeState("IDLE+NOT_RESPONDING").unheard
        assert result["gpu02"].sentence() == "slurmctld has it as DOWN+NOT_RESPONDING (Not responding)"
        assert (result["gpu04"].reason, result["gpu04"].reason_user) == ("bad DIMM in slot 7", "root")
        assert result["gpu05"].reason == "gres/gpu count reported lower than configured (1 < 2)"

    def test_an_error_is_no_node(self) -> None:
        assert slurm.parse_nodes("slurm_load_node error: Unable to contact slurm controller (connect failure)") == {}


def test_a_node_without_slurm_has_nothing_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slurm.out_of_service([]) == ("", {})
    monkeypatch.setenv("PATH", "/nonexistent")

    assert slurm.out_of_service(["gpu01"]) == ("", {})


class TestVersions:
    @pytest.mark.parametrize(
        ("running", "installed", "replaced", "sentence"),
        [
            ("24.11.5", "24.11.5-4", False, ""),
            ("24.11.5", "24.11.5-4+deb13u1", False, ""),
            ("22.05.8", "1:22.05.8-4+deb12u3", False, ""),
            ("24.11.4", "24.11.5-4", True, "slurmd still runs 24.11.4 though 24.11.5 is installed"),
            (
                "24.11.5",
                "24.11.5-4",
                True,
                "slurmd still runs the program that was there before 24.11.5-4 was installed",
            ),
            ("24.11.5", "", True, ""),
        ],
    )
    def test_what_runs_is_what_is_installed(self, running: str, installed: str, replaced: bool, sentence: str) -> None:
        assert slurm.version_sentence("slurmd", running, installed, replaced) == sentence

    def test_releases_compare_as_slurm_compares_them(self) -> None:
        assert slurm.release("24.11.5") > slurm.release("24.05.8") > slurm.release("22.05.8")
        assert slurm.release("24.11.5") == slurm.release("24.11.4")

    def test_a_program_that_was_replaced_while_it_runs_is_noticed(self, tmp_path: Path) -> None:
        program = tmp_path / "sleep"
        shutil.copy("/bin/sleep", program)
        with subprocess.Popen([program, "600"]) as running:
            try:
                before = units.runs_a_replaced_program(running.pid)
                shutil.copy("/bin/sleep", tmp_path / "new")
                (tmp_path / "new").replace(program)
                assert (before, units.runs_a_replaced_program(running.pid)) == (False, True)
            finally:
                running.kill()


@pytest.mark.parametrize(
    ("output", "seconds", "sentence"),
    [
        ("Success (0)", 0, ""),
        ("Replayed credential (17)", 0, ""),
        ("Rewound credential (16)", -600, "600 s behind ctl1's"),
        ("Expired credential (15)", 900, "900 s ahead of ctl1's"),
        ("unmunge: Error: Invalid credential", None, "its munge runs with another key than ctl1's"),
        ('unmunge: Error: Failed to access "/run/x"', None, 'munge: Failed to access "/run/x"'),
    ],
)
def test_another_key_and_another_clock_are_named(output: str, seconds: int | None, sentence: str) -> None:
    text = output if seconds is None else CREDENTIAL.format(output, 1795288264 + seconds)

    result = slurm.credential_sentence(text, "ctl1")

    assert sentence in result if sentence else result == ""


class TestOutputs:
    def test_the_last_error_of_a_journal_is_without_its_prefix(self) -> None:
        journal = "slurmd: error: cannot open x\nslurmd: fatal: no configuration\nslurmd.service: Failed."

        assert slurm.last_error(journal) == "no configuration"

    def test_a_command_that_hangs_or_is_not_there_says_so(self) -> None:
        assert slurm.run_merged(["sleep", "60"], seconds=1) == (124, "no answer within 1 s")
        assert slurm.run_merged(["/nonexistent/scontrol"])[0] == 127


@pytest.mark.usefixtures("state")
def test_a_node_whose_unit_does_not_stay_up_is_not_done_and_does_that_step_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the call that verifies slurmd: it is the last one for a node that only runs jobs."""
    module, converged, record = (
        nodeside.plugin("modules", "slurm_verify"), nodeside.load("node.converged"), nodeside.load("node.record"),
    )  # fmt: skip
    for step, unit in (("common", "munge.service"), ("slurmd", "slurmd.service")):
        record.save("slurm", step, "d", record.items(units={unit: True}))
    watched: list[tuple[str, ...]] = []

    class Watch:
        def __init__(self, names: list[str], _ports: object) -> None:
            watched.append(tuple(names))

        def problems(self, _seconds: float) -> dict[str, str]:
            return {"munge.service": "does not stay up"}

    monkeypatch.setattr(converged.node_services, "Watch", Watch)
    monkeypatch.setattr(converged.node_services, "own_journal_tail", lambda *_: "its last words")
    monkeypatch.setitem(module.SCOPES, "compute", lambda _params: slurm.Ready([], {}, "24.11.5", "", []))
    params = {"component": "slurm", "step": "converged", "scope": "compute", "stay_up": ["common", "slurmd"]}

    with pytest.raises(nodeside.FailedError, match=r"munge\.service does not stay up:\nits last words"):
        nodeside.Call(params).run(module)

    assert watched == [("munge.service", "slurmd.service")]
    assert [step for step in ("common", "slurmd") if record.load("slurm", step)] == ["slurmd"]
