// Sizes that are symbols, as Python has them while a function is traced: PyTorch's SymInt. Arithmetic gives expressions,
// comparisons are guards of the trace, and what only a number can be (range(), float(), a list's length) makes the program
// one for this number. Sizes that are known only when a program runs (sym/run_time.h) raise there.
#pragma once
#include <optional>

#include "facula/sym/run_time.h"
#include "facula/tensor/tensor.h"
#include "python.h"

namespace facula::bind {

bool is_symint(PyObject* o);
// Outside of the trace that it belongs to: the number that it had there.
SymInt symint_of(PyObject* o);
// Whether it is a tensor of integers that are known only when the traced program runs.
bool has_traced_integers(const Tensor& t);
// Its only element, as a size that is known only then.
SymInt size_of_traced(const Tensor& t);
// The same of an object that is such a tensor without dimensions; nullopt for all others.
std::optional<SymInt> size_of_traced(PyObject* o);
PyObject* wrap_symint(SymInt size);
void add_symint(PyObject* module);

}  // namespace facula::bind
