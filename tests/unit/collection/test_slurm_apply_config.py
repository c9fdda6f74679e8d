"""What slurmctld needs after a configuration that was cut off: the lab's tests do the rest with a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.node_modules import load

apply_config = load("slurm.apply_config")
Effect = load("slurm.effects").Effect


@pytest.mark.usefixtures("state")
@pytest.mark.parametrize("effect", [Effect.RECONFIGURE, Effect.RESTART_SLURMCTLD])
def test_what_a_change_needs_is_noted_before_a_file_changes_and_not_forgotten(tmp_path: Path, effect: object) -> None:
    (tmp_path / "slurm.conf").mkdir()

    with pytest.raises(OSError, match=r"slurm\.conf"):
        apply_config.install({str(tmp_path / "slurm.conf"): "ClusterName=hpc\n"}, effect)

    assert apply_config.with_pending(Effect.NONE) == effect
    apply_config.clear_pending()
    assert apply_config.with_pending(Effect.NONE) == Effect.NONE
