// Recurrent networks: one step of each cell is a fused body; a layer is a product for all steps at once and a walk
// over them. What a step adds to the gradient of its weight is not summed step by step: see StateProducts.
#include <algorithm>
#include <memory>

#include "facula/autograd/function.h"
#include "facula/catalog/differences.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {

constexpr const char* kFewGates =
    "\\w+ error: RuntimeError .*first dim must be .* for a result with one element";
constexpr const char* kReadBeyond = "weights of too few gates; PyTorch reads beyond them, and may crash";
constexpr const char* kUnstable =
    "(complex\\d+ (value|gradient)|float16 value|bfloat16 value).*: [^a-z]*(for -?1|for \\(?-?\\d\\S*,? ?[^a-z]*|for -?\\d\\S*) with (input|params|hx|data): (all|0 at)";
constexpr const char* kNearPoles =
    "complex sigmoid and tanh near their poles, or saturated sums of the largest numbers: a last digit becomes the first";
constexpr const char* kSquashed =
    "complex\\d+ (value|value \\d|gradient of \\S+): \\((finite|-?0), (finite|-?0)\\) for \\(nan, nan\\) with \\S+: "
    "(all )?(-?inf|max|1 and|lowest)";
const SymInt kOne = int64_t(1), kZero = int64_t(0);

enum class Cell { lstm, gru, tanh, relu };
struct State {
  Tensor h, c;  // c: of an LSTM
};
State step(Cell cell, const Tensor& of_input, const Tensor& of_state, const State& s) {
  switch (cell) {
    case Cell::lstm: {
      auto [h, c] = _lstm_step(of_input, of_state, s.c);
      return {h, c};
    }
    case Cell::gru: return {_gru_step(of_input, of_state, s.h), {}};
    case Cell::tanh: return {tanh(add(of_input, of_state)), {}};
    case Cell::relu: return {relu(add(of_input, of_state)), {}};
  }
  return s;
}

int64_t gates_of(Cell cell) { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
// A step reads each gate of each hidden element, so there must be as many.
void check_rows(const char* name, Cell cell, const SymInt& hidden, const Tensor& input, const Tensor& state) {
  for (auto& [weights, which] : {std::pair(input, "ih"), std::pair(state, "hh")})
    runtime_check(weights.dim() == 2 && weights.size(0) == hidden * SymInt(gates_of(cell)), name)
        << "weight_" << which << " first dim must be " << gates_of(cell)
        << " * hidden_size = " << hidden * SymInt(gates_of(cell)) << ", but it has shape "
        << to_string(weights.sizes());
}

// The parameters of a layer in one direction.
struct Weights {
  Tensor input, state, input_bias, state_bias, projection;
};
MaybeTensor maybe(const Tensor& t) { return t.defined() ? MaybeTensor(t) : MaybeTensor(); }

State rows_of(const State& s, int64_t from, int64_t to) {
  auto part = [&](const Tensor& t) {
    return t.defined() ? narrow(t, 0, SymInt(from), SymInt(to - from)) : t;
  };
  return State{part(s.h), part(s.c)};
}
Tensor joined(const std::vector<Tensor>& parts) { return parts.size() == 1 ? parts[0] : cat(parts, 0); }
State joined(const std::vector<State>& parts) {
  State s;
  for (auto member : {&State::h, &State::c}) {
    std::vector<Tensor> items;
    for (auto& p : parts)
      if ((p.*member).defined()) items.push_back(p.*member);
    if (!items.empty()) s.*member = joined(items);
  }
  return s;
}

// The products of the states with one weight. A gradient of the weight a step, added up, would read and write as much
// as the weight has elements each time, so the tape has them as one product of all steps. That needs what arrives at
// the products, which is what arrives at `all` where a cell adds the two: LSTM and plain networks, not GRU.
class StateProducts {
 public:
  // Gives `all` back, connected to the weight. `again`: the states that come into the steps, computed anew with their
  // history, from (all, h, c, weight), for gradients of the gradient.
  using Again = std::function<Tensor(const std::vector<Tensor>& from)>;
  static std::unique_ptr<StateProducts> of(Cell cell, Tensor& all, const State& start, const Tensor& weight,
                                           Again again) {
    // A mode (a trace, a batch, tangents) sees the calls as they are; of complex numbers products are conjugated.
    bool real = all.dtype() == DType::Float32 || all.dtype() == DType::Float64;
    if (cell == Cell::gru || !real || op::Mode::current() || !autograd::grad_enabled() ||
        !weight.requires_grad())
      return nullptr;
    auto made = std::make_unique<StateProducts>(weight);
    auto node = make_ref<autograd::FunctionNode>("StateProductsBackward0", std::vector<Tensor>{all, weight});
    std::vector<Tensor> from{all, weight, start.h};
    if (start.c.defined()) from.push_back(start.c);
    node->save_for_backward(from);
    node->backward = [n = node.get(), states = made->states_,
                      again = std::move(again)](std::vector<Tensor> grads) {
      std::vector<Tensor> from = n->saved();  // raises where one was written to since
      Tensor of_weight;
      if (n->needs_input_grad(1)) {
        std::vector<Tensor> each;
        if (!autograd::grad_enabled())
          for (auto& s : *states) each.push_back(s.unpack("lstm", {}));
        Tensor rows = each.empty() ? again(from) : joined(each);
        of_weight = mm(transpose(grads[0], 0, 1), rows);
      }
      return std::vector<Tensor>{grads[0], of_weight};
    };
    all = node->finish({all})[0];
    return made;
  }
  explicit StateProducts(Tensor weight) : weight_(std::move(weight)) {}

  // The product of step `t` of `steps`, whose gradient passes the weight by.
  Tensor operator()(const Tensor& h, size_t t, size_t steps) {
    auto node = make_ref<autograd::FunctionNode>("LinearBackward0", std::vector<Tensor>{h});
    Tensor y;
    {
      autograd::GradMode off(false);
      y = linear(h, weight_);
    }
    states_->resize(steps);
    (*states_)[t] =
        autograd::Saved(h.detached(), false);  // with its history it would own the node that owns it
    node->save_for_backward({weight_});
    node->backward = [n = node.get()](std::vector<Tensor> grads) {
      return std::vector<Tensor>{mm(grads[0], n->saved()[0])};
    };
    return node->finish({y})[0];
  }

 private:
  Tensor weight_;
  std::shared_ptr<std::vector<autograd::Saved>> states_ = std::make_shared<std::vector<autograd::Saved>>();
};

// One direction of one layer. Rows of `all`, the products of the input, and of what comes of it are the elements of
// all steps, of which step t has sizes[t], never more than the step before.
struct Walked {
  Tensor output;
  State ended;
  std::vector<Tensor> before;  // the states that came into the steps
};
Walked walk(Cell cell, const Tensor& all, const std::vector<int64_t>& sizes, const State& start,
            const Weights& w, bool reverse, StateProducts* products) {
  Dims rows;
  for (auto n : sizes) rows.push_back(SymInt(n));
  std::vector<Tensor> gates = sizes.size() == 1 ? std::vector<Tensor>{all} : split(all, rows, 0);
  std::vector<Tensor> outputs(sizes.size()), before(sizes.size());
  std::vector<State> ended;  // last first
  int64_t held = reverse ? sizes.back() : sizes.front();
  int64_t whole = sizes.front();
  State s = held == whole ? start : rows_of(start, 0, held);
  for (size_t k = 0; k < sizes.size(); ++k) {
    size_t t = reverse ? sizes.size() - 1 - k : k;
    if (sizes[t] < held) {  // sequences that are over
      ended.push_back(rows_of(s, sizes[t], held));
      s = rows_of(s, 0, sizes[t]);
    } else if (sizes[t] > held) {  // longer ones, which begin
      s = joined({s, rows_of(start, held, sizes[t])});
    }
    held = sizes[t];
    before[t] = s.h;
    Tensor product = products ? (*products)(s.h, t, sizes.size()) : linear(s.h, w.state, maybe(w.state_bias));
    s = step(cell, gates[t], product, s);
    if (w.projection.defined()) s.h = linear(s.h, w.projection);
    outputs[t] = s.h;
  }
  ended.push_back(s);
  std::reverse(ended.begin(), ended.end());
  return {joined(outputs), joined(ended), std::move(before)};
}

std::pair<Tensor, State> one_direction(Cell cell, const Tensor& x, const std::vector<int64_t>& sizes,
                                       const State& start, Weights w, bool reverse) {
  auto &first = w.input_bias, &second = w.state_bias;
  // Added once for all steps, where both fit (else the products say what is wrong).
  if (cell != Cell::gru && first.defined() &&
      std::ranges::equal(first.sizes(), second.sizes(), SymInt::surely_equal)) {
    w.input_bias = add(w.input_bias, w.state_bias);
    w.state_bias = {};
  }
  Tensor all = linear(x, w.input, maybe(w.input_bias));
  auto products =
      StateProducts::of(cell, all, start, w.state,
                        [cell, sizes, w, reverse](const std::vector<Tensor>& from) {
                          Weights again = w;
                          again.state = from[1];
                          State start{from[2], from.size() > 3 ? from[3] : Tensor()};
                          return joined(walk(cell, from[0], sizes, start, again, reverse, nullptr).before);
                        });
  auto walked = walk(cell, all, sizes, start, w, reverse, products.get());
  return {walked.output, walked.ended};
}

struct Result {
  Tensor output, h, c;
};
// All layers of a call. `h` and `c` are [layers * directions, N, size], `x` and the output rows as walk() has them.
Result run(const Call& call, Cell cell, Tensor x, const std::vector<int64_t>& sizes, const Tensor& h,
           const Tensor& c) {
  const char* name = call.name();
  auto params = call.tensors("params");
  int64_t layers = call.integer("num_layers").guard_int(), directions = call.flag("bidirectional") ? 2 : 1;
  bool biased = call.flag("has_biases"), projected = c.defined() && !(c.size(-1) == h.size(-1));
  size_t each = (biased ? 4 : 2) + size_t(projected);
  runtime_check(params.size() == each * size_t(layers * directions), name)
      << "expected " << each << " parameters for each of " << layers << " layers in " << directions
      << " directions, got " << params.size();
  runtime_check(!sizes.empty(), name) << "expected sequence length to be larger than 0";
  runtime_check(h.dim() == 3 && h.size(0) == SymInt(layers * directions) &&
                    h.size(1) == SymInt(sizes.front()),
                name)
      << "expected hidden state of shape [" << layers * directions << ", " << sizes.front() << ", size], got "
      << to_string(h.sizes());
  std::vector<Tensor> hs = unbind(h, 0), cs = c.defined() ? unbind(c, 0) : std::vector<Tensor>(hs.size());
  std::vector<Tensor> last_h, last_c;
  double p = call.real("dropout");
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      size_t k = size_t(layer * directions + direction), at = k * each;
      Weights w{params[at], params[at + 1]};
      if (biased) w.input_bias = params[at + 2], w.state_bias = params[at + 3];
      if (projected) w.projection = params[at + each - 1];
      runtime_check(x.size(-1) == w.input.size(-1), name)
          << "input has inconsistent input_size: got " << x.size(-1) << " expected " << w.input.size(-1);
      check_rows(name, cell, (c.defined() ? c : h).size(-1), w.input, w.state);
      auto [y, s] = one_direction(cell, x, sizes, {hs[k], cs[k]}, w, direction == 1);
      outputs.push_back(y);
      last_h.push_back(s.h);
      if (s.c.defined()) last_c.push_back(s.c);
    }
    x = outputs.size() == 1 ? outputs[0] : cat(outputs, -1);
    if (p > 0 && call.flag("train") && layer + 1 < layers) x = dropout(x, p, true);
  }
  return {x, stack(last_h, 0), last_c.empty() ? Tensor() : stack(last_c, 0)};
}
// `input` [T, N, ...], or [N, T, ...] where batch_first says so.
Result run_padded(const Call& call, Cell cell, const Tensor& h, const Tensor& c) {
  Tensor input = call.tensor("input");
  bool first = call.flag("batch_first");
  index_check(input.dim() > 0, call.name()) << "input must have 3 dimensions, got none";
  runtime_check(input.dim() == 3, call.name()) << "input must have 3 dimensions, got " << input.dim();
  Tensor x = first ? transpose(input, 0, 1) : input;
  SymInt steps = x.size(0), batch = x.size(1);
  Result r = run(call, cell, reshape(x, Dims{steps * batch, x.size(2)}),
                 std::vector<int64_t>(size_t(steps.guard_int()), batch.guard_int()), h, c);
  r.output = view(r.output, Dims{steps, batch, r.output.size(-1)});
  if (first) r.output = transpose(r.output, 0, 1);
  return r;
}
Result run_packed(const Call& call, Cell cell, const Tensor& h, const Tensor& c) {
  Tensor data = call.tensor("data"), batches = call.tensor("batch_sizes");
  index_check(batches.dim() > 0, call.name()) << "batch_sizes must have 1 dimension, got none";
  runtime_check(batches.dim() == 1 && batches.dtype() == DType::Int64, call.name())
      << "batch_sizes must be a 1-D int64 tensor, got " << batches.dtype() << " of shape "
      << to_string(batches.sizes());
  Tensor plain = contiguous(batches).on_host();
  std::vector<int64_t> sizes(plain.data<int64_t>(), plain.data<int64_t>() + plain.numel().guard_int());
  return run(call, cell, data, sizes, h, c);
}
std::pair<Tensor, Tensor> two(const Call& c) {
  auto hx = c.tensors("hx");
  runtime_check(hx.size() == 2, c.name()) << "expects two hidden states, got " << hx.size();
  return {hx[0], hx[1]};
}

// The gates of a cell's two products.
std::pair<Tensor, Tensor> gates(const Call& c, Cell cell, const Tensor& h) {
  Tensor input = c.tensor("input"), wi = c.tensor("w_ih"), wh = c.tensor("w_hh");
  runtime_check(input.size(-1) == wi.size(-1) && h.size(-1) == wh.size(-1), c.name())
      << "input and hidden state must have the last sizes " << wi.size(-1) << " and " << wh.size(-1)
      << ", got " << to_string(input.sizes()) << " and " << to_string(h.sizes());
  check_rows(c.name(), cell, h.size(-1), wi, wh);
  return {linear(input, wi, maybe(c.tensor("b_ih"))), linear(h, wh, maybe(c.tensor("b_hh")))};
}

// What networks with one state have in common: a layer over padded sequences, over packed ones, and one step.
Definer padded(const char* name, Cell cell, const char* doc) {
  return std::move(
      define(
          std::string(name) +
          ".input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)")
          .differs(catalog::kOverflows, catalog::kOrderOfSums)
          .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
          .differs(catalog::kSteps16, catalog::kRoundedOnce)
          .differs(kSquashed, catalog::kByParts)
          .differs(kUnstable, kNearPoles)
          .differs(kFewGates, kReadBeyond)
          .doc(doc)
          .autocast(Autocast::lower)
          .bind(function)
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Result r = run_padded(c, cell, c.tensor("hx"), {});
            return std::tuple(r.output, r.h);
          }));
}
Definer packed(const char* name, Cell cell, const char* doc) {
  return std::move(
      define(
          std::string(name) +
          ".data(Tensor data, Tensor batch_sizes, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor)")
          .differs(catalog::kOverflows, catalog::kOrderOfSums)
          .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
          .differs(catalog::kSteps16, catalog::kRoundedOnce)
          .differs(kSquashed, catalog::kByParts)
          .differs(kUnstable, kNearPoles)
          .differs(kFewGates, kReadBeyond)
          .doc(doc)
          .autocast(Autocast::lower)
          .bind(function)
          .reads_data()
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Result r = run_packed(c, cell, c.tensor("hx"), {});
            return std::tuple(r.output, r.h);
          }));
}
Definer one_step(const char* name, Cell cell, const char* doc) {
  return std::move(
      define(
          std::string(name) +
          "(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor")
          .differs(catalog::kOverflows, catalog::kOrderOfSums)
          .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
          .differs(catalog::kSteps16, catalog::kRoundedOnce)
          .differs(kSquashed, catalog::kByParts)
          .differs(kUnstable, kNearPoles)
          .differs(kFewGates, kReadBeyond)
          .doc(doc)
          .autocast(Autocast::lower)
          .bind(function)
          .no_in_place()
          .dtypes(d::floating)
          .procedure([cell](const Call& c) {
            Tensor h = c.tensor("hx");
            auto [x, y] = gates(c, cell, h);
            return step(cell, x, y, {h, {}}).h;
          }));
}

}  // namespace

FACULA_FAMILY(recurrent) {
  define("_lstm_step(Tensor of_input, Tensor of_state, Tensor cx) -> (Tensor h, Tensor c)")
      .doc(
          "Hidden and cell state of an LSTM from the gates (input, forget, cell, output) before they are squashed.")
      .bind(hidden)
      .dtypes(d::floating)
      .composite([](const Tensor& of_input, const Tensor& of_state, const Tensor& cx) {
        auto gate = chunk(add(of_input, of_state), 4, -1);
        Tensor c = add(mul(sigmoid(gate[1]), cx), mul(sigmoid(gate[0]), tanh(gate[2])));
        return std::tuple(mul(sigmoid(gate[3]), tanh(c)), c);
      })
      .samples({"of_input[2, 12], of_state[2, 12], cx[2, 3]"});
  define("_gru_step(Tensor of_input, Tensor of_state, Tensor hx) -> Tensor")
      .doc("The hidden state of a GRU from the gates (reset, update, new) of its two products.")
      .bind(hidden)
      .no_in_place()
      .dtypes(d::floating)
      .composite([](const Tensor& of_input, const Tensor& of_state, const Tensor& hx) {
        auto x = chunk(of_input, 3, -1), h = chunk(of_state, 3, -1);
        Tensor reset = sigmoid(add(x[0], h[0])), update = sigmoid(add(x[1], h[1]));
        Tensor fresh = tanh(add(x[2], mul(reset, h[2])));
        return add(mul(sub(hx, fresh), update), fresh);
      })
      .samples({"of_input[2, 9], of_state[2, 9], hx[2, 3]"});

  define(
      "lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)")
      .differs(catalog::kOverflows, catalog::kOrderOfSums)
      .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
      .differs(catalog::kSteps16, catalog::kRoundedOnce)
      .differs(kSquashed, catalog::kByParts)
      .differs(kUnstable, kNearPoles)
      .differs(kFewGates, kReadBeyond)
      .doc("Long short-term memory over [T, N, features].  Hochreiter, Schmidhuber, 1997.")
      .autocast(Autocast::lower)
      .bind(function)
      .dtypes(d::floating)
      .procedure([](const Call& c) {
        auto [h, cell] = two(c);
        Result r = run_padded(c, Cell::lstm, h, cell);
        return Results{r.output, r.h, r.c};
      })
      .samples(
          {"input[3, 2, 4], hx{[1, 2, 3], [1, 2, 3]}, params{[12, 4], [12, 3], [12], [12]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  define(
      "lstm.data(Tensor data, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional) -> (Tensor, Tensor, Tensor)")
      .differs(catalog::kOverflows, catalog::kOrderOfSums)
      .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
      .differs(catalog::kSteps16, catalog::kRoundedOnce)
      .differs(kSquashed, catalog::kByParts)
      .differs(kUnstable, kNearPoles)
      .differs(kFewGates, kReadBeyond)
      .doc("lstm over packed sequences.")
      .autocast(Autocast::lower)
      .bind(function)
      .reads_data()
      .dtypes(d::floating)
      .procedure([](const Call& c) {
        auto [h, cell] = two(c);
        Result r = run_packed(c, Cell::lstm, h, cell);
        return Results{r.output, r.h, r.c};
      })
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx{[1, 1, 3], [1, 1, 3]}, params{[12, 4], [12, 3], [12], [12]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  padded("gru", Cell::gru, "Gated recurrent units over [T, N, features].  Cho et al., 2014.")
      .samples(
          {"input[3, 2, 4], hx[1, 2, 3], params{[9, 4], [9, 3], [9], [9]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  packed("gru", Cell::gru, "gru over packed sequences.")
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx[1, 1, 3], params{[9, 4], [9, 3], [9], [9]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  padded("rnn_tanh", Cell::tanh,
         "tanh(input w_ih^T + b_ih + state w_hh^T + b_hh), step by step over [T, N, features].")
      .samples(
          {"input[3, 2, 4], hx[1, 2, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  packed("rnn_tanh", Cell::tanh, "rnn_tanh over packed sequences.")
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx[1, 1, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  padded("rnn_relu", Cell::relu, "rnn_tanh with relu instead of tanh.")
      .samples(
          {"input[3, 2, 4], hx[1, 2, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=False"});
  packed("rnn_relu", Cell::relu, "rnn_relu over packed sequences.")
      .samples(
          {"data[3, 4], batch_sizes<2>[3](1, 2), hx[1, 1, 3], params{[3, 4], [3, 3], [3], [3]}, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False"});
  define(
      "lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)")
      .differs(catalog::kOverflows, catalog::kOrderOfSums)
      .differs(catalog::kComplexProducts, catalog::kPartsOfProducts)
      .differs(catalog::kSteps16, catalog::kRoundedOnce)
      .differs(kSquashed, catalog::kByParts)
      .differs(kUnstable, kNearPoles)
      .differs(kFewGates, kReadBeyond)
      .doc("One step of an LSTM: the next hidden and cell states.")
      .autocast(Autocast::lower)
      .bind(function)
      .dtypes(d::floating)
      .procedure([](const Call& c) {
        auto [h, cell] = two(c);
        auto [x, y] = gates(c, Cell::lstm, h);
        return _lstm_step(x, y, cell);
      })
      .samples({"input[2, 4], hx{[2, 3], [2, 3]}, w_ih[12, 4], w_hh[12, 3], b_ih[12], b_hh[12]"});
  one_step("gru_cell", Cell::gru, "One step of a GRU: the next hidden state.")
      .samples({"input[2, 4], hx[2, 3], w_ih[9, 4], w_hh[9, 3], b_ih[9], b_hh[9]"});
  one_step("rnn_tanh_cell", Cell::tanh, "tanh(input w_ih^T + b_ih + hx w_hh^T + b_hh).")
      .samples({"input[2, 4], hx[2, 3], w_ih[3, 4], w_hh[3, 3], b_ih[3], b_hh[3]"});
  one_step("rnn_relu_cell", Cell::relu, "relu(input w_ih^T + b_ih + hx w_hh^T + b_hh).")
      .samples({"input[2, 4], hx[2, 3], w_ih[3, 4], w_hh[3, 3], b_ih[3], b_hh[3]"});
}
