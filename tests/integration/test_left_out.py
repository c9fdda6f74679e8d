"""What cannot be fetched is left out by itself: the play goes on, and says what it did without."""

from __future__ import annotations

import pytest

from tests.localansible import Played, play

# a port that nobody listens at
NOWHERE = "http://127.0.0.1:9"
LIBRARY = {
    "package": "none",
    "version": "1.0",
    "files": ["none"],
    "wheels": {"any": {"platform": "any", "sha256": "0"}},
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A role whose repository, a module whose key and another whose wheels are out of reach; nothing is written."""
    folder = tmp_path_factory.mktemp("left-out")
    container = {
        "role": "nvidia_container",
        "nvidia_container_wanted": True,
        "nvidia_container_repository_url": NOWHERE,
        "nvidia_container_catalogue": {"version": "1", "packages": ["none"], "fingerprint": "0" * 40},
    }
    key = {"path": str(folder / "key.asc"), "url": f"{NOWHERE}/key.asc", "fingerprint": "0" * 40}
    wheels = {"component": "none", "step": "none", "path": str(folder / "wheels"), "libraries": {"none": LIBRARY}}
    tasks = [
        {"name": "A key", "nvidia_keyring": key},
        {"name": "Wheels", "node_wheels": wheels, "check_mode": False},
        {"name": "What comes after", "ansible.builtin.debug": {"msg": "goes on"}},
    ]
    plays = [{"hosts": "all", "gather_facts": False, "roles": [container], "tasks": tasks}]
    cache = {"XDG_CACHE_HOME": str(folder / "cache"), "PIP_INDEX_URL": NOWHERE, "PIP_RETRIES": "0"}
    return play(folder, plays, {"node": {"deepops_digest": "x"}}, "--check", settings=cache)


@pytest.mark.parametrize(
    ("task", "said", "hint"),
    [
        (
            "NVIDIA's repository for containers",
            f"{NOWHERE}/gpgkey",
            "nvidia_container_toolkit: false",
        ),
        ("A key", f"{NOWHERE}/key.asc", "nvidia_driver_repository_url"),
        ("Wheels", "none 1.0", "a package index"),
    ],
)
def test_what_is_out_of_reach_is_named_with_what_to_do(played: Played, task: str, said: str, hint: str) -> None:
    result = played.result(task)

    assert result.status == "ok", played.output
    assert said in result.data["deepops_left_out"]["message"]
    assert hint in result.data["deepops_left_out"]["hint"]
    assert not result.changed


def test_nothing_more_of_its_role_is_done_and_all_the_rest_is(played: Played) -> None:
    tasks = [result.task for result in played.results if result.status == "ok"]

    assert "What comes after" in tasks
    assert "The container toolkit, all of one version" not in tasks
    assert played.status == 0, played.output
