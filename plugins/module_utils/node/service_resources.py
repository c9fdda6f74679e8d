"""Units of one step of a node: started, enabled, restarted for what changed, or stopped."""

from __future__ import annotations

import os

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    command as node_command,
    record as node_record,
    services as node_services,
)

UNIT_DIRECTORY = "/etc/systemd/system/"
CONTAINER = "/run/systemd/container"


def calls_of(path, units):
    """The notes that the change of a file leaves, until it has had its effect: `a.service`, `b.service.reload`."""
    restarts = [unit["name"] for unit in units if is_among(path, unit["restart_on"])]
    return restarts + [reload_of(unit["name"]) for unit in units if is_among(path, unit.get("reload_on") or [])]


def is_among(path, wanted):
    """Whether a path is one of these, or below one that ends with a slash."""
    return path in wanted or any(path.startswith(directory) for directory in wanted if directory.endswith("/"))


def reload_of(name):
    return "%s.reload" % name


def ensure_units(step, units, changed_files, new_units):
    names = [unit["name"] for unit in units]
    if not step.dry and any(path.startswith(UNIT_DIRECTORY) for path in changed_files):
        run_systemctl(step, ["daemon-reload"], "")
    shown = node_services.show(names)
    if not step.dry and any(shown.get(name, {}).get("NeedDaemonReload") == "yes" for name in names):
        run_systemctl(step, ["daemon-reload"], "")
    enable(step, [unit["name"] for unit in units if unit["running"]], shown)
    for unit in units:
        if unit["running"]:
            ensure_running(step, unit, shown.get(unit["name"], {}), changed_files, unit["name"] in new_units)
        else:
            ensure_stopped(step, unit, shown.get(unit["name"], {}))


def enable(step, names, shown):
    """Enable all that do not start at boot in one call: systemd reloads all of its units after each."""
    wanted = [name for name in names if not node_services.is_enabled(shown.get(name, {}))]
    if wanted and not step.dry:
        run_systemctl(step, ["enable", "--quiet"] + wanted, wanted[0])


def ensure_running(step, unit, properties, changed_files, is_new):
    name = unit["name"]
    due = node_record.is_pending(name) or any(is_among(path, unit["restart_on"]) for path in changed_files)
    reload_on = unit.get("reload_on") or []
    stale = node_record.is_pending(reload_of(name)) or any(is_among(path, reload_on) for path in changed_files)
    active = properties.get("ActiveState") == "active"
    enabled = node_services.is_enabled(properties)
    if not (due or not active) or is_held_back(unit, properties, due, step.dry):
        started = False
    else:
        started = step.dry or start_or_restart(step, unit)
    if started:
        action = "restart" if active else "start"
        step.did("%sed %s" % (action, name), "unit", name, action)
    elif active and stale:
        step.did("reloaded %s" % name, "unit", name, "reload")
        if not step.dry:
            run_systemctl(step, ["reload", name], name)
            node_record.clear_pending(reload_of(name))
    elif not enabled and not is_new:
        # a unit that starts is enabled, too, and so is one that came with its package: no change of its own
        step.did("enabled %s" % name, "unit", name, "enable")
    step.record["units"][name] = True
    if unit.get("port"):
        step.record["ports"][name] = unit["port"]


def is_held_back(unit, properties, due, dry):
    """True where systemd itself keeps a unit from starting (chrony in a container: no clock to set)."""
    if not unit["optional"] or properties.get("ActiveState") == "active":
        return False
    if properties.get("LoadState") == "not-found":
        # its package, and with it its condition, is not there yet
        return dry and os.path.exists(CONTAINER)
    return node_services.is_refused_by_condition(properties) and (dry or not due)


def start_or_restart(step, unit):
    """True when the unit runs afterwards; False when a condition of its own keeps it from it."""
    name = unit["name"]
    facts = node_services.show([name])[name]
    if facts.get("LoadState") == "masked":
        # an installation was cut off; to mask for good is a person's right, and stays
        run_systemctl(step, ["unmask", "--runtime", "--quiet", name], "")
    if facts.get("ActiveState") == "failed":
        # systemd refuses a unit that failed too often until its counter is reset
        run_systemctl(step, ["reset-failed", name], "")
    run_systemctl(step, ["restart", name], name)
    # it has reloaded everything
    node_record.clear_pending(reload_of(name))
    properties = node_services.wait_until_active(name, 60)
    if properties.get("ActiveState") != "active":
        if unit["optional"] and node_services.is_refused_by_condition(properties):
            node_record.clear_pending(name)
            return False
        step.fail(
            "%s does not run (%s): %s" % (name, properties.get("SubState", "?"), node_services.journal_tail(name)),
            "see `journalctl -u %s` on the node" % name,
        )
    if unit["port"] and not node_services.wait_for_port(unit["port"], 60):
        step.fail("%s runs but does not listen on port %d" % (name, unit["port"]), node_services.journal_tail(name))
    node_record.clear_pending(name)
    return True


def ensure_stopped(step, unit, properties):
    name = unit["name"]
    if properties.get("LoadState") == "not-found":
        return
    if node_services.is_active(properties) or properties.get("UnitFileState") == "enabled":
        step.did("stopped and disabled %s" % name, "unit", name, "stop")
        if not step.dry:
            run_systemctl(step, ["disable", "--now", "--quiet", name], name)
    step.record["units"][name] = False


def run_systemctl(step, arguments, unit):
    environment = node_command.environment(**node_services.ENVIRONMENT)
    result = node_command.run_merged(["systemctl"] + arguments, env=environment)
    if not result.ok and unit:
        words = node_services.journal_tail(unit)
        step.fail(
            "systemctl %s: %s\n%s" % (" ".join(arguments), result.message, words),
            "see `journalctl -u %s` on the node" % unit,
        )
