"""The checks of the suite `smoke` by name, as docs/reference/validate-smoke.md defines them."""

from __future__ import annotations

from deepopsctl.checks.catalogue.entry import Entry

_LOGS = "see `journalctl -u {unit}` on {where}; `deepopsctl deploy` starts what should run"

SMOKE = {
    "reachable": Entry(
        "Nodes", "reachable", "The node answers over SSH.",
        "is the node up, and its address in cluster.yml right? `deepopsctl ssh setup` pins new host keys", "SSH",
    ),
    "suite-ran": Entry(
        "Nodes", "suite ran", "The node could be examined at all.",
        "see the message; the whole log: `deepopsctl runs show`",
    ),
    "services": Entry(
        "Nodes", "services active", "The daemons that the node's roles need are active.",
        _LOGS.format(unit="UNIT", where="the node"), "services",
    ),
    "clock": Entry(
        "Nodes", "clock", "The node's clock agrees with the submit host's.",
        "see `chronyc sources` on the node; munge refuses credentials that are 300 s old",
    ),
    "munge-local": Entry(
        "Nodes", "munge on the node", "A munge credential decodes where it was made.",
        _LOGS.format(unit="munge", where="the node"), "munge",
    ),
    "munge-across": Entry(
        "Nodes", "munge across nodes", "Credentials decode on the submit host, and the submit host's on the node.",
        "all nodes need the same /etc/munge/munge.key: `deepopsctl deploy` restores it", "munge across",
    ),
    "controller-answers": Entry(
        "Slurm", "slurmctld answers", "Every controller answers `scontrol ping`.",
        _LOGS.format(unit="slurmctld", where="the controller"),
    ),
    "accounting-answers": Entry(
        "Slurm", "slurmdbd answers", "The accounting daemon answers and knows this cluster.",
        _LOGS.format(unit="slurmdbd", where="its host") + "; is MariaDB up?",
    ),
    "node-state": Entry(
        "Slurm", "node state", "Slurm would start jobs on the node.",
        "fix the reason, then `scontrol update nodename=NODE state=resume`", "state",
    ),
    "slurm-version": Entry(
        "Slurm", "Slurm version", "The node runs its controller's version of Slurm.",
        "install one version: `deepopsctl deploy`", "version",
    ),
    "node-cpus": Entry(
        "Slurm", "CPUs", "Slurm schedules the CPUs that hardware.yml has and the node still has.",
        "if the hardware was changed, delete its line in hardware.yml and deploy; if not, look for a failed part",
    ),
    "node-memory": Entry(
        "Slurm", "memory", "Slurm promises jobs no more memory than the node has.",
        "if the hardware was changed, delete its line in hardware.yml and deploy; if not, look for a failed DIMM",
    ),
    "node-gpus": Entry(
        "Slurm", "GPUs", "Slurm schedules the GPUs that cluster.yml declares, and their device files exist.",
        "compare `gpus:` in cluster.yml with `ls /dev/nvidia*` on the node; deploy after a change",
    ),
    "partition": Entry(
        "Slurm", "partition", "The partition has the nodes, the default flag and the time limit of cluster.yml.",
        "after a change in cluster.yml: `deepopsctl deploy`; a change made with scontrol ends with slurmctld's restart",
    ),
    "node-answers": Entry(
        "Jobs", "a job on the node", "`srun` on all nodes returns the node's own name.",
        "try `srun -w NODE hostname`; " + _LOGS.format(unit="slurmd", where="the node"), "job",
    ),
    "batch-output": Entry(
        "Jobs", "batch job", "A batch job's output arrives where it ran.",
        "does the user's home exist on the node, and may the user write there?",
    ),
    "job-array": Entry(
        "Jobs", "job array", "Every task of an array runs, with an index of its own.",
        "see `scontrol show config | grep MaxArraySize` and slurmctld's log",
    ),
    "job-directories": Entry(
        "Jobs", "job directories", "Each of two jobs of one user has a $SLURM_TMPDIR of its own, which goes with it.",
        "see `journalctl -t slurmd` and -t deepopsctl-epilog on the node; `deepopsctl deploy` restores the scripts",
        "own directory",
    ),
    "mpi": Entry(
        "Jobs", "MPI", "`module load openmpi; srun -n 2 ./program` is one program of two processes, on two nodes.",
        "`scontrol show config | grep MpiDefault` should say pmix, and `srun --mpi=list` name it; else "
        "`deepopsctl deploy slurm`", "MPI",
    ),
    "mpi-mpich": Entry(
        "Jobs", "MPICH", "`module load mpich; srun -n 2 ./program` is one program of two processes, on two nodes.",
        "`srun --mpi=list` has to name pmi2, which the module chooses (SLURM_MPI_TYPE)", "MPI",
    ),
    "environments": Entry(
        "Jobs", "Python environments", "A job loads each environment of Python packages, and imports what it is for.",
        "load it on that node: `module load NAME/VERSION; python -c 'import PACKAGE'`; `deepopsctl deploy environment` "
        "builds what is missing", "Python environments",
    ),
    "gpu-assignment": Entry(
        "Jobs", "GPU assignment", "Two jobs at once get different GPUs, and CUDA_VISIBLE_DEVICES says so.",
        "compare gres.conf with the device files; `scontrol show job -d ID` shows what Slurm chose", "own GPU",
    ),
    "confinement": Entry(
        "Confinement", "set up", "Slurm is set up to keep jobs in their cores, memory and devices.",
        "jobs share what they should not with `slurm_confinement: none`",
    ),
    "cpu-confinement": Entry(
        "Confinement", "cores", "A job can't move to a core outside its allocation (tested).",
        "ConstrainCores=yes in cgroup.conf, task/cgroup in TaskPlugin, slurmd restarted", "cores kept",
    ),
    "memory-confinement": Entry(
        "Confinement", "memory", "A job that uses more than its --mem is stopped (tested).",
        "ConstrainRAMSpace=yes in cgroup.conf, task/cgroup in TaskPlugin, slurmd restarted", "memory kept",
    ),
    "gpu-confinement": Entry(
        "Confinement", "GPUs", "A job can't open a GPU outside its allocation (tested).",
        "ConstrainDevices=yes in cgroup.conf, File= in gres.conf, slurmd restarted", "GPUs kept",
    ),
    "over-ask-nodes": Entry(
        "Refusals", "too many nodes", "A job for more nodes than there are is refused at once.",
        "set EnforcePartLimits=ALL in `slurm_config:`",
    ),
    "over-ask-cpus": Entry(
        "Refusals", "too many CPUs", "A job for more CPUs than a node has is refused at once.",
        "see the message; is slurmctld up?",
    ),
    "over-ask-memory": Entry(
        "Refusals", "too much memory", "A job for more memory than a node has is refused at once.",
        "SelectTypeParameters must count memory (CR_Core_Memory)",
    ),
    "over-ask-gpus": Entry(
        "Refusals", "too many GPUs", "A job for more GPUs than a node has is refused at once.",
        "see `gpus:` in cluster.yml and GresTypes in slurm.conf",
    ),
    "over-ask-time": Entry(
        "Refusals", "too much time", "A job longer than its partition's limit is refused at once.",
        "set EnforcePartLimits=ALL in `slurm_config:`",
    ),
    "guide-own": Entry(
        "Users' guide", "own guide's script", "The first job of the guide of `docs users` is accepted and runs.",
        "submit it as a user; where hardware or partitions changed since, write the guide again",
    ),
    "guide-interactive": Entry(
        "Users' guide", "interactive shell", "`srun -N 1 --gpus=1 -t 01:00:00 --pty bash` gives a shell with a GPU.",
        "type the command on the submit host; a shell's start-up files may end it",
    ),
    "guide-two-nodes": Entry(
        "Users' guide", "GPU on two nodes", "`srun -N 2 --gpus-per-node=1 nvidia-smi` answers from two nodes.",
        "type the command on the submit host",
    ),
    "guide-batch": Entry(
        "Users' guide", "batch script", "The script with --gres, --cpus-per-task, --mem and --time runs.",
        "submit the guide's script with sbatch and read its slurm-ID.out",
    ),
    "accounting-association": Entry(
        "Accounting", "user's account", "The user may charge an account.",
        "`sacctmgr add user NAME account=ACCOUNT`, or list the user under `slurm_accounts_users:` and deploy",
    ),
    "accounting-jobs": Entry(
        "Accounting", "jobs recorded", "The database has this validation's jobs: user, account, state, exit code.",
        "see `sacctmgr show cluster` and slurmctld's log for messages to slurmdbd that wait",
    ),
    "accounting-array": Entry(
        "Accounting", "array recorded", "The database has every task of the job array.",
        "see `sacctmgr show cluster` and slurmctld's log for messages to slurmdbd that wait",
    ),
}  # fmt: skip
