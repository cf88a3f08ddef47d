// Householder reflections of real matrices by strips of columns (strips.h). Those of a panel are applied together: H1 H2 ... =
// 1 - V T V^T, where T^-1 is the upper triangle of V^T V with 1 / tau on its diagonal (Joffrain and others, "Accumulating
// Householder transformations, revisited", 2006).
#pragma once
#include "facula/backend/cpu/blocked.h"

namespace facula::backend::cpu {

constexpr int kFewestReflected = 32;  // rows and columns from which on this is quicker than LAPACK

// R and the reflections of a [m, n] into x, tau [min(m, n)], as geqrf. False, and x holds anything, where squares of a column are
// no normal numbers: how such matrices are factored, LAPACK says.
template <class T>
bool reflect_in_rows(int64_t m, int64_t n, const T* a, T* x, T* tau);

// The first n columns of the product of `count` reflections a [m, n] into x [m, n], as orgqr.
template <class T>
void multiply_reflections_in_rows(int64_t m, int64_t n, int64_t count, const T* a, const T* tau, T* x);

}  // namespace facula::backend::cpu
