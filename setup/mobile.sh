#!/usr/bin/env bash
# Installs what `make mobile` needs beside setup.sh: compilers for 64-bit and 32-bit ARM with Linux (and 32-bit ARM with Android's
# calling convention), their emulator, clang for objects of iOS, and a JDK (1.2 GB).
exec "$(dirname "$0")/debian.sh" "Code for phones" gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf \
  libc6-dev-armhf-cross gcc-arm-linux-gnueabi libc6-dev-armel-cross qemu-user clang-19 default-jdk-headless
