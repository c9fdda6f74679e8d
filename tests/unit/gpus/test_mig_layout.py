"""How cluster.yml's MIG layouts become what the driver is told, GPU by GPU."""

from __future__ import annotations

from typing import Any

from deepopsctl.gpus.mig_layout import desired_gpus
from deepopsctl.gpus.notation import from_inventory


def desired(**gpus: Any) -> list[dict[str, Any]]:
    """What a node with these GPUs in its inventory is told."""
    return [gpu.as_object() for gpu in desired_gpus(from_inventory(gpus))]


def test_a_node_without_gpus_gets_nothing() -> None:
    assert desired() == []


def test_gpus_without_a_layout_are_to_be_whole() -> None:
    assert desired(type="h100", count=2) == [{"minor": number, "slices": [], "numbers": {}} for number in (0, 1)]


def test_one_layout_is_for_every_gpu_of_the_kind() -> None:
    groups = [{"type": "h100", "count": 2, "mig": {"1g.10gb": 7}}]

    assert desired(type="h100", count=2, kinds=groups, autodetect="nvml") == [
        {"minor": number, "slices": ["1g.10gb"] * 7, "numbers": {}} for number in (0, 1)
    ]


def test_large_slices_are_made_first_and_4g_before_3g() -> None:
    layout = {"1g.5gb": [7, 8], "2g.10gb": [5], "3g.20gb": [2]}
    groups = [{"type": "a100", "count": 2, "mig": [layout, {"3g.20gb": [1], "4g.20gb": [2]}]}]

    first, second = desired(type="a100", count=2, kinds=groups)

    assert first["slices"] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
    assert first["numbers"] == {"3g.20gb": [2], "2g.10gb": [5], "1g.5gb": [7, 8]}
    assert second["slices"] == ["4g.20gb", "3g.20gb"]


def test_a_2g_slice_comes_before_a_1g_slice_with_as_much_memory() -> None:
    groups = [{"type": "h100", "count": 1, "mig": {"1g.20gb": 1, "2g.20gb": 3}}]

    assert desired(type="h100", count=1, kinds=groups, autodetect="nvml")[0]["slices"] == ["2g.20gb"] * 3 + ["1g.20gb"]


def test_gpus_go_by_their_device_files_and_other_files_are_left_out() -> None:
    groups = [
        {"type": "a40", "count": 1, "files": "/dev/other"},
        {"type": "a100", "count": 2, "files": "/dev/nvidia[4-5]", "mig": [{}, {"7g.40gb": [0]}]},
    ]

    assert desired(type="", count=3, kinds=groups) == [
        {"minor": 4, "slices": [], "numbers": {}},
        {"minor": 5, "slices": ["7g.40gb"], "numbers": {"7g.40gb": [0]}},
    ]
