"""Every playbook loads in Ansible, calls its roles as they want it, and needs nothing that has to be installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jinja2.nativetypes
import pytest
from ansible.playbook.task import Task as AnsibleTask

from deepopsctl.cluster.role_parameters import passed
from deepopsctl.cluster.secrets import new_secrets
from tests.roles.content import (
    PLAYBOOKS,
    ROLES,
    SITE_WIDE,
    WITHOUT_DEFAULT,
    Task,
    all_tasks,
    load,
    options,
    role_calls,
    role_tasks,
    steps_of,
)
from tests.support.local_ansible import ANSIBLE_PLAYBOOK, environment
from tests.support.paths import ROOT

EXAMPLE = ROOT / "inventory" / "example" / "inventory" / "hosts.yml"

each_playbook = pytest.mark.parametrize("playbook", PLAYBOOKS)

KEYWORDS = frozenset(AnsibleTask.fattributes) | {"action", "local_action"}
OURS = {
    f"deepopsctl.cluster.{path.stem}"
    for kind in ("modules", "action")
    for path in (ROOT / "plugins" / kind).glob("*.py")
}
# the modules that keep a record: node_state itself, those that go through its action plugin, and one with its own
RECORDED = {
    "deepopsctl.cluster.node_state",
    "deepopsctl.cluster.python_wheels",
    *(
        f"deepopsctl.cluster.{name}"
        for name, routing in load("meta/runtime.yml")["plugin_routing"]["modules"].items()
        if routing == {"action_plugin": "deepopsctl.cluster.node_state"}
    ),
}

# what a playbook may pass as it is, besides computed values (deepops_*)
PASSED = {
    # hosts and groups, and what the inventory has of cluster.yml and people.yml
    *(
        "groups",
        "monitoring_host",
        "slurm_compute_hosts",
        "slurm_controller_hosts",
        "slurm_dbd_host",
        "slurm_dbd_hosts",
    ),
    *("environment_directory", "environment_people", "nvlink_domains", "slurm_job_directories", "slurm_maintenance"),
    *("slurm_nodes", "slurm_partitions", "slurm_policy", "storage_mounts"),
    # secrets
    *new_secrets(),
    # of the catalogue of packages those of the node's distribution
    *("environment_module_packages", "environment_module_versions", "environment_proxy_packages"),
    *("environment_software_packages", "environment_registry_packages", "slurm_packages"),
    # results of this run
    *("ansible_facts", "ansible_user", "drift_check_result", "nvidia_driver_info_result", "slurm_conf_files"),
}


def module_of(task: Task) -> str:
    """The one key of a task that is not a keyword."""
    (module,) = (key for key in task if key not in KEYWORDS and not key.startswith("with_"))
    return module


def test_all_load_with_the_example_inventory_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [*ANSIBLE_PLAYBOOK, "--syntax-check", "-i", str(EXAMPLE), *(str(ROOT / name) for name in PLAYBOOKS)],
        cwd=tmp_path,
        # the gate makes its groups as it goes
        env={**environment(tmp_path), "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )

    assert done.returncode == 0, done.stdout
    assert [name for name in PLAYBOOKS if f"playbook: {ROOT / name}" not in done.stdout] == []
    assert "WARNING" not in done.stdout


class TestTasks:
    def test_every_module_is_ansibles_or_of_this_collection(self) -> None:
        others = [(where, module_of(task)) for where, task in all_tasks() if module_of(task) not in OURS]

        assert [each for each in others if not each[1].startswith("ansible.builtin.")] == []

    def test_no_error_is_ignored(self) -> None:
        ignoring = [(where, task["name"]) for where, task in all_tasks() if "ignore_errors" in task]

        # where the controller is down, a task that runs once would end the run for all others
        assert ignoring == [
            ("playbooks/operate/cluster/claim.yml", "Release the cluster"),
            ("roles/drift_check", "Claim the cluster for this run"),
        ]

    def test_every_step_is_recorded_under_the_digest_of_the_run(self) -> None:
        # where none is given, it is the run's
        named = [
            (where, task[module_of(task)]["digest"])
            for where, task in all_tasks()
            if module_of(task) in RECORDED and "digest" in task[module_of(task)]
        ]

        assert named
        # where a role removes all of it, the step may be forgotten; what is not over to TLS yet is done again
        known = re.compile(r"\{\{ omit if \w+_wanted else '' \}\}|\{\{ 'in clear' if \w+_in_clear else omit \}\}")
        # new nodes' slurmd is stopped before it is deployed; a withdrawn repository leaves no record; the deploy that
        # ends an upgrade records what it made
        others = {where for where, digest in named if not known.fullmatch(digest)}
        upgrades = {f"playbooks/operate/upgrade/upgrade-{name}.yml" for name in ("back", "controller", "nodes")}
        assert others == {"playbooks/operate/nodes/stop-slurmd.yml", "playbooks/slurm.yml", *upgrades}

    @pytest.mark.parametrize("role", ROLES)
    def test_a_role_lists_the_steps_that_it_records(self, role: str) -> None:
        listed = steps_of(role)
        # with several, each call says which; these do something without a record, too
        default = min(listed) if len(listed) == 1 else "none"
        without = ("deepopsctl.cluster.apt_source", "deepopsctl.cluster.nvidia_driver")
        recorded = {
            task[module_of(task)].get("step", default)
            for task in role_tasks(role)
            if module_of(task) in RECORDED and (module_of(task) not in without or "step" in task[module_of(task)])
        }

        assert recorded == listed

    def test_every_module_that_saves_a_record_gets_its_names(self) -> None:
        recording = {
            f"deepopsctl.cluster.{path.stem}"
            for path in (ROOT / "plugins" / "modules").glob("*.py")
            if re.search(r'\*\*node_record.STEP|"component": \{\},', path.read_text(encoding="utf-8"))
        }

        assert recording == RECORDED


class TestPlays:
    @each_playbook
    def test_every_play_has_a_name_and_gathers_no_facts(self, playbook: str) -> None:
        for play in load(playbook):
            assert play.get("name"), play
            assert "hosts" not in play or play["gather_facts"] is False

    def test_a_role_that_few_clusters_have_costs_a_compute_node_no_skipped_task(self) -> None:
        """Its play ends at once (meta: end_play): a task that is skipped is a process for each node."""
        everywhere = ("slurm_cluster", "slurm_compute", "deepops_slurm_todo")
        conditional = {
            (play["name"], call["role"])
            for play in load("playbooks/slurm.yml")
            if play["hosts"].partition(":")[0] in everywhere
            for call in play.get("roles", [])
            if "when" in call
        }

        # it runs once for all of them; those skip it that run no jobs
        assert conditional == {
            ("Prepare the nodes", "slurm_conf"),
            ("Configure compute nodes, accounts and backups", "slurmd"),
        }

    @each_playbook
    def test_a_role_gets_what_it_requires_and_nothing_it_does_not_know(self, playbook: str) -> None:
        for call in role_calls(playbook):
            role = call["role"]
            params = set(call) - {"role", "tags", "when", "become"}
            required = {name for name, option in options(role).items() if option.get("required")}

            assert required <= params | SITE_WIDE.keys() | WITHOUT_DEFAULT, role
            assert params <= set(options(role)), role

    @each_playbook
    def test_nothing_is_passed_one_to_one_but_hosts_groups_secrets_and_computed_values(self, playbook: str) -> None:
        """A site's name is the role's name: a role that shares a setting with others names it in its specification."""
        one = re.compile(r"\{\{ \(?(\w+)[\w.\[\]']*( \| (bool|int|string|list|default\([^()]*\))\)?)*( or '')? \}\}")
        values = [(name, one.fullmatch(str(value).strip())) for name, value in passed(load(playbook))]

        assert [name for name, match in values if match and not match[1].startswith("deepops_")
                and match[1] not in PASSED] == []  # fmt: skip

    @each_playbook
    def test_every_role_has_a_tag_of_its_own(self, playbook: str) -> None:
        for call in role_calls(playbook):
            assert len(call["tags"]) >= 1, call["role"]


class TestGate:
    """What the gate expects a record of is what the roles record: else it never closes, or never checks."""

    def expected(self, *groups: str) -> set[str]:
        """The steps that the gate wants of a node in these groups."""
        expression = load("group_vars/all/main.yml")["deepops_slurm_steps"]
        template = jinja2.nativetypes.NativeEnvironment().from_string(expression)
        return set(template.render(group_names=groups))

    @pytest.mark.parametrize(
        ("groups", "roles"),
        [
            ((), ()),
            (("slurm_compute",), ("slurmd",)),
            (("slurm_login",), ("slurm_login",)),
            (("slurm_dbd",), ("mariadb", "slurmdbd")),
            (("slurm_controller", "slurm_login"), ("slurmctld",)),
            (
                ("slurm_controller", "slurm_compute", "slurm_dbd"),
                ("slurmctld", "slurmd", "mariadb", "slurmdbd"),
            ),
        ],
    )
    def test_it_expects_the_steps_of_the_roles_that_a_node_gets(
        self, groups: tuple[str, ...], roles: tuple[str, ...]
    ) -> None:

        everywhere = steps_of("node_common") | {"login_access"}

        assert self.expected(*groups) == everywhere.union(*(steps_of(role) for role in roles))

    @pytest.mark.parametrize("role", [role for role in ROLES if steps_of(role)])
    def test_it_expects_each_step_that_a_role_records(self, role: str) -> None:
        component = load(f"roles/{role}/meta/steps.yml")["component"]
        # a filter adds the one of clients, on nodes that have some
        expressions = load("group_vars/all/main.yml") | load(f"group_vars/all/{component}.yml")
        named = re.findall(r"\w+", str(expressions[f"deepops_{component}_steps"]))

        assert steps_of(role) - {"clients"} <= set(named)


@each_playbook
def test_a_selection_of_the_nodes_preserves_their_order(playbook: str) -> None:
    text = (ROOT / playbook).read_text(encoding="utf-8")

    assert "intersect(ansible_play" not in text, "it is a set of Ansible's: use select('in', ...) | list"


def test_playbooks_read_keys_of_slurm_conf_in_any_case() -> None:
    """Slurm takes `statesavelocation` as well: a plain lookup would prepare another directory than slurmctld uses."""
    files = [*PLAYBOOKS, *(str(path.relative_to(ROOT)) for path in (ROOT / "group_vars" / "all").glob("*.yml"))]

    assert [name for name in files if re.search(r"slurm_config[.\[]", (ROOT / name).read_text(encoding="utf-8"))] == []


def test_no_service_that_fails_leaves_people_without_accounts() -> None:
    """A host that failed is in no later play: accounts come before all that has packages and units of its own."""
    plays = load("playbooks/environment.yml")
    roles = [[call["role"] for call in play.get("roles", ())] for play in plays]
    accounts = next(number for number, play in enumerate(plays) if "ansible.builtin.import_playbook" in play)
    before = {role for names in roles[:accounts] for role in names}

    assert before == {"drift_check", "sssd", "people"}


def test_playbooks_of_operations_are_in_directories_and_spelled_with_dashes() -> None:
    """Of two files with one name a run's progress could not say which it is in."""
    operations = [name for name in PLAYBOOKS if name.startswith("playbooks/operate/")]

    assert [
        name for name in operations if not re.fullmatch(r"playbooks/operate/[a-z]+/[a-z]+(-[a-z]+)*\.yml", name)
    ] == []
    assert len({Path(name).name for name in operations}) == len(operations)


@each_playbook
def test_a_guard_stands_once_in_a_file(playbook: str) -> None:
    """Plays that leave out the same nodes share the task by an anchor."""
    guards = re.findall(
        r"ansible\.builtin\.meta: end_host\n +when: (.*)\n", (ROOT / playbook).read_text(encoding="utf-8")
    )

    assert len(guards) == len(set(guards))
