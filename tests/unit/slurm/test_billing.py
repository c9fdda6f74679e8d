"""Fair billing: weights per partition, checked against calculations by the published rules."""

from __future__ import annotations

import pytest

from deepopsctl.gpus.spec import WrittenGroup, read_gpus
from deepopsctl.model.cluster import Gpus
from deepopsctl.slurm.billing import NodeShape, billing_weights
from deepopsctl.text.problems import RefusedError
from deepopsctl.text.yaml_reader import Path

# the Alliance's Narval: 4 A100 of 40 GB, 48 cores, 498 GB for jobs
NARVAL = NodeShape(48, 498 * 1024, Gpus("a100_40gb", 4))


def test_a_gpu_partition_bills_cores_and_memory_like_the_gpus_they_belong_to() -> None:
    assert billing_weights([NARVAL], {}) == "CPU=333.33,Mem=32.13G,GRES/gpu:a100_40gb=4000"


def test_a_partition_without_gpus_bills_cores_or_their_memory() -> None:
    assert billing_weights([NodeShape(64, 256 * 1024, None)], {}) == "CPU=1000,Mem=250G"


def test_a_job_within_its_gpus_share_of_any_node_pays_for_its_gpus() -> None:
    fir = NodeShape(48, 1152 * 1024, Gpus("h100", 4))
    weights = billing_weights([NARVAL, fir, NodeShape(64, 256 * 1024, None)], {})
    assert weights == "CPU=333.33,Mem=32.13G,GRES/gpu:a100_40gb=4000,GRES/gpu:h100=12150"


def test_cut_gpus_leave_the_price_of_cores_as_it_is() -> None:
    def refuse(path: Path, refusal: RefusedError) -> None:
        pytest.fail(f"{path}: {refusal.message}")

    cut = read_gpus([WrittenGroup((), "a100", "4", mig={"3g.20gb": ["1"], "1g.5gb": ["11", "12", "13"]})], "", refuse)
    weights = billing_weights([NodeShape(48, 498 * 1024, cut)], {})
    assert weights == "CPU=333.33,Mem=32.13G,GRES/gpu:a100_1g.5gb=571.43,GRES/gpu:a100_3g.20gb=2000"
