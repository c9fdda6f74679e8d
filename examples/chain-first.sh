#!/bin/bash -l
# The first job of a chain, submitted by chain.sh: it prepares data.
#SBATCH --job-name=chain-first
#SBATCH --time=00:10:00
#SBATCH --mem=1G
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV
# a command that fails ends the job, so that the next one does not start
set -e

seq 1000 > chain-data.txt
echo "written: $(wc -l < chain-data.txt) lines"
