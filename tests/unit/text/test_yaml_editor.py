"""Edits of YAML that people wrote: settings.yml. For cluster.yml see cluster/test_editor.py."""

from __future__ import annotations

import pytest
import yaml

from deepopsctl.errors import InputError
from deepopsctl.text.yaml_editor import with_settings


class TestSettings:
    def test_values_go_behind_a_file_of_comments(self) -> None:
        text = with_settings("# explained\n---\n# slurm_x: 1\n", {"slurm_config": {"A": "b", "C": None}, "n": 1})

        assert text.startswith("# explained\n---\n# slurm_x: 1\n")
        assert yaml.safe_load(text) == {"slurm_config": {"A": "b", "C": None}, "n": 1}

    def test_what_is_there_already_changes_nothing(self) -> None:
        text = "a:   {b: c}   # as I like it\n"

        assert with_settings(text, {"a": {"b": "c"}}) == text

    @pytest.mark.parametrize("text", ["a: [", "- a\n"])
    def test_a_broken_file_is_refused_with_a_hint(self, text: str) -> None:
        with pytest.raises(InputError) as caught:
            with_settings(text, {"a": 1})
        assert caught.value.hint

    @pytest.mark.parametrize(
        ("text", "wanted", "expected"),
        [
            ("a: 'x'  # kept\n", {"a": "y: z"}, "a: 'y: z'  # kept\n"),
            ("a: x", {"b": True}, "a: x\nb: true\n"),
            ("a: x\r\nb: 1  # one\r\n", {"b": "2", "c": 3}, 'a: x\r\nb: "2"  # one\r\nc: 3\r\n'),
            ("a: {B: 1, c: 2, }\n", {"a": {"b": 3, "d": None}}, "a: {B: 3, c: 2, d: null, }\n"),
            ("a: {}\nb: 1\n", {"a": {"c": 2}}, "a: {c: 2}\nb: 1\n"),
            (
                "a:\n    x: 1\n    # last\n\nb: 1\n",
                {"a": {"z": "no"}},
                'a:\n    x: 1\n    z: "no"\n    # last\n\nb: 1\n',
            ),
            ("a:  # none yet\nb: 1\n", {"a": {"x": 1}}, "a:\n  x: 1  # none yet\nb: 1\n"),
            ("a: |\n  text\n  more\nb: 1\n", {"a": "short"}, "a: short\nb: 1\n"),
            ("a:\n  - 1\n  - 2\n# of b\nb: 1\n", {"a": [3]}, "a: [3]\n# of b\nb: 1\n"),
            ("s: !vault |\n  $ANSIBLE_VAULT\na: 1\n", {"a": 2}, "s: !vault |\n  $ANSIBLE_VAULT\na: 2\n"),
            ("a: {x: 1}\n", {"a": {"x": 2}, "b": 1, "c": [1]}, "a: {x: 2}\nb: 1\nc:\n  - 1\n"),
        ],
    )
    def test_only_the_values_change(self, text: str, wanted: dict[str, object], expected: str) -> None:
        assert with_settings(text, wanted) == expected

    @pytest.mark.parametrize("text", ["x: &x {k: 1}\na: *x\n", "x: &x {k: 1}\na: {<<: *x}\n"])
    def test_a_place_that_has_its_value_from_elsewhere_is_left_to_the_person(self, text: str) -> None:
        with pytest.raises(InputError) as caught:
            with_settings(text, {"a": {"k": 2, "j": 3}} if "<<" not in text else {"a": {"<<": 3}})

        assert "a:\n" in str(caught.value.hint)
