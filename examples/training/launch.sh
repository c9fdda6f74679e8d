#!/bin/bash
# Starts torchrun on this node of a job, with one process a GPU: srun --ntasks-per-node=1 launch.sh train_ddp.py [OPTION]...
# On CPUs: PROCESSES=4 (by default 1). ALONE=yes starts it on each node for itself.
here=$(dirname "$(readlink -f "$0")")
processes=${PROCESSES:-${SLURM_GPUS_ON_NODE:-1}}
cores=$(nproc)
python=$(command -v python || command -v python3)
# the cores of the job are shared by its processes; without this each of them would use all
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > processes ? cores / processes : 1))}
# DeepSpeed compiles parts of itself: on this node's disk, not in a home that all nodes share
export TORCH_EXTENSIONS_DIR=${TORCH_EXTENSIONS_DIR:-${SLURM_TMPDIR:-/tmp/$USER}/torch-extensions}

if [ -n "$ALONE" ] || [ "${SLURM_JOB_NUM_NODES:-1}" -eq 1 ]; then
    exec "$python" -m torch.distributed.run --nnodes=1 --nproc-per-node="$processes" --master-addr=127.0.0.1 \
        --master-port=$((20000 + ${SLURM_JOB_ID:-0} % 20000)) "$here/$1" "${@:2}"
fi

# The first node of the job is where the processes meet, by the address that Slurm has of it.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(scontrol --oneliner show node "$first" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
address=$(getent ahosts "${address:-$first}" | awk 'NR == 1 { print $1 }')
# gloo would take the interface of the node's own name, which on Debian is the loopback's
own=$(ip -oneline route get "$address" | sed -n 's/.* src \([^ ]*\).*/\1/p')
export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$(ip -oneline address show to "$own" | awk 'NR == 1 { print $2 }')}
exec "$python" -m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" --node-rank="$SLURM_NODEID" \
    --nproc-per-node="$processes" --master-addr="$address" --master-port=$((20000 + SLURM_JOB_ID % 20000)) \
    "$here/$1" "${@:2}"
