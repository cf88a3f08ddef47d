/* What printed C uses of <string.h>, for compilers without a C library. */
#pragma once
#include <stddef.h>
void* memcpy(void* to, const void* from, size_t bytes);
