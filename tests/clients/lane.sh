#!/usr/bin/env bash
# lane.sh PYTEST [option of pytest ...]: let real agents work through the proxy, without a network where that can be had.
# They are installed on first use. Claude Code, which is proprietary, takes part only where somebody installed it with
# `install.sh claude-code "$SWITCHYARD_CLIENTS/claude-code"`.
#
# SWITCHYARD_CLIENTS  where the agents are or will be installed (default: under the user's cache directory, for all clones)
# REQUIRE_LANES       if it names `clients`, an agent that cannot be installed is a failure instead of a skip
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export SWITCHYARD_CLIENTS=${SWITCHYARD_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/switchyard_py/clients}

for client in openhands opencode codex pi; do
    if trouble=$("$here/install.sh" "$client" "$SWITCHYARD_CLIENTS/$client" 2>&1); then
        continue
    fi
    case ",${REQUIRE_LANES:-}," in
    *[,\ ]clients[,\ ]*) verdict=failed ;;
    *) verdict=skipped ;;
    esac
    echo "lane clients, $client $verdict: it cannot be installed: $(tail -n 3 <<<"$trouble")" >&2
    [ "$verdict" = skipped ] || exit 1
done

offline=(unshare --map-root-user --net sh -c 'PATH=$PATH:/usr/sbin:/sbin ip link set lo up && exec "$@"' sh)
if "${offline[@]}" true 2>/dev/null; then
    export SWITCHYARD_OFFLINE=1
else
    echo "lane clients: this machine has no network namespaces for us, so the agents could reach a network" >&2
    offline=()
fi
exec "${offline[@]}" "$@" "$here"
