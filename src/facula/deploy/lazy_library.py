#!/usr/bin/env python3
"""Writes functions that load a library at the first call of one of them, and continue in the library's
function of the same name.

Those functions are written that one group of object files defines, which become the library, and that another
group, the program, calls. Programs so have no second list of them, and call them as if they were linked in.
"""

import argparse
import subprocess
from pathlib import Path

# The registers of arguments are preserved; arguments on the stack stay where they are. Exceptions of the
# search pass through.
FUNCTION = """
.section .text.{name},"ax",@progbits
.globl {name}
.hidden {name}
.type {name}, @function
{name}:
  .cfi_startproc
  movq .Laddress_{number}(%rip), %r11
  testq %r11, %r11
  je .Lsearch_{number}
  jmp *%r11
.Lsearch_{number}:
  leaq .Lname_{number}(%rip), %r10
  call facula_search_library
  movq %r11, .Laddress_{number}(%rip)
  jmp *%r11
  .cfi_endproc
.size {name}, .-{name}
.section .rodata.{name},"a",@progbits
.Lname_{number}: .asciz "{name}"
.section .bss.{name},"aw",@nobits
.balign 8
.Laddress_{number}: .zero 8
"""
# Takes the name in r10 and returns the address in r11. It is called with a stack that is aligned.
SEARCH = """
.text
.hidden facula_search_library
.type facula_search_library, @function
facula_search_library:
  .cfi_startproc
  pushq %rdi
  pushq %rsi
  pushq %rdx
  pushq %rcx
  pushq %r8
  pushq %r9
  subq $128, %rsp
  .cfi_adjust_cfa_offset 176
  movups %xmm0, (%rsp)
  movups %xmm1, 16(%rsp)
  movups %xmm2, 32(%rsp)
  movups %xmm3, 48(%rsp)
  movups %xmm4, 64(%rsp)
  movups %xmm5, 80(%rsp)
  movups %xmm6, 96(%rsp)
  movups %xmm7, 112(%rsp)
  movq %r10, %rdi
  call facula_function_of_library
  movq %rax, %r11
  movups (%rsp), %xmm0
  movups 16(%rsp), %xmm1
  movups 32(%rsp), %xmm2
  movups 48(%rsp), %xmm3
  movups 64(%rsp), %xmm4
  movups 80(%rsp), %xmm5
  movups 96(%rsp), %xmm6
  movups 112(%rsp), %xmm7
  addq $128, %rsp
  popq %r9
  popq %r8
  popq %rcx
  popq %rdx
  popq %rsi
  popq %rdi
  .cfi_adjust_cfa_offset -176
  ret
  .cfi_endproc
.size facula_search_library, .-facula_search_library
"""
SOURCE = """// Written by deploy/lazy_library.py.
#include "facula/base/library.h"

extern "C" [[gnu::visibility("hidden"), gnu::used]] void* facula_function_of_library(const char* name) {{
  return facula::symbol_beside("{library}", name, "numerics");
}}

asm(R"asm(
{code}
.text
)asm");
"""


def symbols(nm: str, objects: list[str], kinds: str, *options: str) -> set[str]:
    lines = subprocess.run(
        [nm, "--format=posix", *options, *objects], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    parts = [line.split() for line in lines if not line.endswith(":")]
    return {p[0] for p in parts if len(p) > 1 and p[1] in kinds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--library", required=True, help="its file name")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--objects", nargs="+", required=True, help="of the library")
    parser.add_argument("--program", nargs="+", required=True, help="the objects that call it")
    options = parser.parse_args()
    own = symbols(options.nm, options.program, "TWVBDRui", "--defined-only")
    called = symbols(options.nm, options.program, "U", "--undefined-only") - own
    names = sorted(symbols(options.nm, options.objects, "TWi", "--defined-only", "--extern-only") & called)
    code = SEARCH + "".join(FUNCTION.format(name=n, number=k) for k, n in enumerate(names))
    options.out.write_text(SOURCE.format(library=options.library, code=code))


if __name__ == "__main__":
    main()
