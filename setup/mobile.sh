#!/usr/bin/env bash
# Installs what `make mobile` needs beside setup.sh: compilers for 64-bit and 32-bit ARM with Linux, and their emulator (438 MB).
exec "$(dirname "$0")/debian.sh" "Code for phones" gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf \
  libc6-dev-armhf-cross qemu-user
