"""What the role `ondemand` writes for the portal: YAML that Open OnDemand reads, scripts that a shell takes."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import jinja2
import pytest
import yaml

from tests.support.paths import ROOT

ROLE = ROOT / "roles/ondemand"
# what Open OnDemand itself has for forms
BUILT_IN = re.compile(r"bc_(account|email_on_started|num_hours|num_slots|queue|vnc_idle|vnc_resolution)")
VALUES: dict[str, Any] = {
    "ansible_managed": "managed", "__ondemand_id": "hpc", "ondemand_cluster": "hpc: \"x\"", "ondemand_desktop": "xfce",
    "ondemand_login_hosts": ["login1", "login2"], "ondemand_partitions": [{"name": "cpu"}, {"name": "gpu"}],
    "ondemand_gpu_types": ["h100"], "ondemand_hours": 8, "ondemand_cpus": 64, "ondemand_gpus": 8,
    "ondemand_vnc_path": "/opt/TurboVNC/bin", "ondemand_websockify": "/usr/bin/websockify",
    "ondemand_notebook_python": "/opt/x/bin/python",
}  # fmt: skip


def rendered(name: str, **values: Any) -> str:
    engine = jinja2.Environment(autoescape=False, keep_trailing_newline=True, trim_blocks=True)  # noqa: S701 (no page)
    engine.filters["to_json"] = json.dumps
    text = (ROLE / "templates" / name).read_text(encoding="utf-8")
    return engine.from_string(text).render(**{**VALUES, **values})


def test_the_cluster_has_the_keys_that_its_schema_knows() -> None:
    (version,) = yaml.safe_load(rendered("cluster.yml.j2")).values()

    assert set(version) <= {"metadata", "login", "job", "acls", "custom", "batch_connect"}
    assert version["metadata"]["title"] == 'hpc: "x"'
    assert set(version["job"]) <= {
        "adapter", "cluster", "bin", "conf", "submit_host", "strict_host_checking", "bin_overrides", "copy_environment",
    }  # fmt: skip
    # the script of the app takes the place of %s, and nothing else may look like one
    for kind in version["batch_connect"].values():
        assert kind["script_wrapper"].count("%") == kind["script_wrapper"].count("%s") == 1


@pytest.mark.parametrize("name", ["jupyter/form.yml.j2", "desktop.yml.j2"])
@pytest.mark.parametrize("gpus", [[], ["h100", "a100_3g.20gb"]])
def test_each_field_of_a_form_is_known(name: str, gpus: list[str]) -> None:
    form = yaml.safe_load(rendered(name, ondemand_gpu_types=gpus))

    assert form["cluster"] == "hpc"
    assert form["attributes"]["bc_queue"]["options"] == ["cpu", "gpu"]
    for field in form["form"]:
        assert field in form["attributes"] or BUILT_IN.fullmatch(field), field


def test_a_job_asks_for_what_the_form_has() -> None:
    text = rendered("jupyter/submit.yml.erb.j2")
    without_tags = re.sub(r"^ *<%-.*-%>\n", "", text, flags=re.MULTILINE)
    filled = re.sub(r"<%= (\w+)(?:\.to_i)? %>", r"\1", without_tags)

    assert yaml.safe_load(filled)["script"]["native"][-1] == "--gpus=gpu_type:gpus"
    # a number is one, and a type is one of the cluster's: what a browser sends can't be another option of sbatch
    assert set(re.findall(r"<%= (\S+) %>", text)) == {"cores.to_i", "memory_gb.to_i", "gpu_type", "gpus.to_i"}
    assert '["h100"].include?(gpu_type)' in text


@pytest.mark.parametrize("name", ["before.sh.erb.j2", "script.sh.erb.j2"])
def test_a_shell_takes_the_scripts(name: str) -> None:
    text = rendered(f"jupyter/{name}")

    subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    if "<<'END'" in text:
        compile(text.partition("<<'END'\n")[2].partition("END\n")[0], name, "exec")
    # no argument of a process has the password
    assert not re.search(r"python[^\n]*\$\{?password", text)


def test_notebooks_run_with_the_environment_of_the_web_pages() -> None:
    playbook = (ROOT / "playbooks/web.yml").read_text(encoding="utf-8")
    variables = yaml.safe_load((ROOT / "roles/web/vars/main.yml").read_text(encoding="utf-8"))

    assert f"{variables['__web_directory']}/jupyter/' ~ deepops_web.release ~ '/bin/python'" in playbook
