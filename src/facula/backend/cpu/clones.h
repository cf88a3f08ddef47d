// FACULA_CLONES("fma", "default"): a function compiled for each of these, of which the processor's own is chosen as the library is
// loaded. What several extensions make up is a level, "arch=x86-64-v3": "arch=haswell" is chosen on that processor alone.
#pragma once

#ifndef __SANITIZE_THREAD__  // whose code cannot run where one is chosen, before the program starts
#define FACULA_CLONES(...) __attribute__((target_clones(__VA_ARGS__)))
#else
#define FACULA_CLONES(...)
#endif
