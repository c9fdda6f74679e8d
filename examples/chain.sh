#!/bin/bash
# Jobs one after the other. Run this on a login node, it is not a job itself: bash chain.sh
# Options for all jobs of the chain: bash chain.sh --partition=NAME
set -e
here=$(dirname "$0")

first=$(sbatch --parsable "$@" "$here/chain-first.sh")
# starts only when the first has ended well; if that failed, this one is cancelled
second=$(sbatch --parsable --dependency=afterok:"${first%;*}" --kill-on-invalid-dep=yes "$@" "$here/chain-second.sh")
echo "jobs: ${first%;*} ${second%;*}"
