// The memory of traced values. A cell is a memory with versions, each a value of the graph; every other value is a view
// of a version, by a chain of view calls. A write makes the next version of a cell, and views of earlier versions are
// recreated from the latest one when they are read (trace_memory.cpp).
#pragma once
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "facula/graph/graph.h"

namespace facula::graph {

struct Cell;
// Cells that may be one memory in eager calls, which the trace copies. If `apart` is empty, they are one memory, and writing
// one makes the others stale; otherwise they are separate memories when these guards hold.
struct Copies {
  std::vector<Cell*> cells;
  std::vector<sym::Guard> apart;
};

struct Cell {
  Value *first, *now;                   // the first and the latest version
  int version = 0;                      // how often it was written
  bool has_history = false;             // a recorded write gave it a history
  int users_version = -1;               // number of the value that the user's last write made; -1: none
  std::shared_ptr<Copies> copies = {};  // null: its memory is its own
  bool stale = false;
  // The value whose memory it is, for a result of a custom function that returns an input or a view of one.
  Value* alias_of = nullptr;
};

// A value as a part of memory: the views lead from the version, the last one first, to the value.
struct Location {
  Value* version;
  const Cell* cell;  // null: it was never written
  struct View {
    const Node* call;
    int result;
  };
  std::vector<View> views;
};

class Cells {
 public:
  // The cell that v is a version of, or null if nothing is known about its memory.
  Cell* find(const Value* v) const {
    auto it = by_version_.find(v);
    return it == by_version_.end() ? nullptr : it->second;
  }
  // The same; begins a cell if there is none.
  Cell& of(Value* first);
  void write(Cell& c, Value* next);
  // Marks two cells as one memory of eager calls, or, unless `apart` is empty, as one where these guards do not hold.
  void join(Cell& a, Cell& b, const std::vector<sym::Guard>& apart);
  bool any_stale() const { return any_stale_; }
  // How often memory was written that is from outside, or whose first value has a number below `values`.
  int writes(size_t values) const {
    int count = 0;
    for (auto& c : cells_)
      if (!c.first->producer || size_t(c.first->id) < values) count += c.version;
    return count;
  }
  bool any_history() const { return any_history_; }
  void give_history(Cell& c) { c.has_history = any_history_ = true; }

  // The version that v shows or is.
  Value* version_of(Value* v) const;
  // The first version of the memory of v.
  Value* first_of(Value* v) const;
  // The location of v, which has to be a value of the latest version.
  Location locate(Value* v) const;

  // ---- tensors from outside, each a cell
  Value* outside(const Tensor& t) const {  // null: not read yet
    auto it = outside_.find(t.impl());
    return it == outside_.end() ? nullptr : it->second;
  }
  void add_outside(const Tensor& t, Value* v);
  // A tensor from outside over the same memory as t, and not t itself, that was written, or any if not `written`.
  const Tensor* other_name(const Tensor& t, bool written) const;
  // Whether the memory of t was written, under any name.
  bool is_written(const Tensor& t) const;

 private:
  std::unordered_map<const Value*, Cell*> by_version_;
  std::deque<Cell> cells_;
  std::unordered_map<const TensorImpl*, Value*> outside_;
  std::unordered_map<const StorageImpl*, std::vector<std::pair<Tensor, Value*>>> by_storage_;
  bool any_stale_ = false, any_history_ = false;
};

}  // namespace facula::graph
