"""What is installed and published: lock files, versions and public CI agree with pyproject.toml and the Makefile."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import deepopsctl
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DEPENDENCIES: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
BUILD: list[str] = PROJECT["build-system"]["requires"]
PYTHONS = tuple(re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"])))
# what CI may start: everything that it does is a target, so that a developer does the same
WORKFLOWS = (".github/workflows/ci.yml", ".gitlab-ci.yml")


def of_extra(extra: str) -> Iterator[str]:
    """What an extra requires, with the extras that it names."""
    for text in EXTRAS[extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["project"]["name"]:
            for each in requirement.extras:
                yield from of_extra(each)
        else:
            yield text


def locked(text: str) -> dict[str, list[tuple[Requirement, bool]]]:
    """The packages of a lock file by name, and whether pyproject.toml names them."""
    packages: dict[str, list[tuple[Requirement, bool]]] = {}
    for entry in re.split(r"\n(?=\S)", text):
        if not entry.startswith("#"):
            requirement = Requirement(entry.split("\\")[0].strip())
            assert "--hash=sha256:" in entry, f"{requirement.name} has no hash"
            is_direct = re.search(r"# +(via )?(deepopsctl|-$)", entry, re.MULTILINE) is not None
            packages.setdefault(canonicalize_name(requirement.name), []).append((requirement, is_direct))
    return packages


def differences(required: list[str], text: str) -> list[str]:
    """Where a lock file is not one of these requirements; none if it is."""
    packages = locked(text)
    result = []
    for requirement in map(Requirement, required):
        for python in PYTHONS:
            fitting = [
                pinned
                for pinned, _ in packages.get(canonicalize_name(requirement.name), [])
                if pinned.marker is None or pinned.marker.evaluate({"python_full_version": f"{python}.0"})
            ]
            versions = [next(iter(pinned.specifier)).version for pinned in fitting]
            if not any(requirement.specifier.contains(version, prereleases=True) for version in versions):
                result.append(f"Python {python}: {requirement}: {versions or 'missing'}")
    names = {canonicalize_name(Requirement(each).name) for each in required}
    direct = {name for name, pins in packages.items() if any(is_direct for _, is_direct in pins)}
    return [*result, *(f"{name}: no longer required" for name in sorted(direct - names))]


@pytest.mark.parametrize(
    ("lock", "required"),
    [
        ("requirements.lock", [*BUILD, *DEPENDENCIES]),
        ("requirements-dev.lock", [*BUILD, *DEPENDENCIES, *of_extra("dev")]),
    ],
)
def test_a_lock_file_is_that_of_pyproject(lock: str, required: list[str]) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")

    assert differences(required, text) == [], "scripts/lock brings the lock files up to date"
    assert len(PYTHONS) > 2


@pytest.mark.parametrize(
    ("required", "message"),
    [
        (["click>=8.2,<9"], []),
        (["click>=9"], [f"Python {python}: click>=9: ['8.5.1']" for python in PYTHONS]),
        (["click", "rich"], [f"Python {python}: rich: missing" for python in PYTHONS]),
        ([], ["click: no longer required"]),
    ],
)
def test_a_lock_file_of_other_requirements_is_noticed(required: list[str], message: list[str]) -> None:
    text = "# made by uv\nclick==8.5.1 \\\n    --hash=sha256:00\n    # via deepopsctl (pyproject.toml)\n"

    assert differences(required, text) == message


def test_the_collection_has_the_version_of_the_package() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))

    assert galaxy["version"] == deepopsctl.__version__


def test_no_address_of_a_repository_is_made_up() -> None:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    made_up = re.compile(rb"(github|gitlab)\.com/[\w-]*deepops(ctl)?/[\w-]")

    assert [name for name, text in texts.items() if made_up.search(text)] == []


def test_the_changelog_begins_with_this_version_in_two_minutes() -> None:
    _, first, *_ = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[0:2]
    heading, _, text = first.partition("\n")

    assert heading in (deepopsctl.__version__, "Unreleased")
    assert heading == "Unreleased" or len(text.split()) <= 450


def commands(node: object) -> Iterator[str]:
    """The command lines of a workflow of GitHub or GitLab."""
    if isinstance(node, list):
        for item in node:
            yield from commands(item)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "before_script", "after_script"):
                yield from [value] if isinstance(value, str) else value
            elif key == "matrix":
                yield f"make {' '.join(value['target'])}"
            else:
                yield from commands(value)


def is_make(line: str, targets: set[str]) -> bool:
    program, *arguments = line.split()
    return program == "make" and set(arguments) <= targets


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_public_ci_calls_targets_of_the_makefile_only(workflow: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    started = list(commands(yaml.safe_load((ROOT / workflow).read_text(encoding="utf-8"))))

    known = {"make ${{ matrix.target }}"}
    assert [line for line in started if line not in known and not is_make(line, targets)] == []
    assert started


@pytest.mark.parametrize("line", ["-----BEGIN PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----"])
def test_a_commit_with_a_private_key_is_refused(line: str) -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (hook,) = [hook for hook in config["repos"][0]["hooks"] if hook["id"] == "private-key"]

    assert re.search(hook["entry"], f"x\n{line}\n")


def test_targets_that_the_makefile_documents_are_phony() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.findall(r"^\.PHONY: (.*)", makefile, re.MULTILINE)[0].split()

    assert {line.split()[0] for line in shown.stdout.splitlines()} == set(phony)


def test_the_execution_environment_has_what_the_package_has() -> None:
    made = yaml.safe_load((ROOT / "containers" / "execution-environment.yml").read_text(encoding="utf-8"))
    needs = made["dependencies"]
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))

    assert {needs["ansible_core"]["package_pip"], needs["ansible_runner"]["package_pip"]} <= set(DEPENDENCIES)
    (collection,) = needs["galaxy"]["collections"]
    assert collection["name"].endswith(f"/{galaxy['namespace']}-{galaxy['name']}-{deepopsctl.__version__}.tar.gz")


def test_the_images_context_has_what_its_containerfile_copies() -> None:
    text = (ROOT / "containers" / "Containerfile").read_text(encoding="utf-8")
    (copied,) = re.findall(r"^COPY (.*) /opt", text, re.MULTILINE)
    allowed = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(encoding="utf-8"), re.MULTILINE)

    assert [name.rstrip("/") for name in copied.split()] == allowed


def test_the_collection_wants_the_ansible_that_the_package_wants() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert f"ansible-core{runtime['requires_ansible']}" in project["dependencies"]


def test_a_release_names_its_repository_and_the_readmes_links_lead_there(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "galaxy.yml", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    loader = SourceFileLoader("release_script", str(ROOT / "scripts" / "release"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    release = importlib.util.module_from_spec(spec)
    loader.exec_module(release)

    release.add_addresses(tmp_path, "0.1.0", "https://git.example.com/hpc/deepopsctl", "")

    package = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    collection = yaml.safe_load((tmp_path / "galaxy.yml").read_text(encoding="utf-8"))
    assert package["Repository"] == collection["repository"] == "https://git.example.com/hpc/deepopsctl"
    assert package["Issues"] == collection["issues"]
    links = re.findall(r"\]\(([^)#][^)]*)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    assert "https://git.example.com/hpc/deepopsctl/raw/v0.1.0/docs/images/first-deploy.svg" in links
    assert [link for link in links if not link.startswith("https://")] == []
