"""Which CUDA toolkits a node gets, what is refused, and the module files that it gets with them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from deepopsctl.gpus.cuda import CudaHost, ToolkitPlan, ToolkitRequest, module_files, plan_toolkits, profile_script
from tests.support.paths import ROOT

VERSIONS = yaml.safe_load((ROOT / "group_vars/all/versions.yml").read_text(encoding="utf-8"))
CATALOGUE = VERSIONS["deepops_cuda"]


def plan(
    *versions: str, platform: str = "Debian 12", driver: str = "", source: str = "repository", default: str = ""
) -> ToolkitPlan:
    """The plan for a node that should have these versions."""
    return plan_toolkits(ToolkitRequest(versions, source, default), CudaHost(platform, driver, "550"), CATALOGUE)


def problem(made: ToolkitPlan) -> str:
    """The one thing in the way, with what to do."""
    ((message, hint),) = made.problems
    assert hint
    return message


class TestToolkits:
    def test_each_version_has_its_package_and_its_directory(self) -> None:
        made = plan("13.0", "12.8")

        assert [(kit.version, kit.package, kit.home) for kit in made.toolkits] == [
            ("12.8", "cuda-toolkit-12-8", "/usr/local/cuda-12.8"),
            ("13.0", "cuda-toolkit-13-0", "/usr/local/cuda-13.0"),
        ]
        assert made.problems == ()

    def test_versions_are_numbers_and_not_words(self) -> None:
        assert [kit.version for kit in plan("12.10", "12.9", "12.9").toolkits] == ["12.9", "12.10"]
        assert plan("12.10", "12.9").default == "12.10"

    @pytest.mark.parametrize("version", ["12", "12.8.1", "12-8", "latest", "12.8; reboot", ""])
    def test_anything_but_two_numbers_is_refused(self, version: str) -> None:
        made = plan("13.0", version)

        assert problem(made) == f"{version} is not a version of CUDA"
        assert made.toolkits == ()

    def test_a_default_that_is_not_installed_is_refused(self) -> None:
        assert plan("12.8", "13.0", default="12.8").default == "12.8"
        assert problem(plan("12.8", default="12.6")) == "cuda_default is 12.6, which is not in cuda_toolkits"


class TestDistribution:
    def test_it_has_one_version(self) -> None:
        (kit,) = plan("12.4", platform="Debian 13", source="distro").toolkits

        assert (kit.package, kit.home, dict(kit.directories)) == ("nvidia-cuda-toolkit", "/usr/lib/cuda", {})

    @pytest.mark.parametrize("versions", [("12.8",), ("12.4", "12.8")])
    def test_any_other_is_refused_by_name(self, versions: tuple[str, ...]) -> None:
        made = plan(*versions, platform="Debian 13", source="distro")

        assert problem(made) == "Debian 13 packages CUDA 12.4 and no other"
        assert "cuda_toolkits: ['12.4']" in made.problems[0][1]

    def test_it_does_not_go_with_another_driver_than_the_distributions(self) -> None:
        made = plan("12.4", platform="Debian 13", source="distro", driver="580.95.05")

        assert problem(made) == (
            "Debian 13's toolkit brings its own driver's libraries (550), this node's driver is 580.95.05"
        )
        assert plan("12.4", platform="Debian 13", source="distro", driver="550.163.01").problems == ()

    @pytest.mark.parametrize("source", ["repository", "distro"])
    def test_a_platform_that_is_not_known_is_refused(self, source: str) -> None:
        made = plan("12.4", platform="Debian 11", source=source)

        assert problem(made) == f"no CUDA toolkit of the source `{source}` is known for Debian 11"
        assert "Debian 12" in made.problems[0][1]


class TestDriver:
    @pytest.mark.parametrize(
        ("version", "driver"),
        [("13.0", "580"), ("13.1", "580.65.06"), ("12.0", "525.60.13"), ("12.9", "550"), ("11.8", "450.80.02")],
    )
    def test_the_first_branch_of_a_major_version_serves_all_of_it(self, version: str, driver: str) -> None:
        assert plan(version, driver=driver).problems == ()

    @pytest.mark.parametrize(
        ("version", "driver", "needed"), [("13.0", "575.57.08", 580), ("12.0", "520", 525), ("11.8", "418.40.04", 450)]
    )
    def test_an_older_one_is_refused_with_what_to_do(self, version: str, driver: str, needed: int) -> None:
        made = plan(version, driver=driver)

        assert problem(made) == f"CUDA {version} needs driver {needed} or later, this node's is {driver}"
        assert "inventory/host_vars" in made.problems[0][1]
        assert "nvidia_driver_branch" in made.problems[0][1]

    def test_without_a_driver_any_toolkit_will_do_for_compiling(self) -> None:
        assert plan("11.8", "13.0", driver="").problems == ()

    def test_a_major_version_that_is_not_in_the_table_is_refused(self) -> None:
        assert problem(plan("14.0", driver="640")) == "which driver CUDA 14.0 needs is not known"

    def test_the_drivers_of_each_distribution_serve_its_own_toolkit(self) -> None:
        distributed = VERSIONS["deepops_nvidia_drivers"]["distro"]

        assert set(CATALOGUE["distro"]["platforms"]) == set(distributed)
        for platform, version in CATALOGUE["distro"]["platforms"].items():
            branch = distributed[platform]["branches"][0]
            made = plan_toolkits(ToolkitRequest([version], "distro"), CudaHost(platform, branch, branch), CATALOGUE)
            assert made.problems == ()

    def test_cuda_is_known_wherever_the_driver_of_the_same_repository_is(self) -> None:
        assert set(CATALOGUE["repository"]["platforms"]) == set(VERSIONS["deepops_nvidia_drivers"]["repository"])


class TestModuleFiles:
    def test_one_for_each_version_and_one_that_names_the_default(self) -> None:
        files = module_files(plan("12.8", "13.0", default="12.8"), "/opt/m")

        assert set(files) == {"/opt/m/cuda/12.8", "/opt/m/cuda/13.0", "/opt/m/cuda/.version"}
        assert 'set ModulesVersion "12.8"' in files["/opt/m/cuda/.version"]

    def test_it_is_tcl_sets_the_paths_and_excludes_its_like(self) -> None:
        text = module_files(plan("12.8"), "/opt/m")["/opt/m/cuda/12.8"]

        assert text.startswith("#%Module1.0\n")
        assert "conflict cuda\n" in text
        assert "setenv CUDA_HOME /usr/local/cuda-12.8\n" in text
        assert "prepend-path PATH /usr/local/cuda-12.8/bin\n" in text
        assert "prepend-path LD_LIBRARY_PATH /usr/local/cuda-12.8/lib64\n" in text
        assert "prepend-path CPATH /usr/local/cuda-12.8/include\n" in text
        # stubs come after the libraries: the last one put before the others is found first
        assert text.index("lib64/stubs") < text.index("LIBRARY_PATH /usr/local/cuda-12.8/lib64\n", text.index("stubs"))

    def test_a_toolkit_in_the_systems_own_directories_needs_no_paths(self) -> None:
        files = module_files(plan("12.4", platform="Debian 13", source="distro"), "/opt/m")

        assert "setenv CUDA_HOME /usr/lib/cuda\n" in files["/opt/m/cuda/12.4"]
        assert "path" not in files["/opt/m/cuda/12.4"]

    def test_no_toolkit_no_file(self) -> None:
        assert module_files(plan(), "/opt/m") == {}

    def test_the_profile_adds_the_directory_where_there_is_a_module_system_and_once(self, tmp_path: Path) -> None:
        script = tmp_path / "profile.sh"
        script.write_text(profile_script("/opt/m"), encoding="utf-8")

        def after(modulepath: str | None, times: int = 1) -> str:
            variables = {} if modulepath is None else {"MODULEPATH": modulepath}
            commands = f". {script}; " * times + 'echo "${MODULEPATH-unset}"'
            # with an unset variable as an error
            return subprocess.check_output(["sh", "-euc", commands], env=variables, text=True).strip()

        assert after("/usr/share/modules") == "/usr/share/modules:/opt/m"
        assert after("/usr/share/modules", times=2) == "/usr/share/modules:/opt/m"
        assert after("/opt/m:/x") == "/opt/m:/x"
        assert after(None) == "unset"
