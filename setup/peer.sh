#!/usr/bin/env bash
# Makes .peer, the Python environment of the library that the benchmarks compare with. Facula never uses it.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=torch==2.13.0
stamp=.peer/facula-setup.stamp
fingerprint=$(cat setup/peer.txt setup/peer.sh | sha256sum | cut -d' ' -f1)
[ "$(cat $stamp 2>/dev/null)" = "$fingerprint" ] && exit 0

[ -x .peer/bin/python ] || .venv/bin/python -m venv .peer
pip() { .peer/bin/python -m pip install --disable-pip-version-check -q "$@"; }
echo "setup: installing $torch into .peer"
pip -r setup/peer.txt
pip --no-deps $torch
# A wheel built for GPUs does not start without their libraries, even to run on the CPU.
.peer/bin/python -c 'import torch' 2>/dev/null || pip $torch
echo "$fingerprint" >$stamp
