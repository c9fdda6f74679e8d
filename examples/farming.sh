#!/bin/bash -l
# Many short cases in one job, as many at a time as it has cores (GNU parallel): sbatch farming.sh
# For cases of less than some minutes, an array would start a job for each.
#SBATCH --job-name=farming
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --mem=2G
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

# Submitted again, it runs only the cases that have failed or are not in the log yet.
parallel --jobs "$SLURM_CPUS_PER_TASK" --joblog farming.log --resume-failed \
    'echo "case {}: $(({} * {}))"' ::: {1..20}
