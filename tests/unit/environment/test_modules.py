"""Modules that a site declares: their files, packages and default, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from deepopsctl.environment.modules import declared_modules, names_of_site
from deepopsctl.text.problems import RefusedError

LINES = {"python": ["prepend-path PATH /x"]}
FILE = {"url": "https://example.com/apptainer.deb", "sha256": "ab" * 32}


def made(declared: dict[str, Any], distributed: dict[str, str] | None = None) -> dict[str, Any]:
    return declared_modules(declared, "/m", LINES, distributed or {})


def versions(declared: dict[str, Any], distributed: dict[str, str] | None = None) -> dict[str, str]:
    templates = made(declared, distributed)["templates"]
    return {each["dest"]: each["vars"]["version"] for each in templates if each["src"] == "version.j2"}


def test_software_in_a_directory_gets_a_module_with_the_lines_of_its_name() -> None:
    (module,) = made({"python/3.12": {"prefix": "/opt/python/3.12"}})["templates"]

    assert module["dest"] == "/m/python/3.12"
    assert module["vars"]["prefix"] == "/opt/python/3.12"
    assert module["vars"]["lines"] == ["conflict python", "prepend-path PATH /x"]


def test_the_default_is_the_declared_one_else_the_distributions_else_the_highest() -> None:
    two = {"python/3.12": {"prefix": "/a"}, "python/3.13": {"prefix": "/b"}}
    chosen = {**two, "python/3.12": {"prefix": "/a", "default": True}}

    assert versions(chosen, {"python": "3.11"}) == {"/m/python/.version": "3.12"}
    assert versions(two, {"python": "3.11"}) == {"/m/python/.version": "3.11"}
    assert versions(two) == {}


def test_a_package_comes_from_the_nodes_repositories_or_from_a_file_of_that_version() -> None:
    repository = made({"apptainer/1.4.5": {"package": "apptainer"}})
    file = made({"apptainer/1.4.5": {"package": "apptainer", **FILE}})
    path = "/var/cache/deepopsctl/modules/apptainer.deb"

    assert (repository["packages"], repository["archives"]) == ({"apptainer": ""}, {})
    assert (file["packages"], file["archives"]) == ({"apptainer": "1.4.5*"}, {"apptainer": path})
    assert file["fetched"] == [{**FILE, "dest": path, "mode": "0644"}]


def test_a_program_is_fetched_into_a_directory_of_its_module() -> None:
    result = made({"micromamba/2.3": {"program": "micromamba", **FILE}})

    prefix = "/usr/local/lib/deepopsctl/modules/programs/micromamba/2.3"
    assert result["templates"][0]["vars"]["prefix"] == prefix
    assert result["fetched"] == [{**FILE, "dest": f"{prefix}/bin/micromamba", "mode": "0755"}]
    assert (result["packages"], result["archives"]) == ({}, {})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"python": {"prefix": "/a"}}, "is not NAME/VERSION"),
        ({3.12: {"prefix": "/a"}}, "is not NAME/VERSION"),
        ({"../x/1": {"prefix": "/a"}}, "is not NAME/VERSION"),
        ({"cuda/12.8": {"prefix": "/a"}}, "deepopsctl makes the modules cuda"),
        ({"python/3.11": {"prefix": "/a"}}, "the distribution's own"),
        ({"a/1": {}}, "it has a prefix or a package"),
        ({"a/1": {"prefix": "/a", "paths": []}}, "it has a prefix or a package"),
        ({"a/1": {"prefix": "a/b"}}, "can't be its prefix"),
        ({"a/1": {"program": "a", "prefix": "/a", **FILE}}, "it has a prefix or a package"),
        ({"a/1": {"program": "aa"}}, "needs its url"),
        ({"a/1": {"program": "../aa", **FILE}}, "can't be its program"),
        ({"a/1": {"prefix": "/a [exec reboot]"}}, "can't be its prefix"),
        ({"a/1": {"package": "a;b"}}, "can't be its package"),
        ({"a/1": {"package": "aa", "url": "https://example.com/a.deb"}}, "needs its sha256"),
        ({"a/1": {"prefix": "/a", **FILE}}, "needs its sha256"),
        (
            {"a/1": {"package": "aa", **FILE}, "a/2": {"package": "aa", **FILE, "url": "file:///2.deb"}},
            "a/1 and a/2 are",
        ),
        ({"a/1": {"prefix": "/a", "default": True}, "a/2": {"prefix": "/b", "default": True}}, "both the default"),
    ],
)
def test_what_can_be_no_module_is_refused(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        made(declared, {"python": "3.11"})


def test_the_modules_of_a_site_are_those_of_its_settings() -> None:
    settings = {
        "modules_standard": "2023", "modules_declared": {"python/3.12": {}}, "cuda_toolkits": ["12.8"],
        "environment_proxy_nodes": ["ctl1"], "environments": {"dl": {"packages": ["torch"]}},
    }  # fmt: skip

    assert names_of_site({}) == ["python", "gcc"]
    assert names_of_site(settings) == ["StdEnv/2023", "python", "gcc", "python/3.12", "dl", "cuda/12.8", "httpproxy"]
    assert names_of_site({**settings, "modules_system": "none"}) == []
