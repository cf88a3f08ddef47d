// Methods of users' classes as operators, which is how graphs of programs call them:
//
//   mine::Average.update(__torch__.torch.classes.mine.Average self, Tensor x, *, SymInt[] result_sizes=[],
//                        str result_types="") -> ()
//
// A call says the dtypes, ranks and sizes of its results itself (`result_types`: "float32[2], int64[0]"; `result_sizes`: the
// sizes of all of them in a row), since those depend on what the object holds. Whoever records a call knows them from the
// class's fake in Python (facula._library.register_fake_class); a call that runs ignores them.
#pragma once
#include <string>
#include <vector>

#include "facula/extend/class.h"

namespace facula::extend {

// Defines the operators of all methods of the class whose arguments and results a schema can state: tensors, numbers,
// strings, dtypes, lists of them, and objects; results: tensors, lists of them, and
// numbers, which become tensors. Returns their full names.
const std::vector<std::string>& method_operators(const Class& c);
// The full name of a method's operator. Raises NotImplementedError if the method has none, with the type that prevents it.
std::string method_operator(const Class& c, const Method& m);

}  // namespace facula::extend
