"""Modules for software that a site declares: in a directory that is there, or in a package."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deepopsctl.text.answers import mapping, texts
from deepopsctl.text.problems import RefusedError

SETTING = "modules_declared"
# where a fetched package is on a node
FETCHED = "/var/cache/deepopsctl/modules"
# ... and a fetched program: PROGRAMS/NAME/VERSION/bin
PROGRAMS = "/usr/local/lib/deepopsctl/modules/programs"
_KEYS = frozenset({"prefix", "package", "program", "url", "sha256", "default"})
# lists of software: the default is the role's
_LISTS: Mapping[str, Sequence[str]] = {"modules_software": ["python", "gcc"], "cuda_toolkits": []}
# other roles, or other settings, write these; {name: setting}
_TAKEN = {"cuda": "cuda_toolkits", "httpproxy": "environment_http_proxy", "StdEnv": "modules_standard"}
# what it can be: software in a directory, in a package, or both; a program alone
_FORMS = ({"prefix"}, {"package"}, {"prefix", "package"}, {"program"})
_NAME = re.compile(r"([A-Za-z][A-Za-z0-9_+-]*)/([A-Za-z0-9][A-Za-z0-9_.+-]*)")
_PATH = re.compile(r"(/[A-Za-z0-9_.+@-]+)+")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9.+-]+")
_URL = re.compile(r"(https?|file)://\S+")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def names_of_site(settings: Mapping[str, Any]) -> list[str]:
    """The modules of a site by its settings: with a version where the site writes one."""
    if settings.get("modules_system", "lmod") == "none":
        return []
    standard, declared = settings.get("modules_standard", ""), settings.get(SETTING, {})
    listed = {key: settings.get(key, default) for key, default in _LISTS.items()}
    software, toolkits = map(texts, listed.values())
    return [
        *([f"StdEnv/{standard}"] if standard else []),
        *software,
        *mapping(declared),
        *mapping(settings.get("environments", {})),
        *(f"cuda/{version}" for version in toolkits),
        *(["httpproxy"] if settings.get("environment_proxy_nodes") or settings.get("environment_http_proxy") else []),
    ]


def declared_modules(
    declared: Mapping[str, Any], directory: str, lines: Mapping[str, Sequence[str]], distributed: Mapping[str, str]
) -> dict[str, Any]:
    """Templates, packages and files of packages, as the role `modules` hands them on.

    `lines` are those of a module by its software; `distributed` are the versions that have the distribution's module.
    """
    for key, entry in declared.items():
        _check(key, entry, distributed)
    _check_packages(declared)
    defaults = dict(_defaults(declared, distributed))
    return {
        "templates": [
            *(_module(key, entry, directory, lines) for key, entry in declared.items()),
            *(
                {"src": "version.j2", "dest": f"{directory}/{name}/.version", "vars": {"version": version}}
                for name, version in defaults.items()
            ),
        ],
        # a file of another version than the module's name is refused on the node
        "packages": {
            entry["package"]: f"{key.split('/')[1]}*" if "url" in entry else ""
            for key, entry in declared.items()
            if "package" in entry
        },
        "fetched": [
            {
                "url": entry["url"],
                "dest": _fetched(key, entry),
                "sha256": entry["sha256"],
                "mode": "0755" if "program" in entry else "0644",
            }
            for key, entry in declared.items()
            if "url" in entry
        ],
        "archives": {
            entry["package"]: _fetched(key, entry)
            for key, entry in declared.items()
            if "url" in entry and "package" in entry
        },
    }


def _module(key: str, entry: Mapping[str, Any], directory: str, lines: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    name, prefix = key.split("/", maxsplit=1)[0], entry.get("prefix", f"{PROGRAMS}/{key}" if "program" in entry else "")
    what = f"{key} of the site, in {prefix}" if prefix else f"{key} of the package {entry['package']}"
    variables = {"what": what, "prefix": prefix, "lines": [f"conflict {name}", *lines.get(name, ())]}
    return {"src": "module.j2", "dest": f"{directory}/{key}", "vars": variables}


def _fetched(key: str, entry: Mapping[str, Any]) -> str:
    if "program" in entry:
        return f"{PROGRAMS}/{key}/bin/{entry['program']}"
    return f"{FETCHED}/{entry['package']}.deb"


def _defaults(declared: Mapping[str, Any], distributed: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The default version of each software; where neither says one, the module system takes the highest."""
    for name in dict.fromkeys(key.split("/")[0] for key in declared):
        chosen = [
            key for key, entry in declared.items() if key.split("/")[0] == name and entry.get("default", False) is True
        ]
        if len(chosen) > 1:
            raise RefusedError(f"{SETTING}: {' and '.join(chosen)} are both the default", "leave one")
        if chosen or name in distributed:
            yield name, chosen[0].split("/")[1] if chosen else distributed[name]


def _check(key: str, entry: Any, distributed: Mapping[str, str]) -> None:
    match = _NAME.fullmatch(str(key))
    if match is None:
        raise RefusedError(f"{SETTING}: {key!r} is not NAME/VERSION", "write it like python/3.12")
    if match[1] in _TAKEN:
        raise RefusedError(f"{SETTING}: {key}: deepopsctl makes the modules {match[1]}", f"set {_TAKEN[match[1]]}")
    if distributed.get(match[1]) == match[2]:
        raise RefusedError(
            f"{SETTING}: {key} is the distribution's own", f"take {match[1]} out of modules_software, or this entry"
        )
    if (
        not isinstance(entry, Mapping)
        or set(entry) - _KEYS
        or set(entry) & {"prefix", "package", "program"} not in _FORMS
    ):
        raise RefusedError(
            f"{SETTING}: {key}: it has a prefix or a package, or is a program",
            f"its keys are {', '.join(sorted(_KEYS))}",
        )
    fetched = "url" in entry
    if fetched != ("sha256" in entry) or (fetched and not {"package", "program"} & set(entry)):
        raise RefusedError(f"{SETTING}: {key}: a file by its url needs its sha256", "`sha256sum FILE` prints it")
    if "program" in entry and not fetched:
        raise RefusedError(f"{SETTING}: {key}: a program needs its url", "file:///PATH is a file on every node")
    for field, pattern in (
        ("prefix", _PATH),
        ("package", _PACKAGE),
        ("program", _PACKAGE),
        ("url", _URL),
        ("sha256", _SHA256),
    ):
        if field in entry and not pattern.fullmatch(str(entry[field])):
            raise RefusedError(f"{SETTING}: {key}: {entry[field]!r} can't be its {field}", _HINTS[field])


def _check_packages(declared: Mapping[str, Any]) -> None:
    first: dict[str, str] = {}
    for key, entry in declared.items():
        if (
            "url" in entry
            and "package" in entry
            and declared[other := first.setdefault(entry["package"], key)]["url"] != entry["url"]
        ):
            raise RefusedError(
                f"{SETTING}: {other} and {key} are two files of the package {entry['package']}",
                "a node has one version of a package: leave one",
            )


_HINTS = {
    "prefix": "write the whole path of a directory that has bin/, without spaces",
    "program": "write the name that users call, such as micromamba",
    "package": "write the name of a package of the nodes' repositories",
    "url": "write https://HOST/FILE.deb, or file:///FILE.deb for a file on every node",
    "sha256": "64 digits: `sha256sum FILE` prints them",
}
