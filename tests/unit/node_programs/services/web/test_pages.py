"""Our pages as JupyterHub's engine makes them: what users choose is text in them, not markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest

from deepopsctl.node_programs.services.web import own_jobs, views
from tests.support.paths import ROOT
from tests.unit.node_programs.services.web.test_own_jobs import slurm

EVIL = '<img src=x onerror=alert(1)>"&'
ROW = {"account": EVIL, "user": EVIL, "jobs": 1, "cpu_hours": 1.0, "gpu_hours": 2.0, "gpu_hours_seen": 2.0,
       "gpu_hours_busy": 0.5, "gpu_hours_idle": 1.5}  # fmt: skip
USE = {"rgu_years": 1.0}


def page(name: str, **values: Any) -> str:
    pages = Path(ROOT, "roles/web/files/pages")
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pages), autoescape=True, undefined=jinja2.StrictUndefined
    )
    common = {
        "cluster_name": "hpc", "base_url": "/hub/", "user": {"name": "alice"}, "links": {}, "logout_url": "/hub/logout",
        "xsrf": "x", "trouble": "", "page": "", "has_files": True,
    }  # fmt: skip
    return engine.get_template(name).render(**common | values)


def evil_jobs(account: str = "") -> str:
    answer = own_jobs.listed(slurm, 7, account)
    for row in (*answer["live"], *answer["ended"]):
        row.update(name=EVIL, user=EVIL)
    return page("jobs.html", days=7, account=account, **views.jobs({**answer, "accounts": [EVIL]}))


def usage() -> str:
    account = {"name": EVIL, "share": 0.5, "target_rgu_years": 2.0, "total": USE, "own": USE}
    answer = {"end": 1796000000, "accounts": [account], "recent": {"days": 30, "rows": [ROW]}}
    return page("usage.html", days=30, users=True, **views.usage(answer))


@pytest.mark.parametrize("text", [evil_jobs(), evil_jobs("def-lab"), usage()])
def test_what_users_choose_is_no_markup(text: str) -> None:
    assert "<img" not in text
    assert "&lt;img src=x" in text


def test_the_sums_are_there_and_a_bar_says_its_figures() -> None:
    text = usage()

    assert "25 %: 0.5 GPU-hours of 2.0 GPU-hours" in text
    assert "<td>50%</td>" in text
    assert "<td>1.5</td>" in text


def test_no_other_users_job_has_a_button() -> None:
    assert "Cancel job 6" in page("jobs.html", days=7, account="", **views.jobs(own_jobs.listed(slurm, 7)))
    assert "Cancel job" not in evil_jobs("def-lab")
