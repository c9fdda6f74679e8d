"""The wheel, installed in an environment of its own and used from another directory: nothing leans on the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.local_ansible import environment
from tests.support.paths import ROOT

CONTENT = ("playbooks", "roles", "group_vars", "plugins", "meta", "examples", "docs")
BUILD_INPUTS = ("LICENSE", "README.md", "pyproject.toml", "deepopsctl", *CONTENT)
PLACE = "deepopsctl/_content/ansible_collections/deepopsctl/cluster"


@dataclass(frozen=True)
class Installed:
    """A virtual environment with deepopsctl, and an empty directory to work in."""

    environment: Path
    directory: Path

    def run(self, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
        """A program of this environment, run in the directory; returns what it printed."""
        done = subprocess.run(
            [str(self.environment / "bin" / arguments[0]), *arguments[1:]],
            cwd=self.directory,
            env=dict(settings) if settings is not None else clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def content(self) -> Path:
        """Where this installation finds its playbooks."""
        code = "from deepopsctl.content import content_dir; print(content_dir())"
        return Path(self.run("python", "-c", code).strip())


def clean_environment() -> dict[str, str]:
    """Without what would point Python or deepopsctl to the checkout."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "DEEPOPSCTL", "ANSIBLE"))}


def install(target: Path, what: str, *options: str) -> Installed:
    """A new environment with one package; its dependencies are this Python's own, so that no network is needed."""
    venv.create(target, with_pip=False)
    installed = Installed(target, target / "work")
    installed.directory.mkdir()
    packages = Path(installed.run("python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # a plain line: .pth files in that directory, such as the one of an editable deepopsctl, are not followed
    paths = dict.fromkeys(sysconfig.get_path(path_name) for path_name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(target / "bin" / "python"), "install", "--quiet"]
    offline = ["--disable-pip-version-check", "--no-index", "--no-deps", "--ignore-installed"]
    subprocess.run([*pip, *offline, *options, what], env=clean_environment(), check=True, timeout=600)
    return installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of this checkout, with litter that must not be in it."""
    copy = tmp_path_factory.mktemp("source")
    for name in BUILD_INPUTS:
        source = ROOT / name
        if source.is_dir():
            # Python's caches there come and go while other tests run
            shutil.copytree(source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy / name)
    for litter in (
        "deepopsctl/__pycache__/x.pyc",
        "roles/slurmd/__pycache__/x.pyc",
        "plugins/modules/__pycache__/x.pyc",
        "tests/test_x.py",
    ):
        (copy / litter).parent.mkdir(parents=True, exist_ok=True)
        (copy / litter).touch()
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(copy)],
        check=True,
        capture_output=True,
        timeout=600,
    )
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own."""
    return install(tmp_path_factory.mktemp("installed") / "venv", str(wheel))


class TestFiles:
    @pytest.fixture
    def names(self, wheel: Path) -> set[str]:
        with zipfile.ZipFile(wheel) as archive:
            return set(archive.namelist())

    @pytest.mark.parametrize(("part", "place"), [("deepopsctl", ""), *((part, f"{PLACE}/") for part in CONTENT)])
    def test_all_of_the_package_and_its_content_is_in_it(self, names: set[str], part: str, place: str) -> None:
        files = {
            f"{place}{path.relative_to(ROOT).as_posix()}"
            for path in (ROOT / part).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }

        assert files
        assert files <= names

    def test_nothing_else_is_in_it(self, names: set[str]) -> None:
        assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"deepopsctl"}
        assert [name for name in names if "__pycache__" in name or "/tests/" in name or name.endswith(".pyc")] == []

    def test_what_is_a_link_in_the_checkout_is_a_file_in_it(self, wheel: Path) -> None:
        (link,) = [path for path in (ROOT / "deepopsctl").rglob("*effects.py") if path.is_symlink()]

        with zipfile.ZipFile(wheel) as archive:
            text = archive.read(link.relative_to(ROOT).as_posix())

        assert text == (ROOT / "plugins" / "module_utils" / "slurm" / "effects.py").read_bytes()


class TestInstalled:
    def test_init_makes_a_cluster_that_its_own_playbooks_load(self, installed: Installed) -> None:
        node_options = ["--controller", "ctl1=192.0.2.1", "--compute", "gpu[01-02]=192.0.2.[11-12]", "--gpus", "h100:8"]
        printed = installed.run("deepopsctl", "init", "cluster", "--json", *node_options)
        assert json.loads(printed)["nodes"] == 3
        content = installed.content()
        stage = installed.directory / "stage"
        stage.mkdir()
        (stage / "hosts.yml").write_text("all: {children: {slurm_cluster: {}}}\n", encoding="utf-8")
        (stage / "group_vars").symlink_to(content / "group_vars")

        # as a module of this environment's Python: the program of the same name belongs to another one
        output = installed.run(
            "python",
            *("-m", "ansible", "playbook", "--syntax-check"),
            *("-i", str(stage / "hosts.yml"), "-i", "cluster/inventory/hosts.yml"),
            *("--vault-password-file", "cluster/.vault-password"),
            str(content / "playbooks" / "site.yml"),
            settings={**environment(stage, content), "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore"},
        )

        assert f"playbook: {content}/playbooks/site.yml" in output
        assert "WARNING" not in output

    def test_the_pages_that_messages_name_come_with_it(self, installed: Installed) -> None:
        printed = installed.run("deepopsctl", "docs", "show", "docs/operate/backup.md#restore-a-controller")

        assert printed.startswith("## Restore a controller\n")
        assert "## " not in printed.removeprefix("## ")
        # the list of all, for programs; each address in it is a name of a page
        addresses = re.findall(
            r"^- \[.*?\]\((.+?)\)", installed.run("deepopsctl", "docs", "show", "llms"), re.MULTILINE
        )
        assert len(addresses) > 100
        assert installed.run("deepopsctl", "docs", "show", addresses[-1]).startswith("# ")

    def test_its_plugins_find_its_package(self, installed: Installed) -> None:
        content = installed.content()
        printed = installed.run(
            "python",
            *("-m", "ansible", "adhoc", "localhost", "-m", "ansible.builtin.debug"),
            *("-a", "msg={{ ['n1', 'n2', 'n3'] | deepopsctl.cluster.fold_nodes }}"),
            settings=environment(installed.directory, content),
        )

        assert '"msg": "n[1-3]"' in printed


def test_an_editable_install_uses_the_checkout(tmp_path: Path) -> None:
    installed = install(tmp_path / "venv", str(ROOT), "--no-build-isolation", "--editable")

    assert installed.content() == ROOT
