"""System accounts with one id on all nodes; the lab of the take-over creates real ones."""

from __future__ import annotations

import os
import pwd

import pytest

from tests.support import node_modules as nodeside
from tests.support.node_modules import FailedError, Step

accounts = nodeside.load("node.accounts")


def test_an_account_with_the_clusters_id_is_left_alone_and_check_mode_reports_one_that_is_missing() -> None:
    there, missing = Step(), Step(dry=True)

    accounts.ensure_account(there, {"name": pwd.getpwuid(os.getuid()).pw_name, "uid": os.getuid(), "gid": 0})
    accounts.ensure_account(missing, {"name": "nobody-has-this", "uid": 22078, "gid": 0})

    assert there.done == []
    assert missing.changes == [("account", "nobody-has-this", "add")]


@pytest.mark.parametrize("dry", [True, False])
def test_an_account_with_another_id_is_refused_also_in_check_mode(*, dry: bool) -> None:
    with pytest.raises(FailedError, match="the user root has the id 0 here, 22078 in the cluster"):
        accounts.ensure_account(Step(dry=dry), {"name": "root", "uid": 22078, "gid": 0})


def test_a_group_with_another_id_is_refused_before_its_user_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "_uid", lambda _name: None)

    with pytest.raises(FailedError, match="the group root has the id 0 here, 22078 in the cluster"):
        accounts.ensure_account(Step(dry=True), {"name": "root", "uid": 22078, "gid": 0})


def test_group_and_user_are_created_with_their_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(accounts, "_run", lambda _step, argv: calls.append(argv))

    accounts.ensure_account(Step(dry=False), {"name": "nobody-has-this", "uid": 22078, "gid": 22079})

    group, user = calls
    assert group == ["groupadd", "--gid", "22079", "nobody-has-this"]
    assert user[:5] == ["useradd", "--uid", "22078", "--gid", "nobody-has-this"]
