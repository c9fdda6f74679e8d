"""What each machine gets for monitoring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepopsctl.monitoring.node_plan import plan_node
from deepopsctl.monitoring.resources import ContradictionError, Directory, File, MonitoredNode, Needs, Unit, combine
from deepopsctl.monitoring.systemd_units import service, started_by

GPU01 = MonitoredNode("gpu01", "hpc", frozenset({"slurm_compute"}), "192.0.2.11", "Debian 13", controller="ctl1")
CTL1 = replace(GPU01, name="ctl1", groups=frozenset({"slurm_controller", "slurm_dbd"}), address="2001:db8::1")


def text_of(needs: Needs, path: str) -> str:
    return next(file.content for file in needs.files if file.path == path)


def test_every_machine_has_a_node_exporter_that_listens_on_its_own_address_alone() -> None:
    dropin = "/etc/systemd/system/prometheus-node-exporter.service.d/deepopsctl.conf"
    texts = {machine.name: text_of(plan_node(machine), dropin) for machine in (GPU01, CTL1)}

    assert "--web.listen-address=192.0.2.11:9100 " in texts["gpu01"]
    assert "--web.listen-address=[2001:db8::1]:9100 " in texts["ctl1"]


def test_what_nobody_draws_of_every_processor_is_not_told_but_where_a_site_asks_for_it() -> None:
    dropin = "/etc/systemd/system/prometheus-node-exporter.service.d/deepopsctl.conf"
    plain = text_of(plan_node(GPU01), dropin)
    asked = text_of(plan_node(replace(GPU01, settings={"cpu_details": ["cpufreq"]})), dropin)

    for argument in ("cpufreq", "cpu.guest", "schedstat", "softnet"):
        assert f"--no-collector.{argument}" in plain
    assert "--no-collector.cpufreq" not in asked
    assert "--no-collector.softnet" in asked


def test_what_goes_without_users_is_not_asked_how_full_it_is() -> None:
    dropin = "/etc/systemd/system/prometheus-node-exporter.service.d/deepopsctl.conf"
    entry = {
        "name": "archive", "type": "nfs", "source": "filer.example.com:/a", "path": "/archive", "nodes": "gpu01",
        "options": [], "required": False, "automount": True, "automount_idle": "10m", "user_writable": "", "server": "",
    }  # fmt: skip
    stays = {**entry, "name": "data", "path": "/data", "automount_idle": ""}
    text = text_of(plan_node(replace(GPU01, mounts=(entry, stays))), dropin)

    assert "|^/archive$$" in text
    assert "/data" not in text


@pytest.mark.parametrize("wanted", [["cpufreq", "cpu"], "cpu", None])
def test_details_of_processors_that_there_are_not_are_refused_by_name(wanted: object) -> None:
    (problem,) = plan_node(replace(GPU01, settings={"cpu_details": wanted})).problems

    assert problem.startswith("monitoring_cpu_details: there is no ")
    assert "cpufreq, guest, schedstat, softnet" in problem


def test_only_the_machine_of_slurmdbd_has_the_exporter_of_mariadb() -> None:
    assert "prometheus-mysqld-exporter" in plan_node(CTL1).packages
    assert "prometheus-mysqld-exporter" not in plan_node(GPU01).packages


def test_a_unit_restarts_only_for_files_that_are_brought() -> None:
    for machine in (GPU01, CTL1):
        plan = plan_node(machine)
        brought = {file.path for file in plan.files}
        assert {path for unit in plan.units for path in (*unit.restart_on, *unit.reload_on)} <= brought


def test_pieces_add_up_and_what_two_want_alike_comes_once() -> None:
    first = Needs(
        packages=("a",), directories=(Directory("/x"),), files=(File("/x/1", "one"),), units=(Unit("a.service"),)
    )
    second = Needs(packages=("b", "a"), directories=(Directory("/x"),), files=(File("/x/2", "two"),), problems=("no",))

    assert combine([first, second]) == Needs(
        packages=("a", "b"),
        directories=(Directory("/x"),),
        files=(File("/x/1", "one"), File("/x/2", "two")),
        units=(Unit("a.service"),),
        problems=("no",),
    )


def test_pieces_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ContradictionError, match="/x/1"):
        combine([Needs(files=(File("/x/1", "one"),)), Needs(files=(File("/x/1", "two"),))])


def test_a_secret_is_in_no_text_that_is_shown_of_a_file() -> None:
    assert "hush" not in repr(File("/x", "hush", secret=True))


def test_arguments_reach_a_daemon_as_they_are() -> None:
    dropin = started_by("a.service", ("/usr/bin/a", "--one=^a$", r"--two=\.b", "--three=50%"))
    own = service("deepops-a", "A program", ("/usr/local/sbin/a",), "Nice=5")

    assert 'ExecStart=/usr/bin/a \\\n    --one=^a$$ \\\n    "--two=\\\\.b" \\\n    --three=50%%\n' in dropin.content
    assert dropin.content.index("ExecStart=\n") < dropin.content.index("ExecStart=/usr")
    assert own.path == "/etc/systemd/system/deepops-a.service"
    assert "Nice=5\n\n[Install]\nWantedBy=multi-user.target\n" in own.content
