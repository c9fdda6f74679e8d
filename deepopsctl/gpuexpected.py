"""What cluster.yml says of a node's GPUs, in the form that a node compares with its driver and with slurmd."""

from __future__ import annotations

from deepopsctl import slurmgres
from deepopsctl.gpumodels import models_of
from deepopsctl.model import Gpus


def expected_gpus(gpus: Gpus | None) -> dict[str, object]:
    """The node's cards one by one, and how many devices Slurm has of them; {} for none.

    `minor` is the N of /dev/nvidiaN, None where slurmd finds the files or they have other names; `products` are what
    nvidia-smi calls GPUs of that type, none where nobody knows it, `others` its variants with more or less memory.
    """
    if gpus is None:
        return {}
    cards: list[dict[str, object]] = []
    for kind in slurmgres.kinds_of(gpus):
        products = [model.product for model in models_of(kind.type)]
        # a name like `NVIDIA H100 64GB HBM2e` is a variant that the table may not have: its model counts
        plain = next((model.type for model in models_of(kind.type)), kind.type)
        others = [model.product for model in models_of(plain) if model.product not in products]
        for file in kind.files:
            minor = None if gpus.autodetect else slurmgres.minor(file)
            cards.append({"minor": minor, "type": plain, "products": products, "others": others})
    return {
        "words": slurmgres.say_gpus(gpus),
        "cards": cards,
        "devices": sum(slurmgres.gres_counts(gpus).values()),
    }
