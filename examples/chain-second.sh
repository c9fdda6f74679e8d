#!/bin/bash -l
# The second job of a chain, submitted by chain.sh: it works on what the first has left.
#SBATCH --job-name=chain-second
#SBATCH --time=00:10:00
#SBATCH --mem=1G
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV
set -e

echo "read: $(wc -l < chain-data.txt) lines"
