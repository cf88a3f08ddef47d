#include "facula/embed/order.h"

#include <algorithm>
#include <map>
#include <set>

namespace facula::embed {
namespace {

using graph::Graph;
using graph::Value;
using schedule::Step;

std::vector<Value*> read_by(const Step& s) {
  std::vector<Value*> all;
  for (auto* v : s.node ? graph::operands(*s.node) : s.inputs)
    if (v) all.push_back(v);
  return all;
}
const std::vector<Value*>& written_by(const Step& s) { return s.node ? s.node->results : s.outputs; }
// The value whose memory `v` shares.
Value* base_of(Value* v) {
  while (v->producer && v->producer->op->is<op::View>()) v = graph::operands(*v->producer)[0];
  return v;
}
int64_t bytes_of(const Value& v) { return v.tensor.numel().concrete() * itemsize(v.tensor.dtype()); }

class Order {
 public:
  Order(std::vector<Step> steps, const Graph& g)
      : steps_(std::move(steps)), after_(steps_.size()), waits_(steps_.size()) {
    for (auto* v : g.outputs)
      if (v) outlives_.insert(base_of(v));
    for (auto* v : g.inputs) outlives_.insert(v);
    for (auto& v : g.values())
      if (v->constant.defined()) outlives_.insert(v.get());
    for (auto& [i, v] : g.mutated) outlives_.insert(v);  // most are stored in place
    connect(g);
  }

  std::vector<Step> run() {
    std::vector<Step> ordered;
    std::vector<bool> done(steps_.size());
    for (size_t count = 0; count < steps_.size(); ++count) {
      size_t next = best(done);
      if (next == steps_.size())
        return std::move(steps_);  // a write that an update of the same input precedes
      done[next] = true;
      for (auto* v : bases(next)) --readers_[v];
      for (size_t k : after_[next]) --waits_[k];
      sequence_.push_back(next);
    }
    for (size_t k : sequence_) ordered.push_back(std::move(steps_[k]));
    return ordered;
  }

 private:
  void connect(const Graph& g) {
    std::map<const Value*, size_t> writer;
    for (size_t k = 0; k < steps_.size(); ++k)
      for (auto* v : written_by(steps_[k])) writer[v] = k;
    for (size_t k = 0; k < steps_.size(); ++k) {
      for (auto* v : read_by(steps_[k]))
        if (auto it = writer.find(v); it != writer.end()) follows(k, it->second);
      for (auto* v : bases(k)) ++readers_[v];
    }
    for (auto& [i, v] : g.mutated) {
      auto it = writer.find(v);
      if (it == writer.end()) continue;
      for (size_t k = 0; k < steps_.size(); ++k)
        if (k != it->second && bases(k).count(g.inputs[size_t(i)])) follows(it->second, k);
    }
  }
  void follows(size_t later, size_t earlier) {
    after_[earlier].push_back(later);
    ++waits_[later];
  }
  // The values in whose memory the operands of a step are. A view reads nothing.
  std::set<Value*> bases(size_t k) const {
    std::set<Value*> all;
    if (steps_[k].kind == Step::Kind::view) return all;
    for (auto* v : read_by(steps_[k])) all.insert(base_of(v));
    return all;
  }
  // Bytes that the step needs, less those that it frees.
  int64_t growth(size_t k) const {
    if (steps_[k].kind == Step::Kind::view) return INT64_MIN;
    int64_t bytes = 0;
    for (auto* v : written_by(steps_[k]))
      if (!outlives_.count(v)) bytes += bytes_of(*v);
    for (auto* v : bases(k))
      if (!outlives_.count(v) && readers_.at(v) == 1) bytes -= bytes_of(*v);
    return bytes;
  }
  size_t best(const std::vector<bool>& done) const {
    size_t first = steps_.size(), least = steps_.size();
    int64_t smallest = 0;
    for (size_t k = 0; k < steps_.size(); ++k) {
      if (done[k] || waits_[k]) continue;
      if (first == steps_.size()) first = k;
      int64_t bytes = growth(k);
      if (bytes > smallest || (bytes == smallest && least != steps_.size())) continue;
      smallest = bytes;
      least = k;
    }
    return least != steps_.size() ? least : first;
  }

  std::vector<Step> steps_;
  std::vector<std::vector<size_t>> after_;  // by step: the steps that follow it
  std::vector<int> waits_;                  // by step: how many others precede it and have not run
  std::set<const Value*> outlives_;
  std::map<const Value*, int> readers_;  // steps that will read it
  std::vector<size_t> sequence_;
};

}  // namespace

std::vector<Step> in_order_of_memory(std::vector<Step> steps, const Graph& g) {
  return Order(std::move(steps), g).run();
}

}  // namespace facula::embed
