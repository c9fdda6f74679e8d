"""What the action plugin `python_environments` and the playbook that removes environments start, as root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

from ..._shared.command import CommandError
from . import build, use, wheelhouse

Request = dict[str, Any]
Result = dict[str, Any]


def main(request: Request) -> Result:
    """One phase; SystemExit with the reason where it fails."""
    try:
        return _PHASES[request["phase"]](request)
    except (build.BuildError, CommandError) as error:
        raise SystemExit(str(error)) from error
    except OSError as error:
        raise SystemExit(f"{error.filename}: {error.strerror}") from error


def missing(request: Request) -> Result:
    """The wheels of what has to be built here that the wheelhouse lacks, {file: hash}, and what would be built."""
    absent = build.absent(request["directory"], request["environments"])
    wanted: dict[str, str] = {}
    for each in absent:
        wanted.update(each["installer"])
        wanted.update(each["wheels"])
    lacking = {file: sha256 for file, sha256 in wanted.items() if not os.path.exists(_in(request, file))}
    return {"missing": lacking, "absent": [f"{each['name']}/{each['version']}" for each in absent]}


def store(request: Request) -> Result:
    """Move wheels that were copied to this node into the wheelhouse."""
    wheelhouse.store(request["wheelhouse"], request["arrived"], request["archives"])
    return {}


def install(request: Request) -> Result:
    """Build what is absent."""
    built = []
    for each in build.absent(request["directory"], request["environments"]):
        built.append({"name": build.place(request["directory"], each), "packages": len(each["wheels"])})
        build.build(request["directory"], request["wheelhouse"], each)
    return {"built": built}


def find_use(request: Request) -> Result:
    """The processes that use these versions, a sentence each."""
    return {"conflicts": use.users_of([build.place(request["directory"], each) for each in request["versions"]])}


def hide(request: Request) -> Result:
    """No job can load these versions any more; or again, with `shown`."""
    for each in request["versions"]:
        paths = [build.module(request["directory"], each), build.module(request["directory"], each, build.HIDDEN)]
        source, target = reversed(paths) if request["shown"] else paths
        if os.path.exists(source):
            os.replace(source, target)
    return {}


def remove(request: Request) -> Result:
    """Delete these versions."""
    deleted = [_delete(request["directory"], each) for each in request["versions"]]
    return {"changed": any(deleted)}


def _delete(directory: str, version: Mapping[str, str]) -> bool:
    place = build.place(directory, version)
    is_there = os.path.isdir(place)
    if is_there:
        # a removal that is cut off leaves nothing that looks whole
        old = os.path.join(os.path.dirname(place), f".old-{version['version']}")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(place, old)
        shutil.rmtree(old)
    hidden = build.module(directory, version, build.HIDDEN)
    if os.path.exists(hidden):
        os.unlink(hidden)
    return is_there


def _in(request: Request, file: str) -> str:
    return os.path.join(request["wheelhouse"], file)


_PHASES = {
    "missing": missing, "store": store, "install": install, "use": find_use, "hide": hide, "remove": remove,
}  # fmt: skip
