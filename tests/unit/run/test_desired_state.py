from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.cluster.settings import known_names
from deepopsctl.content import content_dir
from deepopsctl.run.desired_state import (
    Inputs,
    changed_settings,
    read_inputs,
    resolve_desired_state,
    save_desired_state,
)
from deepopsctl.run.setting_scope import Scopes, blocks, without_component
from tests.support.runs import TEXT, cluster_dir

INPUTS = Inputs("inputs", {})


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """Two components: the second has a role, whose setting is made of another."""
    made = tmp_path / "content"
    (made / "playbooks").mkdir(parents=True)
    (made / "roles" / "web" / "defaults").mkdir(parents=True)
    imports = "".join(f"- ansible.builtin.import_playbook: {name}.yml\n" for name in ("queue", "watch"))
    (made / "playbooks" / "site.yml").write_text(imports)
    (made / "playbooks" / "queue.yml").write_text("- debug: {var: queue_length, ansible_port: 1}\n")
    (made / "playbooks" / "watch.yml").write_text("- roles:\n    - role: web\n")
    (made / "roles" / "web" / "defaults" / "main.yml").write_text('web_url: "{{ web_port }}"\n')
    return made


def test_an_edit_of_hardware_yml_is_a_new_desired_state_and_what_a_run_writes_there_is_none(
    tmp_path: Path, content: Path
) -> None:
    hardware, memory = tmp_path / "hardware.yml", tmp_path / "desired.json"
    first = resolve_desired_state(INPUTS, content, hardware, memory)
    hardware.write_text("found by the run", encoding="utf-8")
    save_desired_state(first, hardware, memory)

    assert resolve_desired_state(INPUTS, content, hardware, memory) == first
    setting = Inputs("inputs", {"all.yml": {"web_port": b"web_port: 1"}})
    assert resolve_desired_state(setting, content, hardware, memory).components["queue"] == first.components["queue"]
    other = resolve_desired_state(Inputs("others", {}), content, hardware, memory)
    hardware.write_text("edited", encoding="utf-8")
    edited = resolve_desired_state(INPUTS, content, hardware, memory)
    for changed in (other, edited):
        assert changed.digest != first.digest
        assert not set(changed.components.values()) & set(first.components.values())


def test_a_damaged_memory_is_no_memory(tmp_path: Path, content: Path) -> None:
    hardware, memory = tmp_path / "hardware.yml", tmp_path / "desired.json"
    fresh = resolve_desired_state(INPUTS, content, hardware, memory)
    memory.write_text('{"digest": ', encoding="utf-8")

    assert resolve_desired_state(INPUTS, content, hardware, memory) == fresh


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("queue_length: 3", ("queue",)),
        ("web_port: 3", ("watch",)),
        # a name of the site's own in a setting
        ("mine: 3", ("watch",)),
        ("ansible_port: 3", ("queue", "watch")),
        # nothing is known of it
        ("other: 3", ("queue", "watch")),
        # that can't be read
        ("$ANSIBLE_VAULT;1.1;AES256", ("queue", "watch")),
        ("# why", ()),
    ],
)
def test_a_setting_changes_the_digest_of_its_components(
    tmp_path: Path, content: Path, setting: str, changed: tuple[str, ...]
) -> None:
    directory, hardware, memory = tmp_path / "cluster", tmp_path / "hardware.yml", tmp_path / "desired.json"
    (directory / "inventory" / "group_vars").mkdir(parents=True)
    (directory / "inventory" / "group_vars" / "other.yml").write_text('web_url: "x{{ mine }}"\n', encoding="utf-8")
    before = resolve_desired_state(read_inputs(content, directory, []), content, hardware, memory)

    (directory / "inventory" / "group_vars" / "all.yml").write_text(f"{setting}\n", encoding="utf-8")
    after = resolve_desired_state(read_inputs(content, directory, []), content, hardware, memory)

    assert tuple(name for name in after.components if after.components[name] != before.components[name]) == changed
    assert (after.digest != before.digest) == bool(changed)


def test_settings_that_changed_since_the_last_deploy_are_named(tmp_path: Path, content: Path) -> None:
    directory, hardware, memory = tmp_path / "cluster", tmp_path / "hardware.yml", tmp_path / "desired.json"
    variables = directory / "inventory" / "group_vars"
    variables.mkdir(parents=True)
    (variables / "all.yml").write_text("same: 1\ngone: 1\nother: 1\n", encoding="utf-8")
    assert changed_settings(directory, memory) == ()
    inputs = read_inputs(content, directory, [])
    save_desired_state(resolve_desired_state(inputs, content, hardware, memory), hardware, memory)

    (variables / "all.yml").write_text("same: 1\nother: 2\nnew: 1\n", encoding="utf-8")

    assert changed_settings(directory, memory) == ("gone", "new", "other")


def test_a_lock_counts_as_a_part_of_its_setting(tmp_path: Path, content: Path) -> None:
    directory, hardware, memory = tmp_path / "cluster", tmp_path / "hardware.yml", tmp_path / "desired.json"
    (content / "playbooks" / "queue.yml").write_text("- debug: {var: environments}\n", encoding="utf-8")
    lock = directory / "environments" / "dl" / "2026.12.lock"
    lock.parent.mkdir(parents=True)
    before = resolve_desired_state(read_inputs(content, directory, []), content, hardware, memory)

    lock.write_text("x", encoding="utf-8")
    after = resolve_desired_state(read_inputs(content, directory, []), content, hardware, memory)

    assert [name for name in after.components if after.components[name] != before.components[name]] == ["queue"]
    save_desired_state(after, hardware, memory)
    assert changed_settings(directory, memory) == ()


def test_every_other_input_counts_for_every_component(tmp_path: Path) -> None:
    content, cluster = tmp_path / "content", tmp_path / "cluster"
    (content / "roles").mkdir(parents=True)
    cluster.mkdir()
    (cluster / "cluster.yml").write_text("a", encoding="utf-8")
    seen = {read_inputs(content, cluster, []).common}

    seen.add(read_inputs(content, cluster, [{"slurm_config": {"MaxArraySize": 7}}]).common)
    (content / "roles" / "main.yml").write_text("b", encoding="utf-8")
    seen.add(read_inputs(content, cluster, []).common)
    for part in ("cluster.yml", "people.yml", "known_hosts"):
        (cluster / part).write_text("c: 1", encoding="utf-8")
        seen.add(read_inputs(content, cluster, []).common)

    assert len(seen) == 6


@pytest.mark.parametrize("text", [b"- a\n", b"{a: 1}\n", b"'a': 1\n", b"a\n", b"a: 1\nb\n"])
def test_a_file_that_is_not_a_plain_mapping_has_no_settings(text: bytes) -> None:
    assert blocks(text) is None


def test_a_setting_ends_where_the_next_begins() -> None:
    text = b"---\n# a\na:\n- 1\n# in it\n- 2\n\nb: |\n  # text\n"

    assert blocks(text) == {"a": b"a:\n- 1\n- 2", "b": b"b: |\n  # text"}


def test_nearly_every_setting_of_the_product_is_of_one_component() -> None:
    scopes = Scopes(content_dir(), [])
    of = {name: scopes.of(name) for name in known_names(content_dir())}

    assert of["prometheus_retention"] == scopes.of("monitoring_retention") == frozenset({"monitoring"})
    assert of["slurmctld_verify_timeout"] == frozenset({"slurm"})
    # alerts are made of it
    assert {"slurm", "monitoring"} <= (of["slurm_config"] or set())
    # looked up by name in Python
    assert of["slurm_adopt_enabled"] is None
    single = sum(scope is not None and len(scope) == 1 for scope in of.values())
    assert single > 0.7 * len(of), single


def test_a_setting_whose_component_is_not_deployed_is_a_warning_with_its_line(tmp_path: Path) -> None:
    directory = cluster_dir(tmp_path, f"{TEXT}components: [slurm]\n")
    directory.settings.parent.mkdir(parents=True)
    directory.settings.write_text(
        "package_cache_host: ctl1\nenvironments: {torch: {packages: [torch]}}\nnvidia_dcgm: true\n"
        # off, deployed, used by what is deployed, a suite's, unknown
        "monitoring_enabled: false\ncuda_toolkits: []\nslurm_install: distro\nslurm_config: {MaxArraySize: 100}\n"
        "validate_smoke_run_timeout: 70\nsite_thing: 5\nansible_user: ops\n"
    )
    problems = [*without_component(directory, content_dir())]

    where = directory.settings.relative_to(directory.path).as_posix()
    owners = {1: "package_cache", 2: "environment", 3: "nvidia"}
    assert [(problem.where, problem.hint) for problem in problems] == [
        (f"{where}:{line}", f"add {owner} to `components:`, or remove the setting") for line, owner in owners.items()
    ]
    assert [*without_component(directory, content_dir(), tuple(owners.values()))] == []
