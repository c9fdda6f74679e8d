"""gres.conf beside a slurm.conf: every type of GPU keeps its own device files, cores and links; slices stay slices."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepopsctl.gpus.notation import as_written
from deepopsctl.imports.request import InitRequest, InitResult, read_request
from tests.support.files import write_files

SLICE = "MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap"
# instances 1 and 2 of the second GPU
HALVES = f"{SLICE}147,/dev/nvidia-caps/nvidia-cap148", f"{SLICE}156,/dev/nvidia-caps/nvidia-cap157"


def imported(site: Path, gres: str, conf: str) -> InitResult:
    text = f"ClusterName=a\nSlurmctldHost=c\nNodeName=n[1-2] Gres={gres}\nNodeName=plain\n"
    write_files(site, {"slurm.conf": text, "gres.conf": conf})
    return read_request(InitRequest(site / "new", source=site / "slurm.conf"))


def gpus(site: Path, gres: str, conf: str) -> object:
    first, second, _ = imported(site, gres, conf).cluster.compute
    assert first.gpus == second.gpus
    return first.gpus and as_written(first.gpus)


def left(result: InitResult) -> list[str]:
    return [note.name for note in result.carryover.not_carried]


@pytest.mark.parametrize(
    ("gres", "conf", "written"),
    [
        ("gpu:a100:2,gpu:v100:2",
         ["Type=v100 File=/dev/nvidia[0-1] Cores=0-15", "Type=a100 File=/dev/nvidia[2-3] CPUs=16-31"],
         [{"type": "v100", "count": 2, "cores": "0-15"}, {"type": "a100", "count": 2, "cores": "16-31"}]),
        ("gpu:a:2,gpu:v:2",
         [f"Type={gpu_type} File=/dev/nvidia{number}" for number, gpu_type in enumerate(["v", "a", "v", "a"])],
         [{"type": "v", "count": 2, "files": "/dev/nvidia[0,2]"},
          {"type": "a", "count": 2, "files": "/dev/nvidia[1,3]"}]),
        ("gpu:a:2", ["File=/dev/nvidia0 Links=-1,4", "File=/dev/nvidia1 Links=4,-1"],
         {"type": "a", "count": 2, "links": ["-1,4", "4,-1"]}),
        ("gpu:a100:1,gpu:a100_3g.20gb:2",
         ["Type=a100 File=/dev/nvidia0", *(f"Type=a100_3g.20gb {half}" for half in HALVES)],
         {"type": "a100", "count": 2, "mig": [{}, {"3g.20gb": [1, 2]}]}),
        ("gpu:a100_1g.5gb.me:1", [f"Type=a100_1g.5gb.me {HALVES[0]}"],
         {"type": "a100", "count": 1, "mig": {"1g.5gb+me": [1]}, "files": "/dev/nvidia1"}),
    ],
    ids=["two types", "types that take turns", "links", "slices", "a slice with media engines"],
)  # fmt: skip
def test_gpus_keep_their_own_devices(tmp_path: Path, gres: str, conf: list[str], written: object) -> None:
    assert gpus(tmp_path, gres, "".join(f"Name=gpu {line}\n" for line in conf)) == written


def test_a_line_holds_for_the_nodes_that_it_names(tmp_path: Path) -> None:
    conf = (
        "NodeName=n1 Name=gpu File=/dev/nvidia[2-3]\nNodeName=N2.example.com Name=gpu File=/dev/nvidia1,/dev/nvidia0\n"
    )
    nodes = imported(tmp_path, "gpu:a:2", conf).cluster.compute

    assert [node.gpus.groups[0].files for node in nodes if node.gpus] == [
        ("/dev/nvidia2", "/dev/nvidia3"),
        ("/dev/nvidia1", "/dev/nvidia0"),
    ]


def test_a_type_of_slices_that_is_written_in_another_way_is_reported(tmp_path: Path) -> None:
    conf = "\n".join(f"Name=gpu Type=nvidia_A100_3g.20gb {half}" for half in HALVES)

    (note,) = imported(tmp_path, "gpu:nvidia_A100_3g.20gb:2", conf).carryover.to_check
    assert note.reason == "gpu:nvidia_A100_3g.20gb becomes gpu:a100_3g.20gb"


@pytest.mark.parametrize(
    ("gres", "conf"),
    [
        ("gpu:1g.5gb:7", "AutoDetect=nvml\n"),
        ("gpu:a100_1g.5gb:7", ""),
        ("gpu:3g.20gb:2", "\n".join(f"Name=gpu Type=3g.20gb {half}" for half in HALVES)),
        ("gpu:a100_3g.20gb:1", f"Name=gpu Type=a100_3g.20gb {SLICE}5,/dev/nvidia-caps/nvidia-cap7\n"),
        ("gpu:v100_3g.20gb:2", "\n".join(f"Name=gpu Type=v100_3g.20gb {half}" for half in HALVES)),
    ],
)
def test_slices_whose_gpu_is_unknown_never_become_whole_gpus(tmp_path: Path, gres: str, conf: str) -> None:
    result = imported(tmp_path, gres, conf + "# end\n")

    assert {node.gpus for node in result.cluster.compute} == {None}
    assert [name for name in left(result) if name.startswith("Gres=gpu:")] == [f"Gres={gres.rpartition(':')[0]}"]


@pytest.mark.parametrize(
    ("gres", "conf", "name"),
    [
        ("gpu:a:4", "Name=gpu Type=a File=/dev/nvidia[0-1]", "File= of a"),
        ("gpu:a:1,gpu:b:1", "Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia0", "File="),
        ("gpu:a:2", "Name=gpu File=/dev/nvidia[0-1] Links=-1,4", "Links"),
        ("gpu:a:2", "Name=gpu File=/dev/nvidia0 Cores=0-7\nName=gpu File=/dev/nvidia1", "Cores"),
        ("gpu:a:2", "Name=gpu File=/dev/nvidia[0-1] Cores=all", "Cores=all"),
        ("gpu:a:2", "Name=gpu File=/dev/nvidia[9-0]", "Name=gpu"),
        ("gpu:a:2", "Name=gpu File=/dev/dri/card[0-1]", "File=/dev/dri/card[0-1]"),
        ("gpu:a:2", "Name=gpu Flags=one_sharing File=/dev/nvidia[0-1]", "Flags"),
        ("gpu:2", "Name=gpu Type=a File=/dev/nvidia[0-1]", "Type=a"),
        ("gpu:2", "NodeName=plain Name=gpu File=/dev/nvidia0", "Name=gpu"),
        ("gpu:2", "Name=shard Count=4", "Name=shard"),
    ],
)
def test_what_does_not_fit_is_named_once(tmp_path: Path, gres: str, conf: str, name: str) -> None:
    assert left(imported(tmp_path, gres, conf)) == [name]


def test_several_types_without_files_are_to_be_compared_with_the_node(tmp_path: Path) -> None:
    result = imported(tmp_path, "gpu:a:2,gpu:b:2", "AutoDetect=nvml\n")

    assert [note.name for note in result.carryover.to_check] == ["Gres"]


@pytest.mark.parametrize(
    ("hardware", "note"),
    [
        ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", "has cores 0-7"),
        ("Boards=1 SocketsPerBoard=2 CoresPerSocket=4", "has cores 0-7"),
        ("CPUs=8", "has cores 0-7"),
        ("CPUs=16", ""),
        ("Sockets=2 CoresPerSocket=8", ""),
        ("", ""),
    ],
)
def test_numbers_of_threads_are_not_carried_over_as_cores(tmp_path: Path, hardware: str, note: str) -> None:
    conf = f"ClusterName=t\nSlurmctldHost=c1\nNodeName=n1 {hardware} Gres=gpu:2\nPartitionName=p Nodes=n1\n"
    line = "NodeName=n1 Name=gpu File=/dev/nvidia{} Cores={}\n"
    gres = line.format(0, "0-3,8-11") + line.format(1, "4-7,12-15")
    write_files(tmp_path, {"slurm.conf": conf, "gres.conf": gres})

    result = read_request(InitRequest(tmp_path, source=tmp_path))

    gpus = result.cluster.compute[0].gpus
    assert gpus
    assert any(group.cores for group in gpus.groups) == (not note)
    left = [each.reason for each in result.carryover.not_carried if each.name.startswith("Cores=")]
    assert len(left) == (1 if note else 0)
    assert all(note in reason for reason in left)
