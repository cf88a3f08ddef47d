#!/usr/bin/env bash
# Makes .zoo, a folder of published model libraries, for the Python of .venv and of .peer alike.
set -euo pipefail
cd "$(dirname "$0")/.."
fingerprint=$(cat setup/zoo.lock setup/zoo.sh | sha256sum | cut -d' ' -f1)
[ "$(cat .zoo/facula-setup.stamp 2>/dev/null)" = "$fingerprint" ] && exit 0
echo "setup: installing model libraries into .zoo"
rm -rf .zoo
.venv/bin/python -m pip install --disable-pip-version-check -q --no-deps --require-hashes -r setup/zoo.lock --target .zoo
echo "$fingerprint" >.zoo/facula-setup.stamp
