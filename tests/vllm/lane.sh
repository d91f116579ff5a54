#!/usr/bin/env bash
# lane.sh PYTEST [option of pytest ...]: run the tests of this directory against a real vLLM, installed on first use.
#
# SWITCHYARD_VLLM_VENV  where vLLM is or will be installed (default: under the user's cache directory, for all clones)
# REQUIRE_LANES         if it names `vllm`, a lane that cannot run is a failure instead of a skip
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}
export SWITCHYARD_VLLM_VENV=${SWITCHYARD_VLLM_VENV:-$cache/switchyard_py/vllm-0.32.0}

if [ ! -x "$SWITCHYARD_VLLM_VENV/bin/python" ]; then
    echo "installing vLLM into $SWITCHYARD_VLLM_VENV; this takes a few minutes"
fi
if ! trouble=$("$here/install.sh" "$SWITCHYARD_VLLM_VENV" 2>&1); then
    case ",${REQUIRE_LANES:-}," in
    *[,\ ]vllm[,\ ]*) verdict=failed status=1 ;;
    *) verdict=skipped status=0 ;;
    esac
    echo "lane vllm $verdict: vLLM cannot be installed: $(tail -n 3 <<<"$trouble")" >&2
    exit $status
fi
exec "$@" "$here"
