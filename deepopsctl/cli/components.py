"""Which components a command handles: those named, else those that cluster.yml lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from deepopsctl.cli.output import show_warning
from deepopsctl.content import components
from deepopsctl.environment.shares import dominating
from deepopsctl.errors import InputError, Problem
from deepopsctl.model.cluster import Cluster
from deepopsctl.text.values import suggest

_WHERE = "cluster.yml"


def check_names(words: tuple[str, ...], content: Path) -> None:
    """Refuse a name that is not a component."""
    known = components(content)
    for name in words:
        if name not in known:
            near = suggest(name.lower(), known)
            there = "" if near.startswith("known") else f" (known: {', '.join(known)})"
            raise click.BadArgumentUsage(f"there is no component {name!r}; {near}{there}")


def choose(words: tuple[str, ...], cluster: Cluster, content: Path) -> tuple[str, ...]:
    """The components in the order they build on each other; warns where cluster.yml and the command line differ.

    Raises InputError for `environment` by name where cluster.yml has nothing of it.
    """
    known, listed = components(content), cluster.components
    if "environment" in words and not cluster.has_environment:
        what = "nothing to deploy: no environment in `components:` and no `spaces:` in cluster.yml, and no people.yml"
        raise InputError.single(_WHERE, what, "add environment to `components:`")
    wanted = words or (known if listed is None else listed)
    shares = dominating(cluster) if {"slurm", "environment"} & set(wanted) else ()
    for problem in (*_warnings(words, cluster, known), *shares):
        show_warning(problem)
    return tuple(name for name in known if name in wanted)


def _warnings(words: tuple[str, ...], cluster: Cluster, known: tuple[str, ...]) -> Iterator[Problem]:
    listed = cluster.components
    if listed is None:
        if not words:
            everything = ", ".join(known)
            hint = f"list what this cluster has: components: [{everything}]"
            yield Problem(_WHERE, f"has no `components:`, so all are deployed ({everything})", hint)
        return
    others = [name for name in known if name in words and name not in listed]
    if others:
        hint = "a `deepopsctl deploy` without names leaves that out: add it there to keep it up to date"
        yield Problem(_WHERE, f"{', '.join(others)} not listed in `components:`", hint)
    if cluster.storage and "storage" not in (*listed, *words):
        what = "has `storage:`, but `components:` does not list storage: nothing is mounted"
        yield Problem(_WHERE, what, "add storage to `components:`")
    if cluster.people and "environment" not in (*listed, *words):
        what = "there is a people.yml, but `components:` does not list environment: no one in it gets an account"
        yield Problem(_WHERE, what, "add environment to `components:`")
