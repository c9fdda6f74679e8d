"""Whether a repository is on a node already, whose key a file has, and what is ours to take away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import node_modules as nodeside
from tests.support.files import write_files, write_program
from tests.unit.collection.test_nvidia_node import FINGERPRINT, KEY

apt_source = nodeside.load("node.packages_sources")
node_changes = nodeside.load("node.changes")
node_owned = nodeside.load("node.ownership")
node_packages = nodeside.load("node.packages")

URI = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
OURS = "deepopsctl-nvidia-cuda.sources"


@pytest.mark.parametrize(
    ("name", "text", "result"),
    [
        ("sources.list", f"deb {URI} /\n", True),
        ("sources.list", f"deb [signed-by=/usr/share/keyrings/cuda.gpg] {URI.rstrip('/')} /\n", True),
        ("sources.list", f"# NVIDIA's own\ndeb [arch=amd64] {URI.replace('https', 'http')} / # here\n", True),
        ("sources.list.d/cuda.sources", f"Types: deb\nURIs:\n https://example.com/a\n {URI}\nSuites: /\n", True),
        ("sources.list.d/cuda.sources", f"URIs: https://a\nSuites: a\n\nTypes: deb\nURIs: {URI}\nSuites: /\n", True),
        # what apt does not read as this source
        ("sources.list", f"# deb {URI} /\n", False),
        ("sources.list", f"deb {URI}more/ /\n", False),
        ("sources.list", f"deb-src {URI} /\n", False),
        ("sources.list.d/cuda.sources", f"Enabled: no\nTypes: deb\nURIs: {URI}\nSuites: /\n", False),
        ("sources.list.d/cuda.sources", f"Enabled: False\nTypes: deb\nURIs: {URI}\nSuites: /\n", False),
        ("sources.list.d/cuda.sources.save", f"Types: deb\nURIs: {URI}\nSuites: /\n", False),
        (f"sources.list.d/{OURS}", f"Types: deb\nURIs: {URI}\nSuites: /\n", False),
    ],
)
def test_a_source_that_is_named_in_either_form_is_found(tmp_path: Path, name: str, text: str, result: bool) -> None:
    write_files(tmp_path, {name: text})

    path = apt_source.named_elsewhere(URI, str(tmp_path / "sources.list.d" / OURS), str(tmp_path))

    assert path == (str(tmp_path / name) if result else "")


DEB822 = """\
# See sources.list(5)
Types: deb deb-src
URIs: http://deb.example.com/debian mirror+file:///etc/apt/mirrors/debian.list
Suites: {codename} {codename}-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://deb.example.com/debian
Suites: {codename}
Components: main

Enabled: no
Types: deb
URIs: http://old.example.com/debian
Suites: {codename}
Components: main
"""
ONE_LINE = """\
# deb http://old.example.com/debian {codename} main
deb [arch=amd64 signed-by=/k.gpg] http://security.example.com/debian-security {codename}-security main contrib # ours
deb http://deb.example.com/debian other main
deb https://apt.example.com/tool {codename} main
deb http://deb.example.com/debian {codename} contrib
"""


def test_contrib_and_non_free_come_from_where_the_node_has_main(tmp_path: Path) -> None:
    result = re.search("^VERSION_CODENAME=(.+)$", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    codename = result[1] if result else "stable"
    own = "sources.list.d/deepopsctl-nvidia.sources"
    texts = {
        "sources.list": ONE_LINE,
        "sources.list.d/debian.sources": DEB822,
        own: DEB822.replace("deb.example.com", "own.example.com"),
        "sources.list.d/saved.save": DEB822.replace("deb.example.com", "saved.example.com"),
    }
    write_files(tmp_path, {name: text.format(codename=codename) for name, text in texts.items()})

    key = "/usr/share/keyrings/debian-archive-keyring.gpg"
    every, but_contrib = ["contrib", "non-free", "non-free-firmware"], ["non-free", "non-free-firmware"]
    assert apt_source.debian_sources(str(tmp_path / own), str(tmp_path)) == [
        ["http://security.example.com/debian-security", f"{codename}-security", "/k.gpg", but_contrib],
        ["http://deb.example.com/debian", codename, "", but_contrib],
        ["http://deb.example.com/debian", f"{codename}-updates", key, every],
        ["mirror+file:///etc/apt/mirrors/debian.list", codename, key, every],
        ["mirror+file:///etc/apt/mirrors/debian.list", f"{codename}-updates", key, every],
    ]


def test_a_source_whose_key_is_in_its_file_is_not_repeated_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "sources.list.d" / "debian.sources"
    text = "Types: deb\nURIs: http://deb.example.com/debian\nSuites: stable\nComponents: main\nSigned-By:\n -----BEGIN"
    write_files(path.parent, {path.name: f"{text} PGP PUBLIC KEY BLOCK-----\n .\n mDME\n"})

    assert apt_source.debian_sources("", str(tmp_path)) == []
    assert apt_source.named_elsewhere("http://deb.example.com/debian/", "", str(tmp_path)) == str(path)


class TestKey:
    def test_what_is_no_key_is_not_it(self) -> None:
        assert not apt_source.is_the_key(b"<html>", FINGERPRINT)
        assert not apt_source.is_the_key(None, FINGERPRINT)

    def test_it_is_fetched_and_another_or_none_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        path = tmp_path / "key.asc"
        path.write_text(KEY, encoding="utf-8")

        assert apt_source.fetch_key(path.as_uri(), FINGERPRINT, "hint") == KEY.encode()
        with pytest.raises(apt_source.SourceError, match=f"is not the key with the fingerprint {'0' * 40}"):
            apt_source.fetch_key(path.as_uri(), "0" * 40, "hint")
        with pytest.raises(apt_source.SourceError, match="cannot fetch") as caught:
            apt_source.fetch_key((tmp_path / "none").as_uri(), FINGERPRINT, "use a mirror")
        assert caught.value.hint == "use a mirror"


def test_a_repository_with_parts_names_them_and_a_flat_one_does_not() -> None:
    assert apt_source.stanza("https://a/", "/", "", "/k") == "Types: deb\nURIs: https://a/\nSuites: /\nSigned-By: /k\n"
    assert "Suites: trixie\nComponents: non-free\n" in apt_source.stanza("https://a/", "trixie", "non-free", "/k")


def test_repositories_that_no_source_names_are_removed(tmp_path: Path) -> None:
    packages, own = tmp_path / "packages", tmp_path / "sources.list.d" / OURS
    names = ("trixie-26.05-now", "trixie-24.11-old", "trixie-24.11-of-the-site", "trixie-24.11-switched-off")
    write_files(tmp_path, {f"packages/{name}/dists/InRelease": "" for name in names})
    # the source from before: check mode has not replaced it
    write_files(tmp_path, {
        f"sources.list.d/{OURS}": apt_source.stanza(f"file:{packages / names[1]}", "trixie", "main", ""),
        "sources.list.d/site.list": f"deb file://{packages / names[2]} trixie main\n",
        "sources.list": f"# deb file:{packages / names[3]} trixie main\n",
    })  # fmt: skip

    for dry, left in ((True, set(names)), (False, set(names) - {names[1]})):
        noted = node_changes.Noted(dry)
        apt_source.remove_superseded(noted, str(packages), f"file:{packages / names[0]}", str(own), str(tmp_path))
        assert [(change["name"], change["action"]) for change in noted.changes] == [
            (str(packages / names[1]), "remove")
        ]
        assert {path.name for path in packages.iterdir()} == left

    again = node_changes.Noted(dry=False)
    apt_source.remove_superseded(again, str(packages), f"file:{packages / names[0]}", str(own), str(tmp_path))
    assert again.changes == []
    # without a repository of the cluster
    apt_source.remove_superseded(again, str(packages), "", str(own), str(tmp_path))
    assert {path.name for path in packages.iterdir()} == set(names[2:])


def test_files_are_as_before_when_the_package_lists_of_a_source_cannot_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, pins, lists = tmp_path / "a.sources", tmp_path / "pins", []
    source.write_text("new", encoding="utf-8")
    pins.write_text("new", encoding="utf-8")

    def refuse(options: list[str], _lock_wait: int) -> None:
        lists.extend(options)
        raise node_packages.PackageError("E: not signed", "another key")

    monkeypatch.setattr(node_packages, "refresh", refuse)

    with pytest.raises(apt_source.SourceError, match="E: not signed"):
        apt_source.refresh(str(source), 1, {str(source): b"old", str(pins): None})

    assert source.read_text(encoding="utf-8") == "old"
    assert not pins.exists()
    assert f"Dir::Etc::sourcelist={source}" in lists


NOTHING: dict[str, list[str]] = {kind: [] for kind in node_owned.TYPES}


class TestOwned:
    def test_nothing_is_managed_until_it_is_recorded(self, state: Path) -> None:
        assert node_owned.load("nvidia", "cuda") == NOTHING
        node_owned.save("nvidia", "cuda", {**NOTHING, "packages": ["a"], "files": ["/b"]})
        assert node_owned.load("nvidia", "cuda") == {**NOTHING, "packages": ["a"], "files": ["/b"]}
        assert node_owned.load("nvidia", "container") == NOTHING
        # a record of an earlier release has no more than it says
        (state / "owned" / "nvidia.cuda.json").write_text('{"packages": ["a"], "files": []}', encoding="utf-8")
        assert node_owned.load("nvidia", "cuda") == {**NOTHING, "packages": ["a"]}
        assert node_owned.owns_anything("nvidia")
        assert not node_owned.owns_anything("storage")

    @pytest.mark.parametrize("text", ["", "[]", '{"packages": []}', '{"packages": null, "files": []}', "\x00"])
    def test_a_broken_record_makes_nothing_ours(self, state: Path, text: str) -> None:
        write_files(state, {"owned/nvidia.cuda.json": text})

        assert node_owned.load("nvidia", "cuda") == NOTHING
        assert not node_owned.owns_anything("nvidia")

    @pytest.mark.parametrize(("packaged", "result"), [(False, ["there"]), (True, [])])
    def test_a_toolkit_without_a_package_was_installed_by_hand(
        self, tmp_path: Path, packaged: bool, result: list[str]
    ) -> None:
        (tmp_path / "nvcc").touch()
        by_hand = {"there": str(tmp_path / "nvcc"), "gone": str(tmp_path / "none")}

        assert node_owned.manually_installed(["there", "gone", "bare"], by_hand, lambda _path: packaged) == result


# it says what goes with a package
APT_GET = """\
case "$*" in
    *--auto-remove*) echo "Remv toolkit [1]"; echo "Remv compiler [1]"; echo "Remv old-kernel [1]"; {} ;;
    *) echo "Remv old-kernel [1]" ;;
esac
"""


def test_what_came_with_a_package_goes_and_nothing_where_one_that_somebody_chose_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def removable(more: str, chosen: str) -> object:
        write_program(tmp_path / "apt-get", APT_GET.format(more))
        write_program(tmp_path / "apt-mark", f"echo {chosen}")
        return node_packages.removable_with(["toolkit"])

    # what apt would remove anyway stays
    assert removable(":", "toolkit") == ["toolkit", "compiler"]
    assert removable("echo 'Remv their-program [1]'", "toolkit their-program") == []
    # an apt that refuses is an error and not nothing
    with pytest.raises(node_packages.PackageError, match="E: broken"):
        removable("echo 'E: broken'; exit 100", "")
