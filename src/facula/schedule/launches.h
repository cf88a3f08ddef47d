// LaunchBuilder: collects the nests of an analysis as launches, with their temporaries. The kinds of nests derive from it
// (build.cpp, split.cpp).
#pragma once
#include <string>
#include <vector>

#include "facula/schedule/flatten.h"

namespace facula::schedule {

constexpr int64_t kLaneBlock = 64;  // lanes in a task are a multiple of this

class LaunchBuilder : public Flattener {
 public:
  LaunchBuilder(const std::string& name, const Analysis& a, const Decisions& d,
                std::vector<IndexedNest> indexed);

 protected:
  std::vector<FlatStore> stores();  // of all outputs
  // The number of operations for one element.
  static double work_of(const std::vector<FlatStore>& stores);

  // Tasks of about `elements` elements: pieces of a vector of rows, or several complete rows. `inner`: elements of
  // a row.
  struct Shape {
    Count lanes, rest, inner;
    std::string key;
  };
  void tile(NestSpec& spec, const Shape& s, int64_t elements, double operations);
  void add(NestSpec spec);
  int temporary(DType d, Count numel);
  const std::vector<BufferInfo>& buffers() const { return buffers_; }
  Built take() { return std::move(built_); }

  const std::string& name_;

 private:
  bool fits(const IndexedNest& n) const;

  std::vector<IndexedNest> indexed_;
  Built built_;
  std::vector<BufferInfo> buffers_;
};

}  // namespace facula::schedule
