#!/bin/bash -l
# One program with several threads or processes on one node: sbatch multi-core.sh
#SBATCH --job-name=multi-core
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --mem=2G
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

# in some versions of Slurm, srun gives a step one core unless it is asked for more
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
echo "cores: $(srun nproc)"
# programs with OpenMP start as many threads
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

# as many processes as cores, each with its part of the numbers
part='seq "$1" "$SLURM_CPUS_PER_TASK" 1000000 | awk "{sum += \$1} END {printf \"%.0f\n\", sum}"'
seq "$SLURM_CPUS_PER_TASK" |
    xargs --max-procs="$SLURM_CPUS_PER_TASK" --max-args=1 sh -c "$part" part |
    awk '{sum += $1} END {printf "sum of %d parts: %.0f\n", NR, sum}'
