"""What a dashboard is made of, apart from how Grafana writes it down (render.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

GREEN, ORANGE, RED, BLUE = "green", "orange", "red", "blue"


class Unit(StrEnum):
    """Grafana's names of units; one for each type of quantity."""

    COUNT = "short"
    RATIO = "percentunit"
    BYTES = "bytes"
    BYTES_PER_SECOND = "binBps"
    SECONDS = "s"
    MICROSECONDS = "µs"
    # of milliseconds
    SINCE = "dateTimeFromNow"
    WATTS = "watt"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    OPERATIONS = "iops"


class Needs(StrEnum):
    """What a panel shows nothing without, on a cluster that is in order."""

    GPUS = "GPUs"
    JOBS = "running jobs"
    GPU_JOBS = "running jobs with GPUs"
    STARTED = "jobs that started within the last hour"
    WAITING = "waiting jobs"
    WAITING_GPU = "waiting jobs that request GPUs"
    DRAINED = "drained nodes"
    ALERTS = "firing alerts"
    DEAD = "nodes that do not answer"
    STORAGE = "storage in cluster.yml"
    DISKS = "local disks"


@dataclass(frozen=True, slots=True)
class Query:
    """A question in PromQL. `legend` names its series by their labels: `{{node}}`."""

    expr: str
    legend: str = ""
    # where nothing matches, Grafana shows 0; what checks the query leaves that out, or it could never fail
    zero: bool = False
    # in place of its panel's
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class Thresholds:
    """From which value on which colour; below the first it is the base."""

    base: str = GREEN
    steps: tuple[tuple[float, str], ...] = ()


PLAIN = Thresholds(BLUE)
FULL = Thresholds(GREEN, ((0.85, ORANGE), (0.95, RED)))
ANY_IS_BAD = Thresholds(GREEN, ((1, RED),))
ANY_IS_ODD = Thresholds(GREEN, ((1, ORANGE),))
HOT = Thresholds(GREEN, ((80, ORANGE), (90, RED)))


@dataclass(frozen=True, slots=True)
class Link:
    """To another dashboard, with variables set from labels: {variable: label}."""

    dashboard: str
    title: str
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Any panel. `needs` is what it may legitimately be empty without."""

    title: str
    description: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    thresholds: Thresholds = PLAIN
    links: tuple[Link, ...] = ()
    needs: Needs | None = None
    width: int = 12
    height: int = 8
    # 1 for a ratio, so that full and empty have the same scale everywhere
    maximum: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSeries(Panel):
    """Lines over time; stacked where the series are parts of a whole."""

    stacked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat(Panel):
    """One number, with its course behind it."""

    width: int = 4
    height: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BarGauge(Panel):
    """A bar for each series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTimeline(Panel):
    """A band for each series. `states`: text and colour of each value."""

    states: Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: a label, or the value of a query by its place, counted from 0."""

    title: str
    source: str | int
    unit: Unit | None = None
    thresholds: Thresholds | None = None
    link: Link | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Panel):
    """Rows by the labels that all queries have, with one column for each named label and query."""

    columns: tuple[Column, ...]
    sort_by: str = ""
    descending: bool = True
    width: int = 24


@dataclass(frozen=True, slots=True)
class Row:
    """A headline and what is below it."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the panels: the values that the label of its name has in the series of `selector`."""

    name: str
    label: str
    selector: str
    # else several, or all
    is_one: bool = False
    # what "All" is where it is not the list of all values: a pattern that takes in series without the label
    all_value: str = ""
    # the highest number first
    newest_first: bool = False
    # series to take an example from, for a check of all queries: one that all panels have something for
    example: str = ""
    needs: Needs | None = None


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. `uid` is its address and never changes."""

    uid: str
    title: str
    description: str
    variables: Sequence[Variable]
    rows: Sequence[Row]
    since: str = "now-6h"
