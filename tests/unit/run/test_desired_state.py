from __future__ import annotations

from pathlib import Path

from deepopsctl.run.desired_state import desired_digest, resolve_desired_state, save_desired_state


def test_other_inputs_and_an_edit_of_hardware_yml_are_a_new_desired_state_and_what_a_run_writes_there_is_none(
    tmp_path: Path,
) -> None:
    hardware, memory = tmp_path / "hardware.yml", tmp_path / "desired.json"
    first = resolve_desired_state("inputs", hardware, memory)
    hardware.write_text("found by the run", encoding="utf-8")
    save_desired_state(first, hardware, memory)

    assert resolve_desired_state("inputs", hardware, memory).digest == first.digest
    assert resolve_desired_state("others", hardware, memory).digest != first.digest
    hardware.write_text("edited", encoding="utf-8")
    assert resolve_desired_state("inputs", hardware, memory).digest != first.digest


def test_a_damaged_memory_is_no_memory(tmp_path: Path) -> None:
    hardware, memory = tmp_path / "hardware.yml", tmp_path / "desired.json"
    fresh = resolve_desired_state("inputs", hardware, memory)
    memory.write_text('{"digest": ', encoding="utf-8")

    assert resolve_desired_state("inputs", hardware, memory) == fresh


def test_every_input_counts_for_the_digest(tmp_path: Path) -> None:
    content, cluster = tmp_path / "content", tmp_path / "cluster"
    (content / "roles").mkdir(parents=True)
    cluster.mkdir()
    (cluster / "cluster.yml").write_text("a", encoding="utf-8")
    seen = {desired_digest(content, cluster, [])}

    seen.add(desired_digest(content, cluster, [{"slurm_config": {"MaxArraySize": 7}}]))
    (content / "roles" / "main.yml").write_text("b", encoding="utf-8")
    seen.add(desired_digest(content, cluster, []))
    for part in ("cluster.yml", "people.yml", "inventory/group_vars/all.yml", "inventory/host_vars/gpu01.yml"):
        (cluster / part).parent.mkdir(parents=True, exist_ok=True)
        (cluster / part).write_text("c", encoding="utf-8")
        seen.add(desired_digest(content, cluster, []))

    assert len(seen) == 7
