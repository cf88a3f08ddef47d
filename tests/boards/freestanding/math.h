/* What printed C uses of <math.h>, for compilers without a C library. */
#pragma once
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
float fmaf(float a, float b, float c);
double fma(double a, double b, double c);
