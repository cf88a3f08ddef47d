// FACULA_CLONES("fma", "default") compiles a function once for each of these targets; the variant for the processor is
// chosen when the library is loaded. To ask for several extensions name a level, "arch=x86-64-v3": "arch=haswell" is
// chosen on that processor only.
#pragma once

#ifndef __SANITIZE_THREAD__  // the sanitizer's code cannot run in the resolver, before the program starts
#define FACULA_CLONES(...) __attribute__((target_clones(__VA_ARGS__)))
#else
#define FACULA_CLONES(...)
#endif
