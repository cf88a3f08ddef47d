#include "facula/io/objects.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "facula/base/error.h"

namespace facula::io {

static std::atomic<const ObjectFormat*> format_of_objects{nullptr};
void set_object_format(const ObjectFormat& format) { format_of_objects = &format; }

ObjectState state_of(const CustomClassHolder& object) {
  auto* format = format_of_objects.load();
  internal_check(format) << "an object of a class that was not registered";
  return format->state_of(object);
}

Ref<CustomClassHolder> restored(const ObjectState& saved) {
  auto* format = format_of_objects.load();
  runtime_check(format, "load") << "the program holds an object of the class " << saved.class_name
                                << ", which this process does not have"
                                << hint("load the library that defines it first");
  return format->restored(saved);
}

namespace {

using Kind = Value::Kind;

// Writes objects, each after those that its state holds.
class Writer {
 public:
  size_t number(const CustomClassHolder* o) {
    if (auto it = std::ranges::find(finished_, o); it != finished_.end())
      return size_t(it - finished_.begin());
    auto saved = state_of(*o);
    supported_check(std::ranges::find(unfinished_, o) == unfinished_.end(), "save")
        << "objects of the class " << saved.class_name << " hold each other, which a file cannot hold";
    unfinished_.push_back(o);
    Value state = encoded(saved.state);
    unfinished_.pop_back();
    finished_.push_back(o);
    list.push_back(Dict{{"class", saved.class_name}, {"state", std::move(state)}});
    return list.size() - 1;
  }
  List list;

 private:
  Value encoded(const Value& v) {
    if (v.kind() == Kind::object) return Dict{{"object", number(v.custom_object().get())}};
    if (v.kind() == Kind::list) return items(v.list());
    if (v.kind() == Kind::tuple) return Dict{{"tuple", items(v.list())}};
    if (v.kind() != Kind::dict) return v;
    List entries;
    for (auto& [key, x] : v.dict()) entries.push_back(List{key, encoded(x)});
    return Dict{{"dict", std::move(entries)}};
  }
  List items(const List& of) {
    List all;
    for (auto& x : of) all.push_back(encoded(x));
    return all;
  }
  std::vector<const CustomClassHolder*> finished_, unfinished_;
};

// A complex number as Python writes it: "(1-2.5j)", "2j".
std::complex<double> complex_of(std::string text) {
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == 'j'; });
  char* end = nullptr;
  double first = std::strtod(text.c_str(), &end);
  return *end ? std::complex<double>(first, std::strtod(end, nullptr)) : std::complex<double>(0, first);
}

class Reader {
 public:
  explicit Reader(const std::function<Tensor(const Value&)>& tensor) : tensor_(tensor) {}
  Value decoded(const Value& v, int depth = 0) const {
    runtime_check(depth < 256, "load") << "the state of an object is nested too deeply";
    if (v.kind() == Kind::list) return items(v, depth);
    if (!v.is_dict()) return v;
    runtime_check(v.size() == 1, "load") << "the state of an object is damaged";
    auto& [key, x] = *v.dict().begin();
    const std::string& kind = key.string();
    if (kind == "tuple") return Tuple{items(x, depth)};
    if (kind == "tensor") return tensor_(x);
    if (kind == "float") return std::strtod(x.string().c_str(), nullptr);
    if (kind == "complex") return complex_of(x.string());
    if (kind == "dtype") return dtype_from_name(x.string());
    if (kind == "object") {
      runtime_check(x.integer() >= 0 && uint64_t(x.integer()) < objects.size(), "load")
          << "the number of an object is out of range";
      return objects[size_t(x.integer())];
    }
    runtime_check(kind == "dict", "load") << "the state of an object holds the unknown kind " << kind;
    Dict dict;
    for (auto& entry : x.list()) dict.set(entry[0], decoded(entry[1], depth + 1));
    return dict;
  }
  Objects objects;

 private:
  List items(const Value& of, int depth) const {
    List all;
    for (auto& x : of.list()) all.push_back(decoded(x, depth + 1));
    return all;
  }
  const std::function<Tensor(const Value&)>& tensor_;
};

}  // namespace

List list_of_objects(const Objects& objects, std::vector<size_t>& numbers) {
  Writer writer;
  for (auto& o : objects) numbers.push_back(writer.number(o.get()));
  return std::move(writer.list);
}

List objects_of_list(const Value& list, const Value& numbers,
                     const std::function<Tensor(const Value&)>& tensor) {
  Reader reader(tensor);
  for (auto& entry : list.list())
    reader.objects.push_back(restored({entry["class"].string(), reader.decoded(entry["state"])}));
  List chosen;
  for (auto& n : numbers.list()) chosen.push_back(reader.decoded(Dict{{"object", n}}));
  return chosen;
}

}  // namespace facula::io
