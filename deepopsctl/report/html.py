"""One self-contained page: tests, results, outlier nodes."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from deepopsctl import __version__
from deepopsctl.checks.catalogue.suites import GROUPS
from deepopsctl.checks.check import Status, failed_places
from deepopsctl.report.gpu.section import build_section
from deepopsctl.report.grouping import Row, build_matrices, fold_checks, fold_names
from deepopsctl.report.model import Facts
from deepopsctl.report.rates import build_charts

if TYPE_CHECKING:
    from jinja2 import Template

HEADLINES = {
    Status.PASS: "Everything that was tested works.",
    Status.WARN: "The cluster works, with reservations.",
    Status.SKIP: "Nothing could be tested.",
}
AT_A_GLANCE = 50
TEMPLATES = ("validation.html.j2", "gpus.html.j2", "rates.html.j2")
# not colour alone: every outcome has a shape of its own
MARKS = {Status.PASS: "✓", Status.WARN: "!", Status.FAIL: "✕", Status.SKIP: "–"}


def render_html(facts: Facts) -> str:
    """The page's text. Everything that came from nodes is escaped."""
    rows = fold_checks(facts.checks)
    attention = sorted(
        (row for row in rows if row.status in (Status.FAIL, Status.WARN)), key=lambda r: r.status.severity
    )
    return _template().render(
        facts=facts,
        totals=facts.totals,
        headline=_headline(facts),
        shares=_shares(facts),
        attention=attention,
        matrices=build_matrices(facts),
        gpus=build_section(facts),
        charts=build_charts(facts.rates),
        sections=_sections(rows),
        marks=MARKS,
        version=__version__,
    )


def _headline(facts: Facts) -> str:
    """The verdict; failures say where they are, as long as the list is short."""
    if facts.stopped:
        return f"Not finished ({facts.stopped}): only a part was tested."
    if facts.totals.status is not Status.FAIL:
        return HEADLINES[facts.totals.status]
    where = fold_names(sorted({check.target for check in facts.checks if check.status is Status.FAIL}))
    places = failed_places(facts.checks)
    # a dashboard, a partition or the whole cluster may fail as well
    noun = "nodes" if places <= set(facts.nodes) else "places"
    place = where if len(where) <= AT_A_GLANCE else f"{len(places)} {noun}"
    return f"{facts.totals.failed} {'check' if facts.totals.failed == 1 else 'checks'} failed, on {place}."


def _shares(facts: Facts) -> tuple[tuple[Status, str, int], ...]:
    counted = facts.totals
    return (
        (Status.PASS, "passed", counted.passed),
        (Status.WARN, "warning" if counted.warned == 1 else "warnings", counted.warned),
        (Status.FAIL, "failed", counted.failed),
        (Status.SKIP, "skipped", counted.skipped),
    )


def _sections(rows: tuple[Row, ...]) -> tuple[tuple[str, tuple[tuple[Row, ...], ...]], ...]:
    """Rows by group, and within a group by check."""
    sections = []
    for group in dict.fromkeys([*GROUPS, *(row.entry.group for row in rows)]):
        names = dict.fromkeys(row.name for row in rows if row.entry.group == group)
        if names:
            sections.append((group, tuple(tuple(row for row in rows if row.name == name) for name in names)))
    return tuple(sections)


@cache
def _template() -> Template:
    from jinja2 import DictLoader, Environment, StrictUndefined
    from markupsafe import Markup, escape

    def code(text: str) -> Markup:
        """Words between backticks as code; everything escaped first."""
        return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped a moment ago)

    templates = files("deepopsctl.report").joinpath("templates")
    texts = {name: templates.joinpath(name).read_text(encoding="utf-8") for name in TEMPLATES}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=DictLoader(texts)
    )
    environment.filters["code"] = code
    return environment.get_template(TEMPLATES[0])
