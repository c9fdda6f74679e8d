"""Whether a plain `srun` starts one MPI program, not as many copies of it as there are tasks: on two nodes if it can.

The program is the library of the module openmpi, called from Python: it needs no compiler on any node.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..._shared import slurm_output
from ..._shared.checks import FAIL, PASS, SKIP, Check, one_line
from ..._slurm_jobs import placement, pmix
from ..._slurm_jobs.placement import Placement
from .context import Context, check, skipped

CHECK = "mpi"
TASKS = 2
EXPECTED = f"one program of {TASKS} processes"
# written by the component environment; without it there is no module to load
MODULES = "/etc/profile.d/deepopsctl-modules.sh"
MEMORY_MB = 500
MARK = "DEEPOPS-MPI"
# the sum of a 1 of each process, which no process can know without the others
_PROGRAM = """\
import ctypes
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
world, number, add = (
    ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.in_dll(mpi, "ompi_mpi_" + name)))
    for name in ("comm_world", "int", "op_sum")
)
size, one, total = ctypes.c_int(), ctypes.c_int(1), ctypes.c_int()
mpi.MPI_Init(None, None)
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(one), ctypes.byref(total), 1, number, add, world)
print("DEEPOPS-MPI", size.value, total.value, flush=True)
mpi.MPI_Finalize()
"""
_STEP = 'module load openmpi && exec /usr/bin/python3 -c "$0"'


def verify_mpi(context: Context) -> list[Check]:
    """One check, where the cluster has the module openmpi."""
    cluster = context.inputs.cluster
    if not os.path.exists(MODULES):
        return [skipped(CHECK, cluster, "there are no modules yet: `deepopsctl deploy environment`")]
    config = context.snapshot.config
    reason = pmix.missing(config)
    if reason:
        return [skipped(CHECK, cluster, reason)]
    where, options = _place(context)
    if where is None:
        return [skipped(CHECK, cluster, "busy: no room for two tasks")]
    session = context.session
    outcome = session.typed("mpi", ["srun", *session.common, "--chdir=/", *options, "bash", "-lc", _STEP, _PROGRAM])
    if not outcome.ended or outcome.rc != 0:
        status = SKIP if outcome.busy else FAIL
        return [check(CHECK, cluster, status, "no answer", EXPECTED, message=one_line(outcome.why))]
    return [evaluate(cluster, where, outcome.out, slurm_output.present(config.get("MpiDefault")))]


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


def evaluate(cluster: str, where: Placement, output: str, default: str) -> Check:
    """The check, from what the processes printed: each knows how many there are, and their sum."""
    answers = [line.split()[1:3] for line in output.splitlines() if line.startswith(MARK + " ")]
    nodes = " and ".join(where.nodes)
    if answers == [[str(TASKS)] * 2] * TASKS:
        return check(CHECK, cluster, PASS, EXPECTED, EXPECTED, message="on " + nodes)
    alone = len(answers) == TASKS and all(size == "1" for size, _sum in answers)
    measured = f"{TASKS} programs of one process" if alone else f"{len(answers)} answers"
    text = f"srun -n {TASKS} on {nodes}, MpiDefault={default or 'none'}"
    return check(CHECK, cluster, FAIL, measured, EXPECTED, message=text)
