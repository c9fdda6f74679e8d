"""What a login node gets: the files that Slurm's commands read there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import node_modules as nodeside
from tests.support.recorded_roles import Recorded, record

SLURM_CONF = "ClusterName=hpc\nSlurmctldHost=ctl1\nNodeName=gpu1\n"
PLUGSTACK = "required /usr/local/lib/slurm/spank_pyxis.so\n"
ROLE = {"role": "slurm_login", "slurm_login_slurm_conf": SLURM_CONF}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    hosts = {"login1": {"slurm_login_plugstack": PLUGSTACK}, "login2": {}}
    return record(tmp_path_factory.mktemp("nodes"), [ROLE], hosts, modules=("node_state", "slurm_config"))


def test_commands_of_a_login_node_know_the_plugins_of_jobs(recorded: Recorded) -> None:
    refusal, step = recorded.asked["login1"]

    assert step.texts() == {"/etc/slurm/slurm.conf": SLURM_CONF, "/etc/slurm/plugstack.conf": PLUGSTACK}
    # a site's own is saved before
    assert step.arguments["backups"] == [{"path": "/etc/slurm/plugstack.conf"}]
    assert refusal.arguments["verify"]


def test_without_plugins_the_nodes_own_file_stays(recorded: Recorded) -> None:
    (step,) = recorded.asked["login2"]

    assert step.texts() == {"/etc/slurm/slurm.conf": SLURM_CONF}
    assert step.arguments["backups"] == []
    # one of an earlier deploy is removed
    assert step.arguments["owned"]


def test_a_plugin_that_is_required_and_missing_is_refused_before_anything_changes(
    recorded: Recorded, tmp_path: Path
) -> None:
    asked = {**recorded.asked["login1"][0].arguments, "directory": str(tmp_path)}

    with pytest.raises(nodeside.FailedError, match=r"spank_pyxis\.so, which is not there; nothing was changed"):
        nodeside.Call(asked).run(nodeside.plugin("modules", "slurm_config"))
