"""`deepopsctl people`: the users of people.yml."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import check_option, confirm_option, connection_options, json_option

if TYPE_CHECKING:
    from datetime import date

    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.model.cluster import Cluster
    from deepopsctl.model.json_objects import PeopleObject, PeopleParts
    from deepopsctl.model.people import People, Person
    from deepopsctl.status.directory_members import Member

NAME = "people.yml"
# what depends on the day and on the directory service
ACCOUNTS_PLAYBOOK = "operate/users/people-accounts"
_file = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.group()
def people() -> None:
    """Add, list and expire users; `deploy environment` applies people.yml, `people sync` what changed since."""


@people.command()
@click.argument("name")
@click.option(
    "--group", "groups", multiple=True, required=True, metavar="GROUP", help="Group; the first is the default."
)
@click.option("--full-name", default="", metavar="TEXT", help="Full name.")
@click.option("--mail", default="", metavar="ADDRESS", help="Mail address.")
@click.option("--key", "keys", multiple=True, type=_file, metavar="FILE", help="Public key file; any number of times.")
@click.option("--uid", default="", metavar="ID", help="User id.  [default: the next free one]")
@click.option("--shell", default="", metavar="PATH", help="Login shell.  [default: /bin/bash]")
@click.option("--expires", default="", metavar="DATE", help="First day without access (2027-08-31).")
@click.option("--sponsor", default="", metavar="NAME", help="Who answers for the user.")
@click.pass_obj
def add(settings: Settings, /, name: str, **options: Any) -> None:
    """Add the user NAME to people.yml."""
    from deepopsctl.environment import edit
    from deepopsctl.files import read_text

    keys = [read_text(path, "replace").strip() for path in options.pop("keys")]
    groups = list(options.pop("groups"))
    entry = {"name": name, **_entered(options), "groups": groups, **({"keys": keys} if keys else {})}
    _edit(settings, lambda text, cluster: edit.add(text, "people", entry, cluster), f"added {name}")


@people.command("add-group")
@click.argument("name")
@click.option("--gid", default="", metavar="ID", help="Group id.  [default: the next free one]")
@click.option("--pi", default="", metavar="NAME", help="Login name of the principal investigator.")
@click.option("--start", default="", metavar="DATE", help="First day of the project.")
@click.option("--end", default="", metavar="DATE", help="First day after the project.")
@click.option("--shares", default="", metavar="NUMBER", help="Shares in Slurm's fair share.")
@click.pass_obj
def add_group(settings: Settings, /, name: str, **options: Any) -> None:
    """Add the group NAME to people.yml: a UNIX group, and its Slurm accounts."""
    from deepopsctl.environment import edit

    entry = {"name": name, **_entered(options)}
    _edit(settings, lambda text, cluster: edit.add(text, "groups", entry, cluster), f"added the group {name}")


def _complete_people(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """For the shell's Tab key."""
    from contextlib import suppress

    from deepopsctl.cluster.directory import ClusterDir

    del param
    # completion shows no errors
    with suppress(Exception):
        everybody = ClusterDir.open(ctx.find_root().params.get("directory") or Path()).cluster().people
        return [each.name for each in everybody.people if each.name.startswith(incomplete)] if everybody else []
    return []


@people.command()
@click.argument("names", nargs=-1, required=True, shell_complete=_complete_people, metavar="NAME...")
@click.option("--on", "day", default="", metavar="DATE", help="First day without access.  [default: today]")
@click.option("--cancel", is_flag=True, help="Close their Slurm accounts now, and cancel all of their jobs.")
@confirm_option
@connection_options
@click.pass_obj
def expire(settings: Settings, /, names: tuple[str, ...], day: str, *, cancel: bool, **options: Any) -> int:
    """Let users expire: their accounts are closed by the next deploy, their files and running jobs stay."""
    from deepopsctl.environment import edit

    on = _parse_day(day) if day else _today()
    if cancel and on > _today():
        raise click.UsageError(f"--cancel ends jobs now, and --on is {on}: leave one of them out")
    if cancel:
        from deepopsctl.cli.interactive import confirm_protected
        from deepopsctl.cluster.directory import ClusterDir

        cluster = ClusterDir.open(settings.directory).cluster()
        confirm_protected(f"cancel all jobs of {', '.join(names)} on {cluster.name}?", cluster, options["confirm"])
    done = f"{', '.join(names)}: {on} is the first day without access"
    _edit(settings, lambda text, cluster: edit.expire(text, names, on, cluster), done)
    return _sync(settings, options, cancel=names) if cancel else 0


@people.command()
@click.pass_obj
def ids(settings: Settings, /) -> None:
    """Give the next free id to everybody in people.yml without one."""
    from deepopsctl.environment import edit

    _edit(settings, edit.give_ids, "everybody has an id")


@people.command("import")
@click.argument("table", type=_file, metavar="FILE")
@click.option("--create-groups", is_flag=True, help="Add groups that are not in people.yml yet.")
@click.pass_obj
def import_people(settings: Settings, /, table: Path, *, create_groups: bool) -> None:
    """Add the users of a CSV file with a header to people.yml.

    Columns: name, groups (several joined by +), and uid, full_name, mail, key, shell, expires, sponsor.
    """
    from deepopsctl.environment import edit
    from deepopsctl.text.problems import Problems
    from deepopsctl.text.source import read_source

    problems = Problems()
    rows = read_source(table, table.name, problems) or ""
    problems.raise_if_any()
    names: list[str] = []

    def change(text: str, cluster: Cluster) -> str:
        result, added = edit.import_table(text, rows, table.name, cluster, new_groups=create_groups)
        names.extend(added)
        return result

    _edit(settings, change, f"added the users of {table.name}")


@people.command()
@check_option
@connection_options
@json_option
@click.pass_obj
def sync(settings: Settings, /, *, as_json: bool, **options: Any) -> int:
    """Apply who has expired, joined or left since the last deploy.

    Slurm accounts follow people.yml and the groups of the directory service; members of these get homes.
    """
    return _sync(settings, options, as_json=as_json)


def _sync(settings: Settings, options: Mapping[str, Any], *, cancel: Sequence[str] = (), as_json: bool = False) -> int:
    """Slurm accounts as people.yml and the directory service have them now; jobs of `cancel` end."""
    from deepopsctl.cli.execute import run_and_report, run_request
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.errors import InputError

    directory = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    if cluster.people is None:
        raise InputError.single("people.yml", "is not there", "deepopsctl people add-group, then people add")
    directory.refresh_inventory(cluster)
    fields = {"command": "people-sync", "component": "people", "check": options.get("check", False)}
    if cancel:
        fields["extra_vars"] = {"deepops_cancel_users": list(cancel)}
    request = run_request(settings, directory, options, (ACCOUNTS_PLAYBOOK,), **fields)
    everybody = tuple(node.name for node in cluster.nodes)
    return run_and_report(request, everybody, verbosity=settings.verbosity, as_json=as_json)


@people.command("list")
@connection_options
@json_option
@click.pass_obj
def list_people(settings: Settings, /, *, as_json: bool, **options: Any) -> int:
    """List the users of people.yml, and those of its directory service that the first controller knows."""
    from deepopsctl.cli.output import emit_json, info, show, show_warning, table
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.errors import ExitCode, Problem, UnreachableError
    from deepopsctl.model.json_objects import SCHEMA
    from deepopsctl.status.directory_members import directory_members

    directory: ClusterDir = ClusterDir.open(settings.directory)
    cluster = directory.cluster()
    everybody, code = cluster.people, ExitCode.OK
    members: tuple[Member, ...] = ()
    try:
        members = directory_members(directory, cluster, ask_login(options))
    except UnreachableError as error:
        show_warning(Problem("directory service", error.message, error.hint))
        code = error.exit_code
    if as_json:
        parts = _document(everybody, members, _today())
        document: PeopleObject = {"schema": SCHEMA, "command": "people list", "ok": code == ExitCode.OK, **parts}
        emit_json(document)
        return code
    if everybody is None or not (everybody.people or everybody.directory):
        info("people.yml is still empty: deepopsctl people add-group, then people add")
        return code
    today = _today()
    rows = [
        (
            person.name,
            str(person.uid),
            ",".join(person.groups),
            str(len(person.keys)),
            _state(person, today),
            NAME,
            person.full_name,
        )
        for person in everybody.people
    ]
    rows += [(each.name, str(each.uid), ",".join(each.accounts), "", "", "directory", "") for each in members]
    for line in table(("name", "uid", "groups", "keys", "state", "from", "full name"), rows, right=(1, 3)):
        show(line)
    return code


def _document(people: People | None, members: Sequence[Member], today: date) -> PeopleParts:
    if people is None:
        return {"groups": [], "people": [], "directory": []}
    return {
        "groups": [
            {"name": group.name, "gid": group.gid, "pi": group.pi, "start": _text(group.start), "end": _text(group.end),
             "shares": group.shares, "open": group.is_open(today)}
            for group in people.groups
        ],
        "people": [
            {"name": person.name, "uid": person.uid, "full_name": person.full_name, "mail": person.mail,
             "groups": list(person.groups), "keys": list(person.keys), "shell": person.shell,
             "expires": _text(person.expires), "sponsor": person.sponsor, "active": person.is_active(today)}
            for person in people.people
        ],
        "directory": [{"name": each.name, "uid": each.uid, "accounts": list(each.accounts)} for each in members],
    }  # fmt: skip


def _state(person: Person, today: date) -> str:
    if not person.is_active(today):
        return f"expired {person.expires}"
    return f"until {person.expires}" if person.expires else "active"


def _text(day: date | None) -> str:
    return day.isoformat() if day else ""


def _today() -> date:
    from datetime import UTC, datetime

    # as nodes count the days of shadow(5)
    return datetime.now(UTC).date()


def _parse_day(text: str) -> date:
    from deepopsctl.environment.values import parse_date
    from deepopsctl.text.problems import RefusedError

    try:
        return parse_date(text)
    except RefusedError as refusal:
        raise click.BadParameter(f"{refusal.message}; {refusal.hint}", param_hint="--on") from refusal


def _entered(options: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if value}


def _edit(settings: Settings, change: Callable[[str, Cluster], str], done: str) -> None:
    """Change people.yml and the inventory; the lock of runs keeps two from doing so at once."""
    from deepopsctl.cli.output import info
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.cluster.editor_schemas import first_line
    from deepopsctl.cluster.spec import load_spec
    from deepopsctl.environment.edit import NEW
    from deepopsctl.files import write_atomic
    from deepopsctl.run.lock import cluster_lock
    from deepopsctl.text.problems import Problems
    from deepopsctl.text.source import read_source

    directory: ClusterDir = ClusterDir.open(settings.directory)
    with cluster_lock(directory.runs, "people"):
        cluster = load_spec(directory.spec)
        exists = directory.people.exists() and directory.people.stat().st_size > 0
        problems = Problems()
        text = (read_source(directory.people, NAME, problems) if exists else first_line("people") + NEW) or ""
        problems.raise_if_any()
        result = change(text, cluster)
        if result != text:
            write_atomic(directory.people, result, directory.people.stat().st_mode & 0o777 if exists else 0o644)
        directory.refresh_inventory(directory.cluster())
    info(f"people.yml: {done}; next: deepopsctl deploy environment")
