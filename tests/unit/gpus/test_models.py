"""The tables of GPU products and MIG profiles, and the page that is written from them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from deepopsctl.gpus.mig_profiles import FAMILIES, compute_slices, fit, slice_files
from deepopsctl.gpus.models import MODELS, Generation, GpuModel, Modules, find_product, models_of
from tests.support.paths import ROOT


class TestModels:
    @pytest.mark.parametrize("model", MODELS, ids=lambda model: model.product)
    def test_a_product_has_a_type_that_slurm_takes_of_one_generation_and_mig_only_since_ampere(
        self, model: GpuModel
    ) -> None:
        assert find_product(model.product) is model
        assert re.fullmatch(r"[a-z][a-z0-9]*", model.type)
        assert re.fullmatch(r"[a-z0-9_]+", model.typed_with_memory)
        assert {other.generation for other in models_of(model.type)} == {model.generation}
        assert not model.family or model.generation in (Generation.AMPERE, Generation.HOPPER, Generation.BLACKWELL)

    def test_variants_of_a_model_with_the_same_memory_are_cut_the_same_way(self) -> None:
        families: dict[str, set[str]] = {}
        for model in MODELS:
            families.setdefault(model.typed_with_memory, set()).add(model.family)

        assert {key: names for key, names in families.items() if len(names) > 1} == {}

    @pytest.mark.parametrize(
        ("product", "kind"),
        [
            ("A100-SXM4-40GB", "a100"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
            ("Quadro RTX 6000", "rtx6000"),
            ("nvidia  rtx a6000", "a6000"),
        ],
    )
    def test_a_product_is_found_by_the_drivers_name(self, product: str, kind: str) -> None:
        model = find_product(product)

        assert model is not None
        assert model.type == kind

    @pytest.mark.parametrize(
        ("kind", "modules"),
        [
            ("v100", Modules.PROPRIETARY),
            ("t4", Modules.EITHER),
            ("h100", Modules.EITHER),
            ("gh200", Modules.OPEN),
            ("b200", Modules.OPEN),
        ],
    )
    def test_kernel_modules_follow_from_the_generation(self, kind: str, modules: Modules) -> None:
        assert {model.modules for model in models_of(kind)} == {modules}

    def test_a_type_with_memory_stands_for_that_variant(self) -> None:
        assert {model.memory_gb for model in models_of("a100")} == {40, 80}
        assert {model.memory_gb for model in models_of("a100_80gb")} == {80}
        assert models_of("a100_50gb") == ()

    def test_a_family_is_one_there_is_and_every_family_has_a_gpu(self) -> None:
        assert {model.family for model in MODELS if model.family} == set(FAMILIES)


def fits(**many: int) -> bool:
    """Whether so many slices fit on 40 GB, named by their beginning: `g1=7` is the smallest with one compute slice."""
    profiles = [profile for profile in FAMILIES["40gb"].values() if not profile.media]
    smallest = {f"g{compute_slices(profile.name)}": profile for profile in reversed(profiles)}
    return fit([smallest[name] for name, count in many.items() for _ in range(count)])


class TestMig:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_as_many_of_a_profile_fit_as_the_table_says_and_no_more(self, family: str) -> None:
        for name, profile in FAMILIES[family].items():
            assert re.fullmatch(r"[1-7]g\.[0-9]+gb(\+me)?", name)
            assert fit([profile] * profile.count)
            assert not fit([profile] * (profile.count + 1))

    def test_counts_are_those_of_nvidias_guide(self) -> None:
        def counts(family: str) -> dict[str, int]:
            return {name: profile.count for name, profile in FAMILIES[family].items()}

        assert counts("40gb") == {
            "1g.5gb": 7, "1g.5gb+me": 1, "1g.10gb": 4, "2g.10gb": 3, "3g.20gb": 2, "4g.20gb": 1, "7g.40gb": 1,
        }  # fmt: skip
        assert counts("a30") == {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "4g.24gb": 1}

    @pytest.mark.parametrize(
        ("slices", "good"),
        [
            ({"g3": 1, "g2": 1, "g1": 2}, True),
            ({"g4": 1, "g3": 1}, True),
            ({"g4": 1, "g2": 1, "g1": 1}, True),
            ({"g3": 2, "g1": 1}, False),
            ({"g4": 2}, False),
            ({"g7": 1, "g1": 1}, False),
            ({"g2": 3, "g1": 2}, False),
        ],
    )
    def test_slices_of_several_kinds_fit_only_where_they_may_begin(self, slices: dict[str, int], good: bool) -> None:
        assert fits(**slices) is good

    @pytest.mark.parametrize(
        ("gpu", "instance", "caps"), [(0, 7, (66, 67)), (0, 8, (75, 76)), (1, 7, (201, 202)), (4, 7, (606, 607))]
    )
    def test_device_files_are_those_of_the_drivers_list(self, gpu: int, instance: int, caps: tuple[int, int]) -> None:
        # lines `gpu0/gi7/access 66`, `gpu4/gi7/ci0/access 607` of /proc/driver/nvidia-caps/mig-minors
        files = slice_files(f"/dev/nvidia{gpu}", gpu, instance)

        assert files == (f"/dev/nvidia{gpu}", *(f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in caps))


def test_the_page_of_models_is_up_to_date() -> None:
    script = str(ROOT / "scripts" / "gpu-model-table")
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
