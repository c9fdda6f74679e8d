"""The rules that were deployed: all there, all evaluated without an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..._shared.checks import FAIL, PASS, Check, one_line
from ..._shared.waiting import wait_until
from .checks import check
from .web import Prometheus

RULES = "rules-healthy"
# rules are evaluated for the first time within their group's interval, and then it takes a moment
_MOMENT_S = 30.0


def evaluate(prometheus: Prometheus, cluster: str, wanted: Mapping[str, int]) -> list[Check]:
    """A check for each file that is expected, by its number of rules; and one for the site's own rules."""
    first = max((float(group["interval"]) for group in prometheus.rules()), default=0.0)
    rules_by_file = wait_until(lambda: _by_file(prometheus), first + _MOMENT_S, 1.0, _evaluated)
    checks = [_one(name, wanted[name], rules_by_file.get(name, [])) for name in sorted(wanted)]
    others = [rule for name, rules in rules_by_file.items() if name not in wanted for rule in rules]
    if others:
        checks.append(_one(cluster, len(others), others))
    return checks


def _by_file(prometheus: Prometheus) -> dict[str, list[dict[str, Any]]]:
    rules_by_file: dict[str, list[dict[str, Any]]] = {}
    for group in prometheus.rules():
        rules_by_file.setdefault(group["file"].rpartition("/")[2], []).extend(group["rules"])
    return rules_by_file


def _evaluated(rules_by_file: Mapping[str, list[dict[str, Any]]]) -> bool:
    return all(rule.get("health") != "unknown" for rules in rules_by_file.values() for rule in rules)


def _one(target: str, wanted: int, rules: list[dict[str, Any]]) -> Check:
    broken = [f"{rule['name']}: {one_line(rule.get('lastError', '') or 'not evaluated yet')}"
              for rule in rules if rule.get("health") != "ok"]  # fmt: skip
    well = len(rules) - len(broken)
    if not rules:
        text = "Prometheus has loaded no rule of this file"
    elif len(rules) != wanted:
        text = f"Prometheus has loaded {len(rules)} rules of this file"
    else:
        text = "; ".join(broken[:3])
    return check(RULES, target, FAIL if text else PASS, well, wanted, "rules", text)
