"""What sacctmgr printed, as data, and the difference to what is wanted; outputs recorded on Slurm 22.05 and 24.11."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.support import node_modules as nodeside
from tests.support.paths import TESTS

slurm_policy = nodeside.load("slurm.accounting")
slurm_policy_diff = nodeside.load("slurm.accounting_diff")

DATA = TESTS / "data" / "policy"
KINDS = ("qos", "accounts", "users", "associations")
each_release = pytest.mark.parametrize("release", ["22.05", "24.11"])

State = dict[str, dict[str, dict[str, str]]]


def recorded(release: str) -> State:
    """QOS, associations and users as sacctmgr printed them."""
    outputs = {kind: (DATA / release / f"{kind}.txt").read_text(encoding="utf-8") for kind in KINDS}
    result: State = slurm_policy.state(outputs)
    return result


def state_of(**kinds: dict[str, dict[str, str]]) -> State:
    return {"qos": {}, "associations": {}, "users": {}, **kinds}


def wanted(kind: str, key: str, **values: str) -> State:
    return state_of(**{kind: {key: slurm_policy.settings(kind, values)}})


def difference(desired: State, present: State, owned: dict[str, dict[str, list[str]]] | None = None) -> Any:
    return slurm_policy_diff.difference(desired, present, owned or {})


class TestState:
    @each_release
    def test_a_qos_has_every_column_in_one_form(self, release: str) -> None:
        assert recorded(release)["qos"]["high"] == {
            "Priority": "100", "Preempt": "low", "PreemptExemptTime": "120", "GraceTime": "60",
            "Flags": "denyonlimit,noreserve", "UsageFactor": "0.5", "GrpTRES[mem]": "1048576", "GrpTRES[node]": "4",
            "GrpTRESMins[cpu]": "1000", "GrpTRESMins[gres/gpu]": "60", "GrpTRESRunMins[cpu]": "9", "GrpJobs": "5",
            "GrpJobsAccrue": "6", "GrpSubmit": "7", "GrpWall": "90", "MaxTRES[cpu]": "4", "MaxTRES[mem]": "1536000",
            "MaxTRESPerNode[cpu]": "3", "MaxTRESMins[cpu]": "4", "MaxWall": "2160", "MaxTRESPU[gres/gpu]": "2",
            **({"MaxTRESPU[cpu]": "4"} if release == "24.11" else {}), "MaxTRESPA[cpu]": "4", "MaxJobsPU": "3",
            "MaxJobsPA": "4", "MaxJobsAccruePU": "5", "MaxJobsAccruePA": "6", "MaxSubmitPU": "7", "MaxSubmitPA": "8",
            "MinTRES[cpu]": "1",
        }  # fmt: skip

    @each_release
    def test_accounts_and_users_have_their_own_settings_only(self, release: str) -> None:
        result = recorded(release)

        assert result["associations"]["kid"] == {"ParentName": "newp", "DefaultQOS": "normal", "Descr": "kid"}
        assert result["associations"]["sub/alice"] == {"Share": "parent", "MaxTRES[cpu]": "2", "MaxJobs": "4"}
        assert result["users"]["carol"] == {"DefaultAccount": "kid"}
        # what was never set
        assert result["associations"]["default"] == {"Descr": "default"}
        assert result["associations"]["default/ubuntu"] == {}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("qos", {"Priority": "0"}),
        ("qos", {"UsageFactor": "1.000000"}),
        ("qos", {"PreemptMode": "cluster"}),
        ("qos", {"GraceTime": "00:00:00"}),
        ("qos", {"MaxWall": "UNLIMITED"}),
        ("qos", {"MaxJobsPU": "-1"}),
        ("qos", {"GrpTRES": "cpu=-1"}),
        ("associations", {"Share": "1"}),
        ("associations", {"ParentName": "root"}),
    ],
)
def test_slurms_defaults_count_as_not_set(kind: str, values: dict[str, str]) -> None:
    assert slurm_policy.settings(kind, values) == {}


class TestDifference:
    @each_release
    @pytest.mark.parametrize(
        ("kind", "key", "values"),
        [
            ("qos", "high", {"MaxWall": "36:00:00", "GrpTRES": "node=4,mem=1024G", "Flags": "NoReserve,DenyOnLimit"}),
            ("qos", "high", {"UsageFactor": ".5", "GraceTime": "60", "PreemptExemptTime": "2:00:00", "Preempt": "low"}),
            ("associations", "newp", {"QOS": "normal,high,normal", "DefaultQOS": "high", "Share": "3", "Descr": "A b"}),
            ("associations", "phys", {"MaxWall": "2-0", "GrpTRES": "gres/gpu=4", "ParentName": "root"}),
            ("users", "carol", {"DefaultAccount": "kid"}),
        ],
    )
    def test_what_slurm_has_in_other_words_is_no_difference(
        self, release: str, kind: str, key: str, values: dict[str, str]
    ) -> None:
        assert difference(wanted(kind, key, **values), recorded(release)) == []

    @each_release
    def test_only_what_differs_is_set(self, release: str) -> None:
        desired = wanted("qos", "high", Priority="100", MaxWall="2-0", GrpTRES="node=4,cpu=64")

        assert difference(desired, recorded(release)) == [
            ("qos", "high", False, {"MaxWall": "2880", "GrpTRES[cpu]": "64"})
        ]

    @each_release
    def test_a_limit_that_was_ours_and_is_declared_no_more_is_taken_away(self, release: str) -> None:
        owned = {"qos": {"high": ["MaxWall", "GrpTRES[mem]", "GrpJobs"]}}

        change = difference(wanted("qos", "high", GrpJobs="5"), recorded(release), owned)

        assert change == [("qos", "high", False, {"MaxWall": "", "GrpTRES[mem]": ""})]
        assert slurm_policy.options("qos", change[0][3]) == ["MaxWallDurationPerJob=-1", "GrpTRES=mem=-1"]
        # nor is anything else touched
        owned = {"qos": {"high": ["MaxWall"]}, "associations": {"phys": ["MaxWall"]}}
        assert difference(wanted("qos", "normal"), recorded(release), owned) == []

    @each_release
    def test_a_user_whom_slurm_keeps_in_lower_case_is_there(self, release: str) -> None:
        desired = wanted("associations", "default/Ubuntu")

        assert difference(desired, recorded(release)) == []
        assert "ubuntu" not in slurm_policy_diff.undeclared(desired, recorded(release))["users"]

    @each_release
    def test_a_site_is_reported_what_is_its_own(self, release: str) -> None:
        desired = wanted("associations", "newp")
        result = slurm_policy_diff.undeclared(desired, recorded(release))

        assert result["qos"] == ["high", "low", "qq", "qr"]
        assert {"kid", "phys", "sub"} <= set(result["accounts"])
        assert {"alice", "bob", "carol"} <= set(result["users"])
        # what is declared elsewhere
        named = slurm_policy_diff.undeclared(desired, recorded(release), ["phys", "kid"])["accounts"]
        assert not {"phys", "kid"} & set(named)

    @each_release
    def test_a_closed_user_submits_nothing_in_any_account(self, release: str) -> None:
        desired, present = slurm_policy.desired_state([], [], {}), recorded(release)
        mine = [key for key in present["associations"] if key.endswith("/alice")]
        assert mine

        slurm_policy_diff.close_users(desired, present, {"alice"})

        changes = [(key, change) for _kind, key, _new, change in difference(desired, present)]
        expected = {"MaxSubmit": "0", "MaxJobs": "0"}
        assert changes == [(key, expected) for key in mine]

    def test_who_is_declared_nowhere_is_closed_in_an_account_that_follows_a_group(self) -> None:
        policy = {"users": [{"name": "grace", "account": "def-a", "settings": {}}]}
        desired = slurm_policy.desired_state([], [], policy)
        keys = ("def-a", "def-a/grace", "def-a/lise", "def-a/listed", "def-a/root", "def-b/lise")
        present = state_of(associations={key: {} for key in keys})

        left = slurm_policy_diff.close_left(desired, present, ["def-a"], {"def-a/listed": {}})

        assert left == ["lise"]
        assert [(key, change) for _kind, key, _new, change in difference(desired, present)] == [
            ("def-a/lise", {"MaxSubmit": "0", "MaxJobs": "0"})
        ]

    @each_release
    def test_a_limit_set_by_hand_on_something_declared_is_reported_and_stays(self, release: str) -> None:
        desired = wanted("associations", "phys", MaxWall="2-0")

        assert difference(desired, recorded(release)) == []
        assert slurm_policy_diff.manual_limits(desired, recorded(release), {}) == ["account phys: GrpTRES[gres/gpu]=4"]


class TestCommands:
    def words(self, desired: State, present: State | None = None) -> list[str]:
        changes = difference(desired, present or state_of())
        return [" ".join(words) for _changes, words in slurm_policy_diff.commands(changes, "hpc")]

    def test_a_new_qos_is_added_with_all_it_has(self) -> None:
        desired = wanted("qos", "high", Priority="9", GrpTRES="cpu=4,gres/gpu=2", MaxWall="1-0")

        assert self.words(desired) == ["add qos high Priority=9 GrpTRES=cpu=4,gres/gpu=2 MaxWallDurationPerJob=1440"]

    def test_users_who_are_added_with_the_same_settings_share_a_call(self) -> None:
        default = {"DefaultAccount": "x"}
        members: dict[str, dict[str, str]] = {"x/a": {}, "x/b": {}, "x/c": {"MaxJobs": "2"}}
        desired = state_of(users={"a": default, "b": default}, associations=members)

        assert self.words(desired) == [
            "add user a,b account=x cluster=hpc",
            "add user c account=x cluster=hpc MaxJobs=2",
            "modify user where name=a,b cluster=hpc set DefaultAccount=x",
        ]

    def test_the_same_users_in_several_accounts_share_a_call_and_so_do_accounts_of_one_parent(self) -> None:
        parts: dict[str, dict[str, str]] = {"lab_cpu": {"ParentName": "lab"}, "lab_gpu": {"ParentName": "lab"}}
        people: dict[str, dict[str, str]] = {
            f"{account}/{name}": {} for account in ("lab", "lab_cpu", "lab_gpu") for name in "ab"
        }
        desired = state_of(associations={"lab": {}, **parts, "other": {}, **people, "other/a": {}})

        assert self.words(desired) == [
            "add account lab,other cluster=hpc",
            "add account lab_cpu,lab_gpu cluster=hpc Parent=lab",
            "add user a,b account=lab,lab_cpu,lab_gpu cluster=hpc",
            "add user a account=other cluster=hpc",
        ]

    def test_a_limit_of_a_user_is_modified_in_its_account_and_cluster_alone(self) -> None:
        desired = wanted("associations", "x/a", MaxJobs="3")

        assert self.words(desired, state_of(associations={"x/a": {}})) == [
            "modify user where name=a account=x cluster=hpc set MaxJobs=3"
        ]


def test_a_change_is_reported_with_old_and_new_values() -> None:
    present = recorded("24.11")
    desired = wanted("qos", "high", MaxWall="2-0", GrpTRES="mem=2T", GrpJobs="7")
    changes = difference(desired, present)

    (row,) = [slurm_policy_diff.row(change, present) for change in changes]

    assert row == {
        "kind": "qos",
        "name": "high",
        "action": "modify",
        "detail": "GrpJobs: 5 -> 7, GrpTRES[mem]: 1024G -> 2048G, MaxWall: 1-12:00:00 -> 2-00:00:00",
    }
    assert slurm_policy_diff.sentence(row).startswith("modified QOS high (GrpJobs: 5 -> 7")
    assert slurm_policy_diff.lines(changes, present, after=False).splitlines() == [
        "QOS high", "  GrpJobs = 5", "  GrpTRES[mem] = 1024G", "  MaxWall = 1-12:00:00",
    ]  # fmt: skip


def test_names_that_can_not_be_written_end_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, path = nodeside.plugin("modules", "slurm_accounting"), str(tmp_path / "names.lua")
    full = OSError(errno.ENOSPC, "No space left on device", path)
    monkeypatch.setattr(module.node_files, "ensure", nodeside.raising(full))
    params = {"cluster": "hpc", "sorted_names": "return {}\n", "sorted_names_file": path}

    with pytest.raises(nodeside.FailedError, match=r"names\.lua: No space left on device"):
        nodeside.Call(params).run(module)
