// FACULA_CLONES("fma", "default"): a function compiled for each of these, of which the processor's own is chosen as the library is
// loaded. Features alone: "arch=haswell" would be chosen on that one model, not on later ones.
#pragma once

#ifndef __SANITIZE_THREAD__  // whose code cannot run where one is chosen, before the program starts
#define FACULA_CLONES(...) __attribute__((target_clones(__VA_ARGS__)))
#else
#define FACULA_CLONES(...)
#endif
