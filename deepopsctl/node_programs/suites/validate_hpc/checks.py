"""Checks of this suite; their targets are compute nodes, or all nodes of a job."""

from __future__ import annotations

from functools import partial

from ..._shared import checks

SUITE = "hpc"
NODE, TOGETHER = "hpc-node", "hpc-together"
# rates, which deepopsctl compares with the other nodes and with earlier runs
HPL, STREAM, FFT, RATE_TOGETHER = "hpc-hpl", "hpc-stream", "hpc-fft", "hpc-hpl-together"

check = partial(checks.check, SUITE)
skip = partial(checks.skipped, SUITE)
failed = partial(checks.failed, SUITE)
