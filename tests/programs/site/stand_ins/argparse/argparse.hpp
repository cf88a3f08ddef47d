// Optional integers of a command line, under the names of the library argparse.
#pragma once
#include <any>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>

namespace argparse {

class Argument {
 public:
  Argument& help(const std::string&) { return *this; }
  template <class T>
  Argument& default_value(T x) {
    value_ = x;
    return *this;
  }
  template <char Shape, class T>
  Argument& scan() {
    read_ = [](const std::string& text) -> std::any { return T(std::stoll(text)); };
    return *this;
  }

 private:
  friend class ArgumentParser;
  std::any value_;
  std::any (*read_)(const std::string&) = nullptr;
};

class ArgumentParser {
 public:
  explicit ArgumentParser(const std::string&) {}
  Argument& add_argument(const std::string& name) { return arguments_[name]; }
  void parse_args(int count, const char* const* words) {
    for (int k = 1; k < count; k += 2) {
      auto found = arguments_.find(words[k]);
      if (found == arguments_.end() || k + 1 == count || !found->second.read_)
        throw std::runtime_error("Unknown argument: " + std::string(words[k]));
      found->second.value_ = found->second.read_(words[k + 1]);
    }
  }
  template <class T>
  T get(const std::string& name) const {
    return std::any_cast<T>(arguments_.at(name).value_);
  }
  friend std::ostream& operator<<(std::ostream& s, const ArgumentParser&) { return s; }

 private:
  std::map<std::string, Argument> arguments_;
};

}  // namespace argparse
