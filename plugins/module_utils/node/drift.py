"""A node's records of its last good deploy, compared with what is there now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    ownership as node_ownership,
    packages as node_packages,
    people as node_people,
    record as node_record,
    services as node_services,
)


def differences(record: Mapping[str, Any]) -> list[str]:
    """Sentences for everything that is no longer as recorded."""
    return _differences(record["items"], present([record]))


def present(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What there is now of all packages and units of some records, asked once."""
    everything = [record["items"] for record in records]
    return {
        "packages": node_packages.installed(sorted({name for items in everything for name in items["packages"]})),
        "held": node_packages.held() if any(items.get("held") for items in everything) else set(),
        "units": node_services.show(sorted({name for items in everything for name in items["units"]})),
    }


def _differences(items: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    differences = []
    packages = now["packages"]
    for name, version in items["packages"].items():
        if packages.get(name) != version:
            differences.append(f"package {name} is {packages.get(name, 'missing')}, was {version}")
    for path, facts in items["files"].items():
        sentence = file_difference(path, facts, node_record.file_facts(path))
        differences += [sentence] if sentence else []
    for path, facts in items["directories"].items():
        if node_record.directory_facts(path) != facts:
            differences.append(f"{path} has another owner or mode, or is gone")
    for path, ids in items.get("made", {}).items():
        # a user's own, whose mode may change
        if (node_record.directory_facts(path) or [])[:2] != ids:
            differences.append(f"{path} is gone, or belongs to another user")
    wanted = items.get("held")
    free = sorted(set(wanted) - now["held"]) if wanted else []
    differences += [f"package {name} is held no more" for name in free]
    differences += node_people.differences(items.get("people"))
    return differences + unit_differences(items["units"], now["units"], items.get("ports", {}))


def file_difference(path: str, then: Sequence[Any] | None, now: Sequence[Any] | None) -> str:
    """What became of a file, '' for nothing."""
    if now == then:
        return ""
    if now is None:
        return f"{path} was removed"
    return f"{path} was changed" if then is None or now[0] != then[0] else f"{path} has another owner or mode"


def unit_differences(
    units: Mapping[str, bool], shown: Mapping[str, Mapping[str, str]], ports: Mapping[str, int]
) -> list[str]:
    """Sentences for units that should run and don't, or the reverse; `shown` is what systemd says of them."""
    differences = []
    for name, running in units.items():
        properties = shown.get(name, {})
        active = properties.get("ActiveState") == "active"
        if running and not active and not node_services.is_blocked(properties):
            differences.append(f"{name} is {properties.get('ActiveState', 'unknown')}")
        elif running and node_services.is_restarting(properties):
            differences.append(f"{name} does not stay up: systemd restarts it")
        elif running and active and name in ports and not node_services.is_listening(ports[name]):
            differences.append(f"{name} runs but does not listen on port {ports[name]}")
        elif running and not node_services.is_enabled(properties):
            differences.append(f"{name} is not enabled")
        elif not running and properties.get("ActiveState") == "active":
            differences.append(f"{name} runs")
        if node_record.is_pending(name):
            differences.append(f"{name} still has to restart")
        if node_record.is_pending(f"{name}.reload"):
            differences.append(f"{name} still has to reload its files")
    return differences


def is_left_of(component: str) -> bool:
    """Whether a component that is to have nothing here has something all the same."""
    return bool(node_record.steps(component)) or node_ownership.owns_anything(component)


def compare(components: Sequence[Mapping[str, Any]], digests: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Of each component its parts, for a report: every difference is listed, even if the desired state has changed.

    `components` is a list of {component, steps}; one without steps is not wanted here. `digests` are those of this run.
    """
    records = {
        entry["component"]: {step: node_record.load(entry["component"], step) for step in entry["steps"]}
        for entry in components
    }
    now = present([record for steps in records.values() for record in steps.values() if record])
    return {name: _compared(name, steps, digests.get(name, ""), now) for name, steps in records.items()}


def _compared(
    component: str, records: Mapping[str, Mapping[str, Any] | None], digest: str, now: Mapping[str, Any]
) -> dict[str, Any]:
    known = [record for record in records.values() if record]
    left_out = [note for note in (node_record.left_out(component, step) for step in records) if note]
    # a deploy tries them again, and all else is as it should be
    excused = {step for note in left_out for step in note["steps"]}
    return {
        "wanted": bool(records),
        "left": not records and is_left_of(component),
        "deployed": bool(known),
        "missing": [step for step, record in records.items() if not record and step not in excused],
        "left_out": [{"what": note["what"], "message": note["message"]} for note in left_out],
        "stale": [
            *(
                step
                for step, record in records.items()
                if record and record["digest"] != digest and step not in excused
            ),
            *(node_record.unfinished(component, records) if records else []),
        ],
        "digests": sorted({record["digest"] for record in known}),
        "differences": list(
            dict.fromkeys(sentence for record in known for sentence in _differences(record["items"], now))
        ),
    }


def reasons(component: str, digest: str, steps: Sequence[str]) -> list[str]:
    """Why the node needs the component's steps; empty when it does not."""
    if not digest:
        return ["a full run was asked for"]
    records = {step: node_record.load(component, step) for step in steps}
    if not any(records.values()):
        return ["never deployed"]
    stale = [step for step, record in records.items() if not record or record["digest"] != digest]
    stale += node_record.unfinished(component, steps)
    if stale:
        return [f"the desired state changed, or the last deploy did not finish: {', '.join(stale)}"]
    known = [record for record in records.values() if record]
    now = present(known)
    return [sentence for record in known for sentence in _differences(record["items"], now)]
