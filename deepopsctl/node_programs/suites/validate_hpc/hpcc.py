"""HPC Challenge (Debian's hpcc): its input, how a task starts it, and the summary that it writes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

# of other sizes HPL has no use for long: the block of its matrix
BLOCK = 128
LEAST_SIZE, MOST_SIZE = 512, 200_000
MARK = "DEEPOPS-HPCC "
# what is kept of some two hundred lines
KEYS = (
    "HPL_Tflops", "HPL_N", "StarSTREAM_Triad", "MPIFFT_Gflops", "PTRANS_GBs", "CommWorldProcs", "Success",
    "MaxPingPongLatency_usec", "MinPingPongBandwidth_GBytes",
)  # fmt: skip
# $0 is the input. Each task has a directory of its own; the first one writes the summary into its own
STEP = """\
place=$(mktemp -d "${SLURM_TMPDIR:-/tmp}/hpcc.XXXXXX") && cd "$place" || exit 1
trap 'cd /; rm -rf "$place"' EXIT
printf '%s' "$0" > hpccinf.txt
hpcc=$(command -v hpcc) || { echo "hpcc is not installed" >&2; exit 127; }
"""
TASK = STEP + '"$hpcc"; status=$?; '
# without PMIx: Open MPI's own start, on one node
ALONE = STEP + 'mpirun --mca plm isolated --mca ras ^slurm --oversubscribe --bind-to none -np "$1" "$hpcc"; status=$?; '
SUMMARY = """\
[ ! -s hpccoutf.txt ] || sed -n "/Begin of Summary/,\\$s/^/DEEPOPS-HPCC $SLURMD_NODENAME /p" hpccoutf.txt
! grep -q FAILED hpccoutf.txt 2> /dev/null || echo "DEEPOPS-HPCC $SLURMD_NODENAME Failed=1"
exit $status
"""


class Summary(NamedTuple):
    """What one run of hpcc gave."""

    tflops: float
    size: int
    # of each process, while all of them copy
    triad_gb_s: float
    fft_gflops: float
    processes: int
    good: bool


def matrix_size(memory_mb: float, share: float) -> int:
    """The order of HPL's matrix, which takes that share of the memory."""
    size = math.sqrt(memory_mb * 2**20 * share / 8)
    return min(max(int(size // BLOCK * BLOCK), LEAST_SIZE), MOST_SIZE)


def grid(processes: int) -> tuple[int, int]:
    """Rows and columns, as square as it can be; fewer rows than columns."""
    rows = next(rows for rows in range(math.isqrt(processes), 0, -1) if processes % rows == 0)
    return rows, processes // rows


def input_text(size: int, processes: int) -> str:
    """hpccinf.txt: one problem, the choices that most sites take."""
    rows, columns = grid(processes)
    values = [
        "HPL.out", "8", "1", str(size), "1", str(BLOCK), "0", "1", str(rows), str(columns), "16.0", "1", "2", "1", "4",
        "1", "2", "1", "1", "1", "1", "1", "1", "2", "64", "0", "0", "1", "8", "separator", "0", "0", "0", "0",
    ]  # fmt: skip
    return "".join(f"{value}\n" for value in ["HPC Challenge", "deepopsctl validate hpc", *values])


def summaries(out: str) -> dict[str, Summary]:
    """The summary of each node that printed one; what is none is left out."""
    values: dict[str, dict[str, float]] = {}
    for line in out.splitlines():
        node, _space, pair = line.partition(MARK)[2].partition(" ")
        key, _equals, text = pair.partition("=")
        if key in (*KEYS, "Failed"):
            try:
                values.setdefault(node, {})[key] = float(text)
            except ValueError:
                continue
    return {node: summary for node, each in values.items() if (summary := _summary(each))}


def _summary(values: Mapping[str, float]) -> Summary | None:
    numbers = [values.get(key, math.nan) for key in KEYS]
    if not all(map(math.isfinite, numbers[:4])) or not values.get("CommWorldProcs"):
        return None
    good = values.get("Success") == 1 and not values.get("Failed")
    return Summary(
        values["HPL_Tflops"], int(values["HPL_N"]), values["StarSTREAM_Triad"], values["MPIFFT_Gflops"],
        int(values["CommWorldProcs"]), good,
    )  # fmt: skip
