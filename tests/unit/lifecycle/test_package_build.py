"""Which inputs make a build another one, and its version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.errors import DeepOpsError
from deepopsctl.lifecycle.package_build import BuildRequest, default_features, mmdebstrap_argv
from deepopsctl.lifecycle.package_sources import Source, SourceFile
from tests.support.paths import ROOT

TARBALL = SourceFile("slurm-wlm_24.11.5.orig.tar.gz", "a" * 64, ("https://mirror.example.com/orig",))
SOURCE = Source("slurm-wlm", "24.11.5-4", "trixie", TARBALL)
REQUEST = BuildRequest(SOURCE, "debian13", "amd64", features=("nvml", "pmix"))


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, os="debian12"),
        replace(REQUEST, architecture="arm64"),
        replace(REQUEST, features=("pmix",)),
        replace(REQUEST, source=replace(SOURCE, version="24.11.5-5")),
        replace(REQUEST, source=replace(SOURCE, tarball=replace(TARBALL, sha256="b" * 64))),
        replace(REQUEST, source=replace(SOURCE, packaging=replace(TARBALL, name="p", sha256="c" * 64))),
    ],
)
def test_another_input_is_another_build(other: BuildRequest) -> None:
    assert other.digest != REQUEST.digest


def test_the_mirror_and_the_order_of_features_are_no_inputs() -> None:
    elsewhere = replace(TARBALL, places=("https://other.example.com/orig",))
    same = replace(REQUEST, source=replace(SOURCE, tarball=elsewhere), features=("pmix", "nvml"), mirror="https://m/")
    assert same.digest == REQUEST.digest


@pytest.mark.parametrize(
    ("suite", "version"),
    [
        ("trixie", "24.11.5-4+deepopsctl2"),
        ("trixie-security", "24.11.5-4+deepopsctl2"),
        ("sid", "24.11.5-4~deb13+deepopsctl2"),
        ("", "24.11.5-4~deb13+deepopsctl2"),
    ],
)
def test_a_version_is_above_its_own_suite_and_below_a_later_one(suite: str, version: str) -> None:
    assert replace(REQUEST, source=replace(SOURCE, suite=suite)).version(2) == version


def test_only_a_build_with_nvml_reads_non_free_packages() -> None:
    without = replace(REQUEST, features=default_features("slurm-wlm", ["nvml"]))
    assert "--components=main" in mmdebstrap_argv(without, ROOT, ROOT)
    assert "--components=main,contrib,non-free" in mmdebstrap_argv(REQUEST, ROOT, ROOT)


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(DeepOpsError, match="slurm-wlm has no such feature"):
        default_features("slurm-wlm", ["nvmll"])
