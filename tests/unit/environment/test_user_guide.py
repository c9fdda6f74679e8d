"""The user guide of a site: what cluster.yml says, and nothing that it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from deepopsctl.cli.main import run_command_line
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.environment.user_guide import first_script, render_html, render_markdown
from deepopsctl.slurm.conf import RESERVE, RESERVE_PERCENT
from deepopsctl.slurm.hardware import NodeHardware
from tests.support.html_page import page
from tests.support.paths import ROOT

SPECS = yaml.safe_load((ROOT / "roles/containers/meta/argument_specs.yml").read_text(encoding="utf-8"))
SPEC = """\
schema: 1
cluster: {name: uni}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: "login[1-2]", addresses: "192.0.2.[3-4]", roles: [login]}
  - {names: "cpu[01-02]", addresses: "192.0.2.[11-12]", roles: [compute]}
  - {names: "h[01-06]", addresses: "192.0.2.[41-46]", roles: [compute], gpus: {type: h100, count: 8}}
partitions:
  - {name: cpu, nodes: "cpu[01-02]", default: true}
  - {name: gpu, nodes: "h[01-06]", max_time: "2-00:00:00"}
components: [slurm, environment]
billing: {}
job_directories: {space: 800G}
qos: [{name: normal, limits: {MaxJobsPerUser: 100}}]
accounts: [{name: science}, {name: physics, parent: science, users: [alice]}]
storage:
  - name: home
    type: nfs
    source: "ctl1:/srv/home"
    path: /home
    quota: {default: {space: 50G, files: 500k}}
    snapshots: {}
  - {name: scratch, type: nfs, source: "filer.example.com:/s", path: /scratch, purge: {age: 60d, mode: delete}}
spaces: {home: {storage: home}, scratch: {storage: scratch}}
"""
BARE = """\
schema: 1
nodes:
  - {names: one, addresses: 192.0.2.1, roles: [controller, compute]}
"""


def guide(spec: str) -> str:
    return render_markdown(parse_spec(spec, "cluster.yml"), {}, "Host login1")


@pytest.mark.parametrize(
    "line",
    [
        "$ ssh YOUR-NAME@login1",
        "Host login1",
        "$ ssh -L 8888:localhost:8888 uni-job",
        "| `cpu` (default) | 2 | - | no limit |",
        "| `gpu` | 6 | h100:8 | 2-00:00:00 |",
        "#SBATCH --partition=gpu",
        "#SBATCH --gpus-per-node=h100:1",
        "#SBATCH --account=physics",
        "| `normal` | MaxJobsPU=100 |",
        "| `$SLURM_TMPDIR` | the job's node | what you request by `--tmp=200G` | the job ends |",
        "`cp /home/.snapshots/TIME/YOUR-NAME/FILE FILE-OLD`.",
        "| `/home` | all nodes | 50 GiB, 500,000 files |  |",
        "| `/scratch/YOUR-NAME`, `$SCRATCH` | all nodes |  | unused for 60 days |",
        "| `sq` | your jobs |",
    ],
)
def test_the_guide_has_the_sites_own_values(line: str) -> None:
    assert line in guide(SPEC).splitlines()


@pytest.mark.parametrize(("written", "shown"), [("2P", "2 PiB"), ("1536G", "1.5 TiB")])
def test_large_quotas_are_in_units_that_fit_them(written: str, shown: str) -> None:
    assert f"| `/home` | all nodes | {shown}, 500,000 files |  |" in guide(SPEC.replace("50G", written)).splitlines()


def test_the_job_on_a_gpu_requests_one_that_its_partition_has() -> None:
    other = "  - {names: a1, addresses: 192.0.2.61, roles: [compute], gpus: {type: l40s, count: 4}}\npartitions:\n"
    text = guide(SPEC.replace("partitions:\n", f"{other}  - {{name: old, nodes: a1}}\n"))

    assert "#SBATCH --partition=old\n#SBATCH --gpus-per-node=l40s:1\n" in text
    assert "`salloc --time=01:00:00 --partition=old --gpus-per-node=l40s:1 " in text


def test_what_a_gpu_costs_is_there_with_billing_only() -> None:
    assert "`h100` 12.15" in guide(SPEC)
    assert "RGU" not in guide(SPEC.replace("billing: {}\n", ""))


def test_a_bare_cluster_has_a_guide_without_what_it_lacks() -> None:
    text = guide(BARE)

    assert "$ ssh YOUR-NAME@one" in text
    assert not [word for word in ("h100", "--account", "SLURM_TMPDIR", "partition-stats", "| QOS |") if word in text]


def test_what_jobs_can_have_of_detected_hardware_is_in_the_table_of_partitions() -> None:
    hardware = dict.fromkeys(("cpu01", "cpu02"), NodeHardware(64, 1, 2, 32, 1, 262_144))
    text = render_markdown(parse_spec(SPEC, "cluster.yml"), hardware, "")
    defaults = yaml.safe_load((ROOT / "roles" / "slurm_conf" / "defaults" / "main.yml").read_text())

    assert defaults[RESERVE] == RESERVE_PERCENT == 2
    assert "| `cpu` (default) | 2 | - | 64 | 250 GiB | no limit |" in text.splitlines()


@pytest.mark.parametrize(("cpus", "asked"), [(2, 2), (64, 4), (0, 1)])
def test_the_first_job_fits_on_every_node_of_its_partition(cpus: int, asked: int) -> None:
    parsed = parse_spec(SPEC.replace(", gpus: {type: h100, count: 8}", ""), "cluster.yml")
    hardware = {"cpu01": NodeHardware(64, 1, 2, 32, 1, 262_144)}
    if cpus:
        hardware["cpu02"] = NodeHardware(cpus, 1, 1, cpus, 1, 3_000)
    text = render_markdown(parsed, hardware, "")

    assert f"#SBATCH --cpus-per-task={asked}\n#SBATCH --mem={2 if cpus else 1}G\n" in first_script(text)
    assert first_script(text).startswith("#!/bin/bash\n#SBATCH --job-name=train\n")
    assert ("before the nodes were known" in text) is (cpus == 0)


def test_it_begins_with_a_job_lists_what_is_in_it_and_says_whom_to_ask() -> None:
    parsed = parse_spec(SPEC, "cluster.yml")
    text = render_markdown(parsed, {}, "Host login1", contact="help@uni.example")
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]

    assert (titles[0], titles[-1]) == ("Submit a job", "Help")
    assert "- [Where files live](#where-files-live)" in text.splitlines()
    assert "help@uni.example" in text
    assert "administrator" not in text
    assert '<h2 id="where-files-live">Where files live</h2>' in render_html(parsed, text)


def test_containers_are_there_where_the_site_has_them() -> None:
    parsed = parse_spec(SPEC, "cluster.yml")
    text = render_markdown(parsed, {}, "", containers=["podman"])

    assert "podman run --rm --device nvidia.com/gpu=all" in text
    assert "ch-run" not in text
    assert "## Containers" not in render_markdown(parsed, {}, "")


@pytest.mark.parametrize("engine", SPECS["argument_specs"]["main"]["options"]["environment_containers"]["choices"])
def test_each_way_to_start_containers_has_an_example(engine: str) -> None:
    text = render_markdown(parse_spec(SPEC, "cluster.yml"), {}, "", containers=[engine])

    assert "```bash\n```" not in text
    assert "python" in text.partition("## Containers")[2].partition("```bash")[2].partition("```")[0]


def test_the_page_has_tables_and_no_markup_of_anybody_else() -> None:
    text = render_html(parse_spec(SPEC, "cluster.yml"), guide(SPEC) + "\n<script>alert(1)</script>\n")

    assert text.count("<table>") == 5
    assert "script" not in page(text).tags


def test_the_command_writes_both_files_with_the_modules_of_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "inventory" / "group_vars" / "all" / "settings.yml"
    settings.parent.mkdir(parents=True)
    (tmp_path / "cluster.yml").write_text(SPEC, encoding="utf-8")
    settings.write_text("---\nmodules_declared: {python/3.12: {prefix: /opt/python}}\n", encoding="utf-8")

    assert run_command_line(["-C", str(tmp_path), "docs", "users"]) == 0
    guide = (tmp_path / "docs" / "user-guide.md").read_text(encoding="utf-8")
    assert "\nModules: `python`, `gcc`, `python/3.12`; all versions: `module avail`.\n" in guide
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["user-guide.html", "user-guide.md"]
