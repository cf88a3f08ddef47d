#!/usr/bin/env bash
# Makes .zoo, a folder of published model libraries, for the Python of .venv and of .peer alike; with the argument
# `suites` .suites, a folder of what the test suites of some of them import besides.
set -euo pipefail
cd "$(dirname "$0")/.."
name=${1:-zoo}
fingerprint=$(cat "setup/$name.lock" setup/zoo.sh | sha256sum | cut -d' ' -f1)
[ "$(cat ".$name/facula-setup.stamp" 2>/dev/null)" = "$fingerprint" ] && exit 0
echo "setup: installing the packages of $name.lock into .$name"
rm -rf ".$name"
.venv/bin/python -m pip install --disable-pip-version-check -q --no-deps --require-hashes -r "setup/$name.lock" --target ".$name"
echo "$fingerprint" >".$name/facula-setup.stamp"
