// A function that was traced (graph::capture), as one operator: a composite whose calls are those of the graph. So it
// is fused, planned for each layout, differentiated as one node of the tape and kept as every composite is.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "facula/graph/segments.h"
#include "facula/graph/trace.h"
#include "facula/run/report.h"
#include "facula/tensor/kept.h"

namespace facula::run {

class Traced {
 public:
  // `name`: of the function, for errors and the tape.
  Traced(graph::Capture capture, std::string name);
  ~Traced();
  Traced(const Traced&) = delete;
  // Results by output of the function; undefined where it gave none. Inputs and captured tensors that it writes are
  // written, and gradient slots filled, as it does. Of a function that calls backward() results have no history.
  // ValueError names an input that is not as it was traced: dtype, number of dimensions, a size that is fixed, a gradient
  // slot that was empty or not; or one that is written and shares its memory with another.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;

  // A tensor of one bool that must be True, and what is raised if it is not.
  struct Check {
    ErrorType type;
    std::string text;
  };
  // The last results are what these check, at the end of each call, and are no results any more.
  void require(std::vector<Check> checks) { checks_ = std::move(checks); }
  const std::vector<Check>& checks() const { return checks_; }

  const graph::Graph& graph() const { return capture_.graph; }
  const graph::Capture& capture() const { return capture_; }
  const std::vector<Tensor>& captured() const { return capture_.captured; }
  const std::string& name() const { return name_; }
  Report report() const;  // what runs when no gradient is asked for

 private:
  using Items = SmallVector<TensorImpl*, 16>;  // the given tensors, then the captured ones
  // What runs up to calls whose results have a size that is known only when they have run (graph/segments.h). Plans are
  // made for the sizes that there are then.
  struct Piece {
    graph::Segment segment;
    op::Operator* calls;  // never freed, as those below
  };
  // Results of the graph's calls, and behind them, unless in place, what is written.
  std::vector<Tensor> run(const Items& all, bool in_place) const;
  std::vector<Tensor> run_pieces(const Items& all, bool in_place) const;
  void separate(std::vector<Tensor>& inputs) const;
  // The two ways to write: in place, or, where history is kept or another trace looks on, as results.
  std::vector<Tensor> in_place(const Items& all) const;
  std::vector<Tensor> with_history(Items all) const;
  Items checked(std::span<const Tensor> inputs) const;
  void check_names(const Items& all) const;
  void check_sizes(IntSpan symbols) const;
  void check_slots(std::span<const Tensor> inputs) const;
  void fill_slots(std::span<const Tensor> inputs, std::span<const Tensor> results) const;
  void check_results(std::vector<Tensor>& results) const;

  std::string name_;
  graph::Capture capture_;
  std::vector<Check> checks_;
  std::vector<bool> writes_;  // by input
  std::shared_ptr<Keeper> keeper_ = std::make_shared<Keeper>();
  op::Operator *functional_,
      *in_place_;  // never freed, only emptied: caches and tapes know operators by address
  // Of a graph with such calls; `functional_` and `in_place_` then are the last piece's, and it has no calls of its own.
  std::vector<Piece> pieces_;
  op::Operator* whole_ = nullptr;  // all of it, for other traces
};

// Runs f once on tensors without data like `inputs`. Sizes are those of `inputs`, or, `dynamic`, any that agree in what
// f relied on. A region of autocast that is open counts. Raises what f raises, and NotImplementedError or RuntimeError for
// what a graph cannot hold (graph::capture).
std::unique_ptr<Traced> trace(const graph::Function& f, std::span<const Tensor> inputs,
                              std::string name = "program", bool dynamic = false);

}  // namespace facula::run
