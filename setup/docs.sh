#!/usr/bin/env bash
# Makes .docs, a folder of what `make docs` needs, for the Python of .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
fingerprint=$(cat setup/docs.lock setup/docs.sh | sha256sum | cut -d' ' -f1)
[ "$(cat .docs/facula-setup.stamp 2>/dev/null)" = "$fingerprint" ] && exit 0
echo "setup: installing what makes the site of the documentation into .docs"
rm -rf .docs
.venv/bin/python -m pip install --disable-pip-version-check -q --no-deps --require-hashes -r setup/docs.lock --target .docs
echo "$fingerprint" >.docs/facula-setup.stamp
