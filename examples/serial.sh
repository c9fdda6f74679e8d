#!/bin/bash -l
# One core, the simplest job: sbatch serial.sh
#SBATCH --job-name=serial
#SBATCH --time=00:10:00
#SBATCH --mem=1G
#SBATCH --output=%x-%j.out
# The job has the environment of a new login, whatever the shell has that submits it.
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

echo "job $SLURM_JOB_ID runs on $(hostname)"
# your program comes here
seq 1000000 | awk '{sum += $1} END {printf "sum: %.0f\n", sum}'
