"""Whether a plain `srun` starts one MPI program, not as many copies of it as there are tasks: on two nodes if it can.

The program is the library of the module (openmpi, mpich), called from Python: it needs no compiler on any node.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from ..._shared import slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._slurm_jobs import placement, pmix
from ..._slurm_jobs.placement import Placement
from .context import Context, check, skipped

TASKS = 2
EXPECTED = f"one program of {TASKS} processes"
# written by the component environment; without it there is no module to load
MODULES = "/etc/profile.d/deepopsctl-modules.sh"
MEMORY_MB = 500
MARK = "DEEPOPS-MPI"
# handles are addresses in Open MPI's library, and numbers of the common ABI in MPICH's
_OPENMPI = """\
import ctypes
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, number, add = (
    ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.in_dll(mpi, "ompi_mpi_" + name)))
    for name in ("comm_world", "int", "op_sum")
)
"""
_MPICH = """\
import ctypes
mpi = ctypes.CDLL("libmpich.so.12", mode=ctypes.RTLD_GLOBAL)
world, number, add = map(ctypes.c_int, (0x44000000, 0x4C000405, 0x58000003))
"""
# the sum of a 1 of each process, which no process can know without the others
_PROGRAM = """\
size, one, total = ctypes.c_int(), ctypes.c_int(1), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(one), ctypes.byref(total), 1, number, add, world)
print("DEEPOPS-MPI", size.value, total.value, flush=True)
mpi.MPI_Finalize()
"""


class Mpi(NamedTuple):
    """An MPI that has a module: its check, how a program gets at its library, and whether it is started by PMIx."""

    check: str
    module: str
    library: str
    by_pmix: bool

    @property
    def step(self) -> list[str]:
        """What each task runs."""
        script = f'module load {self.module} && exec /usr/bin/python3 -c "$0"'
        return ["bash", "-lc", script, self.library + _PROGRAM]


OPENMPI = Mpi("mpi", "openmpi", _OPENMPI, by_pmix=True)
# the module sets SLURM_MPI_TYPE
MPICH = Mpi("mpi-mpich", "mpich", _MPICH, by_pmix=False)


def verify_openmpi(context: Context) -> list[Check]:
    """One check, where the cluster has the module openmpi."""
    return _verify(context, OPENMPI, pmix.missing(context.snapshot.config))


def verify_mpich(context: Context) -> list[Check]:
    """One check, where the cluster has the module mpich."""
    return _verify(context, MPICH, pmix.pmi2_missing())


def _verify(context: Context, mpi: Mpi, reason: str) -> list[Check]:
    cluster = context.inputs.cluster
    if not os.path.exists(MODULES):
        return [skipped(mpi.check, cluster, "there are no modules yet: `deepopsctl deploy environment`")]
    if reason:
        return [skipped(mpi.check, cluster, reason)]
    where, options = _place(context)
    if where is None:
        return [skipped(mpi.check, cluster, "busy: no room for two tasks")]
    session = context.session
    # what the module of the MPI sets is for srun, so it is loaded here as well
    command = ["bash", "-lc", f'module load {mpi.module} && exec "$@"', "bash"]
    argv = [*command, "srun", *session.common, "--chdir=/", *options, *mpi.step]
    outcome = session.typed(mpi.check, argv)
    if not outcome.ended or outcome.rc != 0:
        status = SKIP if outcome.busy else FAIL
        return [check(mpi.check, cluster, status, "no answer", EXPECTED, message=one_line(outcome.why))]
    default = slurm_output.present(context.snapshot.config.get("MpiDefault")) if mpi.by_pmix else "pmi2"
    return [evaluate(mpi.check, cluster, where, outcome.out, default)]


def _place(context: Context) -> tuple[Placement | None, list[str]]:
    nodes, partitions = context.snapshot.nodes, context.snapshot.partitions
    free = [
        name
        for name in context.names
        if not placement.obstacle(nodes[name], partitions) and _memory_left(nodes[name]) >= MEMORY_MB
    ]
    places = placement.place(free, nodes, partitions)
    pair = next((each for each in places if len(each.nodes) >= TASKS), None)
    if pair:
        where = Placement(pair.partition, pair.nodes[:TASKS])
        return where, _with_memory(where.options())
    single = next((each for each in places if placement.room_for_two(nodes[each.nodes[0]])), None)
    if single is None:
        return None, []
    where = Placement(single.partition, single.nodes[:1])
    return where, [*_with_memory(where.options()), "--ntasks=2", "--ntasks-per-node=2"]


def _memory_left(node: slurm_output.Record) -> int:
    return slurm_output.number(node, "RealMemory") - slurm_output.number(node, "AllocMem")


def _with_memory(options: Sequence[str]) -> list[str]:
    return [*options, f"--mem={MEMORY_MB}M"]


def evaluate(name: str, cluster: str, where: Placement, output: str, default: str) -> Check:
    """The check, from what the processes printed: each knows how many there are, and their sum."""
    answers = [line.split()[1:3] for line in output.splitlines() if line.startswith(MARK + " ")]
    nodes = " and ".join(where.nodes)
    if answers == [[str(TASKS)] * 2] * TASKS:
        return check(name, cluster, PASS, EXPECTED, EXPECTED, message="on " + nodes)
    alone = len(answers) == TASKS and all(size == "1" for size, _sum in answers)
    measured = f"{TASKS} programs of one process" if alone else f"{len(answers)} answers"
    text = f"srun -n {TASKS} on {nodes}, MpiDefault={default or 'none'}"
    return check(name, cluster, FAIL, measured, EXPECTED, message=text)
