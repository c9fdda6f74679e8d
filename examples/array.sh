#!/bin/bash -l
# The same job with many parameters: ten tasks, four at a time: sbatch array.sh
#SBATCH --job-name=array
#SBATCH --array=1-10%4
#SBATCH --time=00:10:00
#SBATCH --mem=1G
# %A is the number of the array, %a that of the task
#SBATCH --output=%x-%A_%a.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

rates=(0.3 0.1 0.03 0.01 0.003 0.001 0.0003 0.0001 0.00003 0.00001)
rate=${rates[SLURM_ARRAY_TASK_ID - 1]}
echo "task $SLURM_ARRAY_TASK_ID: rate $rate"
