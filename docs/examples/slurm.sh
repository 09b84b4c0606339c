#!/bin/bash
#SBATCH --job-name=shrink
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --requeue
# One task per node has all of its GPUs. The store has to be on a disk that all nodes share.
export SHRINK_CACHE_DIR="$SLURM_SUBMIT_DIR/store"
srun --kill-on-bad-exit=0 shrink run recipes/cifar10.yaml --output runs/cifar10
