"""What modules do with secrets: they are censored, and never in a file that others may read, not even for a moment."""

from __future__ import annotations

import ast
import re
import resource
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.roles.content import all_tasks
from tests.support.node_modules import Step, load
from tests.unit.collection.test_module_docs import MODULES, arguments_of

# what a name says of a value
SECRET = re.compile(r"pass(?!ed)|secret|token|credential|(^|_)key$", re.IGNORECASE)
# named like secrets, and none: keys by which packages are verified
PUBLIC = {
    ("apt_source", "key"),
    # whether a template has one
    ("node_state", "secret"),
    # their names, in a task with no_log
    ("slurm_takeover_info", "secrets"),
}
# made as the user `nobody`, for root alone, for some minutes: nothing accepts it but munge itself
RETURNED = {("slurm_verify", "credential"), ("munge_key", "credential")}


def save_copy(path: Path) -> None:
    """Save a file before deepopsctl replaces it."""
    load("node.backups").save(Step(), {"path": str(path), "secret": True})


def options(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every option of a module, those inside of others too."""
    for name, option in spec.items():
        yield name, option
        yield from options(option.get("options", {}))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_an_option_that_holds_a_secret_is_censored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [
        name
        for name, option in options(arguments_of(path, monkeypatch)[1])
        if SECRET.search(name) and not option.get("no_log") and (path.stem, name) not in PUBLIC
    ]

    assert not wrong, f"no_log is missing: {', '.join(wrong)}"


def returned(path: Path) -> set[str]:
    """Names under which a module hands anything back."""
    calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
    ended = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "exit_json"]
    return {keyword.arg for call in ended for keyword in call.keywords if keyword.arg}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_that_returns_a_secret_is_called_with_no_log(path: Path) -> None:
    names = {name for name in returned(path) if SECRET.search(name) and (path.stem, name) not in RETURNED}
    # a module may return them in some calls only: those that ask for them by an option of that name
    module = f"deepopsctl.cluster.{path.stem}"
    tasks = [task for _, task in all_tasks() if module in task and names & set(task[module])] if names else []

    assert not names or tasks
    assert all(task.get("no_log") is True for task in tasks)


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may have more than six bytes, as on a disk that is full; pytest's own output neither."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def slurmdbd_conf(tmp_path: Path) -> Path:
    """One that anybody may read."""
    path = tmp_path / "slurmdbd.conf"
    path.write_text("StoragePass=secret\n")
    path.chmod(0o644)
    return path


def test_a_copy_of_slurmdbd_conf_that_is_cut_off_leaves_nothing_of_the_password(slurmdbd_conf: Path) -> None:
    with pytest.raises(OSError, match="File too large"), full_disk():
        save_copy(slurmdbd_conf)

    assert list(slurmdbd_conf.parent.iterdir()) == [slurmdbd_conf]


def test_a_copy_of_slurmdbd_conf_is_for_its_owner_alone(slurmdbd_conf: Path) -> None:
    save_copy(slurmdbd_conf)

    copy = slurmdbd_conf.with_name("slurmdbd.conf.before-deepopsctl")
    assert copy.read_text() == "StoragePass=secret\n"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
