#!/usr/bin/python
"""Bring a node to a desired state in one call: packages, directories, files, units."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_state
short_description: Accounts, packages, directories, files and units of one step, in one call
description:
  - Does what a role would otherwise need a task each for, in a fixed order. Accounts come first, then packages (one
    transaction), the hostname, directories, files, kernel modules, and last the units of those files.
  - A unit is restarted only when one of its I(restart_on) files changed, or an earlier call was cut off
    between the change and the restart. It is remembered on disk before the file changes.
  - Check mode and diff are honest; the content of a I(secret_base64) is in neither.
  - What was achieved is recorded on the node, keyed by I(digest), for M(deepopsctl.cluster.drift_check).
extends_documentation_fragment: deepopsctl.cluster.recorded
options:
  hostname: {description: The node's name., type: str}
  accounts:
    description: System users with an id that all nodes of the cluster have; one that has another id here is an error.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Name of the user and its group., type: str, required: true}
      uid: {description: The user's id., type: int, required: true}
      gid: {description: "The group's id, if it is created; 0 is the user's own.", type: int, default: 0}
  people:
    description:
      - The cluster's users and their groups, with keys, expiry and homes. The node's files are replaced once for all of
        them. An account with the same name and id is adopted; where another account has an id or a name, nothing is
        changed. No account is removed, one that is no longer declared expires.
    type: dict
    suboptions:
      people:
        description: "Each with C(name), C(uid), C(groups), and C(full_name), C(keys), C(shell), C(expires)."
        type: list
        elements: dict
        required: true
      groups: {description: Each with C(name) and C(gid)., type: list, elements: dict, required: true}
      home: {description: Where homes are for users., type: path, default: /home}
      homes_in: {description: Where this node makes homes that are missing; empty for nowhere., type: str, default: ""}
      homes_mounted: {description: The mount point that they need; empty for none., type: str, default: ""}
      name_left:
        description: Whether a warning names who is no longer declared.
        type: bool
        default: true
      authorized_keys_files:
        description: Where sshd looks for keys besides those of people.yml.
        type: list
        elements: str
        default: []
  packages:
    description: Packages that must be installed; names, or each with its version. C(2.6-*) is any revision of 2.6,
      an empty version is any.
    type: raw
    default: []
  ahead:
    description:
      - Packages of later steps of the component. They come in the same transaction, and belong to those steps. Where
        the package manager refuses them, each step installs its own.
    type: list
    elements: dict
    default: []
    suboptions:
      step: {description: The later step., type: str, required: true}
      packages: {description: "Its packages, in any version.", type: list, elements: str, required: true}
  archives:
    description: Files on the node that packages come from, by their names; others come from the node's sources.
    type: dict
    default: {}
  downgrade: {description: Whether O(packages) may replace a later version., type: bool, default: false}
  manual_installs:
    description: A file of each package; where it is there without a package, it was installed manually and stays.
    type: dict
    default: {}
  hint: {description: What to do where the node's sources have no such package., type: str, default: ""}
  name_prefix: {description: The packages to name where one is missing begin with this., type: str, default: ""}
  guard:
    description:
      - Names or patterns of packages that apt holds once they are installed. deepopsctl's own calls of apt release
        them.
    type: list
    elements: str
    default: []
  restart_on_upgrade:
    description: Units that run programs of the packages. The call that has them in I(units) restarts them for another
      version, or another drop-in.
    type: list
    elements: str
    default: []
  restart_except:
    description: Packages whose other version restarts none of O(restart_on_upgrade).
    type: list
    elements: str
    default: []
  hold_units:
    description:
      - Units that the packages must not start before their configuration is there. What runs already runs on.
    type: list
    elements: str
    default: []
  stop_units:
    description:
      - Units that must not run while their programs are replaced. They are stopped before a package is installed, and
        started again where that fails; else the call that has them in I(units) starts them.
    type: list
    elements: str
    default: []
  upstream:
    description: Upstream version that what is missing comes in, where the node's sources have it; else apt chooses.
    type: str
    default: ""
  login_keys:
    description: Whether the keys of the user who calls this by sudo move to a file of root's, the only one that sshd
      then reads for that user. A login by it is tried first; where that fails, they stay, with a warning.
    type: bool
    default: false
  lock_wait:
    description: Seconds to wait for another package manager on the node.
    type: int
    default: 300
  owned:
    description:
      - Whether what an earlier call of the step installed, and this one does not want, is removed. What was there
        before is not, and neither is a package that a package of the site needs. A step that wants nothing leaves no
        record.
    type: bool
    default: false
  record_empty:
    description: Whether an owned step that wants nothing leaves a record all the same, for the gate expects one.
    type: bool
    default: false
  keep_obsolete:
    description: Whether what is no longer wanted stays for now. A later call of the same step removes it, and records.
    type: bool
    default: false
  forget:
    description: Whether the records of all steps of the component are removed in place of saving one.
    type: bool
    default: false
  directories:
    description: Directories that must exist.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      owner: {description: Owner., type: str, default: root}
      group: {description: Group., type: str, default: root}
      mode: {description: Octal mode as a string., type: str, default: "0755"}
  files:
    description: Files with their whole content, or with a block between markers.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      content: {description: The text., type: str}
      secret_base64:
        description:
          - The content of a secret file in base64, on one line; never shown.
          - Ansible takes no value of several lines out of what it writes to the node's journal, so there is no
            other form.
        type: str
      block: {description: Text of a managed block; the rest of the file is kept., type: str}
      where_present: {description: Whether it is left out where there is no such file., type: bool, default: false}
      owner: {description: Owner., type: str, default: root}
      group: {description: Group., type: str, default: root}
      mode: {description: Octal mode as a string., type: str, default: "0644"}
      validate: {description: Command that refuses bad content (%s is it)., type: list, elements: str, default: []}
  templates:
    description:
      - Files of I(files) whose content comes from a template of the calling role, rendered on the control machine as
        M(ansible.builtin.template) does. They come after those of I(files).
    type: list
    elements: dict
    default: []
    suboptions:
      src: {description: "Name in the role's directory C(templates).", type: str, required: true}
      dest: {description: Absolute path on the node., type: path, required: true}
      vars: {description: More variables for this template., type: dict, default: {}}
      secret: {description: Whether the content is shown in no log and no diff., type: bool, default: false}
      block: {description: Whether it is a managed block and the rest of the file is kept., type: bool, default: false}
      where_present: {description: Whether it is left out where there is no such file., type: bool, default: false}
      owner: {description: Owner., type: str, default: root}
      group: {description: Group., type: str, default: root}
      mode: {description: Octal mode as a string., type: str, default: "0644"}
      validate: {description: Command that refuses bad content (%s is it)., type: list, elements: str, default: []}
  parts:
    description:
      - What a node gets that has several functions, a part for each. The parts come one after the other, and after what
        the options themselves say. Packages start none of their units before all files are there.
    type: list
    elements: dict
    suboptions:
      packages: {description: As the option., type: list, elements: str, default: []}
      directories: {description: As the option., type: list, elements: dict, default: []}
      files:
        description: As the option. A file that several parts have is written once.
        type: list
        elements: dict
        default: []
      templates: {description: As the option., type: list, elements: dict, default: []}
      units:
        description: As the option; one without I(restart_on) restarts for each file of its part.
        type: list
        elements: dict
        default: []
      restart_on: {description: Further paths for which it restarts., type: list, elements: str, default: []}
  absent: {description: Files that must not be there., type: list, elements: path, default: []}
  kernel_modules:
    description:
      - Kernel modules to load now and at every start, by C(/etc/modules-load.d/deepopsctl-NAME.conf). One that does not
        load is an error; a module in use is never unloaded.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Its name., type: str, required: true}
      loaded: {description: "False removes the file, the next start does not load it.", type: bool, default: true}
      requires: {description: Another module; without it this one is not loaded before the next start., type: str}
      device: {description: Device that must be there once it is loaded., type: path}
      rebuild: {description: Whether DKMS builds it again where it does not load., type: bool, default: false}
      hint: {description: What to do where it does not load., type: str, default: ""}
  backups:
    description: Files to save as C(*.before-deepopsctl) before anything else, unless deepopsctl wrote them.
    type: list
    elements: dict
    default: []
    suboptions:
      path: {description: Absolute path., type: path, required: true}
      secret: {description: Whether only its owner may read the copy., type: bool, default: false}
      remove: {description: Whether the file itself goes after all else is done., type: bool, default: false}
      link: {description: "With O(backups[].remove), a link to this path takes its place.", type: path}
  units:
    description: systemd units that must be enabled and running.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Unit name with its suffix., type: str, required: true}
      running: {description: Whether it runs (true) or is stopped and disabled (false)., type: bool, default: true}
      restart_on:
        description: Paths whose change restarts it; one that ends with a slash is a directory with all that is in it.
        type: list
        elements: str
        default: []
      reload_on: {description: The same for a reload., type: list, elements: str, default: []}
      port: {description: Port it must listen on afterwards., type: int}
      optional:
        description: May be kept from starting by a condition of its own, or by a person who masked it for good.
        type: bool
        default: false
  databases:
    description: Databases of the MariaDB on the node, which runs once the I(units) do.
    type: list
    elements: dict
    default: []
    suboptions:
      name: {description: Its name., type: str, required: true}
      user: {description: The user at localhost who has all rights on it., type: str, required: true}
      password: {description: The user's password., type: str, required: true}
      server:
        description:
          - Host of a server that others run. It is verified before any file is written that its user has all rights on
            the database, and nothing else is changed there.
        type: str
        default: ""
      server_port: {description: Its port., type: int, default: 3306}
      login: {description: "The user's login there, the text of an option file.", type: str, default: ""}
  database_logins:
    description:
      - Users of that MariaDB who log in as the system account of the same name, without a password and without rights
        to any data; the server's counters and settings are for everybody who may log in. For an I(owned) step. A user
        that was created otherwise is left unchanged. Where MariaDB does not answer, the next deploy tries again.
    type: list
    elements: str
    default: []
  probes:
    description: Read-only commands to run at the end; their output is returned.
    type: dict
    default: {}
author: deepopsctl (@deepopsctl)
"""

EXAMPLES = r"""
- name: Install munge with the cluster's key
  deepopsctl.cluster.node_state:
    packages: [munge]
    files:
      - {path: /etc/munge/munge.key, secret_base64: "{{ munge_key }}", owner: munge, group: munge, mode: "0400"}
    units:
      - {name: munge.service, restart_on: [/etc/munge/munge.key]}

- name: Run MariaDB with a configuration from the role's templates/
  deepopsctl.cluster.node_state:
    packages: [mariadb-server]
    templates:
      - {src: slurmdbd.cnf.j2, dest: /etc/mysql/mariadb.conf.d/60-deepopsctl.cnf}
    units:
      - {name: mariadb.service, restart_on: [/etc/mysql/mariadb.conf.d/60-deepopsctl.cnf]}
"""

RETURN = r"""
actions: {description: "What was done, a sentence each.", type: list, elements: str, returned: always}
changes:
  description: The same for programs, C(kind), C(name) and C(action) each; in check mode with C(diff).
  type: list
  elements: dict
  returned: always
packages: {description: Installed version of each package., type: dict, returned: always}
probes: {description: Output of each probe that ended well., type: dict, returned: always}
people_left:
  description: Names that were declared once and are no longer, expired.
  type: list
  elements: str
  returned: "with O(people)"
failed_probes: {description: Why each of the others did not., type: dict, returned: always}
"""

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import (
    access_keys as node_access_keys,
    accounts as node_accounts,
    backups as node_backups,
    command as node_command,
    errors as node_errors,
    kernel as node_kernel,
    mariadb as node_mariadb,
    packages as node_packages,
    people as node_people,
    record as node_record,
    removal as node_removal,
    resources as node_resources,
    services as node_services,
    step as node_step,
)


def run_probes(probes: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict[str, str]]:
    outputs, failed = {}, {}
    for name, argv in probes.items():
        result = node_command.run(argv, 60)
        if result.ok:
            outputs[name] = result.output
        elif result.status in (node_command.MISSING, node_command.TIMED_OUT):
            failed[name] = result.message
        else:
            failed[name] = ": ".join([how_ended(result.status), *result.errors.strip().splitlines()[-1:]])
    return outputs, failed


def how_ended(code: int) -> str:
    """A bad exit code in words; the real-time signals between first and last have no name."""
    if code > 0:
        return f"ended with {code}"
    names = {known.value: known.name for known in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def resource_arguments() -> dict[str, Any]:
    """The arguments that say what is wanted of packages, files and units."""
    owned = {"owner": {"default": "root"}, "group": {"default": "root"}}
    return {
        "packages": {"type": "raw", "default": []},
        "hold_units": {"type": "list", "elements": "str", "default": []},
        "stop_units": {"type": "list", "elements": "str", "default": []},
        "directories": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": dict(owned, path={"type": "path", "required": True}, mode={"default": "0755"}),
        },
        "files": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": dict(
                owned,
                path={"type": "path", "required": True},
                content={},
                secret_base64={"no_log": True},
                block={},
                where_present={"type": "bool", "default": False},
                mode={"default": "0644"},
                validate={"type": "list", "elements": "str", "default": []},
            ),
            "required_one_of": [["content", "secret_base64", "block"]],
            "mutually_exclusive": [["content", "secret_base64", "block"]],
        },
        "units": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "running": {"type": "bool", "default": True},
                "restart_on": {"type": "list", "elements": "str", "default": []},
                "reload_on": {"type": "list", "elements": "str", "default": []},
                "port": {"type": "int"},
                "optional": {"type": "bool", "default": False},
            },
        },
    }


def template_arguments() -> dict[str, Any]:
    """What the action plugin renders; the module itself never gets any."""
    owned = {"owner": {"default": "root"}, "group": {"default": "root"}, "mode": {"default": "0644"}}
    return {
        "type": "list",
        "elements": "dict",
        "default": [],
        "options": dict(
            owned,
            src={"required": True},
            dest={"type": "path", "required": True},
            vars={"type": "dict", "default": {}},
            secret={"type": "bool", "default": False},
            block={"type": "bool", "default": False},
            where_present={"type": "bool", "default": False},
            validate={"type": "list", "elements": "str", "default": []},
        ),
    }


def part_arguments() -> dict[str, Any]:
    """What the action plugin joins; the module itself never gets any."""
    lists = {
        name: {"type": "list", "elements": "dict", "default": []}
        for name in ("directories", "files", "templates", "units")
    }
    texts = {name: {"type": "list", "elements": "str", "default": []} for name in ("packages", "restart_on")}
    return {"type": "list", "elements": "dict", "options": {**lists, **texts}}


def arguments() -> dict[str, Any]:
    return {
        **node_record.STEP,
        **resource_arguments(),
        "templates": template_arguments(),
        "parts": part_arguments(),
        "hostname": {},
        "accounts": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "uid": {"type": "int", "required": True},
                "gid": {"type": "int", "default": 0},
            },
        },
        "people": {
            "type": "dict",
            "options": {
                "people": {"type": "list", "elements": "dict", "required": True},
                "groups": {"type": "list", "elements": "dict", "required": True},
                "home": {"type": "path", "default": "/home"},
                "homes_in": {"default": ""},
                "homes_mounted": {"default": ""},
                "name_left": {"type": "bool", "default": True},
                "authorized_keys_files": {"type": "list", "elements": "str", "default": [], "no_log": False},
            },
        },
        "login_keys": {"type": "bool", "default": False, "no_log": False},
        "lock_wait": {"type": "int", "default": 300},
        "upstream": {"default": ""},
        "ahead": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "step": {"required": True},
                "packages": {"type": "list", "elements": "str", "required": True},
            },
        },
        "archives": {"type": "dict", "default": {}},
        "downgrade": {"type": "bool", "default": False},
        "manual_installs": {"type": "dict", "default": {}},
        "hint": {"default": ""},
        "name_prefix": {"default": ""},
        "guard": {"type": "list", "elements": "str", "default": []},
        "restart_on_upgrade": {"type": "list", "elements": "str", "default": []},
        "restart_except": {"type": "list", "elements": "str", "default": []},
        "owned": {"type": "bool", "default": False},
        "record_empty": {"type": "bool", "default": False},
        "keep_obsolete": {"type": "bool", "default": False},
        "forget": {"type": "bool", "default": False},
        "absent": {"type": "list", "elements": "path", "default": []},
        "kernel_modules": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "loaded": {"type": "bool", "default": True},
                "requires": {},
                "device": {"type": "path"},
                "rebuild": {"type": "bool", "default": False},
                "hint": {"default": ""},
            },
        },
        "backups": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "path", "required": True},
                "secret": {"type": "bool", "default": False},
                "remove": {"type": "bool", "default": False},
                "link": {"type": "path"},
            },
        },
        "databases": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "name": {"required": True},
                "user": {"required": True},
                "password": {"required": True, "no_log": True},
                "server": {"default": ""},
                "server_port": {"type": "int", "default": 3306},
                "login": {"default": "", "no_log": True},
            },
        },
        "database_logins": {"type": "list", "elements": "str", "default": []},
        "probes": {"type": "dict", "default": {}},
    }


def converge(step: node_step.Step) -> dict[str, str]:
    """Everything in its order; returns the packages that are installed."""
    wanted = step.wanted
    node_resources.leave_manual_installs(step)
    known = node_services.show([unit["name"] for unit in wanted["units"]])
    ownership = node_removal.Ownership(step) if wanted["owned"] else None
    if ownership:
        ownership.record_additions()
    packages = install(step)
    here = [database for database in wanted["databases"] if not database["server"]]
    # before a file has a login that does not work
    for database in wanted["databases"]:
        if database["server"]:
            node_mariadb.verify_elsewhere(step, database)
    changed = write(step)
    removed = ownership.remove_files() if ownership and not wanted["keep_obsolete"] else []
    new_units = [name for name, facts in known.items() if facts.get("LoadState") == "not-found"]
    node_resources.ensure_units(step, wanted["units"], changed + removed, new_units)
    for database in here:
        node_mariadb.ensure_database(step, database)
    if ownership:
        node_mariadb.ensure_logins(step)
    # after the units that need it and are stopped
    for backup in wanted["backups"]:
        node_backups.remove(step, backup)
    for path in wanted["absent"]:
        node_resources.ensure_absent(step, path)
    if wanted["login_keys"]:
        ensure_login_keys(step)
    finish(step, ownership, removed)
    return packages


def ensure_login_keys(step: node_step.Step) -> None:
    """Root's file of the keys by which this call came, or a warning."""
    user = os.environ.get("SUDO_USER") or "root"
    try:
        outcome = node_access_keys.ensure(user, dry=step.dry)
    except node_access_keys.AccessError as error:
        step.module.warn(f"keys of {user} stay in its home, where a file server may write them: {error}")
        return
    for path in outcome.changed:
        step.did(f"wrote {path}", "file", path, "set", detail=f"keys by which {user} logs in")
    home = node_access_keys.networked_home(user)
    if outcome.adopted and home:
        names = ", ".join(node_access_keys.comment_of(key) or "a key without a comment" for key in outcome.adopted)
        step.module.warn(
            f"keys of {user} lay on a file server, in {home}: remove the unknown ones of {names} from "
            f"{node_access_keys.DIRECTORY}/{user}"
        )
    facts = node_record.file_facts(node_access_keys.CONFIG)
    if facts is not None:
        step.record["files"][node_access_keys.CONFIG] = facts


def install(step: node_step.Step) -> dict[str, str]:
    """Accounts first: a package would choose another id."""
    for backup in step.wanted["backups"]:
        node_backups.save(step, backup)
    for account in step.wanted["accounts"]:
        node_accounts.ensure_account(step, account)
    if step.wanted["people"]:
        node_people.ensure_people(step, step.wanted["people"])
    packages = node_resources.ensure_packages(step)
    node_resources.ensure_guarded(step)
    return packages


def write(step: node_step.Step) -> list[str]:
    """Name, directories, files and kernel modules; returns the paths of the changed files."""
    wanted = step.wanted
    node_resources.ensure_hostname(step, wanted["hostname"])
    for directory in wanted["directories"]:
        node_resources.ensure_directory(step, directory)
    changed = [item["path"] for item in wanted["files"] if node_resources.ensure_file(step, item, wanted["units"])]
    for kernel_module in wanted["kernel_modules"]:
        node_kernel.ensure_module(step, kernel_module)
    return changed


def finish(step: node_step.Step, ownership: node_removal.Ownership | None, removed: Sequence[str]) -> None:
    """Remove the rest of what is no longer wanted, and save the record, or that there is more to do."""
    wanted = step.wanted
    if ownership and wanted["keep_obsolete"]:
        if ownership.has_obsolete() and not step.dry:
            # should the later call not come, the next deploy has to make it
            node_record.begin(wanted["component"], wanted["step"])
        return
    if ownership:
        ownership.remove_rest(removed)
        if ownership.is_empty() and not wanted["record_empty"]:
            wanted["digest"] = ""
    if wanted["forget"]:
        forget(step)
    else:
        step.save_record()


def forget(step: node_step.Step) -> None:
    """Remove the records of a component: deepopsctl does not manage its files any more."""
    component = step.wanted["component"]
    if node_record.steps(component):
        step.did(f"forgot {component}", "record", component, "remove")
    if not step.dry and node_packages.guarded():
        node_packages.guard([])
    for name in node_record.steps(component) if not step.dry else []:
        node_record.save(component, name, "", {})


def main() -> None:
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    wanted = {**module.params, "packages": node_resources.versions_of(module.params["packages"])}
    node_people.add_files(wanted)
    # parent directories are readable for everybody, whatever root's umask
    os.umask(0o022)
    step = node_step.Step(module, wanted)
    # the record, or the note of a restart, on a full disk
    with node_errors.fail_on_error(step.fail):
        packages = converge(step)
    outputs, failed = run_probes(wanted["probes"])
    results: dict[str, Any] = {"packages": packages, "probes": outputs, "failed_probes": failed}
    if wanted["people"]:
        results["people_left"] = node_people.left_behind(wanted["people"], step.owned)
    module.exit_json(**step.noted.result(actions=step.actions, **results))


if __name__ == "__main__":
    main()
