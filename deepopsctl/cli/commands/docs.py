"""`deepopsctl docs`: documents of this cluster, and those that come with deepopsctl."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import json_option
from deepopsctl.model.json_objects import FilesObject

if TYPE_CHECKING:
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.model.cluster import Cluster

SCHEMAS = ("cluster", "people", "output")
MARKDOWN, HTML = "user-guide.md", "user-guide.html"


@click.group()
def docs() -> None:
    """Write the user guide of this cluster; show the pages and schemas that come with deepopsctl."""


def _pages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell's Tab key."""
    from deepopsctl.content import pages

    del ctx, param
    return [name for name in pages() if name.startswith(incomplete)]


@docs.command("show")
@click.argument("name", default="", shell_complete=_pages)
def show_page(name: str) -> None:
    """Show a page of the documentation, such as operate/backup or backup; without NAME, list all.

    NAME may be as a message has it: docs/operate/backup.md#restore-a-controller is that section.
    """
    from deepopsctl.cli.output import show, table
    from deepopsctl.content import pages
    from deepopsctl.files import read_text
    from deepopsctl.text.pages import as_read, find_page, section, title_of

    known = pages()
    if not name:
        for line in table(("page", "title"), [(each, title_of(read_text(path))) for each, path in known.items()]):
            show(line)
        return
    page, anchor = find_page(name, known)
    click.echo_via_pager(as_read(section(read_text(known[page]), anchor)))


@docs.command()
@click.argument("name", type=click.Choice(SCHEMAS))
def schema(name: str) -> None:
    """Print the JSON Schema of cluster.yml, of people.yml, or of what --json prints (output)."""
    from deepopsctl.cli.output import show
    from deepopsctl.cluster.editor_schemas import text_of

    show(text_of(name).rstrip())


@docs.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where to.  [default: docs in the cluster directory]",
)
@json_option
@click.pass_obj
def users(settings: Settings, /, *, output: Path | None, as_json: bool) -> int:
    """Write the user guide of this cluster: user-guide.md and user-guide.html.

    Made from cluster.yml, people.yml, hardware.yml and the settings: names, partitions, limits, file systems, modules,
    examples. Nodes are not asked.
    """
    from deepopsctl.cli.output import emit_json, info
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.environment.user_guide import render_html
    from deepopsctl.files import write_atomic
    from deepopsctl.model.json_objects import SCHEMA

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    markdown = guide_of(directory, cluster)
    place = output or directory.path / "docs"
    place.mkdir(parents=True, exist_ok=True)
    written = {place / MARKDOWN: markdown, place / HTML: render_html(cluster, markdown)}
    for path, text in written.items():
        write_atomic(path, text, 0o644)
    if as_json:
        files = [str(path) for path in written]
        document: FilesObject = {"schema": SCHEMA, "command": "docs users", "ok": True, "files": files}
        emit_json(document)
    else:
        info("\n".join(f"written: {path}" for path in written))
    return 0


def guide_of(directory: ClusterDir, cluster: Cluster) -> str:
    """The user guide of a cluster, as Markdown."""
    from deepopsctl.cluster.settings import site_values
    from deepopsctl.environment.modules import names_of_site
    from deepopsctl.environment.user_guide import render_markdown
    from deepopsctl.slurm.conf import RESERVE, RESERVE_PERCENT
    from deepopsctl.slurm.hardware import load_hardware
    from deepopsctl.ssh.client_config import users_config
    from deepopsctl.text.answers import texts

    values = site_values(directory)
    reserved = values.get(RESERVE)
    return render_markdown(
        cluster,
        load_hardware(directory.hardware),
        users_config(cluster, "YOUR-NAME"),
        names_of_site(values),
        reserved if isinstance(reserved, int) else RESERVE_PERCENT,
        texts(values.get("environment_containers")),
        str(values.get("slurm_conf_contact") or ""),
    )
