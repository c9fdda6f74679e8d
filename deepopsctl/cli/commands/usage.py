"""`deepopsctl usage`: what accounts have used, in reference GPU units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from deepopsctl.cli.main import Settings
from deepopsctl.cli.options import connection_options, json_option

if TYPE_CHECKING:
    from deepopsctl.model.json_objects import AccountUseEntry, UsageObject, UseEntry, UserUse
    from deepopsctl.node_programs.commands.account_usage.accounting import Use
    from deepopsctl.status.usage import AccountUse, Usage

_TIMES = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


@click.command()
@click.argument("accounts", nargs=-1, metavar="[ACCOUNTS...]")
@click.option("--start", default="", metavar="DATE", help="2026-04-01 or 2026-04-01T12:00; without it, this year.")
@click.option("--end", default="", metavar="DATE", help="As --start; without it, now.")
@click.option("--users", is_flag=True, help="Also a line for each user.")
@connection_options
@json_option
@click.pass_obj
def usage(
    settings: Settings,
    /,
    *,
    accounts: tuple[str, ...],
    start: str,
    end: str,
    users: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Show what ACCOUNTS (default: all) used, in RGU-years, and what their share of the cluster stands for.

    Reads each job of the period from Slurm's accounting, running ones up to now. An account includes those below it.
    """
    from deepopsctl.cli.output import emit_json, show, table
    from deepopsctl.cli.passwords import ask_login
    from deepopsctl.cluster.directory import ClusterDir
    from deepopsctl.model.json_objects import SCHEMA
    from deepopsctl.status.usage import query_usage

    for text in (start, end):
        if text:
            _TIMES.convert(text, None, click.get_current_context())
    result = query_usage(ClusterDir.open(settings.directory), start, end, ask_login(options))
    chosen = _chosen(result, accounts)
    if as_json:
        entries = [_entry(result, account) for account in chosen]
        document: UsageObject = {
            "schema": SCHEMA, "command": "usage", "ok": True, "cluster": result.cluster,
            "start": result.start.isoformat(), "end": result.end.isoformat(),
            "capacity_rgu": round(result.capacity, 4), "accounts": entries,
        }  # fmt: skip
        emit_json(document)
        return 0
    days = (result.end - result.start).total_seconds() / 86_400
    show(f"{result.cluster}, {result.start:%F} to {result.end:%F} ({days:.1f} days): {result.capacity:g} RGU of GPUs")
    show("")
    cores = any(result.total_of(account.name).core_hours for account in chosen)
    header = [
        "account",
        "jobs",
        "RGU-hours",
        "RGU-years",
        "share",
        "target",
        "of target",
        *(["core-years"] if cores else []),
    ]
    rows = [row for account in chosen for row in _rows(result, account, cores=cores, users=users)]
    for line in table(header, rows, range(1, len(header))):
        show(line)
    return 0


def _chosen(result: Usage, names: tuple[str, ...]) -> list[AccountUse]:
    from deepopsctl.errors import InputError
    from deepopsctl.text.values import suggest

    known = {account.name: account for account in result.accounts}
    for name in names:
        if name not in known:
            raise InputError.single("ACCOUNTS", f"Slurm has no account {name}", suggest(name, sorted(known)))
    return [known[name] for name in names] or list(result.accounts)


def _rows(result: Usage, account: AccountUse, *, cores: bool, users: bool) -> Iterator[list[str]]:
    total, target = result.total_of(account.name), result.target_of(account)
    part = f"{total.rgu_years / target:.0%}" if target else ""
    yield [account.name, *_used(total), f"{account.share:.1%}", f"{target:.4f}", part, *_cores(total, cores=cores)]
    for name, use in sorted(account.users.items()) if users else ():
        yield [f"  {name}", *_used(use), "", "", "", *_cores(use, cores=cores)]


def _used(use: Use) -> list[str]:
    return [f"{use.jobs:,}", f"{use.rgu_hours:,.2f}", f"{use.rgu_years:.4f}"]


def _cores(use: Use, *, cores: bool) -> list[str]:
    return [f"{use.core_years:.4f}"] if cores else []


def _entry(result: Usage, account: AccountUse) -> AccountUseEntry:
    users: list[UserUse] = [{"name": name, **_numbers(use)} for name, use in sorted(account.users.items())]
    return {
        "name": account.name, "parent": account.parent, "share": round(account.share, 6),
        "target_rgu_years": round(result.target_of(account), 6), **_numbers(result.total_of(account.name)),
        "users": users,
    }  # fmt: skip


def _numbers(use: Use) -> UseEntry:
    return {
        "jobs": use.jobs, "rgu_hours": round(use.rgu_hours, 4), "rgu_years": round(use.rgu_years, 6),
        "core_hours": round(use.core_hours, 4), "core_years": round(use.core_years, 6),
    }  # fmt: skip
