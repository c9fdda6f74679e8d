"""The burn-in on the command line: its options, its results, and how a person ends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deepopsctl.cli.main import cli
from deepopsctl.node_programs.suites.burn_in import jobs
from deepopsctl.run.outcome import TaskResult
from deepopsctl.validation.burn_in import Burnin, save_results
from tests.data.burn_samples import burn_result
from tests.support.runs import run_of


class TestCommandLine:
    def run(self, tmp_path: Path, *arguments: str) -> Result:
        return CliRunner().invoke(cli, ["-C", str(tmp_path), "validate", *arguments])

    @pytest.mark.parametrize("text", ["soon", "5s", "8d", "10 m", ""])
    def test_a_duration_that_makes_no_sense_is_refused(self, tmp_path: Path, text: str) -> None:
        assert self.run(tmp_path, "burnin", "--duration", text).exit_code == 2

    @pytest.mark.parametrize("option", ["--duration", "--qos", "--partition"])
    def test_its_options_are_refused_where_no_burn_in_is_wanted(self, tmp_path: Path, option: str) -> None:
        result = self.run(tmp_path, "smoke", option, "90s")

        assert result.exit_code == 2
        assert "is for the burn-in only" in result.output

    def test_the_jobs_have_a_name_that_a_person_can_cancel(self) -> None:
        burnin = Burnin(600, qos="low")

        assert burnin.cancel_command == f"scancel --name=deepopsctl-burnin-{burnin.token}-load"
        assert jobs.session(burnin.token, "ubuntu").name("load") in burnin.cancel_command

    def test_a_burn_in_is_never_part_of_all(self) -> None:
        from deepopsctl.checks.suites import EXPLICIT
        from deepopsctl.cli.commands.validate import _wanted

        assert "burnin" not in _wanted(()) + _wanted(("all",)) + _wanted(("smoke",))
        assert _wanted(("burnin",)) == ("burnin",)
        assert _wanted(("burnin", "all"))[-1] == "burnin"
        assert "burnin" in EXPLICIT

    def test_what_was_measured_is_kept_with_the_run(self, tmp_path: Path) -> None:
        measured = TaskResult("gpu01", "Fetch", {"burnin": [burn_result(node="gpu01")]})

        save_results(run_of(measured, directory=tmp_path))

        (kept,) = json.loads((tmp_path / "burnin.json").read_text())["results"]
        assert (kept["node"], kept["asked_s"]) == ("gpu01", 600.0)

    def test_what_is_not_asked_for_stays_as_the_site_has_it(self) -> None:
        assert set(Burnin(600, qos="low").variables()) == {
            "validate_burnin_seconds", "validate_burnin_token", "validate_burnin_qos",
        }  # fmt: skip
