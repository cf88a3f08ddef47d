#!/usr/bin/env bash
# Makes .peer, the Python environment of the library that the benchmarks compare with. Facula never uses it.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=torch==2.13.0
stamp=.peer/facula-setup.stamp
fingerprint=$(cat setup/peer.txt setup/peer.lock setup/peer.sh | sha256sum | cut -d' ' -f1)
[ "$(cat $stamp 2>/dev/null)" = "$fingerprint" ] && exit 0

[ -x .peer/bin/python ] || .venv/bin/python -m venv .peer
pip() { .peer/bin/python -m pip install --disable-pip-version-check -q "$@"; }
echo "setup: installing $torch into .peer"
if [ "$(uname -m)" = x86_64 ] && .peer/bin/python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
  pip --require-hashes -r setup/peer.lock
else
  echo "setup: no digests are recorded for this Python: its packages are taken by their versions" >&2
  pip -r setup/peer.txt
fi
pip --no-deps $torch
# A wheel built for GPUs does not start without their libraries, even to run on the CPU.
.peer/bin/python -c 'import torch' 2>/dev/null || pip $torch
echo "$fingerprint" >$stamp
