#!/usr/bin/env bash
# debian.sh PURPOSE PACKAGE...: installs Debian's packages that a special purpose needs, unless they are installed.
set -euo pipefail
purpose=$1
shift
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | grep -c '^installed ' || true)
if [ "$installed" = $# ]; then exit 0; fi
install="apt-get install -y --no-install-recommends $*"
if [ "$(id -u)" != 0 ]; then
  printf '%s needs packages of Debian. Ask an administrator to run\n\n  sudo %s\n\nand start again.\n' "$purpose" "$install" >&2
  exit 1
fi
echo "setup: installing Debian's packages: $*"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo "setup: the package lists could not be renewed; trying with the old ones" >&2
$install -qq >/dev/null
