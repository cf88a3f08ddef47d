#!/usr/bin/env bash
# Installs what `make fuzz` needs beside setup.sh: clang with its sanitizers, libFuzzer and OpenMP, of LLVM's version here.
set -euo pipefail
packages="clang-19 libclang-rt-19-dev libomp-19-dev"
if dpkg-query -W -f '${db:Status-Status}\n' $packages 2>/dev/null | grep -c '^installed$' | grep -qx 3; then exit 0; fi
install="apt-get install -y --no-install-recommends $packages"
if [ "$(id -u)" != 0 ]; then
  printf 'Fuzzing needs clang 19. Ask an administrator to run\n\n  sudo %s\n\nand start again.\n' "$install" >&2
  exit 1
fi
echo "setup: installing Debian's packages: $packages"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo "setup: the package lists could not be renewed; trying with the old ones" >&2
$install -qq >/dev/null
