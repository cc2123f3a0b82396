#!/bin/sh
# Builds the peers' environment, .venv-bench at the root of the repository; a second run finds it and does nothing.
# PYTHON names the interpreter (3.11 or 3.12: PECOS and numpy 1.26 have wheels for no later one).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
venv="$here/../.venv-bench"
wanted="$here/requirements-peers.txt"
installed="$venv/requirements-installed.txt"

if cmp -s "$wanted" "$installed"; then
    exit 0
fi
echo "building the peers' environment in .venv-bench" >&2
"${PYTHON:-python3}" -m venv --clear "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$wanted"
"$venv/bin/python" -c "import libmultilabel.linear, napkinxc.models, omikuji, pecos.xmc.xlinear"
cp "$wanted" "$installed"
