"""JUnit XML: what CI servers read. A warning passes there, with its text in the case's output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from deepopsctl.checks.catalogue.suites import entry
from deepopsctl.checks.check import Check, Status, totals
from deepopsctl.report.model import Facts

# characters that XML 1.0 can't carry, not even escaped
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(facts: Facts) -> str:
    """The whole file: one testsuite a suite, one testcase a check and target."""
    counted = facts.totals
    root = ET.Element(
        "testsuites", name=_clean(facts.title), tests=str(counted.all), failures=str(counted.failed),
        errors="1" if facts.stopped else "0", skipped=str(counted.skipped), time=f"{facts.elapsed_s:.3f}",
    )  # fmt: skip
    for suite in dict.fromkeys(check.suite for check in facts.checks):
        _add_suite(root, suite, [check for check in facts.checks if check.suite == suite], facts)
    if facts.stopped:
        # without it, a CI server would take what was checked for all there is
        unfinished = ET.SubElement(root, "testsuite", name="finished", tests="1", errors="1")
        case = ET.SubElement(unfinished, "testcase", classname="finished", name=_clean(facts.cluster), time="0")
        ET.SubElement(case, "error", message=_clean(f"{facts.stopped}: not everything was checked"))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_suite(root: ET.Element, suite: str, checks: Sequence[Check], facts: Facts) -> None:
    counted = totals(checks)
    element = ET.SubElement(
        root, "testsuite", name=_clean(suite), tests=str(counted.all), failures=str(counted.failed), errors="0",
        skipped=str(counted.skipped), time=f"{facts.elapsed_s:.3f}", timestamp=f"{facts.when:%Y-%m-%dT%H:%M:%S}",
        hostname=_clean(facts.cluster),
    )  # fmt: skip
    properties = ET.SubElement(element, "properties")
    for name, value in (("cluster", facts.cluster), ("run", facts.run), ("slurm", facts.slurm_version)):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    for check in checks:
        _add_case(element, check)


def _add_case(suite: ET.Element, check: Check) -> None:
    # no times of single checks: jobs run at the same time, many checks come from one job
    case = ET.SubElement(
        suite, "testcase", classname=_clean(f"{check.suite}.{check.name}"), name=_clean(check.target), time="0"
    )
    if check.status is Status.FAIL:
        failure = ET.SubElement(case, "failure", message=_clean(_sentence(check)), type="check")
        failure.text = _clean(f"{_sentence(check)}\nto do: {check.hint or entry(check.name, check.suite).advice}")
    elif check.status is Status.SKIP:
        ET.SubElement(case, "skipped", message=_clean(check.message))
    elif check.status is Status.WARN:
        ET.SubElement(case, "system-out").text = _clean(f"warning: {_sentence(check)}")


def _sentence(check: Check) -> str:
    unit = f" {check.unit}" if check.unit else ""
    parts = [check.message] if check.message else []
    if check.measured or check.expected:
        parts.append(f"measured {check.measured or 'nothing'}{unit}, expected {check.expected}{unit}")
    return "; ".join(parts)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
