#!/usr/bin/env bash
# Installs what building, testing and using Facula needs: Debian's packages of apt.txt (as root; otherwise it prints the
# command for an administrator) and the Python environment .venv (or VENV) of requirements.txt. Does nothing where nothing is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3} venv=${VENV:-.venv}
stamp=$venv/facula-setup.stamp

fingerprint() { { cat setup/apt.txt setup/requirements.* setup/setup.sh; pwd; } | sha256sum | cut -d' ' -f1; }
if [ -x "$venv/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint)" ]; then exit 0; fi

if command -v dpkg-query >/dev/null; then
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p' | sort -u)
  missing=$(comm -23 <(grep -v '^#' setup/apt.txt | sort -u) <(echo "$installed") | xargs)
  if [ -n "$missing" ]; then
    install="apt-get install -y --no-install-recommends $missing"
    if [ "$(id -u)" != 0 ]; then
      printf 'Some of Debian'\''s packages are missing. Ask an administrator to run\n\n  sudo %s\n\nand start again.\n' \
        "$install" >&2
      exit 1
    fi
    echo "setup: installing Debian's packages: $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || echo "setup: the package lists could not be renewed; trying with the old ones" >&2
    $install -qq >/tmp/facula-apt.$$ 2>&1 || { tail -n 20 /tmp/facula-apt.$$ >&2; rm -f /tmp/facula-apt.$$; exit 1; }
    rm -f /tmp/facula-apt.$$
  fi
else
  echo "setup: this is no Debian: make sure that there is what these Debian packages hold: $(xargs <setup/apt.txt)" >&2
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "setup: Facula needs Python 3.11 or newer, $python is $("$python" -V 2>&1). Set PYTHON to another one." >&2; exit 1; }
if ! "$venv/bin/python" -c '' 2>/dev/null; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
fi
echo "setup: installing Python packages into $venv"
# With the digest of every file, for the Pythons of setup/lock.py.
if "$venv/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' && [ "$(uname -m)" = x86_64 ]; then
  packages="--require-hashes -r setup/requirements.lock"
else
  echo "setup: no digests are recorded for this Python: its packages are taken by their versions" >&2
  packages="-r setup/requirements.txt"
fi
"$venv/bin/python" -m pip install --disable-pip-version-check -q $packages
fingerprint >"$stamp"
