#!/usr/bin/env bash
# install.sh CLIENT DIRECTORY: the pinned version of an agent, its commands in DIRECTORY/bin. Does nothing when
# DIRECTORY exists.
#
# DIRECTORY appears only when the agent says its version; an installation that was interrupted is done again.
set -euo pipefail
client=$1 directory=$2

mkdir -p "$(dirname "$directory")"
exec 9>"$directory.lock"
flock 9
[ -d "$directory/bin" ] && exit 0
[ -e "$directory" ] && { echo "$directory is there and no agent: name another place or remove it" >&2; exit 1; }
building=$directory.building
rm -rf "$building"

npm_install() {
    command -v npm >/dev/null || { echo "there is no npm" >&2; exit 1; }
    npm install --silent --no-save --no-audit --no-fund --prefix "$building" "$@"
    ln -s node_modules/.bin "$building/bin"
}

pip_install() {
    for python in python3.13 python3.12 "$(pyenv root 2>/dev/null)"/versions/3.1[2-9]*/bin/python; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
            "$python" -m venv "$building"
            "$building/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
            return
        fi
    done
    echo "there is no Python 3.12 or later" >&2
    exit 1
}

case $client in
openhands) pip_install openhands-sdk==1.58.2 openhands-tools==1.58.2 litellm==1.105.7 && says=(python -c 'import openhands.tools.terminal') ;;
opencode) npm_install opencode-ai@1.18.33 && says=(opencode --version) ;;
codex) npm_install @openai/codex@0.171.0 && says=(codex --version) ;;
pi) npm_install @mariozechner/pi-coding-agent@0.73.1 && says=(pi --version) ;;
claude-code) npm_install @anthropic-ai/claude-code@2.1.332 node@22 && says=(claude --version) ;;
*) echo "there is no client $client" >&2; exit 1 ;;
esac
PATH=$building/bin:$PATH HOME=$building "${says[@]}" >&2
mv "$building" "$directory"
