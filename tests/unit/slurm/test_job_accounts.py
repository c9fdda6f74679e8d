"""job_submit.lua: the rendered script in a real Lua 5.1 (slurmctld's), with jobs as slurmctld hands them over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest
from lupa import lua51

from deepopsctl.environment.accounts import sorting_table
from deepopsctl.slurm.job_hooks import with_job_script
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
HOSTILE = "\0%s]]\"'\n\x1b[2J$(id)" + "-gpu" * 5000


class Controller:
    """What slurmctld does with the script: it loads it, and calls it for every job."""

    def __init__(self, directory: Path, script: str = "", **settings: object) -> None:
        self.names = directory / "job_accounts.lua"
        self.names.write_text(sorting_table(PEOPLE), encoding="utf-8")
        template = (ROOT / "roles" / "slurm_conf" / "templates" / "job_submit.lua.j2").read_text(encoding="utf-8")
        # it is Lua, not HTML
        templates = jinja2.Environment(trim_blocks=True, autoescape=jinja2.select_autoescape(default_for_string=False))
        text = templates.from_string(template).render(
            slurm_conf_job_accounts_file=str(self.names), slurm_conf_job_script=script, **settings
        )
        path = directory / "job_submit.lua"
        path.write_text(text, encoding="utf-8")
        self.lua: Any = lua51.LuaRuntime(encoding="latin-1")
        self.messages: list[str] = []
        self.errors: list[str] = []
        slurm = {
            "SUCCESS": 0, "ERROR": -1, "NO_VAL": NO_VAL,
            "log_user": lambda form, text: self.messages.append(form.replace("%s", text)),
            "log_error": lambda form, *words: self.errors.append(f"{form} {words}"),
        }  # fmt: skip
        self.lua.globals().slurm = self.lua.table_from(slurm)
        assert self.lua.globals().dofile(str(path)) == 0

    def submitted(self, **job: object) -> Any:
        """A job of this form as the script leaves it; alice's unless it says otherwise."""
        table = self.lua.table_from({"user_name": "alice", "default_account": "def-curie", **job})
        answer = self.lua.globals().slurm_job_submit(table, self.lua.table(), 1000)
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
