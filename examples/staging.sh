#!/bin/bash -l
# Data on the node's own disk: an archive is unpacked there, results come back, also before the time limit: sbatch staging.sh
#SBATCH --job-name=staging
#SBATCH --time=00:10:00
#SBATCH --mem=1G
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:USR1@120
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV
set -e
# for sites without directories of jobs
export SLURM_TMPDIR=${SLURM_TMPDIR:-$(mktemp -d)}

# your archive is there already, in $SCRATCH or $PROJECT
seq 1000 > staging-numbers.txt
tar -czf staging-data.tar.gz staging-numbers.txt

stage-in staging-data.tar.gz

here=$PWD
cd "$SLURM_TMPDIR"
# in the background: the script waits, so that the signal is handled at once
echo "lines: $(wc -l < staging-numbers.txt)" > staging-result.txt &
program=$!
# without --to results go to $SCRATCH
trap 'kill $program; stage-out --to "$here" staging-result.txt; exit 1' USR1
wait $program
stage-out --to "$here" staging-result.txt
