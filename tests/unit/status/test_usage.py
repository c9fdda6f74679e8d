"""What accounts used: sacct's and sacctmgr's lines, checked against calculations by the published rules."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from deepopsctl.errors import DeepOpsError
from deepopsctl.node_programs.commands.account_usage.accounting import Use, read_jobs, read_shares
from deepopsctl.status.usage import AccountUse, Usage, query_usage
from tests.support.runs import TEXT, cluster_dir

HOUR = 3600
# the Alliance's Narval: a GPU is 4.0 RGU, with 12 cores and 124.5 GB; Slurm bills the largest of the three
JOBS = [
    # one GPU, 12 cores, 124 GB for ten hours: 4.0 RGU
    f"def-curie|alice|gpu|{10 * HOUR}|billing=4000,cpu=12,gres/gpu:a100=1,gres/gpu=1,mem=124G,node=1",
    # twice the GPU's cores: 8.0 RGU
    f"def-curie|alice|gpu|{HOUR}|billing=8000,cpu=24,gres/gpu:a100=1,gres/gpu=1,mem=124G,node=1",
    # a slice 3g.20gb with its half of the cores: 2.0 RGU
    f"rrg-noether|emmy|gpu|{2 * HOUR}|billing=2000,cpu=6,gres/gpu:a100_3g.20gb=1,gres/gpu=1,mem=62G,node=1",
    f"def-curie|bob|cpu|{HOUR}|billing=64000,cpu=64,mem=128G,node=1",
    # waiting; cancelled while it waited
    "def-curie|bob|gpu|0|",
    "def-curie|bob|gpu||",
]


def test_jobs_count_what_the_rules_say() -> None:
    used = read_jobs(JOBS, frozenset({"gpu"}))

    assert used["def-curie"]["alice"] == Use(2, 48.0, 0.0)
    assert used["rrg-noether"]["emmy"] == Use(1, 4.0, 0.0)
    assert used["def-curie"]["bob"] == Use(1, 0.0, 64.0)
    # 40 RGU-hours are 0.004566 of a year
    assert Use(1, 40.0).rgu_years == pytest.approx(0.004566, abs=1e-6)


def test_an_accounts_share_is_its_part_of_its_parents_share() -> None:
    lines = [
        "root|||1", "root||root|1",
        "science|root||3", "physics|science||1", "chemistry|science||2", "physics|science|alice|1", "teaching|root||1",
        "guests|root||parent",
    ]  # fmt: skip

    shares = read_shares(lines)

    assert shares["science"] == ("", 0.75)
    assert shares["physics"] == ("science", 0.25)
    assert shares["chemistry"] == ("science", 0.5)
    assert shares["guests"] == ("", 0.0)


def test_an_account_includes_those_below_it_and_its_target_follows_from_period_and_capacity() -> None:
    accounts = (
        AccountUse("science", "", 0.5, {"dean": Use(1, 1.0)}),
        AccountUse("physics", "science", 0.25, {"alice": Use(2, 3.0, 5.0)}),
    )
    usage = Usage("hpc", datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC), 16.0, accounts)

    assert usage.total_of("science") == Use(3, 4.0, 5.0)
    assert usage.target_of(accounts[0]) == pytest.approx(8.0)


def test_the_controllers_answer_is_read_whatever_else_its_login_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = cluster_dir(tmp_path, f"{TEXT}billing: {{}}\n")
    ssh = tmp_path / "ssh"
    ssh.write_text(
        "#!/bin/sh\necho Welcome; echo '@deepopsctl 1767225600 1767312000'; echo 'physics|root||1'; echo\n"
        "echo 'physics|alice|batch|3600|billing=2000'\n"
    )
    ssh.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    usage = query_usage(directory, "", "")
    assert (usage.start, usage.total_of("physics")) == (datetime(2026, 1, 1, tzinfo=UTC), Use(1, 0.0, 2.0))
    ssh.write_text("#!/bin/sh\nprintf 'sudo: Passwort n\\366tig\\n' >&2; exit 1\n")
    with pytest.raises(DeepOpsError, match="the accounting can't be read: sudo: Passwort n\ufffdtig"):
        query_usage(directory, "", "")
