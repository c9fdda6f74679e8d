#!/bin/bash -l
# Training on several nodes, which continues where it was: sbatch train.sh ddp   (or fsdp, accelerate, deepspeed)
# What follows is handed on: sbatch train.sh ddp --steps 100000 --batch 1024
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=2
# all GPUs of a node: --gpus-per-node=8, and as many --cpus-per-task as they need to be fed
#SBATCH --mem=4G
#SBATCH --time=01:00:00
# a job that is preempted, or whose node fails, continues from the last checkpoint
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

# the environment that has torch: `module avail` shows those of this cluster
module load "${TRAIN_MODULE:-dl}"
method=${1:-ddp}
code=$SLURM_SUBMIT_DIR
# a checkpoint is read by all nodes: on a file system that they share; a requeued job has the same number
checkpoint=$SLURM_SUBMIT_DIR/checkpoint-$SLURM_JOB_ID.pt

options=(--checkpoint "$checkpoint")
# Data goes to each node's own disk, once a job: TRAIN_DATA=/project/me/samples.pt sbatch --export=TRAIN_DATA train.sh
if [ -n "$TRAIN_DATA" ] && [ -n "$SLURM_TMPDIR" ]; then
    sbcast --force "$TRAIN_DATA" "$SLURM_TMPDIR/samples.pt" || exit 1
    options+=(--data "$SLURM_TMPDIR/samples.pt")
fi
# two minutes before the time is up, the program saves and ends
end=$(squeue --noheader --jobs "$SLURM_JOB_ID" --format=%e)
until=$(($(date --date="$end" +%s) - ${TRAIN_MARGIN:-120}))

srun --kill-on-bad-exit=1 bash "$code/launch.sh" "train_$method.py" "${options[@]}" --until "$until" "${@:2}"
status=$?
if [ "$status" -ne 0 ] && [ "$(date +%s)" -gt "$until" ]; then
    # back to the queue: it starts again with the same number, and continues from its checkpoint
    scontrol requeue "$SLURM_JOB_ID"
else
    exit "$status"
fi
