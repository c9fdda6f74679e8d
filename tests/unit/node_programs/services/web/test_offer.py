"""What a user may ask for a notebook: of Slurm's own texts, and against requests that are not in the offer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from deepopsctl.node_programs.services.web import notebook_job, offer
from deepopsctl.node_programs.services.web.offer import Limits, Offer, Partition, RefusedError, Request

PARTITIONS = (
    "PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL Default=NO MaxTime=UNLIMITED State=UP RootOnly=NO\n"
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL Default=YES MaxTime=02:00:00 State=UP RootOnly=NO\n"
    "PartitionName=staff AllowGroups=staff AllowAccounts=ALL Default=NO MaxTime=02:00:00 State=UP RootOnly=NO\n"
    "PartitionName=bio AllowGroups=ALL AllowAccounts=def-bio Default=NO MaxTime=02:00:00 State=UP RootOnly=NO\n"
    "PartitionName=off AllowGroups=ALL DenyAccounts=def-lab Default=NO MaxTime=02:00:00 State=DOWN RootOnly=NO\n"
    "PartitionName=not AllowGroups=ALL DenyAccounts=def-lab,rrg Default=NO MaxTime=1:00:00 State=UP RootOnly=NO\n"
)
GRES = {"cpu": "(null)", "gpu": "gpu:a100:4(S:0-1),gpu:t4:2", "staff": "", "bio": "", "off": "", "not": ""}
NODES = "".join(f"{name}|16|64000|{gres}\n" for name, gres in GRES.items())
LIMITS = Limits(minutes=480, cpus=8, memory_gb=32, gpus=2)
GPU = Partition("gpu", default=True, minutes=120, cpus=16, memory_gb=62, gpus={"a100": 4, "t4": 2})
OFFER = Offer((GPU, Partition("cpu", default=False, minutes=None, cpus=16, memory_gb=62)), ("rrg", "def-lab"))


def slurm(argv: Sequence[str]) -> str:
    if argv[0] == "sinfo":
        return NODES
    if argv[0] == "scontrol":
        return PARTITIONS
    return "rrg\n" if "user" in argv else "def-lab\nrrg\n"


def test_a_user_is_offered_the_partitions_that_take_jobs_of_the_user_and_the_default_first() -> None:
    result = offer.find("alice", ["alice", "def-lab"], slurm)

    assert [each.name for each in result.partitions] == ["gpu", "cpu"]
    assert result == OFFER


def test_a_group_opens_its_partition() -> None:
    assert "staff" in [each.name for each in offer.find("alice", ["staff"], slurm).partitions]


def test_without_an_answer_nothing_is_offered_and_the_page_says_so() -> None:
    nothing = offer.find("alice", ["alice"], lambda _argv: "")

    assert nothing == Offer((), ())
    assert "no partition for you" in offer.form(nothing, LIMITS)
    with pytest.raises(RefusedError, match="no partition"):
        offer.choose(nothing, {}, LIMITS)


def test_what_is_left_out_is_an_hour_and_a_core_without_a_gpu() -> None:
    assert offer.choose(OFFER, {}, LIMITS) == Request("gpu", "rrg", minutes=60, cpus=1, memory_gb=2)


def test_what_a_form_sends_is_what_the_job_asks_for() -> None:
    fields = {"partition": ["gpu"], "gpu": ["a100"], "gpus": ["2"], "cpus": ["4"], "memory_gb": ["16"], "hours": ["2"]}

    request = offer.choose(OFFER, offer.from_form(fields), LIMITS)

    argv = notebook_job.submission(request, "/home/alice", {"JUPYTERHUB_USER": "alice"})
    assert request == Request("gpu", "rrg", 120, 4, 16, "a100", 2)
    assert {"--gres=gpu:a100:2", "--time=120", "--mem=16G", "--account=rrg", "--export=JUPYTERHUB_USER"} <= set(argv)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"partition": "staff"}, "no partition staff"),
        ({"partition": "gpu --uid=0"}, "not a name"),
        ({"partition": "gpu\n#SBATCH"}, "not a name"),
        ({"account": "def-bio"}, "not an account of yours"),
        ({"minutes": "121"}, "minutes in gpu"),
        ({"partition": "cpu", "minutes": "481"}, "between 1 and 480"),
        ({"minutes": "0"}, "between 1"),
        ({"minutes": "-5"}, "between 1"),
        ({"cpus": "9"}, "between 1 and 8 cores"),
        ({"memory_gb": "33"}, "GB of memory"),
        ({"memory_gb": "1;reboot"}, "GB of memory"),
        ({"gpu": "h100"}, "no GPU h100"),
        ({"partition": "cpu", "gpu": "a100"}, "cpu has no GPU"),
        ({"gpu": "a100", "gpus": "3"}, "between 1 and 2"),
        ({"gpu": "--nodelist=x"}, "not a name"),
        ({"cpus": ["1", "2"]}, "cores"),
    ],
)
def test_a_request_beyond_the_offer_is_refused_with_what_is_possible(wanted: dict[str, object], reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        offer.choose(OFFER, wanted, LIMITS)


def test_names_of_slurm_are_text_on_the_page() -> None:
    strange = Partition("<script>", default=True, minutes=None, cpus=1, memory_gb=1)

    assert "<script>" not in offer.form(Offer((strange,), ()), LIMITS)


def test_a_job_gets_nothing_of_the_caller_but_what_is_jupyterhubs() -> None:
    variables = {"JUPYTERHUB_API_TOKEN": "x", "LD_PRELOAD": "/tmp/x.so", "PATH": "/tmp", "SBATCH_ACCOUNT": "root"}

    assert notebook_job.environment(variables) == {"JUPYTERHUB_API_TOKEN": "x"}
