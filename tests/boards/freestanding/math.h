/* What printed C uses of <math.h>, for compilers without a C library. */
#pragma once
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define signbit(x) __builtin_signbit(x)
float fabsf(float x);
float floorf(float x);
float ceilf(float x);
float truncf(float x);
float rintf(float x);
float sqrtf(float x);
float fmodf(float x, float y);
float copysignf(float x, float y);
float fmaf(float a, float b, float c);
float ldexpf(float x, int n);
double fabs(double x);
double floor(double x);
double ceil(double x);
double trunc(double x);
double rint(double x);
double sqrt(double x);
double fmod(double x, double y);
double copysign(double x, double y);
double fma(double a, double b, double c);
double ldexp(double x, int n);
long double sinl(long double x);
long double cosl(long double x);
long double tanl(long double x);
