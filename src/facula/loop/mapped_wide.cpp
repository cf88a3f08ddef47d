// The functions of mapped.cpp over lanes of AVX-512, eight side by side.
#define FACULA_WIDE_LANES
#include "facula/loop/mapped.cpp"
