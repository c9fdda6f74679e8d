#!/bin/bash -l
# One GPU with some cores: sbatch gpu.sh
# A type of GPU: --gpus=h100:1 (`partition-stats` shows what there is). Where GPUs have a partition of their own: --partition=NAME
#SBATCH --job-name=gpu
#SBATCH --gpus=1
#SBATCH --cpus-per-task=2
#SBATCH --time=00:10:00
#SBATCH --mem=4G
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

# the job's own GPUs, counted from 0; programs see no others
echo "GPUs: $CUDA_VISIBLE_DEVICES"
if command -v nvidia-smi > /dev/null; then
    nvidia-smi
fi
