"""`deepopsctl inventory`: check cluster.yml and update the Ansible inventory."""

from __future__ import annotations

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import json_option
from deepopsctl.text.amounts import amount


@click.command()
@json_option
@click.pass_obj
def inventory(settings: Settings, *, as_json: bool) -> None:
    """Check cluster.yml and settings, update inventory/hosts.yml if needed, and show the groups and their nodes."""
    from deepopsctl.cli.output import emit_json, info, show_warning
    from deepopsctl.cli.views.cluster import cluster_object, group_lines
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.settings import misspelt_settings, require_settings
    from deepopsctl.cluster.spelling import misspelt_values, shared_login_home
    from deepopsctl.content import content_dir
    from deepopsctl.environment.shares import dominating
    from deepopsctl.run.setting_scope import without_component

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    content = content_dir(settings.content)
    require_settings(directory, content)
    written = directory.refresh_inventory(cluster)
    added = directory.refresh_secrets()
    if as_json:
        emit_json(cluster_object("inventory", directory.path, cluster))
        return
    for line in group_lines(cluster):
        click.echo(line)
    of_cluster = (*misspelt_values(cluster), *dominating(cluster), *shared_login_home(cluster))
    of_settings = (*misspelt_settings(directory, content), *without_component(directory, content))
    for problem in (*of_settings, *of_cluster):
        show_warning(problem)
    if added:
        info(f"{directory.secrets.name}: added {', '.join(added)}")
    info(f"inventory/hosts.yml {'updated' if written else 'is up to date'}: {amount(len(cluster.nodes), 'node')}")
