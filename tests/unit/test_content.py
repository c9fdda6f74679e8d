from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.content import components, content_dir, playbook
from deepopsctl.errors import ControlMachineError


def make_content(directory: Path, site: str, *names: str) -> Path:
    (directory / "playbooks" / "validate").mkdir(parents=True)
    (directory / "playbooks" / "site.yml").write_text(site)
    for name in names:
        (directory / "playbooks" / f"{name}.yml").write_text("[]\n")
    return directory


def test_a_checkout_is_its_own_content() -> None:
    result = content_dir()
    assert (result / "playbooks" / "site.yml").is_file()
    assert "slurm" in components(result)


def test_components_come_in_the_order_of_site_yml(tmp_path: Path) -> None:
    site = """\
- name: Second by alphabet, first by need
  ansible.builtin.import_playbook: zulu.yml
- import_playbook: 'alpha.yml'
- ansible.builtin.import_playbook: zulu.yml
- ansible.builtin.import_playbook: not_there.yml
"""
    content = make_content(tmp_path, site, "zulu", "alpha", "other")
    assert components(content) == ("zulu", "alpha")


def test_a_playbook_may_be_in_a_directory(tmp_path: Path) -> None:
    content = make_content(tmp_path, "[]\n", "validate/smoke")
    assert playbook("validate/smoke", content) == tmp_path / "playbooks" / "validate" / "smoke.yml"


def test_a_missing_playbook_is_a_fault_of_the_installation(tmp_path: Path) -> None:
    with pytest.raises(ControlMachineError, match=r"nope\.yml does not exist"):
        playbook("nope", make_content(tmp_path, "[]\n"))


def test_a_directory_without_playbooks_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ControlMachineError) as caught:
        content_dir(tmp_path)
    assert "DEEPOPSCTL_CONTENT" in caught.value.hint
