// A recurrent layer in one direction: the product of its input for all steps at once, and the generated kernels of
// recurrent_nest.h, step by step. Threads share the sequences; each walks through all steps of its own, so nobody waits
// for anybody and the bits of a sequence depend on nothing else.
#include <algorithm>
#include <array>
#include <cstring>

#include "facula/backend/cpu/cpu.h"
#include "facula/backend/cpu/nest_builder.h"
#include "facula/backend/cpu/recurrent_nest.h"
#include "facula/base/parallel.h"

namespace facula::backend::cpu {

namespace {

using P = StepParam;
constexpr int64_t kRows = 4;  // sequences that a thread's share is a multiple of

// Rows of numbers: the first one of the first step's, and how far the next one is.
struct Rows {
  char* data = nullptr;
  int64_t stride = 0;  // in elements
  int64_t item = 0;
  Rows() = default;
  Rows(const Tensor& t, int64_t stride) : stride(stride) {
    if (t.defined()) data = static_cast<char*>(t.data_ptr()), item = t.itemsize();
  }
  void* at(int64_t row, int64_t column = 0) const { return data + (row * stride + column) * item; }
};
void copy_rows(const Rows& to, int64_t row, const Rows& from, int64_t other, int64_t count, int64_t width) {
  for (int64_t k = 0; k < count; ++k)
    std::memcpy(to.at(row + k), from.at(other + k), size_t(width * to.item));
}

// What both passes have in common.
struct Layer {
  Cell cell;
  bool reverse;
  DType dtype;
  int64_t units, gates, inputs, sequences;  // gates: of all units
  std::vector<int64_t> sizes, first;        // of each step: its sequences, and which row is the first one's
  StepVariant variant;
  std::array<int64_t, P::count> params{};

  explicit Layer(const Call& c, bool backward) : reverse(c.flag("reverse")), dtype(c.dtype("hx")) {
    auto name = c.str("cell");
    cell = name == "lstm" ? Cell::lstm : name == "gru" ? Cell::gru : name == "tanh" ? Cell::tanh : Cell::relu;
    sequences = c.size("hx", 0).concrete(), units = c.size("hx", 1).concrete();
    gates = units * gates_of(cell), inputs = c.size("input", 1).concrete();
    int64_t rows = c.size("input", 0).concrete();
    if (c.has("batch_sizes")) {
      Tensor given = dense(c.tensor("batch_sizes"));
      sizes.assign(given.data<int64_t>(), given.data<int64_t>() + given.numel().concrete());
    } else {
      sizes.assign(size_t(sequences ? rows / sequences : 0), sequences);
    }
    int64_t row = 0;
    for (size_t t = 0; t < sizes.size(); ++t) {
      runtime_check(sizes[t] > 0 && sizes[t] <= (t ? sizes[t - 1] : sequences), c.name())
          << "batch_sizes must be positive and not rise, got " << sizes[t] << " at " << t;
      first.push_back(row);
      row += sizes[t];
    }
    runtime_check(row == rows && !sizes.empty() && sizes[0] == sequences, c.name())
        << "batch_sizes must begin with " << sequences << " and add up to " << rows << ", got a sum of " << row;
    choose(backward);
  }
  int64_t lanes() const { return codegen::vector_lanes() / (dtype == DType::Float64 ? 2 : 1); }
  int64_t width() const { return variant.vectors * lanes(); }
  int64_t steps() const { return int64_t(sizes.size()); }
  // The step that follows or comes before in the walk; -1 if there is none.
  int64_t next(int64_t t) const { return reverse ? t - 1 : t + 1 < steps() ? t + 1 : -1; }
  int64_t before(int64_t t) const { return !reverse ? t - 1 : t + 1 < steps() ? t + 1 : -1; }
  int64_t size(int64_t t) const { return t < 0 ? 0 : sizes[size_t(t)]; }
  int64_t row(int64_t t) const { return first[size_t(t)]; }
  // The steps at which a sequence begins and ends in the walk.
  int64_t length(int64_t sequence) const {
    return std::lower_bound(sizes.begin(), sizes.end(), sequence, std::greater<>()) - sizes.begin();
  }
  int64_t start(int64_t sequence) const { return reverse ? length(sequence) - 1 : 0; }
  int64_t end(int64_t sequence) const { return reverse ? 0 : length(sequence) - 1; }

  // f(first sequence, last sequence, thread's) for shares of the sequences.
  template <class F>
  void share(F&& f) const {
    int64_t blocks = (sequences + kRows - 1) / kRows;
    double work = double(steps()) * double(kRows) * double(gates) * double(units);
    parallel_for(blocks, std::max<int64_t>(1, int64_t(1e6 / work)), [&](int64_t begin, int64_t end) {
      f(begin * kRows, std::min(sequences, end * kRows));
    });
  }
  // The kernel over rows [begin, end): blocks of as many as its registers hold, and what is left by halves.
  template <int N>
  void run(const std::array<Rows, N>& buffers, const std::array<int, N>& strides,
           const std::array<int64_t, N>& begin, int64_t rows, int64_t inner) const {
    std::array<int64_t, P::count> p = params;
    p[P::inner] = inner;
    for (size_t k = 0; k < N; ++k)
      if (strides[k] >= 0 && buffers[k].data) p[size_t(strides[k])] = buffers[k].stride;
    StepVariant v = variant;
    for (int64_t done = 0; done < rows; v.rows /= 2) {
      int64_t blocks = (rows - done) / v.rows;
      if (!blocks) continue;
      p[P::blocks] = blocks;
      std::array<void*, N> at;
      for (size_t k = 0; k < N; ++k)
        at[k] = strides[k] < 0 ? buffers[k].data : buffers[k].at(begin[k] + done);
      codegen::Status status;
      kernel(v).fn(at.data(), p.data(), 0, 1, &status);
      done += blocks * v.rows;
    }
  }
  static const codegen::Kernel& kernel(const StepVariant& v) {
    return kernel_of(v, [](const StepVariant& v) { return step_nest(v); });
  }
  // The state's weight [gates, units] by strips: [strip, inner, gate, unit of the strip], or backward [strip, inner,
  // unit of the strip], where all gates are terms of the sum.
  Tensor by_strips(const Tensor& weight, bool backward) const {
    int64_t w = width(), strips = params[P::strips], whole = units / w, rest = units - whole * w,
            parts = backward ? 1 : gates_of(cell), inner = backward ? gates : units;
    Tensor from = dense(weight);
    if (backward && whole == 1 && !rest) return from;
    Tensor to = Tensor::empty(Dims{SymInt(strips * inner * parts * w)}, dtype);
    auto part = [&](int64_t strip, int64_t count, int64_t lanes) {
      if (!count || !lanes) return;
      Dims sizes{SymInt(count), SymInt(inner), SymInt(parts), SymInt(lanes)};
      Dims there{SymInt(inner * parts * w), SymInt(parts * w), SymInt(w), SymInt(int64_t(1))};
      Dims here = backward ? Dims{SymInt(w), SymInt(units), SymInt(int64_t(0)), SymInt(int64_t(1))}
                           : Dims{SymInt(w * units), SymInt(int64_t(1)), SymInt(units * units), SymInt(units)};
      copy(to.alias(sizes, there, SymInt(strip * inner * parts * w)),
           from.alias(sizes, here, from.offset() + SymInt(strip * w * (backward ? 1 : units))));
    };
    part(0, whole, w);
    part(whole, 1, rest);
    return to;
  }

 private:
  void choose(bool backward) {
    variant.dtype = dtype, variant.cell = cell, variant.backward = backward;
    bool many = codegen::vector_lanes() == 16;  // registers
    bool narrow = backward || gates_of(cell) == 1;
    variant.rows = many || narrow ? 4 : 2;
    variant.vectors = narrow && units % (2 * lanes()) == 0 ? 2 : 1;
    variant.tail = units % width() != 0;
    params[P::units] = units, params[P::strips] = (units + width() - 1) / width();
  }
};

// The products of the input with its weight, and both biases where they are simply added.
Tensor given_products(const Layer& l, const Call& c) {
  Tensor x = c.tensor("input"), w = dense(c.tensor("w_ih")), bias;
  if (c.has("b_ih")) {
    bias = Tensor::empty(Dims{SymInt(l.gates)}, l.dtype);
    Tensor one = dense(c.tensor("b_ih")), other = dense(c.tensor("b_hh"));
    int64_t apart = l.cell == Cell::gru ? 2 * l.units : l.gates;
    auto add = [&](auto zero) {
      using T = decltype(zero);
      for (int64_t k = 0; k < l.gates; ++k)
        bias.data<T>()[k] = one.data<T>()[k] + (k < apart ? other.data<T>()[k] : T(0));
    };
    if (l.dtype == DType::Float64) add(double());
    else add(float());
  }
  Tensor to = Tensor::empty(Dims{x.size(0), SymInt(l.gates)}, l.dtype);
  product(x, w.alias(Dims{w.size(1), w.size(0)}, Dims{SymInt(int64_t(1)), w.size(1)}, w.offset()), to, bias);
  return to;
}
Tensor zero_row(const Layer& l) {
  Tensor t = Tensor::empty(Dims{SymInt(l.units)}, l.dtype);
  fill_zero(t);
  return t;
}

}  // namespace

Results recurrence(const Call& c, Out out) {
  using B = StepForward;
  Layer l(c, false);
  bool lstm = l.cell == Cell::lstm;
  l.variant.keeps = c.flag("keep") && kept_of(l.cell);
  Destination y(out[0]), h(out[1]), last_cell(out[2]), kept(out[3]);
  Tensor given = given_products(l, c), weight = l.by_strips(c.tensor("w_hh"), false), hx = dense(c.tensor("hx")),
         cx = lstm ? dense(c.tensor("cx")) : Tensor(), bias;
  if (l.cell == Cell::gru) {
    bias = zero_row(l);
    if (c.has("b_hh"))
      std::memcpy(bias.data_ptr(), Rows(dense(c.tensor("b_hh")), 1).at(2 * l.units), size_t(l.units * bias.itemsize()));
  }
  int64_t n = l.units;
  Rows outputs(y.tensor(), n), starts(hx, n), ends(h.tensor(), n), cells(last_cell.tensor(), n),
      start_cells(cx, n), keeps(kept.tensor(), kept_of(l.cell) * n), kept_cells = keeps;
  if (lstm && l.variant.keeps) kept_cells.data += 4 * n * keeps.item;
  l.share([&](int64_t from, int64_t to) {
    if (lstm && !l.variant.keeps) copy_rows(cells, from, start_cells, from, to - from, n);
    std::array<Rows, B::count> buffers{Rows(given, l.gates), Rows(weight, 0), Rows(bias, 0), {}, {}, {}, outputs, keeps};
    const std::array<int, B::count> strides{P::given, -1, -1, P::state, P::cell, P::cell_next, P::out, P::kept};
    for (int64_t k = 0; k < l.steps(); ++k) {
      int64_t t = l.reverse ? l.steps() - 1 - k : k, before = l.before(t), row = l.row(t);
      // Sequences that go on, and those that begin.
      auto part = [&](int64_t begin, int64_t end, bool begins) {
        if (begin >= end) return;
        int64_t earlier = begins ? begin : l.row(before) + begin;
        buffers[B::state] = begins ? starts : outputs;
        buffers[B::cell] = !lstm ? Rows() : !l.variant.keeps ? cells : begins ? start_cells : kept_cells;
        buffers[B::cell_next] = l.variant.keeps ? kept_cells : cells;
        int64_t cell = l.variant.keeps ? earlier : begin, next = l.variant.keeps ? row + begin : begin;
        l.run<B::count>(buffers, strides,
                        {row + begin, 0, 0, earlier, cell, next, row + begin, row + begin}, end - begin, n);
      };
      int64_t end = std::min(to, l.size(t)), going = std::clamp(l.size(before), from, std::max(from, end));
      part(from, going, false);
      part(going, end, true);
    }
    for (int64_t s = from; s < to; ++s) {
      int64_t last = l.row(l.end(s)) + s;
      copy_rows(ends, s, outputs, last, 1, n);
      if (lstm && l.variant.keeps) copy_rows(cells, s, kept_cells, last, 1, n);
    }
  });
  for (auto* d : {&y, &h, &last_cell, &kept}) d->finish();
  return Results{out[0], out[1], out[2], out[3]};
}

Results recurrence_backward(const Call& c, Out out) {
  using B = StepBackward;
  Layer l(c, true);
  bool lstm = l.cell == Cell::lstm, gru = l.cell == Cell::gru;
  int64_t n = l.units;
  Destination of_input(out[0]), of_state(out[1]), of_h(out[2]), of_c(out[3]), before(out[4]);
  Tensor y = dense(c.tensor("output")), hx = dense(c.tensor("hx")), cx = lstm ? dense(c.tensor("cx")) : Tensor(),
         kept = dense(c.tensor("kept")), none = zero_row(l), weight = l.by_strips(c.tensor("w_hh"), true);
  auto grad = [&](const char* name) { return c.has(name) ? dense(c.tensor(name)) : Tensor(); };
  Tensor of_output = grad("grad_output"), of_last = grad("grad_h"), of_last_cell = grad("grad_c");
  Rows zeros(none, 0), outputs(y, n), starts(hx, n), start_cells(cx, n), befores(before.tensor(), n);
  Rows arriving = of_output.defined() ? Rows(of_output, n) : zeros, last = of_last.defined() ? Rows(of_last, n) : zeros,
       last_cell = of_last_cell.defined() ? Rows(of_last_cell, n) : zeros;
  Rows keeps(kept, kept_of(l.cell) * n), kept_cells = keeps, carried(of_h.tensor(), n), cells(of_c.tensor(), n),
      gates(of_input.tensor(), l.gates), laters = gru ? Rows(of_state.tensor(), l.gates) : gates;
  if (lstm) kept_cells.data += 4 * n * keeps.item;
  l.share([&](int64_t from, int64_t to) {
    if (gru) copy_rows(carried, from, last, from, to - from, n);
    if (lstm) copy_rows(cells, from, last_cell, from, to - from, n);
    std::array<Rows, B::count> buffers{arriving, Rows(weight, 0), {},    laters, {},      {},
                                       gates,    cells,           gates, laters, gru ? carried : Rows(), cells};
    buffers[B::kept] = lstm || gru ? keeps : outputs;
    const std::array<int, B::count> strides{P::given, -1,           P::carried, P::later, P::state,   P::cell,
                                            P::kept,  P::cell_grad, P::out,     P::out,   P::carried, P::cell_grad};
    for (int64_t k = 0; k < l.steps(); ++k) {
      int64_t t = l.reverse ? k : l.steps() - 1 - k, before = l.before(t), next = l.next(t), row = l.row(t);
      int64_t end = std::min(to, l.size(t));
      int64_t going = std::clamp(l.size(next), from, std::max(from, end));     // in the walk they go on from here
      int64_t begun = std::clamp(l.size(before), from, std::max(from, end));  // they have been before
      auto part = [&](int64_t begin, int64_t end, bool ends, bool begins) {
        if (begin >= end) return;
        int64_t earlier = begins ? begin : l.row(before) + begin;
        buffers[B::carried] = gru ? carried : ends ? last : zeros;
        buffers[B::state] = begins ? starts : outputs;
        buffers[B::cell] = begins ? start_cells : kept_cells;
        l.run<B::count>(buffers, strides,
                        {row + begin, 0, begin, ends ? 0 : l.row(next) + begin, earlier, earlier, row + begin, begin,
                         row + begin, row + begin, begin, begin},
                        end - begin, ends ? 0 : l.gates);
        copy_rows(befores, row + begin, begins ? starts : outputs, earlier, end - begin, n);
      };
      int64_t middle = std::min(going, begun), upper = std::max(going, begun);
      part(from, middle, false, false);
      part(middle, upper, going < begun, begun < going);
      part(upper, end, true, true);
    }
  });
  if (!gru || !c.flag("needs_h")) fill_zero(of_h.tensor());
  if (c.flag("needs_h")) {
    Tensor at_start = Tensor::empty(Dims{SymInt(l.sequences), SymInt(l.gates)}, l.dtype);
    Rows rows(at_start, l.gates);
    for (int64_t s = 0; s < l.sequences; ++s) copy_rows(rows, s, laters, l.row(l.start(s)) + s, 1, l.gates);
    product(at_start, dense(c.tensor("w_hh")), of_h.tensor(), {}, 1.0, 1.0);
  }
  for (auto* d : {&of_input, &of_state, &of_h, &of_c, &before}) d->finish();
  return Results{out[0], out[1], out[2], out[3], out[4]};
}

}  // namespace facula::backend::cpu
