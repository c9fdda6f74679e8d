"""The Ansible call, and several playbooks as one."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepopsctl.cluster.directory import ClusterDir
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.errors import ControlMachineError
from deepopsctl.run.request import (
    MOST_KEPT,
    PlaybookTracker,
    RunRequest,
    arguments,
    control_dir,
    environment,
    join,
    parts_of_plays,
    ssh_arguments,
    write_inputs,
)


def request(path: Path, **wanted: Any) -> RunRequest:
    return RunRequest(ClusterDir(path), "slurm", forks=25, **wanted)


@pytest.mark.parametrize(
    ("count", "limit", "kept"),
    [
        (MOST_KEPT, "", True),
        (MOST_KEPT + 1, "", False),
        (MOST_KEPT + 1, "n1,n2", True),
        # a group may be all of them
        (MOST_KEPT + 1, "slurm_compute", False),
    ],
)
def test_connections_stay_open_to_no_more_nodes_than_memory_has_room_for(
    tmp_path: Path, count: int, limit: str, kept: bool
) -> None:
    spec = (
        "schema: 1\ncluster: {name: hpc, user: root}\nnodes:\n  - {names: n1, roles: [controller]}\n"
        f'  - {{names: "n[2-{count}]", roles: [compute]}}\n'
    )

    ssh = request(tmp_path, limit=limit).for_nodes(parse_spec(spec, "cluster.yml")).ssh

    assert ssh["ControlMaster"] == ("auto" if kept else "no")
    assert ("ControlPersist" in ssh, "ControlPath" in ssh) == (kept, not kept)


def test_the_arguments_name_both_inventories_the_products_first(tmp_path: Path) -> None:
    private = tmp_path / "private"
    assert arguments(request(tmp_path), (Path("/c/slurm.yml"),), private) == [
        "-i", f"{private}/inventory/hosts.yml", "-i", f"{tmp_path}/inventory/hosts.yml",
        "-e", f"@{private}/vars.json", "--forks", "25", "/c/slurm.yml",
    ]  # fmt: skip


def test_a_run_may_have_an_inventory_of_its_own_next_to_all_that_the_clusters_own_names(tmp_path: Path) -> None:
    cluster, private = tmp_path / "cluster", tmp_path / "private"
    for directory in ("inventory/group_vars", "ssh", "runs"):
        (cluster / directory).mkdir(parents=True)
    (cluster / "inventory" / "hosts.yml").write_text("old")
    wanted = request(cluster, inventory="new")

    write_inputs(wanted, {}, tmp_path, private)

    stand_in = private / "cluster"
    assert arguments(wanted, (), private)[3] == str(stand_in / "inventory" / "hosts.yml")
    assert (stand_in / "inventory" / "hosts.yml").read_text() == "new"
    assert (cluster / "inventory" / "hosts.yml").read_text() == "old"
    links = {path.relative_to(stand_in).as_posix() for path in stand_in.rglob("*") if path.is_symlink()}
    assert links == {"ssh", "inventory/group_vars"}


@pytest.mark.parametrize(
    ("playbooks", "components"),
    [
        (("nvidia", "slurm"), ("nvidia", "slurm")),
        (("slurm", "operate/cluster/jobs"), ("slurm",)),
        (("operate/nodes/stop-slurmd", "nvidia", "slurm", "operate/nodes/slurm-node-state"), ("nvidia", "slurm")),
        # what comes between them may change a node
        (("nvidia", "operate/nodes/slurm-node-state", "slurm"), ("nvidia",)),
        (("operate/cluster/status",), ()),
    ],
)
def test_components_are_in_the_summary_as_far_as_nothing_comes_between_them(
    tmp_path: Path, playbooks: tuple[str, ...], components: tuple[str, ...]
) -> None:
    wanted = RunRequest(ClusterDir(tmp_path), playbooks[0], more=playbooks[1:])

    assert wanted.components == wanted.together == components
    # what changes nothing can continue in any case
    assert replace(wanted, check=True).together == playbooks


def test_options_are_ansibles_own(tmp_path: Path) -> None:
    wanted = request(tmp_path, check=True, diff=True, tags="a,b", verbosity=3, limit="n1", ssh_password="x")
    assert arguments(wanted, (), tmp_path)[4:] == [
        "--limit", "@limit", "-e", f"@{tmp_path}/vars.json", "--forks", "25", "--tags", "a,b",
        "--check", "--diff", "--ask-pass", "-vvv",
    ]  # fmt: skip


def test_no_value_of_a_variable_and_no_password_is_an_argument(tmp_path: Path) -> None:
    secrets = {"ssh_password": "s3cret", "become_password": "s3cret", "user_vars": ({"token": "s3cret"},)}
    wanted = request(tmp_path, **secrets)
    assert "s3cret" not in " ".join(arguments(wanted, (), tmp_path))
    assert "ssh_password" not in repr(wanted)


def test_the_users_variables_come_in_their_order_before_the_runs_own(tmp_path: Path) -> None:
    wanted = request(tmp_path, user_vars=({"a": 1}, Path("/my/vars.yml"), {"b": 2}))
    result = arguments(wanted, (), Path("/p"))
    files = [result[index + 1] for index, word in enumerate(result) if word == "-e"]
    assert files == ["@/p/vars-0.json", "@/my/vars.yml", "@/p/vars-2.json", "@/p/vars.json"]


def test_the_files_are_there_and_for_the_owner_only(tmp_path: Path) -> None:
    private = tmp_path / "private"
    wanted = request(tmp_path, limit="n1,n2", user_vars=({"a": "ü"},))
    write_inputs(wanted, {"deepops_digests": {}}, Path("/content"), private)
    assert (private / "limit").read_text() == "n1\nn2\n"
    assert json.loads((private / "vars-0.json").read_text()) == {"a": "ü"}
    assert json.loads((private / "vars.json").read_text()) == {"deepops_digests": {}}
    assert (private / "inventory" / "group_vars").readlink() == Path("/content/group_vars")
    assert (private / "collections/ansible_collections/deepopsctl/cluster").readlink() == Path("/content")
    files = [path for path in private.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_ssh_understands_the_arguments_for_any_path(tmp_path: Path) -> None:
    known_hosts = tmp_path / "my 100% cluster" / "known_hosts"
    line = ["ssh", "-G", *shlex.split(ssh_arguments(known_hosts)), "n1"]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    settings = dict(entry.split(" ", 1) for entry in shown.splitlines() if " " in entry)
    assert settings["userknownhostsfile"] == str(known_hosts)
    assert settings["stricthostkeychecking"] == "true"
    assert settings["controlpersist"] == "1800"


def variables(cluster: Path, **inherited: str) -> dict[str, str]:
    """The environment of a run on a cluster directory."""
    return environment(ClusterDir(cluster), Path("/content"), cluster / "p", inherited)


def test_the_environment_checks_host_keys_and_reads_no_foreign_settings(tmp_path: Path) -> None:
    result = variables(tmp_path, XDG_RUNTIME_DIR=str(tmp_path))
    assert result["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert result["ANSIBLE_CONFIG"] == f"{tmp_path}/p/ansible.cfg"
    assert "ANSIBLE_VAULT_PASSWORD_FILE" not in result


def test_a_cluster_may_have_ansible_settings_and_another_vault_password(tmp_path: Path) -> None:
    (tmp_path / "ansible.cfg").write_text("[defaults]\n")
    (tmp_path / ".vault-password").write_text("x")
    result = variables(tmp_path)
    assert result["ANSIBLE_CONFIG"] == f"{tmp_path}/ansible.cfg"
    assert result["ANSIBLE_VAULT_PASSWORD_FILE"] == f"{tmp_path}/.vault-password"
    assert "ANSIBLE_VAULT_PASSWORD_FILE" not in variables(tmp_path, ANSIBLE_VAULT_PASSWORD_FILE="/mine")


def test_a_sites_own_collections_are_found_after_the_product(tmp_path: Path) -> None:
    def result(**inherited: str) -> str:
        return variables(tmp_path, **inherited)["ANSIBLE_COLLECTIONS_PATH"]

    assert result() == f"{tmp_path}/p/collections:~/.ansible/collections:/usr/share/ansible/collections"
    assert result(ANSIBLE_COLLECTIONS_PATH="/mine") == f"{tmp_path}/p/collections:/mine"
    (tmp_path / "ansible.cfg").write_text("[defaults]\ncollections_path = own:/shared\n")
    assert result() == f"{tmp_path}/p/collections:{tmp_path}/own:/shared"


def test_a_busy_node_is_waited_for_unless_the_site_says_otherwise(tmp_path: Path) -> None:
    def timeout(**inherited: str) -> str | None:
        return variables(tmp_path, **inherited).get("ANSIBLE_TIMEOUT")

    assert timeout() == "60"
    assert timeout(ANSIBLE_TIMEOUT="120") is None
    (tmp_path / "ansible.cfg").write_text("[defaults]\nforks = 3\n")
    assert timeout() == "60"
    (tmp_path / "ansible.cfg").write_text("[defaults]\ntimeout = 30\n")
    assert timeout() is None
    (tmp_path / "ansible.cfg").write_text("no ini file")
    assert timeout() == "60"


def test_sockets_have_a_short_private_directory_of_their_own_for_each_cluster(tmp_path: Path) -> None:
    first, second = control_dir(tmp_path / "a", {}), control_dir(tmp_path / "b", {})
    assert first != second
    assert first.stat().st_mode & 0o777 == 0o700
    # 40 for Ansible's name and ssh's own suffix, of 108 that a socket's path may have
    assert len(str(first)) < 68


def test_a_directory_that_others_could_use_is_refused(tmp_path: Path) -> None:
    control_dir(tmp_path, {}).chmod(0o777)
    with pytest.raises(ControlMachineError, match="private"):
        control_dir(tmp_path, {})


FIRST, NVIDIA, SLURM, LAST = (Path(f"/content/playbooks/{name}.yml") for name in ("first", "nvidia", "slurm", "jobs"))


def event(kind: str, play: str, playbook: Path) -> dict[str, Any]:
    return {"event": kind, "event_data": {"play": play, "playbook": str(playbook)}}


def test_those_that_belong_together_are_one_in_their_place(tmp_path: Path) -> None:
    result = join((FIRST, NVIDIA, SLURM, LAST), (NVIDIA, SLURM), tmp_path)

    assert (result[0], result[2:]) == (FIRST, (LAST,))
    plays = json.loads(result[1].read_text(encoding="utf-8"))
    imported = [play["ansible.builtin.import_playbook"] for play in plays if "ansible.builtin.import_playbook" in play]
    assert imported == [str(NVIDIA), str(SLURM)]


def test_one_alone_is_run_as_it_is(tmp_path: Path) -> None:
    assert join((SLURM, LAST), (SLURM,), tmp_path) == (SLURM, LAST)
    assert join((FIRST,), (), tmp_path) == (FIRST,)
    assert list(tmp_path.iterdir()) == []


def test_the_events_of_each_are_told_apart(tmp_path: Path) -> None:
    together = join((NVIDIA, SLURM), (NVIDIA, SLURM), tmp_path)[0]
    names = [play["name"] for play in json.loads(together.read_text(encoding="utf-8")) if "hosts" in play]
    tracker, result = PlaybookTracker(), []
    for name in names:
        assert tracker.update(event("playbook_on_play_start", name, together))
        assert not tracker.update(event("runner_on_ok", "Nodes", together))
        result.append(tracker.playbook_of(event("runner_on_ok", "Nodes", together)))

    assert result == ["nvidia", "slurm"]
    # a playbook of its own comes after them
    assert tracker.playbook_of(event("runner_on_ok", "Jobs", LAST)) == "jobs"


def test_the_plays_of_a_run_are_those_that_ansible_goes_through(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yml", tmp_path / "b.yml"
    first.write_text("- {hosts: all, pre_tasks: [{meta: noop}], roles: [x, y]}\n- {hosts: all, vars: {a: !unsafe b}}\n")
    second.write_text(f"- import_playbook: {first.name}\n- {{hosts: all, tasks: [{{meta: noop}}]}}\n")

    assert list(parts_of_plays(join([first, second], [first, second], tmp_path))) == [3, 0, 3, 0, 1]
