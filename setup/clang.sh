#!/usr/bin/env bash
# Installs what `make fuzz` needs beside setup.sh: clang with its sanitizers, libFuzzer and OpenMP, of LLVM's version here.
exec "$(dirname "$0")/debian.sh" Fuzzing clang-19 libclang-rt-19-dev libomp-19-dev
