"""job_submit.lua: the rendered script in a real Lua 5.1 (slurmctld's), with jobs as slurmctld hands them over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
from lupa import lua51

from deepopsctl.environment.accounts import sorting_table
from deepopsctl.slurm.job_hooks import with_job_script
from deepopsctl.slurm.shapes import lua_table
from tests.support.paths import ROOT

PEOPLE: dict[str, Any] = {
    "groups": [{"name": "def-curie"}, {"name": "rrg-curie"}, {"name": "lab-gpu"}],
    "people": [{"name": "alice", "groups": ["def-curie"]}, {"name": "bob", "groups": ["def-curie", "rrg-curie"]}],
}
GPU_REQUESTS = [
    {"tres_per_node": "gres:gpu:1"}, {"tres_per_node": "gres/gpu:a100:4"}, {"tres_per_job": "gres/gpu:2"},
    {"tres_per_task": "cpu:4,gres/gpu:1"}, {"tres_per_socket": "gres:gpu"}, {"gres": "gres/gpu:1g.10gb:1"},
    {"tres_per_node": "gres/tmpdisk:10,gres/shard:4"}, {"tres_per_task": "cpu=4,gres/gpu=1"},
]  # fmt: skip
NO_GPU_REQUESTS: list[dict[str, str]] = [
    {}, {"tres_per_node": "gres:none"}, {"tres_per_job": "gres/gpu:0"}, {"tres_per_node": "gres/gpu:a100:0"},
    {"tres_per_node": "gres/tmpdisk:100"}, {"tres_per_task": "cpu:4"}, {"tres_per_node": ",,:::gres/:gpu"},
]  # fmt: skip
NO_VAL = 0xFFFFFFFE
# slurm.h of 24.11
SPREAD_JOB = 1 << 8
HOSTILE = "\0%s]]\"'\n\x1b[2J$(id)" + "-gpu" * 5000


class Controller:
    """What slurmctld does with the script: it loads it, and calls it for every job."""

    def __init__(self, directory: Path, script: str = "", **settings: object) -> None:
        self.names = directory / "job_accounts.lua"
        self.names.write_text(sorting_table(PEOPLE), encoding="utf-8")
        template = (ROOT / "roles" / "slurm_conf" / "templates" / "job_submit.lua.j2").read_text(encoding="utf-8")
        # it is Lua, not HTML
        templates = jinja2.Environment(trim_blocks=True, autoescape=jinja2.select_autoescape(default_for_string=False))
        shown = {"__slurm_conf_shapes": "{}", "__slurm_conf_enforced": "all", "__slurm_conf_contact": "", **settings}
        text = templates.from_string(template).render(
            slurm_conf_job_accounts_file=str(self.names), slurm_conf_job_script=script, **shown
        )
        path = directory / "job_submit.lua"
        path.write_text(text, encoding="utf-8")
        self.lua: Any = lua51.LuaRuntime(encoding="latin-1")
        self.partitions: dict[str, dict[str, object]] = {}
        self.messages: list[str] = []
        self.errors: list[str] = []
        slurm = {
            "SUCCESS": 0, "ERROR": -1, "NO_VAL": NO_VAL, "SPREAD_JOB": SPREAD_JOB,
            "log_user": lambda form, text: self.messages.append(form.replace("%s", text)),
            "log_error": lambda form, *words: self.errors.append(f"{form} {words}"),
        }  # fmt: skip
        self.lua.globals().slurm = self.lua.table_from(slurm)
        assert self.lua.globals().dofile(str(path)) == 0

    def submitted(self, **job: object) -> Any:
        """A job of this form as the script leaves it; alice's unless it says otherwise."""
        table = self.lua.table_from({"user_name": "alice", "default_account": "def-curie", **job})
        partitions = self.lua.table_from({name: self.lua.table_from(each) for name, each in self.partitions.items()})
        answer = self.lua.globals().slurm_job_submit(table, partitions, 1000)
        assert answer == 0, answer
        return table

    def submit(self, **job: str) -> str | None:
        """The account that it is charged to."""
        account: str | None = self.submitted(**job).account
        return account

    def modify(self, before: dict[str, str], uid: int = 1000, **job: str) -> str | None:
        """The account that a change of a job sets."""
        table = self.lua.table_from(job)
        assert self.lua.globals().slurm_job_modify(table, self.lua.table_from(before), self.lua.table(), uid) == 0
        account: str | None = table.account
        return account


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


@pytest.mark.parametrize("account", ["def-curie", "def-curie_gpu", "def-curie-gpu", "DEF-Curie", "def-curie_cpu"])
def test_every_spelling_goes_by_what_the_job_asks_for(controller: Controller, account: str) -> None:
    assert {controller.submit(account=account, **asks) for asks in GPU_REQUESTS} == {"def-curie_gpu"}
    assert {controller.submit(account=account, **asks) for asks in NO_GPU_REQUESTS} == {"def-curie_cpu"}
    assert controller.errors == []


def test_a_spelling_that_does_not_fit_is_corrected_with_a_message(controller: Controller) -> None:
    controller.submit(account="def-curie-gpu", gres="gres/gpu:1")
    assert controller.messages == []

    controller.submit(account="def-curie-gpu")

    assert controller.messages == ["charged to def-curie_cpu: the job asks for no GPUs"]


def test_accounts_that_are_no_groups_stay(controller: Controller) -> None:
    assert controller.submit(account="default") == "default"
    assert controller.submit(account="other_gpu") == "other_gpu"
    assert controller.submit(account="lab-gpu") == "lab-gpu_cpu"
    assert controller.submit(default_account="default") is None


def test_without_an_account_the_default_is_used_and_several_groups_are_named(controller: Controller) -> None:
    assert controller.submit() == "def-curie_cpu"
    assert controller.messages == []

    assert controller.submit(user_name="bob", gres="gres/gpu:1") == "def-curie_gpu"
    assert controller.messages == [
        "charged to def-curie_gpu; your groups: def-curie, rrg-curie (choose one by --account)"
    ]


def test_a_change_of_a_job_is_sorted_too_except_by_root(controller: Controller) -> None:
    before = {"account": "def-curie_cpu"}
    assert controller.modify(before, gres="gres/gpu:1") == "def-curie_gpu"
    assert controller.modify({"account": "def-curie_gpu", "tres_per_job": "gres/gpu:1"}, account="rrg-curie") == (
        "rrg-curie_gpu"
    )
    assert controller.modify(before, comment="x") is None
    assert controller.modify(before, uid=0, account="rrg-curie") == "rrg-curie"


def test_hostile_fields_are_text_and_never_reach_a_message(controller: Controller) -> None:
    for field in ("account", "gres", "tres_per_task", "user_name", "default_account"):
        controller.submit(**{field: HOSTILE})
        controller.submit(**{field: HOSTILE, "account": f"def-curie{HOSTILE}"})

    assert controller.errors == []
    assert all("\x1b" not in message for message in controller.messages)


def test_new_groups_are_known_at_once_and_a_broken_file_changes_nothing(controller: Controller) -> None:
    assert controller.submit(account="def-new") == "def-new"
    controller.names.write_text(sorting_table({**PEOPLE, "groups": [{"name": "def-new"}]}), encoding="utf-8")
    assert controller.submit(account="def-new") == "def-new_cpu"

    controller.names.write_text("return {", encoding="utf-8")

    assert controller.submit(account="def-new") == "def-new_cpu"
    assert len(controller.errors) == 1


def test_names_that_would_end_a_string_are_left_out() -> None:
    hostile = 'x"] = os.execute("id")'
    table = sorting_table({"groups": [{"name": hostile}], "people": [{"name": hostile, "groups": ["def-x", hostile]}]})

    assert "execute" not in table


def test_the_sites_own_script_decides_first(tmp_path: Path) -> None:
    script = """
    function slurm_job_submit(job, partitions, uid)
      if job.work_dir == "/home" then return slurm.ERROR end
      if job.account == nil then job.account = "rrg-curie" end
      return slurm.SUCCESS
    end
    function slurm_job_modify(job, before, partitions, uid) return slurm.SUCCESS end
    """
    controller = Controller(tmp_path, script)

    assert controller.submit(gres="gres/gpu:1") == "rrg-curie_gpu"
    with pytest.raises(AssertionError):
        controller.submit(work_dir="/home")


def test_other_plugins_of_the_site_stay() -> None:
    assert with_job_script({}) == {"JobSubmitPlugins": "lua"}
    assert with_job_script({"jobsubmitplugins": "throttle,job_submit/lua"}) == {"jobsubmitplugins": "lua,throttle"}


@pytest.mark.parametrize(
    ("job", "request_of_node", "disk"),
    [
        ({"pn_min_tmp_disk": 20480}, "gres/tmpdisk:20480M", 0),
        ({"pn_min_tmp_disk": 20480, "tres_per_node": "gres/gpu:1"}, "gres/gpu:1,gres/tmpdisk:20480M", 0),
        ({"pn_min_tmp_disk": NO_VAL, "tres_per_node": "gres/tmpdisk:5G"}, "gres/tmpdisk:5G", NO_VAL),
        ({"pn_min_tmp_disk": NO_VAL}, "gres/tmpdisk:10G", NO_VAL),
        (
            {"pn_min_tmp_disk": NO_VAL, "tres_per_node": "gres/tmpdisk:0,gres/gpu:1"},
            "gres/gpu:1,gres/tmpdisk:10G",
            NO_VAL,
        ),
        ({"pn_min_tmp_disk": NO_VAL, "tres_per_node": "gres/tmpdisk:00g"}, "gres/tmpdisk:10G", NO_VAL),
        *(
            ({"pn_min_tmp_disk": NO_VAL, "tres_per_node": f"gres/tmpdisk{none}"}, "gres/tmpdisk:10G", NO_VAL)
            for none in (":0", "=0K", ":-0", ":+0", ": 0", ":fast:0", ":fast=-00m")
        ),
        ({"pn_min_tmp_disk": NO_VAL, "tres_per_node": "gres/gpu:tmpdisk:0"}, "gres/tmpdisk:10G", NO_VAL),
        *(
            ({"pn_min_tmp_disk": NO_VAL, "tres_per_node": f"gres/tmpdisk{some}"}, f"gres/tmpdisk{some}", NO_VAL)
            for some in ("", ":1", ":20", "=100G", ":200GB", ":fast:10")
        ),
    ],
)
def test_tmp_becomes_a_request_that_is_counted(
    tmp_path: Path, job: dict[str, object], request_of_node: str, disk: int
) -> None:
    controller = Controller(
        tmp_path, __slurm_conf_counts_disks=True, __slurm_conf_gres="gres/", slurm_conf_job_directories={"share": "10G"}
    )
    table = controller.submitted(**job)

    assert (table.tres_per_node, table.pn_min_tmp_disk) == (request_of_node, disk)
    assert controller.errors == []


def test_without_a_share_a_job_that_asks_for_no_disk_has_none(tmp_path: Path) -> None:
    controller = Controller(tmp_path, __slurm_conf_counts_disks=True, slurm_conf_job_directories={})

    assert controller.submitted(pn_min_tmp_disk=NO_VAL).tres_per_node is None


# as slurmctld hands over a job whose user says nothing (recorded from 24.11)
SILENT = {
    "min_nodes": NO_VAL, "max_nodes": NO_VAL, "min_cpus": 1, "max_cpus": NO_VAL, "num_tasks": NO_VAL,
    "cpus_per_task": 65534, "ntasks_per_node": 65534, "pn_min_cpus": 65534, "pn_min_memory": 1.844674407371e19,
    "ntasks_per_tres": 65534, "time_limit": NO_VAL, "time_min": NO_VAL, "shared": 65534, "overcommit": 255,
}  # fmt: skip
INFINITE = 4294967295
SHAPES = lua_table(
    [
        "NodeName=gpu[1-2] CPUs=8 RealMemory=32000 Gres=gpu:a100:2 Features=fast",
        "NodeName=mig1 CPUs=8 RealMemory=16000 Gres=gpu:1g.10gb:7",
        "NodeName=cpu[1-4] CPUs=16 RealMemory=64000",
    ],
    ["PartitionName=gpu Nodes=gpu[1-2],mig1", "PartitionName=cpu Nodes=cpu[1-4]", "PartitionName=mixed Nodes=ALL"],
)
PARTITIONS: dict[str, dict[str, object]] = {
    "gpu": {"flag_default": 1, "max_time": 1440, "max_nodes": INFINITE, "max_share": 1},
    "cpu": {"flag_default": 0, "max_time": 60, "max_nodes": 2, "max_share": 1},
    "mixed": {"flag_default": 0, "max_time": INFINITE, "max_nodes": INFINITE, "max_share": 1},
    # made by scontrol, with nodes that are not written down here
    "other": {"flag_default": 0, "max_time": INFINITE, "max_nodes": INFINITE, "max_share": 1},
}


def advice(tmp_path: Path, enforced: str = "all", **job: Any) -> list[str]:
    """What the script says to a job of this form; it takes the job in any case."""
    controller = Controller(tmp_path, __slurm_conf_shapes=SHAPES, __slurm_conf_enforced=enforced)
    controller.partitions = PARTITIONS
    controller.submitted(**{**SILENT, **job})
    assert controller.errors == []
    return [message for message in controller.messages if not message.startswith("charged to")]


@pytest.mark.parametrize(
    ("job", "reason", "instead"),
    [
        ({"tres_per_node": "gres/gpu:h100:1"}, "no node has a GPU of type h100", "2 nodes with 8 CPUs"),
        ({"tres_per_job": "gres:gpu:2g.20gb:1"}, "no node has a GPU of type 2g.20gb", "7 x 1g.10gb"),
        ({"tres_per_node": "gres/gpu:a100:4"}, "4 GPUs of type a100 on one node, and a node has 2", "2 x a100"),
        ({"tres_per_task": "cpu=1,gres/gpu:a100=3"}, "3 GPUs of type a100 on one node, and a node has 2", "2 x a100"),
        ({"tres_per_job": "gres/gpu:a100:5"}, "5 GPUs of type a100, and all nodes together have 4", "2 x a100"),
        ({"tres_per_job": "gres/gpu:a100:3", "max_nodes": 1}, "3 GPUs of type a100 on one node", "2 x a100"),
        ({"min_mem_per_node": 65536, "pn_min_memory": 65536}, "64G of memory on one node, and a node has 31G", "31G"),
        ({"min_mem_per_cpu": 20480, "cpus_per_task": 2}, "40G of memory on one node", "it fits into: cpu, mixed"),
        ({"mem_per_tres": "gres/gpu:40960", "tres_per_job": "gres/gpu:1"}, "40G of memory on one node", "2 x a100"),
        ({"cpus_per_tres": "gres/gpu:9", "tres_per_job": "gres/gpu:1"}, "9 CPUs on one node, and a node has 8", "8"),
        ({"cpus_per_task": 16, "min_cpus": 16}, "16 CPUs on one node, and a node has 8", "it fits into: cpu, mixed"),
        ({"min_cpus": 32, "num_tasks": 32}, "32 CPUs, and all nodes together have 24", "it fits into: cpu, mixed"),
        ({"ntasks_per_node": 9, "min_cpus": 9}, "9 CPUs on one node", "it fits into: cpu, mixed"),
        ({"min_nodes": 4, "max_nodes": 4}, "4 nodes, and it has 3", "it fits into: mixed"),
        ({"time_limit": 2880}, "--time=2-00:00:00, and it allows 1-00:00:00", "it fits into: mixed"),
        ({"time_limit": INFINITE}, "--time=UNLIMITED, and it allows 1-00:00:00", "it fits into: mixed"),
        ({"features": "slow"}, "no node has the feature slow; there are: fast", "2 nodes"),
        (
            {"tres_per_node": "gres/gpu:1g.10gb:1", "min_mem_per_node": 30000},
            "CPUs, memory and GPUs that no single node has together",
            "15G",
        ),
    ],
)
def test_who_asks_for_what_no_node_has_hears_what_there_is(
    tmp_path: Path, job: dict[str, Any], reason: str, instead: str
) -> None:
    lines = advice(tmp_path, **job)

    assert lines[0].startswith(f"partition gpu: {reason}")
    assert instead in lines[1]
    assert len(lines) == 2


@pytest.mark.parametrize(
    "job",
    [
        {}, {"tres_per_node": "gres/gpu:2"}, {"tres_per_node": "gres/gpu:a100"}, {"tres_per_job": "gres/gpu:7"},
        {"tres_per_task": "cpu=8", "cpus_per_task": 8, "min_cpus": 8}, {"min_mem_per_node": 0, "pn_min_memory": 0},
        {"min_nodes": 1, "max_nodes": 9}, {"num_tasks": 100, "min_cpus": 100, "overcommit": 1, "max_nodes": 1},
        {"features": "fast|slow"}, {"features": "[fast*2]"}, {"time_limit": 1440},
        {"partition": "other", "min_cpus": 999}, {"tres_per_node": "gres/gpu:2,gres/gpu:4"},
        {"partition": "other", "tres_per_node": "gres/gpu:h100:9"}, {"reservation": "course", "min_cpus": 999},
        {"partition": "gpu,cpu", "cpus_per_task": 16, "min_cpus": 16}, {"tres_per_node": "gres/shard:100"},
        {"tres_per_node": "gres/gpu:h100:0"}, {"tres_per_node": ",,:::gres/:gpu"},
    ],
)  # fmt: skip
def test_who_asks_for_what_may_fit_hears_nothing(tmp_path: Path, job: dict[str, Any]) -> None:
    assert advice(tmp_path, **job) == []


def test_of_several_partitions_each_has_to_allow_the_job_and_one_to_fit_it(tmp_path: Path) -> None:
    too_long: dict[str, Any] = {"partition": "cpu,mixed", "time_limit": 120}

    assert advice(tmp_path, **too_long)[0] == "partition cpu: --time=0-02:00:00, and it allows 0-01:00:00"
    assert advice(tmp_path, "any", **too_long) == []
    assert advice(tmp_path, "no", time_limit=9999) == []
    lines = advice(tmp_path, partition="cpu,gpu", min_mem_per_node=99_999)
    assert [line.split(":")[0] for line in lines[:2]] == ["partition cpu", "partition gpu"]


def test_a_partition_that_is_not_there_is_named_without_what_a_user_hides_in_it(tmp_path: Path) -> None:
    assert advice(tmp_path, partition="gqu")[0] == "partition gqu: there is no partition of this name"
    assert "\x1b" not in "".join(advice(tmp_path, partition=f"gqu{HOSTILE}", features=HOSTILE))


def test_who_has_no_account_hears_whom_to_ask(tmp_path: Path) -> None:
    controller = Controller(tmp_path, __slurm_conf_contact="help@example.com")
    controller.submitted(user_name="eve", default_account=None)
    controller.submitted(account="rrg-curie")

    assert controller.messages[0] == "you have no account in Slurm: ask help@example.com to add you to a group"
    assert controller.messages[-1] == "your groups are def-curie: for another one ask help@example.com"


def test_where_slurm_asks_for_no_account_nobody_hears_of_one(tmp_path: Path) -> None:
    controller = Controller(tmp_path, __slurm_conf_accountless=True)
    controller.submitted(user_name="eve", default_account=None)

    assert controller.messages == []


@pytest.mark.parametrize(
    ("job", "account"),
    [
        ({"shared": 0}, "def-curie_gpu"),
        ({"shared": 0, "partition": "cpu"}, "def-curie_cpu"),
        ({"shared": 0, "partition": "cpu,gpu"}, "def-curie_gpu"),
        # one user's jobs share the node: no GPUs come with it
        ({"shared": 2}, "def-curie_cpu"),
        ({"partition": "other", "shared": 0}, "def-curie_cpu"),
    ],
)
def test_whole_nodes_with_gpus_are_charged_as_gpus(tmp_path: Path, job: dict[str, object], account: str) -> None:
    controller = Controller(tmp_path, __slurm_conf_shapes=SHAPES)
    controller.partitions = PARTITIONS

    assert controller.submitted(**{**SILENT, **job}).account == account
    controller.partitions = {**PARTITIONS, "gpu": {**PARTITIONS["gpu"], "max_share": 0}}
    # a partition with OverSubscribe=EXCLUSIVE
    assert controller.submitted(**SILENT).account == "def-curie_gpu"


def test_a_mistake_in_the_script_costs_no_job(tmp_path: Path) -> None:
    controller = Controller(tmp_path, __slurm_conf_shapes='{ ["gpu"] = 7 }')
    controller.partitions = PARTITIONS

    assert controller.submitted(**SILENT).account == "def-curie_cpu"
    assert "requests" in controller.errors[-1]


@pytest.mark.parametrize("others", [0, 0b1011, 1 << 45])
def test_a_job_is_not_spread_where_that_stops_slurmctld(tmp_path: Path, others: int) -> None:
    affected, sound = Controller(tmp_path, __slurm_conf_unspread=True), Controller(tmp_path)

    assert affected.submitted(bitflags=others + SPREAD_JOB).bitflags == others
    (message,) = affected.messages
    assert message.startswith("--spread-job is left out: ")
    assert affected.submitted(bitflags=others).bitflags == others
    assert sound.submitted(bitflags=others + SPREAD_JOB).bitflags == others + SPREAD_JOB
    assert len(affected.messages) == 1
    assert sound.messages == affected.errors == []
