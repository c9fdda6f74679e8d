"""Alert rules with a site's overrides in `monitoring_alerts`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from deepopsctl.text.answers import mapping, members, words
from deepopsctl.text.header import MANAGED_HEADER_FROM_ALERTS
from deepopsctl.text.values import suggest

SEVERITIES = ("critical", "warning", "info", "none")
CHANGEABLE = ("enabled", "for", "threshold", "severity", "drain", "expr")
# others rest on it: it shows that alerts arrive at all
WATCHDOG = "Watchdog"
RUNBOOK = "docs/reference/alerts.md"
FILES = "alerts-*.yml"

_DURATION = re.compile(r"([0-9]+)(ms|s|m|h|d|w)")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
# the number that an expression ends with, after a comparison that is not within parentheses
_THRESHOLD = re.compile(r"((?:==|!=|[<>]=?)\s*)(-?[0-9]+(?:\.[0-9]+)?)\s*$")
_RUNBOOK = re.compile(rf"^((?P<indent> *)runbook: {re.escape(RUNBOOK)}#(?P<anchor>\w+))$", re.MULTILINE)
_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?=&%+@\[\]-]+")
_INNERMOST = re.compile(r"\([^()]*\)")


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `wait` is its `for`, as Prometheus writes it; `threshold` is None where no number can be set."""

    name: str
    group: str
    expr: str
    wait: str
    severity: str
    drains: bool
    blinds: bool
    annotations: Mapping[str, str]

    @property
    def threshold(self) -> float | None:
        """The number that the expression ends with; not that of a comparison with 0 or 1, which is yes or no.

        None where `or` joins comparisons: the last of them would change alone.
        """
        match = _THRESHOLD.search(self.expr)
        return float(match[2]) if match and "==" not in match[1] and not _is_joined(self.expr) else None


def _is_joined(expr: str) -> bool:
    """Whether an expression is several, joined by `or` outside of all parentheses."""
    outside = _INNERMOST.sub("", expr)
    return re.search(r"\bor\b", outside) is not None if outside == expr else _is_joined(outside)


def read(text: str) -> list[Alert]:
    """The alerts of one rule file."""
    return [_alert(str(group["name"]), rule) for group, rule in _rules(yaml.safe_load(text)) if "alert" in rule]


def seconds(duration: str) -> float:
    """`1h30m` -> 5400; ValueError for what is none."""
    pieces = _DURATION.findall(duration)
    if not pieces or "".join(number + unit for number, unit in pieces) != duration:
        raise ValueError(duration)
    return float(sum(int(number) * _SECONDS[unit] for number, unit in pieces))


def with_overrides(files: Mapping[str, str], changes: object) -> dict[str, str]:
    """The rule files with overrides that `validate_overrides` accepts; files without overrides are unchanged."""
    by_alert = {alert: change.values for alert, change in members(changes)}
    return {name: _changed(text, by_alert) for name, text in files.items()}


def with_addresses(files: Mapping[str, str], page: str) -> dict[str, str]:
    """The rule files whose alerts also have `runbook_url`: on the page that a site publishes; '' for none."""

    def added(match: re.Match[str]) -> str:
        return f"{match[1]}\n{match['indent']}runbook_url: {page}#{match['anchor']}"

    return {name: _RUNBOOK.sub(added, text) if page else text for name, text in files.items()}


def page_problems(page: str) -> list[str]:
    """What is wrong with the address of the page of alerts, one sentence each."""
    if not page or _ADDRESS.fullmatch(page):
        return []
    return [f"prometheus_runbook_page: {page} is not an address: write https://docs.example.com/reference/alerts/"]


def validate_overrides(files: Mapping[str, str], changes: object) -> list[str]:
    """Problems with `monitoring_alerts`, one sentence each."""
    if not isinstance(changes, Mapping):
        return ["monitoring_alerts is not a mapping: write {NodeDown: {for: 5m}}"]
    known = {alert.name: alert for text in files.values() for alert in read(text)}
    problems = []
    for name, change in changes.items():
        where = f"monitoring_alerts: {name}"
        if name not in known:
            problems.append(f"{where}: there is no such alert; {suggest(str(name), known)}")
        elif not isinstance(change, Mapping):
            problems.append(f"{where} is not a mapping: write {{for: 5m}}")
        else:
            problems += [f"{where}: {fault}" for fault in _faults(known[name], change)]
    return problems


def longest_blindness(files: Mapping[str, str]) -> float:
    """Seconds until an alert reports that others can't fire, at most."""
    return max((seconds(alert.wait) for text in files.values() for alert in read(text) if alert.blinds), default=0.0)


def _rules(document: Any) -> Iterator[tuple[dict[str, object], dict[str, object]]]:
    for group in (document or {}).get("groups", []):
        for rule in group["rules"]:
            yield group, rule


def _alert(group: str, rule: Mapping[str, object]) -> Alert:
    labels, annotations = words(rule.get("labels")), words(rule.get("annotations"))
    return Alert(
        name=str(rule["alert"]),
        group=group,
        expr=str(rule["expr"]),
        wait=str(rule.get("for", "0s")),
        severity=labels.get("severity", ""),
        drains=labels.get("drain") == "true",
        blinds=labels.get("blind") == "true",
        annotations=annotations,
    )


def _faults(alert: Alert, change: Mapping[str, object]) -> Iterator[str]:
    for key, value in change.items():
        if key not in CHANGEABLE:
            yield f"{key} can't be changed; {suggest(str(key), CHANGEABLE)}"
        elif key in ("enabled", "drain") and not isinstance(value, bool):
            yield f"{key} is true or false"
        elif key == "enabled" and value is False and alert.name == WATCHDOG:
            yield "it stays: its silence is how it is known that alerts no longer arrive"
        elif key == "severity" and value not in SEVERITIES:
            yield f"severity is one of {', '.join(SEVERITIES)}"
        elif key == "expr" and not str(value).strip():
            yield "expr is empty"
        elif key == "for" and not _is_duration(str(value)):
            yield f"for: {value} is not a valid time: write 30s, 5m or 1h"
        elif key == "threshold":
            yield from _threshold_faults(alert, value)


def _threshold_faults(alert: Alert, value: object) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield f"threshold: {value} is not a valid number"
    elif alert.threshold is None:
        yield "it has no threshold; `expr` replaces the whole expression"


def _is_duration(text: str) -> bool:
    try:
        return seconds(text) >= 0
    except ValueError:
        return False


def _changed(text: str, changes: Mapping[str, Mapping[str, object]]) -> str:
    document = yaml.safe_load(text)
    if not any(rule.get("alert") in changes for _, rule in _rules(document)):
        return text
    for group in document["groups"]:
        group["rules"] = [
            _applied(rule, changes.get(rule.get("alert"), {})) for rule in group["rules"] if _stays(rule, changes)
        ]
    return MANAGED_HEADER_FROM_ALERTS + yaml.dump(
        document, Dumper=_Readable, sort_keys=False, width=120, allow_unicode=True
    )


def _stays(rule: Mapping[str, object], changes: Mapping[str, Mapping[str, object]]) -> bool:
    return changes.get(str(rule.get("alert")), {}).get("enabled") is not False


def _applied(rule: dict[str, object], change: Mapping[str, object]) -> dict[str, object]:
    labels: dict[str, object] = {**mapping(rule.get("labels"))}
    labels |= {"severity": change["severity"]} if "severity" in change else {}
    if "drain" in change:
        labels.pop("drain", None)
        labels |= {"drain": "true"} if change["drain"] else {}
    expr = str(change.get("expr", rule["expr"]))
    if "threshold" in change:
        expr = _THRESHOLD.sub(lambda match: f"{match[1]}{change['threshold']}", expr)
    wait = {"for": str(change["for"])} if "for" in change else {}
    return {**rule, "expr": expr, **wait, **({"labels": labels} if labels else {})}


class _Readable(yaml.SafeDumper):
    """Writes expressions of several lines as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)


def names(files: Mapping[str, str]) -> Sequence[str]:
    """All alerts, in the order of the files."""
    return [alert.name for text in files.values() for alert in read(text)]
