#!/bin/bash -l
# Work that takes longer than a job may: the job saves a checkpoint before its time is up, goes back to the queue,
# and continues from the checkpoint. Number of steps, each of a second, for a try: sbatch checkpoint.sh 7200
#SBATCH --job-name=checkpoint
#SBATCH --time=00:30:00
#SBATCH --mem=1G
# USR1 to this script, 300 seconds before the time is up (Slurm may send it up to a minute earlier)
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
# a start writes behind what the one before it has written
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
#SBATCH --export=NONE
unset SLURM_EXPORT_ENV

steps=${1:-7200}
# a job that was requeued has the same number
checkpoint=checkpoint-$SLURM_JOB_ID.txt

save() {
    # never half a checkpoint: written under another name, then renamed
    echo "$1" > "$checkpoint.new" && mv "$checkpoint.new" "$checkpoint"
}

# Stands for your program: it reads its checkpoint, saves one from time to time, and one more when it gets USR1.
program() {
    local step=0 stop=
    trap 'stop=yes' USR1
    if [ -e "$checkpoint" ]; then
        step=$(< "$checkpoint")
    fi
    echo "start $((${SLURM_RESTART_COUNT:-0} + 1)) from step $step"
    while [ "$step" -lt "$steps" ] && [ -z "$stop" ]; do
        sleep 1
        step=$((step + 1))
        if [ $((step % 60)) -eq 0 ]; then
            save "$step"
        fi
    done
    save "$step"
    echo "saved step $step"
}

# In the background: bash acts on a signal only while it waits.
program &
pid=$!
time_is_up=
trap 'time_is_up=yes; kill -USR1 "$pid"' USR1
wait "$pid"
status=$?

if [ -n "$time_is_up" ]; then
    # the signal has ended the first wait
    wait "$pid"
    # waits two minutes or more in the queue, then starts this script again
    scontrol requeue "$SLURM_JOB_ID"
else
    echo "ended with status $status"
    exit "$status"
fi
