"""The validity of the cluster's certificates, in periods: all deploys in one period make the same certificate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

# a deploy renews certificates of earlier periods; alerts warn of certificates that are not renewed
PERIOD_DAYS = 90
LASTS_DAYS = 365
# for nodes with a slow clock
EARLIER_DAYS = 7
AUTHORITY_DAYS = 20 * 365


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when, in UTC."""

    start: datetime
    end: datetime


def today() -> date:
    """Today's date in UTC."""
    return datetime.now(UTC).date()


def period_of(day: date) -> int:
    """The number of the period that a day is in."""
    return day.toordinal() // PERIOD_DAYS


def of_period(period: int) -> Validity:
    """The validity of a node's certificate made in a period."""
    return _lasting(date.fromordinal(period * PERIOD_DAYS), LASTS_DAYS)


def of_authority(made: date) -> Validity:
    """The authority's own certificate."""
    return _lasting(made, AUTHORITY_DAYS)


def _lasting(first: date, days: int) -> Validity:
    midnight = datetime.combine(first, time(), UTC)
    return Validity(midnight - timedelta(days=EARLIER_DAYS), midnight + timedelta(days=days))
