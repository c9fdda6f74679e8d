"""Reference GPU units: the Alliance's published table, its formula for others, and what a MIG slice counts."""

from __future__ import annotations

import pytest

from deepopsctl.gpus.reference_units import units_of, units_of_card
from deepopsctl.text.problems import RefusedError


@pytest.mark.parametrize(
    ("gpu_type", "units"),
    [
        ("h100", 12.15),
        ("a100_40gb", 4.0),
        ("a100_80gb", 4.8),
        ("t4", 1.3),
        ("l40s", 10.36),
        # the Alliance's table of slices, which rounds to two digits: 0.57, 1.14, 2.0, 2.3; 1.74, 3.48, 6.1
        ("a100_1g.5gb", 4 / 7),
        ("a100_3g.20gb", 2.0),
        ("a100_4g.20gb", 16 / 7),
        ("h100_3g.40gb", 12.15 / 2),
        ("a100_1g.5gb.me", 4 / 7),
    ],
)
def test_a_gpu_or_slice_counts_what_the_published_table_says(gpu_type: str, units: float) -> None:
    assert units_of(gpu_type, {}) == pytest.approx(units)


def test_a_sites_own_value_wins_for_the_gpu_its_slices_and_one_slice() -> None:
    assert units_of("h100", {"h100": 10}) == 10
    assert units_of("h100_3g.40gb", {"h100": 10}) == 5
    # Fir was seen to bill 3/7 for it
    assert units_of("h100_3g.40gb", {"h100": 10, "h100_3g.40gb": 4.28}) == 4.28


@pytest.mark.parametrize(
    ("gpu_type", "message"),
    [
        ("a100", "a100 has a100_40gb 4 and a100_80gb 4.8 RGU"),
        ("h200", "no reference units are known for GPUs of type h200"),
        ("a100_9g.5gb", "no reference units are known for GPUs of type a100_9g.5gb"),
        ("", "no reference units are known for GPUs of type (none)"),
    ],
)
def test_refuses_what_it_would_have_to_guess(gpu_type: str, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        units_of(gpu_type, {})
    assert refused.value.message.startswith(message)


def test_a_card_is_known_by_its_slices() -> None:
    assert units_of_card("a100", "3g.40gb", {}) == 4.8
    assert units_of_card("a100_40gb", "", {}) == 4.0
