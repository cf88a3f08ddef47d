// Compiles mapped.cpp again for AVX-512, with vectors of eight lanes.
#define FACULA_WIDE_LANES
#include "facula/loop/mapped.cpp"
