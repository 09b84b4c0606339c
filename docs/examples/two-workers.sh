#!/bin/bash
# Two workers on this machine, to try it: run from the folder that holds recipes/.
set -e
export SHRINK_CACHE_DIR=${SHRINK_CACHE_DIR:-/tmp/shrink-shared}
worker() {
  export TF_CONFIG='{"cluster": {"worker": ["127.0.0.1:4001", "127.0.0.1:4002"]},
    "task": {"type": "worker", "index": '"$1"'}}'
  shrink run recipes/digits-train.yaml --output runs/together
}
(worker 1) &
(worker 0)
wait
