"""The checks of the suite `hpc` by name, as docs/reference/validate-hpc.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_GROUP = "HPC Challenge"
_SLOW = "the node's clocks, cooling and memory modules: `deepopsctl doctor`, `dmidecode -t memory`, `validate burnin`"

HPC = {
    "hpc-node": Entry(
        _GROUP, "one node", "HPC Challenge runs on the node, with a process a CPU, and finds its own results right.",
        "wrong results are broken memory or cores: drain the node, and run `deepopsctl validate burnin` on it",
    ),
    "hpc-together": Entry(
        _GROUP, "all nodes", "HPC Challenge runs on all nodes as one MPI program, and finds its own results right.",
        "`deepopsctl validate smoke` tests MPI alone; wrong results: repeat it with half of the nodes (`--limit`)",
    ),
    "hpc-hpl": Entry(
        _GROUP, "HPL", "The rate of HPL (Linpack) on each node, next to the others and its past.", _SLOW,
    ),
    "hpc-stream": Entry(
        _GROUP, "STREAM", "Memory bandwidth, STREAM's triad on all cores, next to the others and its past.", _SLOW,
    ),
    "hpc-fft": Entry(
        _GROUP, "FFT", "The rate of a Fourier transform, bound by memory, next to the others and its past.", _SLOW,
    ),
    "hpc-hpl-together": Entry(
        _GROUP, "HPL, all nodes", "The rate of HPL on all nodes together, next to earlier runs.",
        "one slow node holds all back: see its own rates; else the network: `deepopsctl validate network`",
    ),
}  # fmt: skip
PER_NODE = frozenset({"hpc-node", "hpc-hpl", "hpc-stream", "hpc-fft"})
