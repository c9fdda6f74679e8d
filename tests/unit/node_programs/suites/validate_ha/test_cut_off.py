"""A first controller that is cut off from the networks and keeps its storage is reported as the cause."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest

from deepopsctl.node_programs._shared import settings
from deepopsctl.node_programs.services.slurm_controllers import heartbeat
from deepopsctl.node_programs.suites.validate_ha import faults, jobs, main

CONFIG = {"hosts": ["ctl1", "ctl2"], "directory": ""}


@pytest.mark.parametrize(
    ("numbers", "is_reported"),
    [
        # who is in control writes: the first one, again and again; or once more on its way, then the second one
        ([0, 0, 0, 0, 0, 0], True),
        ([0, 1, 1, 1, 1, 1], False),
    ],
)
def test_the_cause_is_reported_where_the_first_controller_writes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, numbers: list[int], is_reported: bool
) -> None:
    written = iter(enumerate(numbers))

    def submit(name: str, script: str, *options: str) -> str:
        if beat := next(written, None):
            (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", 1_000 + beat[0], beat[1]))
        return ""

    monkeypatch.setattr(main, "SLACK_S", 0.5)
    monkeypatch.setattr(heartbeat, "timeout_s", lambda: 2)
    monkeypatch.setattr(heartbeat, "as_slurm", contextlib.nullcontext)
    monkeypatch.setattr(settings, "load", lambda _: {**CONFIG, "directory": str(tmp_path)})
    monkeypatch.setattr(main, "_after", lambda *_: [])
    monkeypatch.setattr(faults, "DELAY_S", -1)
    monkeypatch.setattr(jobs, "submit", submit)

    (check,) = main.measure({"fault": "cut-off", "seconds": 60, "token": "t", "jobs": ["1"]})["checks"]

    assert check["status"] == "fail"
    assert (f"ctl1 was cut off from all networks but not from {tmp_path}" in check["message"]) is is_reported
