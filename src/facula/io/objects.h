// How files of programs hold objects of users' C++ classes: by the name of the class and the state that its def_pickle gives
// (extend/class.h). The library of the class must be loaded before the file is.
//
// A list of objects in a file has an entry {"class": name, "state": value} for each, after those of the objects that its state
// holds. In a state, tuples are {"tuple": items}, dicts {"dict": [[key, value]]}, objects {"object": number}; JSON has
// {"float": text}, {"complex": text}, {"dtype": name} and {"tensor": number} too.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "facula/graph/objects.h"
#include "facula/io/value.h"

namespace facula::io {

struct ObjectState {
  std::string class_name;  // "mine.Stack"
  Value state;
};
// Raises NotImplementedError if the class has no def_pickle.
ObjectState state_of(const CustomClassHolder& object);
// Restores an object, and makes its methods available to graphs of programs. Raises RuntimeError if no library of this
// process has the class.
Ref<CustomClassHolder> restored(const ObjectState& saved);

using graph::Objects;
// The list of the objects and of those that they hold; `numbers` receives the place of each of the objects in it. Raises
// NotImplementedError for objects that hold each other.
List list_of_objects(const Objects& objects, std::vector<size_t>& numbers);
// Restores the objects of a list, and returns those with these numbers. `tensor` gives the tensors by number.
List objects_of_list(const Value& list, const Value& numbers,
                     const std::function<Tensor(const Value& number)>& tensor);

// Set by the room of classes when a class is registered.
struct ObjectFormat {
  ObjectState (*state_of)(const CustomClassHolder& object);
  Ref<CustomClassHolder> (*restored)(const ObjectState& saved);
};
void set_object_format(const ObjectFormat& format);

}  // namespace facula::io
