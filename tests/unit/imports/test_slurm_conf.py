"""An existing slurm.conf becomes a cluster; what does not fit is reported, never dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from deepopsctl.cluster.builder import Draft
from deepopsctl.cluster.writer import render_spec
from deepopsctl.gpus.gres import describe_gpus
from deepopsctl.imports.read import draft_text, read_nodes
from deepopsctl.imports.request import InitRequest, InitResult, read_request
from deepopsctl.imports.slurm_keys import DEEPOPSCTL_VALUES
from deepopsctl.model.cluster import Gpus, Role
from deepopsctl.slurm.releases import KEYS, NODE_KEYS, PARTITION_KEYS
from deepopsctl.text.problems import Problems
from tests.support.files import write_files
from tests.support.paths import DATA, ROOT
from tests.support.problems import faults as faults_of, problems_of

EXAMPLE = ROOT / "inventory" / "slurm-conf"
HEAD = "ClusterName=alpha\nSlurmctldHost=ctl1(192.0.2.1)\n"
TAIL = "NodeName=n[1-2] CPUs=4\nPartitionName=p Nodes=ALL\n"


def read(text: str) -> Draft:
    problems = Problems()
    draft = draft_text(text, "slurm.conf", problems)
    problems.raise_if_any()
    return draft


def faults(text: str) -> list[str]:
    return faults_of(lambda: read(text).finish())


def left(draft: Draft | InitResult) -> list[str]:
    return [note.name for note in draft.carryover.not_carried]


def config(text: str) -> object:
    return read(HEAD + text + TAIL).carryover.settings.get("slurm_config")


def test_the_example_is_imported_whole() -> None:
    result = read_request(InitRequest(Path("x"), source=EXAMPLE, addresses=EXAMPLE / "hosts"))

    cluster = result.cluster
    assert cluster.name == "alpha"
    assert [(node.name, node.address) for node in cluster.nodes][:2] == [("ctl1", "192.0.2.1"), ("gpu01", "192.0.2.11")]
    assert cluster.nodes[0].roles == {Role.CONTROLLER, Role.DBD}
    gpu, cpu = cluster.nodes[1], cluster.nodes[-1]
    assert gpu.gpus
    assert (describe_gpus(gpu.gpus), {group.cores for group in gpu.gpus.groups}) == ("h100:8", {("0-31",) * 8})
    assert gpu.slurm == {"RealMemory": "500000", "Weight": "100"}
    assert (cpu.address, cpu.features, cpu.slurm["Weight"]) == ("192.0.2.22", ("himem",), "1")
    assert [(p.name, p.nodes, p.default, p.max_time) for p in cluster.partitions] == [
        ("gpu", ("gpu01", "gpu02", "gpu03", "gpu04"), True, "1-00:00:00"),
        ("cpu", ("cpu1", "cpu2"), False, "INFINITE"),
    ]
    assert result.carryover.settings == {
        "slurm_config": {
            "StateSaveLocation": "/srv/slurm/state",
            "SlurmdSpoolDir": "/srv/slurm/spool",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "SchedulerParameters": "bf_continue,bf_max_job_test=1000",
            "Prolog": "/etc/slurm/prolog.sh",
        }
    }
    assert left(result) == ["TopologyPlugin", "DownNodes=gpu04"]
    assert [note.name for note in result.carryover.to_check] == ["Prolog", "CPUs", "Cores"]


def test_keys_are_read_in_any_case_and_several_on_a_line() -> None:
    draft = read(
        "CLUSTERNAME=Alpha slurmctldhost=c1.example.com\nnodename=n1 WEIGHT=3\npartitionname=p nodes=n1 default=yes"
    )

    cluster = draft.finish()
    assert cluster.name == "alpha"
    assert (cluster.nodes[0].name, cluster.nodes[0].address) == ("c1", "c1.example.com")
    assert cluster.partitions[0].default


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("n[98-101]", ["n98", "n99", "n100", "n101"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[001-3,7]", ["n001", "n002", "n003", "n7"]),
        ("n[0-2]", ["n0", "n1", "n2"]),
        # as Slurm prints it
        ("n[08-101]-ib", [f"n{number:02}-ib" for number in range(8, 102)]),
    ],
)
def test_a_range_is_as_wide_as_its_first_number(written: str, names: list[str]) -> None:
    draft = read(f"{HEAD}NodeName={written}\nPartitionName=p Nodes={written}\n")

    assert [node.name for node in draft.finish().compute] == names
    assert list(draft.finish().partitions[0].nodes) == names


def test_old_names_of_the_controllers_are_read_too() -> None:
    draft = read("ControlMachine=a\nControlAddr=192.0.2.1\nBackupController=b\nBackupAddr=192.0.2.2\nNodeName=n1\n")

    assert [(m.name, m.address) for m in draft.nodes.values()] == [
        ("a", "192.0.2.1"),
        ("b", "192.0.2.2"),
        ("n1", ""),
    ]


def test_a_controller_that_is_a_compute_node_is_one_node() -> None:
    first = read("SlurmctldHost=n1\nNodeName=n[1-2] NodeAddr=192.0.2.[1-2] Gres=gpu:2\n").nodes["n1"]
    assert first.roles == {Role.CONTROLLER, Role.COMPUTE}
    assert (first.address, first.gpus) == ("192.0.2.1", Gpus("", 2))


def test_what_deepopsctl_sets_itself_is_no_loss_where_both_agree() -> None:
    draft = read(f"{HEAD}AuthType=auth/munge\nProctrackType=proctrack/cgroup\nSlurmUser=slurm\nGresTypes=gpu\n{TAIL}")

    assert left(draft) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("SlurmUser=hpcadm", "SlurmUser"),
        ("StateSaveLocation=/tmp", "StateSaveLocation"),
        ("slurmdspooldir=/var/spool/", "slurmdspooldir"),
        ("SlurmctldLogFile=/var/log/", "SlurmctldLogFile"),
        ("GresTypes=gpu,mps", "GresTypes"),
        ("FastSchedule=1", "FastSchedule"),
        ("JobCompPass=x", "JobCompPass"),
        ("TopologyPlugin=topology/tree", "TopologyPlugin"),
        ("SlurmctldPidFile=/run/x.pid", "SlurmctldPidFile"),
        ('MailDomain="a b"', "MailDomain"),
        ("Epilog={{x}}", "Epilog"),
        ("FrontendName=f1", "FrontendName=f1"),
        ("NodeName=c[1-9] State=CLOUD", "NodeName=c[1-9]"),
        ("NodeName=x1 Gres=gpu:a:1,gpu:2", "Gres=gpu:2"),
        ("NodeName=x1 Gres=gpu:a:1,gpu:a:2", "Gres=gpu:a:2"),
        ("NodeName=x1 Gres=shard:8", "Gres=shard:8"),
        ("NodeName=x1 State=DRAIN", "State=DRAIN"),
        ("NodeName=x1 Port=7000", "Port"),
        ("NodeName=x1 Feature=a&b", "Feature=a&b"),
        ("PartitionName=none Nodes=", "PartitionName=none"),
    ],
)
def test_what_can_not_be_carried_is_named(line: str, name: str) -> None:
    draft = read(f"{HEAD}{line}\n{TAIL}")

    assert left(draft) == [name]
    assert draft.carryover.not_carried[0].where == "slurm.conf:3"
    assert draft.carryover.not_carried[0].reason


def test_other_keys_go_into_slurm_config_in_slurms_own_spelling() -> None:
    assert config("statesavelocation=/x\nMaxArraySize=5\n") == {"StateSaveLocation": "/x", "MaxArraySize": "5"}


def test_a_node_set_and_features_choose_the_nodes_of_a_partition() -> None:
    cluster = read(f"{HEAD}NodeName=a1 Feature=x\nNodeName=b1\nNodeSet=s Feature=x\nPartitionName=p Nodes=s\n").finish()

    assert cluster.partitions[0].nodes == ("a1",)


def test_a_default_line_holds_for_the_lines_after_it() -> None:
    draft = read(f"{HEAD}NodeName=a1\nNodeName=DEFAULT Weight=7\nNodeName=b1\nNodeName=c1 Weight=8\n")

    assert [draft.nodes[name].slurm for name in ("a1", "b1", "c1")] == [{}, {"Weight": "7"}, {"Weight": "8"}]


def test_every_fault_is_reported_with_its_line() -> None:
    nodes = "NodeName=n[1-900]-\nNodeName=m[1-2] NodeAddr=192.0.2.1\nNodeName=x1\nNodeName=x[1-2]\n"
    assert faults(f"ClusterName=a b\nSlurmctldHost=c1\n{nodes}") == [
        "slurm.conf:1: 'b' is not a KEY=VALUE",
        "slurm.conf:3: 'n1-' is not a valid hostname (and 899 more like it)",
        "slurm.conf:4: m[1-2] stands for 2 names and 192.0.2.1 for 1 address",
        "slurm.conf:6: x1 is already given at slurm.conf:5",
    ]


def test_nodes_of_an_unreadable_line_are_not_reported_as_missing() -> None:
    text = f"{HEAD}NodeName=n[1-2] Reason=bad disk\nPartitionName=p Nodes=n[1-2]\n"

    assert faults(text) == ["slurm.conf:3: 'disk' is not a KEY=VALUE"]


def test_a_template_is_one_fault() -> None:
    text = "ClusterName={{ name }}\n{% for host in hosts %}\nNodeName={{ host }}\n{% endfor %}\n"

    assert faults(f"# {{{{ managed }}}}\n{text}") == ["slurm.conf:2: this is a template, without its values"]


def test_includes_are_followed_and_a_missing_one_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "nodes.conf").write_text("NodeName=n1\n")
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=a\nSlurmctldHost=c1\ninclude /etc/slurm/nodes.conf\nInclude gone.conf\n")

    problems = problems_of(read_request, InitRequest(tmp_path, source=conf))

    assert [problem.message for problem in problems] == ["Include gone.conf: there is no such file"]


@pytest.mark.parametrize(
    "line", ["Include {secret}", 'include "{secret}"', "Include ../secret", "Include link", "Include s*t"]
)
def test_no_file_of_this_machine_is_quoted_by_an_include(tmp_path: Path, line: str) -> None:
    secret, conf = tmp_path / "secret", tmp_path / "import" / "slurm.conf"
    secret.write_text("root:$6$hash:19000:0:99999:7:::\n")
    conf.parent.mkdir()
    (conf.parent / "link").symlink_to(secret)
    (conf.parent / "secret.txt").symlink_to(secret)
    conf.write_text("ClusterName=a\nSlurmctldHost=c1\n" + line.format(secret=secret) + "\n")

    problems = problems_of(read_request, InitRequest(tmp_path, source=conf))

    assert not any("hash" in problem.message for problem in problems)
    assert f"{conf}:3" in [problem.where for problem in problems]


def test_a_gres_conf_that_leads_out_is_listed_and_one_next_to_the_real_slurm_conf_is_read(tmp_path: Path) -> None:
    shared, here, secret = tmp_path / "shared", tmp_path / "etc", tmp_path / "secret"
    secret.write_text("root:$6$hash\n")
    for directory in (shared, here):
        directory.mkdir()
    (shared / "slurm.conf").write_text("ClusterName=a\nSlurmctldHost=c1\nInclude nodes.conf\n")
    (shared / "nodes.conf").write_text("NodeName=n1 NodeAddr=192.0.2.1\n")
    (shared / "gres.conf").write_text("# none\n")
    for name in ("slurm.conf", "nodes.conf", "gres.conf"):
        (here / name).symlink_to(shared / name)

    problems = Problems()
    assert set(read_nodes(here / "slurm.conf", None, problems).nodes) >= {"n1"}
    (here / "gres.conf").unlink()
    (here / "gres.conf").symlink_to(secret)
    draft = read_nodes(here / "slurm.conf", None, problems)
    assert [each.reason for each in draft.carryover.not_carried if each.name == "gres.conf"] == [
        "it is a link out of this directory"
    ]
    assert len(problems) == 0


def test_a_circle_of_includes_ends(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=a\nInclude slurm.conf\n")

    problems = problems_of(read_request, InitRequest(tmp_path, source=conf))

    assert "more than 100 files are included" in [problem.message for problem in problems]


def test_files_next_to_it_that_are_not_read_are_named(tmp_path: Path) -> None:
    files = {"plugstack.conf": "optional pyxis.so\n", "job_container.conf": "AutoBasePath=true\n"}
    write_files(tmp_path, {"slurm.conf": HEAD + TAIL, "topology.conf": "# nothing\n", **files})

    notes = read_request(InitRequest(tmp_path, source=tmp_path)).carryover.not_carried

    assert [note.name for note in notes] == [*files]
    assert "slurm_plugstack" in notes[0].reason
    assert "job_directories" in notes[1].reason


def test_an_address_file_without_any_of_the_names_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=a\nSlurmctldHost=c1\n" + TAIL)
    (tmp_path / "hosts").write_text("192.0.2.1 other\n")

    (fault,) = faults_of(read_request, InitRequest(tmp_path, source=tmp_path, addresses=tmp_path / "hosts"))

    assert "has no address of any node of this cluster" in fault


SITES = sorted((DATA / "sites").iterdir())


@pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)
def test_what_comes_along_is_known_to_every_slurm(site: Path) -> None:
    """tests/lab/test_imports.py starts slurmctld on them."""
    result = read_request(InitRequest(Path("x"), source=site))

    config = result.carryover.settings.get("slurm_config", {})
    assert isinstance(config, dict)
    assert set(config) <= KEYS
    for node in result.cluster.compute:
        assert {key.lower() for key in node.slurm} <= NODE_KEYS
    for partition in result.cluster.partitions:
        assert {key.lower() for key in partition.options} <= PARTITION_KEYS


@pytest.mark.parametrize(
    ("line", "carried"),
    [
        ("SelectType=select/cons_res", {"SelectType": "select/cons_tres"}),
        ("SelectType=select/linear", {"SelectType": "select/linear", "SelectTypeParameters": None}),
        (
            "SelectType=SELECT/linear\nSelectTypeParameters=CR_Socket_Memory",
            {"SelectType": "select/linear", "SelectTypeParameters": "CR_Memory"},
        ),
        ("SelectTypeParameters=CR_CPU,ENFORCE_BINDING_GRES", {"SelectTypeParameters": "CR_CPU"}),
        ("TaskPlugin=affinity", {"TaskPlugin": "task/affinity"}),
        ("TaskPlugin=cgroup,task/affinity", None),
        ("TaskPluginParam=Sched", None),
        ("TaskPluginParam=autobind=threads,Sched", {"TaskPluginParam": "autobind=threads"}),
        ("PrologFlags=X11,NoHold", {"PrologFlags": "X11"}),
        ("AccountingStoragePort=7031", {"AccountingStoragePort": "7031"}),
        ("PriorityFlags=FAIR_TREE,MAX_TRES,NO_FAIR_TREE", {"PriorityFlags": "MAX_TRES,NO_FAIR_TREE"}),
        ("PreemptMode=REQUEUE", None),
        ("PreemptType=preempt/qos", None),
        (
            "PreemptType=preempt/qos\nPreemptMode=SUSPEND",
            {"PreemptType": "preempt/qos", "PreemptMode": "SUSPEND,GANG"},
        ),
        ("JobSubmitPlugins=lua,job_submit/throttle", {"JobSubmitPlugins": "throttle"}),
        ("AuthInfo=socket=/x,cred_expire=120", {"AuthInfo": "cred_expire=120"}),
        ("SlurmctldDebug=chatty", None),
        ("DebugFlags=Backfill,TimeCray", {"DebugFlags": "Backfill"}),
        ("MCSPlugin=mcs/group", None),
        ("SelectTypeParameters=CR_Memory,CR_LLN", {"SelectTypeParameters": "CR_Core_Memory,CR_LLN"}),
        ("TreeWidth=0\nJobAcctGatherParams=UsePss,OverMemoryKill", None),
        (
            "JobAcctGatherType=jobacct_gather/linux\nJobAcctGatherParams=UsePss,NoOverMemoryKill",
            {"JobAcctGatherType": "jobacct_gather/linux", "JobAcctGatherParams": "UsePss"},
        ),
        ("MinJobAge=0\nPriorityDecayHalfLife=0", None),
        ("PriorityWeightTRES=CPU=10,GRES/gpu=5", {"PriorityWeightTRES": "CPU=10"}),
        (
            "Licenses=a:5\nAccountingStorageTRES=license/a,gres/gpu",
            {"Licenses": "a:5", "AccountingStorageTRES": "license/a"},
        ),
        ("HealthCheckTimeout=9\nFastSchedule=1\nPriorityTeir=3\nAuthAltTypes=auth/jwt", None),
        ("Epilog=\nSwitchType=switch/none\nPreemptType=preempt/none", None),
    ],
)
def test_a_value_that_not_every_slurm_takes_is_translated_or_left_out(line: str, carried: object) -> None:
    assert config(f"{line}\n") == carried


def test_every_key_that_is_left_out_is_named_with_what_to_do() -> None:
    draft = read(f"{HEAD}PriorityTeir=3\nHealthCheckTimeout=9\nPrologSlurmctld=/x\nJobSubmitPlugins=lua\n{TAIL}")

    assert left(draft) == ["PriorityTeir", "HealthCheckTimeout", "PrologSlurmctld", "JobSubmitPlugins=lua"]
    assert all(note.reason and note.hint for note in draft.carryover.not_carried)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("PartitionName=q Nodes=ALL QOS=x", "QOS"),
        ("PartitionName=q Nodes=ALL Exclusive=topo", "Exclusive"),
        ("PartitionName=q Nodes=ALL PreemptMode=requeue", "PreemptMode of q"),
        ("PartitionName=q Nodes=ALL Alternate=gone", "Alternate of q"),
        ("PartitionName=q Nodes=ALL TRESBillingWeights=CPU=1,GRES/gpu=8", "TRESBillingWeights of q"),
        ("NodeName=x1 RestrictedCoresPerGPU=2", "RestrictedCoresPerGPU"),
    ],
)
def test_what_would_keep_slurmctld_from_starting_is_not_in_a_partition_or_node(line: str, name: str) -> None:
    assert left(read(f"{HEAD}{TAIL}{line}\n")) == [name]


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("DefMemPerCPU=100\nPartitionName=q Nodes=ALL", {"DefMemPerCPU": "100"}),
        ("PartitionName=q Nodes=ALL QOS=normal AllowQos=ALL", {"QOS": "normal", "AllowQos": "ALL"}),
        ("PartitionName=q Nodes=ALL PriorityTier=2 Priority=50", {"PriorityTier": "2", "PriorityJobFactor": "50"}),
    ],
    ids=["memory of the cluster", "what every new database has", "an old priority is both of today's"],
)
def test_what_a_partition_had_becomes_its_options(line: str, options: dict[str, str]) -> None:
    draft = read(f"{HEAD}{TAIL}{line}\n")

    assert draft.finish().partitions[-1].options == options
    assert left(draft) == []


def test_the_nodes_own_features_win_over_those_of_a_default_line() -> None:
    draft = read(f"{HEAD}NodeName=DEFAULT Features=all Procs=4\nNodeName=a1 Feature=mine\nNodeName=b1\n")

    assert [draft.nodes[name].features for name in ("a1", "b1")] == [("mine",), ("all",)]


def test_all_nodes_stay_all_nodes() -> None:
    cluster = read(f"{HEAD}{TAIL}").finish()

    assert cluster.partitions[0].everything
    assert "nodes: all" in render_spec(cluster)


def test_of_two_default_partitions_the_last_is() -> None:
    draft = read(f"{HEAD}{TAIL}PartitionName=a Nodes=n1 Default=YES\nPartitionName=b Nodes=n2 Default=YES\n")

    assert [partition.default for partition in draft.finish().partitions] == [False, False, True]
    assert "Default" in [note.name for note in draft.carryover.to_check]


def test_full_names_and_underscores_are_names_of_nodes() -> None:
    text = "NodeName=n[1-2].example.com\nNodeName=big_1\nPartitionName=p Nodes=n1.example.com,big_1,N2.example.com\n"
    cluster = read(f"{HEAD}{text}").finish()

    assert [(node.name, node.address) for node in cluster.compute] == [
        ("n1", "n1.example.com"), ("n2", "n2.example.com"), ("big_1", ""),
    ]  # fmt: skip
    assert cluster.partitions[0].nodes == ("n1", "big_1", "n2")


def test_a_name_that_can_not_be_the_clusters_is_given_by_an_option(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=buddy-2.5\nSlurmctldHost=c1\n" + TAIL)
    request = InitRequest(tmp_path / "new", source=tmp_path)

    assert read_request(replace(request, name="buddy")).cluster.name == "buddy"
    assert "--name" in problems_of(read_request, request)[0].hint


def test_localhost_has_a_hint_that_helps() -> None:
    (problem,) = problems_of(lambda: read("SlurmctldHost=c1\nNodeName=localhost\n").finish())

    assert "hostname -s" in problem.hint


def test_what_deepopsctl_sets_in_another_way_is_reported() -> None:
    draft = read(f"{HEAD}ProctrackType=proctrack/pgid\nReturnToService=0\nPriorityType=priority/multifactor\n{TAIL}")

    changed = {note.name: note.reason for note in draft.carryover.changed}
    assert {"AccountingStorageEnforce", "TaskPlugin", "DefMemPerCPU"} <= changed.keys()
    assert "not proctrack/pgid" in changed["ProctrackType"]
    assert not {"ReturnToService", "PriorityType", "Weight"} & changed.keys()


def test_weights_that_deepopsctl_adds_are_reported() -> None:
    draft = read(f"{HEAD}NodeName=g1 Gres=gpu:a:1\n{TAIL}")

    identical = read(f"{HEAD}NodeName=g[1-2] Gres=gpu:a:1\n")
    weighted = read(f"{HEAD}NodeName=DEFAULT Weight=5\nNodeName=g1 Gres=gpu:a:1\n{TAIL}")

    assert "Weight" in [note.name for note in draft.carryover.changed]
    assert "Weight" not in [note.name for each in (identical, weighted) for note in each.carryover.changed]


def test_every_key_that_deepopsctl_sets_is_reported_or_follows_from_the_cluster() -> None:
    from_the_cluster = {
        "ClusterName", "SlurmUser", "AuthType", "StateSaveLocation", "SlurmdSpoolDir", "SlurmctldPidFile",
        "AuthAltTypes", "AuthAltParameters",
        "SlurmdPidFile", "SwitchType", "TopologyPlugin", "GresTypes", "AccountingStorageHost", "AccountingStorageTRES",
        "AccountingStorageBackupHost",
        "MetricsType", "MpiDefault", "SchedulerType", "JobAcctGatherFrequency", "MessageTimeout",
        # of a setting
        "PropagateResourceLimitsExcept",
    }  # fmt: skip

    defaults = yaml.safe_load((EXAMPLE.parents[1] / "roles/slurm_conf/vars/main.yml").read_text())["__slurm_conf_base"]
    assert set(defaults) - from_the_cluster == set(DEEPOPSCTL_VALUES)


OWN_CONF = """\
# Written by deepopsctl from cluster.yml, hardware.yml and slurm_config; the next deploy overwrites changes made here.
ClusterName=t
SlurmctldHost=ctl1(192.0.2.1)
StateSaveLocation=/var/lib/slurm/slurmctld
ReturnToService=1
TaskPlugin=task/affinity,task/cgroup
MaxJobCount=50000
HealthCheckProgram=/usr/local/sbin/deepops-nodecheck
HealthCheckInterval=60
MailProg=/etc/slurm/deepops/mail
Prolog=/etc/slurm/deepops/prolog
Epilog=/etc/slurm/./deepops/epilog
NodeName=n[1-2] NodeAddr=192.0.2.[11-12] CPUs=2 RealMemory=4000
PartitionName=p Nodes=n[1-2] Default=YES
"""
REMOVED_HEADER = OWN_CONF.partition("\n")[2]


@pytest.mark.parametrize("text", [OWN_CONF, REMOVED_HEADER], ids=["as it is", "without its first line"])
def test_what_deepopsctl_wrote_itself_is_not_the_sites(text: str) -> None:
    draft = read(text)

    assert draft.carryover.settings["slurm_config"] == {"MaxJobCount": "50000"}
    assert left(draft) == ["HealthCheckProgram", "Prolog", "Epilog"]
    assert not {"MailProg", "Prolog"} & {note.name for note in draft.carryover.to_check}


@pytest.mark.parametrize("value", ["/etc/slurm/deep*/prolog", "/etc/slurm/*", "//etc/slurm/deepops/prolog.d/*"])
def test_a_pattern_that_leads_to_an_own_program_is_not_carried_over(value: str) -> None:
    assert config(f"Prolog={value}\nEpilog=/etc/slurm/epilog.d/*\n") == {"Epilog": "/etc/slurm/epilog.d/*"}


def test_files_of_deepopsctls_own_become_what_they_are_made_from(tmp_path: Path) -> None:
    header = "# Written by deepopsctl from cluster.yml; the next deploy overwrites changes made here.\n"
    plugin = "required /usr/local/lib/slurm/spank_pyxis.so"
    texts = {
        "slurm.conf": OWN_CONF, "cgroup.conf": f"{header}ConstrainCores=yes\n", "plugstack.conf": f"{header}{plugin}\n",
        "topology.conf": f"{header}BlockName=rack1 Nodes=n[1-2]\n",
    }  # fmt: skip
    write_files(tmp_path, texts)

    carryover = read_request(InitRequest(tmp_path, source=tmp_path)).carryover

    assert carryover.settings["slurm_plugstack"] == [plugin]
    assert [note.name for note in carryover.not_carried if note.name.endswith(".conf")] == ["topology.conf"]
    assert "nvlink_domains" in carryover.not_carried[-1].hint


DUMPS = sorted((DATA / "dumps").iterdir())


@pytest.mark.parametrize("dump", DUMPS, ids=lambda path: path.stem)
@pytest.mark.parametrize("comments", [True, False], ids=["as written", "without comments"])
def test_of_a_dump_only_what_is_the_sites_is_carried_over(dump: Path, comments: bool) -> None:
    """As `scontrol write config` of each release wrote it (the older ones' comments are 26.05's), with three keys."""
    lines = [line for line in dump.read_text(encoding="utf-8").splitlines(keepends=True) if not line.startswith("#")]
    newest = DUMPS[-1].read_text(encoding="utf-8").splitlines(keepends=True)

    draft = read("".join([*(line for line in newest if comments and line.startswith("#")), *lines]))

    assert draft.carryover.settings["slurm_config"] == {
        "SlurmctldPort": "16817", "MaxJobCount": "20000", "StateSaveLocation": "/srv/slurm/state",
    }  # fmt: skip
    assert [node.name for node in draft.finish().compute] == ["n1", "n2"]
    assert left(draft) == ["SlurmctldPidFile", "MaxNodeCount"]
    # that command leaves it out
    assert "SlurmctldHost" in [note.name for note in draft.carryover.to_check]


def test_the_controllers_address_is_carried_over_from_what_looks_like_a_dump() -> None:
    draft = read(
        "ClusterName=t\nSlurmctldHost=ctl1(192.0.2.1)\nMaxNodeCount=2\nSlurmctldPort=6817\nNodeName=n2\nNodeName=n1\n"
    )

    assert draft.nodes["ctl1"].address == "192.0.2.1"
    assert not draft.carryover.settings


def test_room_for_no_more_nodes_is_not_carried_over() -> None:
    assert config("MaxNodeCount=2\n") is None
    assert config("MaxNodeCount=1\nMaxJobCount=5\n") == {"MaxJobCount": "5"}
    assert config("MaxNodeCount=100\n") == {"MaxNodeCount": "100"}


@pytest.mark.parametrize("word", ["YES", "yes", "TRUE", "1", "Up"])
def test_every_yes_of_slurms_makes_a_partition_the_default(word: str) -> None:
    draft = read(
        f"{HEAD}NodeName=n[1-2]\nPartitionName=a Nodes=n1 Default={word}\nPartitionName=b Nodes=n2 Default=0\n"
    )

    assert [partition.default for partition in draft.finish().partitions] == [True, False]


@pytest.mark.parametrize("word", ["NO", "FALSE", "0", "down", ""])
def test_every_other_word_does_not(word: str) -> None:
    draft = read(f"{HEAD}NodeName=n[1-2]\nPartitionName=a Nodes=n1 Default={word}\nPartitionName=b Nodes=n2\n")

    assert [partition.default for partition in draft.finish().partitions] == [False, False]


@pytest.mark.parametrize(
    ("line", "carried"),
    [
        ("EnforcePartLimits=TRUE", {"EnforcePartLimits": "YES"}),
        ("EnforcePartLimits=0", {"EnforcePartLimits": "NO"}),
        ("UsePAM=False", None),
        ("MinJobAge=0x1", None),
        ("TreeWidth=00", None),
        ("PriorityDecayHalfLife=0-0", None),
        ("PriorityDecayHalfLife=1-0", {"PriorityDecayHalfLife": "1-0"}),
    ],
)
def test_values_are_compared_as_slurm_reads_them(line: str, carried: object) -> None:
    assert config(f"{line}\n") == carried


@pytest.mark.parametrize(
    ("written", "limit"),
    [("-1", "UNLIMITED"), ("Infinite", "Infinite"), ("90", "90"), ("2-0", "2-0")],
)
def test_every_time_limit_of_slurms_is_read(written: str, limit: str) -> None:
    draft = read(f"{HEAD}NodeName=n1\nPartitionName=a Nodes=n1 MaxTime={written}\n")

    assert draft.finish().partitions[0].max_time == limit


def test_a_second_program_of_a_key_is_reported_as_left() -> None:
    lines = "Prolog=/site/a\nProlog=/site/b\nEpilog=/site/e\nEpilog=/site/e\nTaskProlog=/site/t\nTaskProlog=/site/u\n"

    draft = read(f"{HEAD}{lines}{TAIL}")

    # of TaskProlog Slurm itself takes the last line
    assert config(lines) == {"Prolog": "/site/b", "Epilog": "/site/e", "TaskProlog": "/site/u"}
    (note,) = draft.carryover.not_carried
    assert note.name == "Prolog=/site/a"
    assert "Slurm runs both from 24.05 on" in note.reason
    assert note.hint.endswith("set Prolog: /etc/slurm/prolog.d/*")
