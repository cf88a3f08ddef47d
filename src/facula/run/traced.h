// A traced function (graph::capture) as one operator: a composite whose body is the calls of the graph. So it is fused, planned
// for each layout, differentiated as one node of the tape and cached like every composite.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "facula/graph/segments.h"
#include "facula/graph/trace.h"
#include "facula/run/autocast.h"
#include "facula/run/report.h"
#include "facula/tensor/retained_block.h"

namespace facula::run {

class Traced {
 public:
  // `name`: the name of the function, for errors and the tape.
  Traced(graph::Capture capture, std::string name);
  ~Traced();
  Traced(const Traced&) = delete;
  // Runs the program: results by output of the function, undefined where it returned none. Writes the inputs, captured tensors
  // and gradient slots that the function writes. Results of a function that calls backward() have no history. Raises
  // ValueError for an input that differs from the traced one in dtype, rank, a fixed size or whether its gradient slot is
  // empty, or that is written and shares memory with another.
  // `inside`: becomes the tensors of the values of divide_history(), undefined where the results have no history.
  std::vector<Tensor> operator()(std::span<const Tensor> inputs, std::vector<Tensor>* inside = nullptr) const;

  // Lets runs that are recorded for gradients give each of these values, which are results or views of results and inputs, as a
  // tensor through which the gradients of other results flow: see graph::inside_histories.
  void divide_history(std::vector<const graph::Value*> inside);

  // The same program with its last inputs, which are numbers, fixed to these.
  std::shared_ptr<Traced> with_numbers(std::span<const Tensor> numbers) const;

  // The error that is raised if a tensor of one bool is False.
  struct Check {
    ErrorType type;
    std::string text;
  };
  // Makes the last results conditions of these checks, at the end of each call, instead of results.
  void require(std::vector<Check> checks) { checks_ = std::move(checks); }
  const std::vector<Check>& checks() const { return checks_; }

  // Raises the error of a call with these inputs whose assumptions do not hold.
  void check(std::span<const Tensor> inputs) const {
    check_modes(inputs);
    checked(inputs);
    check_slots(inputs);
  }

  // The modes of the thread on which the calls of a trace depend.
  struct Modes {
    AutocastState autocast;
    bool grad = true;
    DType dtype = DType::Float32;  // the default
    static Modes now();
  };
  // A call raises ValueError if these modes differ then.
  void require(const Modes& modes) { modes_ = modes; }

  const graph::Graph& graph() const { return capture_.graph; }
  const graph::Capture& capture() const { return capture_; }
  const std::vector<Tensor>& captured() const { return capture_.captured; }
  const std::string& name() const { return name_; }
  // The graph; with `lines`, each call with the line of the user's program.
  std::string text(bool lines = false) const {
    return graph::print(graph(), lines ? &capture_.lines : nullptr);
  }
  Report report() const;  // the program without gradients

 private:
  using Items = SmallVector<TensorImpl*, 16>;  // the inputs, then the captured tensors
  // A segment of the graph that ends at calls whose result sizes depend on data (graph/segments.h). It is planned for the sizes
  // that are known when it runs.
  struct Piece {
    graph::Segment segment;
    op::Operator* calls;  // never freed, like the operators of the whole graph
  };
  // The results of the graph and, unless `in_place`, the written values behind them.
  std::vector<Tensor> run(const Items& all, bool in_place, std::vector<Tensor>& held) const;
  std::vector<Tensor> run_pieces(const Items& all, bool in_place) const;
  std::vector<Tensor> run_divided(const Items& all, std::vector<Tensor>& inside) const;
  void separate(std::vector<Tensor>& inputs) const;
  // The two ways to write: in place; or, where the tape or another trace records the call, as results that replace inputs.
  std::vector<Tensor> in_place(const Items& all, std::vector<Tensor>& held) const;
  std::vector<Tensor> with_history(Items all, std::vector<Tensor>& held, std::vector<Tensor>* inside) const;
  Items checked(std::span<const Tensor> inputs) const;
  void check_names(const Items& all) const;
  void check_sizes(IntSpan symbols) const;
  void check_modes(std::span<const Tensor> inputs) const;
  void check_slots(std::span<const Tensor> inputs) const;
  class Undo;
  void drop_gradients(std::span<const Tensor> inputs, Undo& undo) const;
  void fill_slots(std::span<const Tensor> inputs, std::span<const Tensor> results) const;
  void check_results(std::vector<Tensor>& results) const;

  std::string name_;
  graph::Capture capture_;
  std::vector<Check> checks_;
  std::optional<Modes> modes_;
  std::vector<bool> writes_;            // by input: whether it is written
  std::vector<Generator*> generators_;  // from which it draws, among those of the graph
  std::shared_ptr<Keeper> keeper_ = std::make_shared<Keeper>();
  op::Operator *functional_,
      *in_place_;  // never freed, only emptied, because caches and tapes refer to operators by address
  // The segments but the last one, whose operators are `functional_` and `in_place_`; empty if the graph is one segment.
  std::vector<Piece> pieces_;
  // The segments for runs with a history, if some results are in the history of others; and these values.
  std::vector<Piece> divided_;
  std::vector<const graph::Value*> inside_;
  op::Operator* whole_graph_ = nullptr;  // the whole graph, for other traces
};

// Traces `f` on tensors without data that have the metadata of `inputs`. Sizes are constants, or, if `dynamic`, symbols with the
// guards that `f` relied on. An active autocast region is part of the trace. Raises what `f` raises, and NotImplementedError or
// RuntimeError for calls that a graph cannot contain (graph::capture).
std::unique_ptr<Traced> trace(const graph::Function& f, std::span<const Tensor> inputs,
                              std::string name = "program", bool dynamic = false);

}  // namespace facula::run
