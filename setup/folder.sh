#!/usr/bin/env bash
# Makes .NAME, a folder with the packages of setup/NAME.lock and nothing that they need besides, on the path of whoever wants
# them: docs, for the site; types, pyright; zoo, published model libraries for the Python of .venv and of .peer alike; suites, what the test
# suites of some of these import besides; programs, what other people's programs import; onnx, what tests of the export to ONNX run models with.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1
fingerprint=$(cat "setup/$name.lock" setup/folder.sh | sha256sum | cut -d' ' -f1)
[ "$(cat ".$name/facula-setup.stamp" 2>/dev/null)" = "$fingerprint" ] && exit 0
echo "setup: installing the packages of $name.lock into .$name"
rm -rf ".$name"
.venv/bin/python -m pip install --disable-pip-version-check -q --no-deps --require-hashes -r "setup/$name.lock" --target ".$name"
echo "$fingerprint" >".$name/facula-setup.stamp"
