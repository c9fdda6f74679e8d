"""What Prometheus scrapes, against what cluster.yml says it should."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..._shared.checks import FAIL, PASS, WARN, Check, one_line
from ..._shared.waiting import wait_until
from . import web
from .checks import check, names, place
from .web import Prometheus

UP, MORE, CLOCK, TEXTFILES = "target-up", "targets-unexpected", "clock-monitoring", "textfiles-fresh"
STORES = "prometheus-stores"
# three scrapes, and one that is under way
_NEWEST_S = 60.0
# a target that was just added is scraped within its interval, once the list of targets was read
_FIRST_S = 15.0
# one missed scrape is not news, three are; of short intervals more
_MISSED, _MISSED_S = 3, 30.0
# share of its interval that a scrape may take before it is reported
_SLOW = 0.5
CLOCK_WARN_S, CLOCK_FAIL_S = 1.0, 60.0
Key = tuple[str, str, str]


class Wanted(NamedTuple):
    """What should be scraped: the node, the job it belongs to, where it answers, and which of the pages there."""

    node: str
    job: str
    address: str
    page: str = ""

    @property
    def key(self) -> Key:
        """Its identity in Prometheus."""
        return self.node, self.job, self.page


Scraped = dict[Key, dict[str, Any]]


def query_targets(prometheus: Prometheus) -> Scraped:
    """What Prometheus scrapes now."""
    return {
        (target["labels"].get("node", ""), target["labels"]["job"], target["labels"].get("page", "")): target
        for target in prometheus.targets()
    }


def evaluate(prometheus: Prometheus, cluster: str, wanted: Sequence[Wanted], selected: Iterable[str]) -> list[Check]:
    """Every expected target of the checked nodes, and unexpected targets."""
    here = set(selected)
    mine = [target for target in wanted if target.node in here]
    keys = [target.key for target in mine]
    scraped = _scraped_again(prometheus, keys)
    if any(key in scraped and scraped[key]["health"] == "down" for key in keys):
        # one answer that came too late is not news: what is down is so twice
        scraped = _scraped_again(prometheus, keys)
    return [_one(target, scraped.get(target.key), time.time()) for target in mine] + [
        _unexpected(cluster, scraped, {target.key for target in wanted})
    ]


def problems(prometheus: Prometheus, wanted: Sequence[Wanted]) -> list[str]:
    """Why Prometheus can't scrape some of these; waits for what it has not asked yet, or not since this was called."""
    since = time.time()

    def waiting(scraped: Scraped) -> dict[Key, str]:
        reasons = {target.key: _problem(target, scraped.get(target.key), since) for target in wanted}
        return {key: why for key, why in reasons.items() if why}

    left = wait_until(lambda: waiting(query_targets(prometheus)), _FIRST_S + 60.0, 1.0, lambda reasons: not reasons)
    return [f"{place(*key)}: {why}" for key, why in left.items()]


def _problem(target: Wanted, scraped: Mapping[str, Any] | None, since: float) -> str:
    """What has to come, and is a problem once time is up; '' for nothing."""
    waited = time.time() - since
    if scraped is None:
        return f"{target.address} is not in its list of targets"
    if scraped["health"] == "up" or (scraped["health"] == "unknown" and waited > _FIRST_S):
        # one of a long interval is asked later: that it was not is not a fault
        return ""
    error = one_line(scraped.get("lastError", "")) or "not scraped yet"
    return f"{scraped.get('scrapeUrl', target.address)}: {error}"


def _scraped_again(prometheus: Prometheus, keys: Sequence[Key]) -> Scraped:
    """What Prometheus scrapes, once it has done so with all of these: what it found before may be over."""
    since = time.time()

    def settled(scraped: Scraped) -> bool:
        return all(key in scraped and (web.unix(scraped[key]["lastScrape"]) or 0) > since for key in keys)

    first = query_targets(prometheus)
    intervals = [web.span(target.get("scrapeInterval", "")) for target in first.values()]
    return wait_until(lambda: query_targets(prometheus), _FIRST_S + max(intervals or [15.0]), 1.0, settled)


def _one(target: Wanted, scraped: Mapping[str, Any] | None, now: float) -> Check:
    where = place(*target.key)
    if scraped is None:
        text = f"Prometheus has no such target: {target.address} should be in its list"
        return check(UP, where, FAIL, "not listed", "up", message=text)
    interval = web.span(scraped.get("scrapeInterval", "")) or 15.0
    last = web.unix(scraped["lastScrape"])
    url = scraped.get("scrapeUrl", target.address)
    if scraped["health"] != "up":
        error = one_line(scraped.get("lastError", "")) or "not scraped yet"
        if "deadline exceeded" in error:
            error = f"no answer within {scraped.get('scrapeTimeout') or 'its time'}: is the node too busy?"
        return check(UP, where, FAIL, scraped["health"], "up", message=f"{url}: {error}")
    if last is None or now - last > max(_MISSED * interval, _MISSED_S):
        age = "never" if last is None else f"{now - last:.0f} s ago"
        text = f"last scraped {age}, and should be every {interval:g} s"
        return check(UP, where, FAIL, "stale", "up", message=text)
    took = float(scraped["lastScrapeDuration"])
    if took > _SLOW * interval:
        text = f"a scrape takes {took:.1f} s of the {interval:g} s between two"
        return check(UP, where, WARN, "slow", "up", message=text)
    if target.address and target.address not in url:
        text = f"Prometheus asks {url}, and cluster.yml says {target.address}"
        return check(UP, where, FAIL, "elsewhere", "up", message=text)
    return check(UP, where, PASS, "up", "up", message=f"scraped in {took:.3f} s")


def _unexpected(cluster: str, scraped: Scraped, wanted: set[Key]) -> Check:
    more = [
        place(key[0] or str(target.get("scrapeUrl")), *key[1:]) for key, target in scraped.items() if key not in wanted
    ]
    text = f"not in cluster.yml: {names(more)}" if more else ""
    return check(MORE, cluster, WARN if more else PASS, len(more), 0, "targets", text)


def stores(prometheus: Prometheus, monitor: str) -> Check:
    """Whether what it scrapes is kept: on a full disk every target is up, and there is not one sample of it."""
    bound = f"no older than {_NEWEST_S:g}"

    def query_targets() -> float | None:
        samples = prometheus.query("time() - max(timestamp(up))")
        return samples[0][1] if samples else None

    age = wait_until(query_targets, _FIRST_S, 1.0, lambda samples: samples is not None and samples <= _NEWEST_S)
    if age is not None and age <= _NEWEST_S:
        return check(STORES, monitor, PASS, f"{age:.0f}", bound, "s")
    since = "for minutes" if age is None else f"for {age:.0f} s"
    text = f"nothing of what is scraped was stored {since}: is the disk of its data full?"
    return check(STORES, monitor, FAIL, "nothing" if age is None else f"{age:.0f}", bound, "s", text)


def clocks(prometheus: Prometheus, selected: Sequence[str], monitor: str) -> list[Check]:
    """Each node's clock against the monitoring host's: the node read it while it was being scraped."""
    lead = prometheus.by("node", "node_time_seconds - timestamp(node_time_seconds)")
    took = prometheus.by("node", 'scrape_duration_seconds{job="node"}')
    checks = []
    for node in selected:
        if node not in lead:
            # the check of its target reports that it is not scraped
            continue
        # read at some moment of the scrape: what the node's clock is at least away
        high, low = lead[node], lead[node] - took.get(node, 0.0)
        least = max(low, -high, 0.0)
        status = FAIL if least > CLOCK_FAIL_S else WARN if least > CLOCK_WARN_S else PASS
        word = "ahead of" if low > 0 else "behind"
        text = "" if status == PASS else f"the clock is at least {least:.1f} s {word} {monitor}'s"
        measured = f"{(low + high) / 2:+.3f} ± {(high - low) / 2:.3f}"
        checks.append(check(CLOCK, node, status, measured, f"within {CLOCK_WARN_S:g}", "s", text))
    return checks


def textfiles(prometheus: Prometheus, wanted: Mapping[str, Mapping[str, float]], up: Iterable[str]) -> list[Check]:
    """What our own programs write for the node exporter: there, readable, and not older than its limit (seconds)."""
    here = [node for node in up if wanted.get(node)]
    written = {
        (labels.get("node", ""), labels.get("file", "").rpartition("/")[2]): age
        for labels, age in prometheus.query("time() - node_textfile_mtime_seconds")
    }
    broken = prometheus.by("node", "node_textfile_scrape_error")
    return [_written(node, wanted[node], written, broken=bool(broken.get(node))) for node in here]


def _written(
    node: str, wanted: Mapping[str, float], written: Mapping[tuple[str, str], float], *, broken: bool
) -> Check:
    ages = {name: written.get((node, name)) for name in wanted}
    wrong = [f"{name} is not there" for name, age in ages.items() if age is None]
    wrong += [
        f"{name} is {age:.0f} s old, and should be no older than {wanted[name]:g} s"
        for name, age in ages.items()
        if age is not None and age > wanted[name]
    ]
    wrong += ["the node exporter can't read one of its text files"] if broken else []
    known = [age for age in ages.values() if age is not None]
    measured = f"{max(known):.0f}" if known else ""
    expected = f"{max(wanted.values()):g}"
    return check(TEXTFILES, node, FAIL if wrong else PASS, measured, expected, "s", "; ".join(wrong))
