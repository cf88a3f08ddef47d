#!/usr/bin/env bash
# Installs what `make tiny` needs beside setup.sh: compilers for Cortex-M and RISC-V, C libraries, and emulators (2.4 GB).
exec "$(dirname "$0")/debian.sh" "Code for microcontrollers" gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm \
  gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf qemu-system-misc
