"""The box's recipe, without building one; and the Vagrantfile's example."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deepopsctl.lab.rootfs import RootFile
from tests.support.paths import ROOT
from tests.vm.box import rootfs
from tests.vm.box.recipe import SYSTEMS, BoxRecipe


def test_another_recipe_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = [BoxRecipe(os) for os in SYSTEMS]
    recipes += [BoxRecipe("debian13", "http://mirror.example.com/debian"), BoxRecipe("debian13", extra=("munge",))]
    digests = {recipe.digest for recipe in recipes}
    monkeypatch.setitem(rootfs.FILES, "etc/motd", RootFile(0o644, "hello\n"))
    digests.add(BoxRecipe("debian13").digest)
    assert len(digests) == len(recipes) + 1


def test_a_box_with_extra_packages_is_not_called_like_a_bare_machine() -> None:
    bare, full = BoxRecipe("debian13"), BoxRecipe("debian13", extra=("slurmd",))
    assert bare.name == "deepopsctl/debian13"
    assert full.name == f"deepopsctl/debian13-{full.digest}"


def test_no_box_brings_slurm() -> None:
    for os in SYSTEMS:
        assert not any(
            "slurm" in part or "munge" in part for part in BoxRecipe(os).mmdebstrap_argv(Path("f"), Path("r"))
        )


def test_the_example_gives_a_size_to_every_group_of_its_machines() -> None:
    directory = ROOT / "inventory" / "vms"
    inventory = yaml.safe_load((directory / "inventory" / "hosts.yml").read_text(encoding="utf-8"))["all"]
    sizes = yaml.safe_load((directory / "vagrant.yml").read_text(encoding="utf-8"))
    groups = inventory["children"]["slurm_cluster"]["children"]
    sized = {host for group in sizes for host in groups[group]["hosts"]}
    assert sized == set(inventory["hosts"])
    assert sizes["slurm_compute"]["simulated_gpus"] == inventory["vars"]["slurm_nodes"][0]["gpus"]["count"]
