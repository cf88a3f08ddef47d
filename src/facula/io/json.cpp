#include "facula/io/json.h"

#include <nlohmann/json.hpp>

namespace facula::io {

namespace {

constexpr int kDeepest = 200;

Value value_of(const nlohmann::ordered_json& j, int depth) {
  using Type = nlohmann::ordered_json::value_t;
  value_check(depth < kDeepest, "json") << "nested too deeply";
  switch (j.type()) {
    case Type::boolean: return Value(j.get<bool>());
    case Type::number_integer:
    case Type::number_unsigned: return Value(j.get<int64_t>());
    case Type::number_float: return Value(j.get<double>());
    case Type::string: return Value(j.get<std::string>());
    case Type::array: {
      List list;
      for (auto& item : j) list.push_back(value_of(item, depth + 1));
      return Value(std::move(list));
    }
    case Type::object: {
      Dict dict;
      for (auto& [key, item] : j.items()) dict.set(key, value_of(item, depth + 1));
      return Value(std::move(dict));
    }
    default: return Value();
  }
}

}  // namespace

Value parse_json(std::string_view text) {
  try {
    return value_of(nlohmann::ordered_json::parse(text), 0);
  } catch (const nlohmann::json::exception& e) {
    value_check(false, "json") << e.what();
    __builtin_unreachable();
  }
}

}  // namespace facula::io
