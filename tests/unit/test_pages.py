"""Pages that stay right by themselves: pictures, tables and lists are compared with what they are made from."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml

from deepopsctl.cluster.create import PRIVATE
from deepopsctl.cluster.directory import ClusterDir
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
# ports in text that no daemon of ours has: of mail, directory service, web; Slurm's are in its own configuration
FOREIGN = frozenset({25, 80, 389, 587, 636, 875, 1023, 2049})
OF_SYSTEM = frozenset({22, 123, 3306, 5001, 6817, 19531})


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def listeners() -> set[int]:
    cells = re.findall(r"^\| ([\d, ]+)(?:/udp)? \|", page("reference/listeners.md"), re.MULTILINE)
    return {int(port) for cell in cells for port in cell.split(", ")}


def test_plots_show_what_their_tables_say() -> None:
    script = ROOT / "scripts" / "benchmark-plots"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)

    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_every_listener_has_the_port_of_its_role() -> None:
    roles = [yaml.safe_load(path.read_text("utf-8")) or {} for path in ROOT.glob("roles/*/defaults/main.yml")]
    group_vars = [yaml.safe_load(path.read_text("utf-8")) or {} for path in ROOT.glob("group_vars/all/*.yml")]
    defaults = {
        value
        for values in (*roles, *group_vars)
        for name, value in values.items()
        if name.endswith("_port") and isinstance(value, int) and value
    }

    assert defaults - FOREIGN <= listeners()
    assert listeners() - OF_SYSTEM <= defaults


def test_the_page_of_the_network_says_who_connects_to_each_listener() -> None:
    rows = re.findall(r"^\| .*? \| .*? \| (.*?) \| .*$", page("deploy/network.md"), re.MULTILINE)
    named = {int(number) for row in rows for number in re.findall(r"\b\d{2,5}\b", row)} | {3306}
    drawn = {
        int(number) for number in re.findall(r"\b\d{2,5}\b", " ".join(re.findall(r">([^<]+)</text>", network_image())))
    }

    # in a network of its own
    assert listeners() - {19531} <= named
    assert named - FOREIGN <= listeners()
    assert drawn - FOREIGN <= listeners()


def network_image() -> str:
    return (DOCS / "images" / "network.svg").read_text(encoding="utf-8")


def test_every_file_of_a_cluster_directory_is_on_its_page_and_private_ones_stay_out_of_git() -> None:
    text = page("reference/cluster-directory.md")
    directory = ClusterDir(ROOT)
    paths = [
        value
        for name in dir(ClusterDir)
        if isinstance(getattr(ClusterDir, name), property)
        and (value := getattr(directory, name).relative_to(ROOT).as_posix())
    ]
    rows = dict(re.findall(r"^\| (`.*?) \| .* \| (.*?) \|$", text, re.MULTILINE))

    assert len(paths) > 8
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    for path in paths:
        assert any(path.startswith(name) or name.startswith(f"{path}/") for name in names), path
    for name in PRIVATE:
        assert rows[f"`{name}`"].strip("*") == "no"


def test_the_page_of_closed_sites_has_every_address_that_a_deploy_fetches_from() -> None:
    text = page("deploy/closed-sites.md")
    files = [*ROOT.glob("roles/*/defaults/main.yml"), *ROOT.glob("group_vars/all/*.yml")]
    addresses = {
        match[1]
        for path in files
        for match in re.finditer(r"^[^#\n]*https://([a-z0-9.-]+\.[a-z]{2,})/?", path.read_text("utf-8"), re.MULTILINE)
    }
    settings = {
        name
        for path in files
        for name in (yaml.safe_load(path.read_text("utf-8")) or {})
        if re.search(r"_(repository|key)_url$", name)
    }

    assert addresses
    assert {address for address in addresses if address not in text} == set()
    assert {name for name in settings if name not in text} == set()


@pytest.mark.parametrize("name", ["first-deploy.svg", "network.svg", "architecture.svg", "dashboard-overview.svg"])
def test_an_image_fetches_nothing_and_says_what_it_shows(name: str) -> None:
    text = (DOCS / "images" / name).read_text(encoding="utf-8")

    assert re.search(r"<title[ >]", text)
    assert "prefers-" in text
    assert not re.search(r"@font-face|@import|href=\"http|<script", text)


def test_a_long_command_of_the_user_guide_goes_on_in_the_next_line() -> None:
    template = (ROOT / "deepopsctl" / "environment" / "templates" / "user-guide.html.j2").read_text(encoding="utf-8")

    assert re.search(r"^pre \{[^}]*white-space: pre-wrap", template, re.MULTILINE)


def test_an_image_of_a_link_and_a_sign_for_the_tab_are_there() -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    head = (ROOT / "scripts" / "site" / "main.html").read_text(encoding="utf-8")

    for match in (re.search(r"favicon: (\S+)", settings), re.search(r"site_url \}\}(\S+?)\"", head)):
        assert match
        assert (DOCS / match[1]).is_file()
