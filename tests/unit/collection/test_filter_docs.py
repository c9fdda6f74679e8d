"""Filters are documented where `ansible-doc -t filter` looks: a file for each, made from its function."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

BIN = Path(sys.executable).parent


def test_the_documentation_of_filters_is_current() -> None:
    script = str(ROOT / "scripts" / "filter-docs")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_ansible_doc_shows_what_a_filter_takes_and_returns() -> None:
    names = [f"deepopsctl.cluster.{name}" for name in ("slurm_plugstack_refusal", "environment_conflicts")]
    line = [str(BIN / "ansible-doc"), "--type", "filter", "--json", *names]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    shown = json.loads(done.stdout)

    assert [shown[name]["doc"]["name"] for name in names] == [name.rpartition(".")[2] for name in names]
    conflicts = shown[names[1]]
    assert {name: option["type"] for name, option in conflicts["doc"]["options"].items()} == {
        "_input": "list",
        "hostvars": "dict",
        "variable": "str",
    }
    assert conflicts["return"]["_value"]["type"] == "str"
