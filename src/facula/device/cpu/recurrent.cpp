// A recurrent layer in one direction: the product of its input for all steps at once, then the generated kernels of
// recurrent_nest.h, step by step. Threads share the sequences and each walks over all steps of its own, so threads do not
// wait for each other and the bits of a sequence depend on nothing else.
#include <algorithm>
#include <array>
#include <cstring>

#include "facula/base/parallel.h"
#include "facula/device/cpu/cpu.h"
#include "facula/device/cpu/nest_builder.h"
#include "facula/device/cpu/recurrent_nest.h"

namespace facula::device::cpu {

namespace {

using P = StepParam;
constexpr int64_t kRows = 4;           // a thread's share is a multiple of so many sequences
constexpr double kWorthAThread = 1e6;  // products
const SymInt kOne = int64_t(1);

// Rows of numbers: the address of the first row of the first step, and the distance to the next.
struct Rows {
  char* data = nullptr;
  int64_t stride = 0;  // in elements
  int64_t item = 0;
  Rows() = default;
  Rows(const Tensor& t, int64_t stride) : stride(stride) {
    if (t.defined()) data = static_cast<char*>(t.data_ptr()), item = t.itemsize();
  }
  Rows(void* data) : data(static_cast<char*>(data)) {}
  void* at(int64_t row) const { return data + row * stride * item; }
  Rows column(int64_t k) const {
    Rows r = *this;
    if (data) r.data += k * item;
    return r;
  }
};
void copy_rows(const Rows& to, int64_t row, const Rows& from, int64_t other, int64_t count, int64_t width) {
  for (int64_t k = 0; k < count; ++k)
    std::memcpy(to.at(row + k), from.at(other + k), size_t(width * to.item));
}

// The kernels of one step: sums over a weight for some sequences and all units, followed by a cell.
class StepKernel {
 public:
  StepKernel() = default;
  // A unit's gate is a sum of `terms` terms; the weight is [gate, unit, term], or backward [term, unit].
  StepKernel(const StepVariant& v, int64_t units, int64_t terms, const Tensor& weight) : variant_(v) {
    int64_t lanes = codegen::vector_lanes() / (v.dtype == DType::Float64 ? 2 : 1);
    bool many_registers = codegen::vector_lanes() == 16, narrow = v.backward || gates_of(v.cell) == 1;
    variant_.rows = many_registers || narrow ? int(kRows) : 2;
    // Uses as many sums as it takes to hide the latency of an addition, if the registers hold them.
    for (int vectors : {many_registers ? 4 : 2, 2})
      if (narrow && variant_.vectors == 1 && units % (vectors * lanes) == 0) variant_.vectors = vectors;
    int64_t width = variant_.vectors * lanes;
    variant_.tail = units % width != 0;
    params_[P::units] = units, params_[P::strips] = (units + width - 1) / width;
    if (weight.defined()) weight_ = by_strips(dense(weight), units, terms, width);
  }
  void* weight() const { return weight_.defined() ? weight_.data_ptr() : nullptr; }

  // A buffer, the row at which it begins, and the parameter that holds its stride (-1: it has no rows).
  struct Operand {
    Rows rows;
    int64_t begin = 0;
    int stride = -1;
  };
  // Runs blocks of as many sequences as the registers hold, and halves of that for the rest.
  template <size_t N>
  void run(const std::array<Operand, N>& operands, int64_t sequences, int64_t terms) const {
    std::array<int64_t, P::count> p = params_;
    p[P::inner] = terms;
    for (auto& o : operands)
      if (o.stride >= 0) p[size_t(o.stride)] = o.rows.stride;
    StepVariant v = variant_;
    for (int64_t done = 0; done < sequences; v.rows /= 2) {
      int64_t blocks = (sequences - done) / v.rows;
      if (!blocks) continue;
      p[P::blocks] = blocks;
      std::array<void*, N> at;
      for (size_t k = 0; k < N; ++k) {
        auto& o = operands[k];
        at[k] = o.stride < 0 ? o.rows.data : o.rows.at(o.begin + done);
      }
      codegen::Status status;
      kernel_of(v, [](const StepVariant& v) { return step_nest(v); }).fn(at.data(), p.data(), 0, 1, &status);
      done += blocks * v.rows;
    }
  }

 private:
  Tensor by_strips(const Tensor& from, int64_t units, int64_t terms, int64_t width) const {
    int64_t full = units / width, rest = units % width,
            gates = variant_.backward ? 1 : gates_of(variant_.cell);
    if (variant_.backward && full == 1 && !rest) return from;
    Tensor to = Tensor::empty(Dims{SymInt(params_[P::strips] * terms * gates * width)}, variant_.dtype);
    auto part = [&](int64_t strip, int64_t count, int64_t lanes) {
      if (!count || !lanes) return;
      Dims sizes{SymInt(count), SymInt(terms), SymInt(gates), SymInt(lanes)};
      Dims there{SymInt(terms * gates * width), SymInt(gates * width), SymInt(width), kOne};
      Dims here = variant_.backward ? Dims{SymInt(width), SymInt(units), SymInt(int64_t(0)), kOne}
                                    : Dims{SymInt(width * terms), kOne, SymInt(units * terms), SymInt(terms)};
      copy(to.alias(sizes, there, SymInt(strip * terms * gates * width)),
           from.alias(sizes, here, from.offset() + SymInt(strip * width * (variant_.backward ? 1 : terms))));
    };
    part(0, full, width);
    part(full, 1, rest);
    return to;
  }

  StepVariant variant_;
  std::array<int64_t, P::count> params_{};
  Tensor weight_;
};

// The common part of both passes. The state has the size of the projection, if there is one.
struct Layer {
  Cell cell;
  bool reverse, projected;
  DType dtype;
  int64_t sequences, size, units, gates;  // gates: of all units
  std::vector<int64_t> sizes, first;      // of each step: its number of sequences, and its first row
  Rows zeros;

  explicit Layer(const Call& c) : reverse(c.flag("reverse")), projected(c.has("w_hr")), dtype(c.dtype("hx")) {
    auto name = c.str("cell");
    cell = name == "lstm" ? Cell::lstm : name == "gru" ? Cell::gru : name == "tanh" ? Cell::tanh : Cell::relu;
    sequences = c.size("hx", 0).concrete(), size = c.size("hx", 1).concrete();
    units = lstm() ? c.size("cx", 1).concrete() : size;
    gates = units * gates_of(cell);
    lay_steps(c);
    none_ = Tensor::empty(Dims{SymInt(std::max(size, units))}, dtype);
    fill_zero(none_);
    zeros = Rows(none_, 0);
  }
  bool lstm() const { return cell == Cell::lstm; }
  // Numbers saved per sequence and step, and the position of the state after the step among them.
  int64_t saved() const { return saved_state() + size; }
  int64_t saved_state() const { return (saved_of(cell) + int(projected)) * units; }
  int64_t steps() const { return int64_t(sizes.size()); }
  int64_t step(int64_t k) const { return reverse ? steps() - 1 - k : k; }  // the k-th step of the walk
  // The previous and the next step of the walk; -1 if there is none.
  int64_t before(int64_t t) const { return !reverse ? t - 1 : t + 1 < steps() ? t + 1 : -1; }
  int64_t next(int64_t t) const { return reverse ? t - 1 : t + 1 < steps() ? t + 1 : -1; }
  int64_t size_of(int64_t t) const { return t < 0 ? 0 : sizes[size_t(t)]; }
  int64_t row(int64_t t) const { return first[size_t(t)]; }
  int64_t length(int64_t sequence) const {
    return std::lower_bound(sizes.begin(), sizes.end(), sequence, std::greater<>()) - sizes.begin();
  }
  // Rows of the steps at which a sequence begins and ends in the walk.
  int64_t start(int64_t sequence) const { return row(reverse ? length(sequence) - 1 : 0) + sequence; }
  int64_t end(int64_t sequence) const { return row(reverse ? 0 : length(sequence) - 1) + sequence; }
  StepVariant variant(Cell c, bool backward, bool keeps = false) const {
    return {.dtype = dtype, .cell = c, .backward = backward, .keeps = keeps};
  }

  // Calls f(first sequence, last sequence) for each thread's share.
  template <class F>
  void share(F&& f) const {
    int64_t blocks = (sequences + kRows - 1) / kRows;
    double work = double(steps()) * double(kRows) * double(gates) * double(size);
    parallel_for(blocks, std::max<int64_t>(1, int64_t(kWorthAThread / work)),
                 [&](int64_t begin, int64_t end) { f(begin * kRows, std::min(sequences, end * kRows)); });
  }

 private:
  void lay_steps(const Call& c) {
    int64_t rows = c.size("input", 0).concrete();
    if (c.has("batch_sizes")) {
      Tensor batch_sizes = dense(c.tensor("batch_sizes"));
      sizes.assign(batch_sizes.data<int64_t>(), batch_sizes.data<int64_t>() + batch_sizes.numel().concrete());
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
        << "batch_sizes must begin with " << sequences << " and add up to " << rows << ", got a sum of "
        << row;
  }
  Tensor none_;
};

// The products of the input with its weight, plus both biases where they are simply added.
Tensor input_products(const Layer& l, const Call& c) {
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

struct Forward : Layer {
  using B = StepForward;
  bool keeps;
  Destination to_output, to_h, to_c, to_saved;
  Tensor products, hx, cx, bias, unprojected;
  StepKernel main, projection;
  Rows external, starts, start_cells, outputs, cells, all_saved, saved_cells, hidden;

  Forward(const Call& c, Out out)
      : Layer(c),
        keeps(c.flag("keep")),
        to_output(out[0]),
        to_h(out[1]),
        to_c(out[2]),
        to_saved(out[3]),
        products(input_products(*this, c)),
        hx(dense(c.tensor("hx"))),
        main(variant(cell, false, keeps), units, size, c.tensor("w_hh")),
        external(products, gates),
        starts(hx, size),
        outputs(to_output.tensor(), size),
        cells(to_c.tensor(), units),
        all_saved(to_saved.tensor(), saved()),
        hidden(outputs) {
    if (lstm()) cx = dense(c.tensor("cx")), start_cells = Rows(cx, units);
    if (lstm()) saved_cells = all_saved.column(4 * units);
    if (cell == Cell::gru && c.has("b_hh")) bias = dense(c.tensor("b_hh"));
    if (!projected) return;
    projection = StepKernel(variant(Cell::none, false, keeps), size, units, c.tensor("w_hr"));
    if (!keeps) unprojected = Tensor::empty(Dims{SymInt(sequences), SymInt(units)}, dtype);
    hidden = keeps ? all_saved.column(5 * units) : Rows(unprojected, units);
  }
  // Computes sequences [begin, end) of step t; all of them begin at this step (`begins`) or none.
  void step(int64_t t, int64_t begin, int64_t end, bool begins) const {
    if (begin >= end) return;
    int64_t now = row(t) + begin, earlier = begins ? begin : row(before(t)) + begin;
    Rows own_bias = bias.defined() ? Rows(bias, 0).column(2 * units) : zeros;
    const Rows& last_cell = !keeps ? cells : begins ? start_cells : saved_cells;
    int64_t new_hidden = projected && !keeps ? begin : now;
    main.run<B::count>({{{external, now, P::external},
                         {main.weight()},
                         {own_bias},
                         {begins ? starts : outputs, earlier, P::state},
                         {last_cell, keeps ? earlier : begin, P::cell},
                         {keeps ? saved_cells : cells, keeps ? now : begin, P::cell_next},
                         {hidden, new_hidden, P::out},
                         {all_saved, now, P::saved}}},
                       end - begin, size);
    if (!projected) return;
    projection.run<B::count>({{{zeros, 0, P::external},
                               {projection.weight()},
                               {},
                               {hidden, new_hidden, P::state},
                               {},
                               {},
                               {outputs, now, P::out},
                               {all_saved.column(saved_state()), now, P::saved}}},
                             end - begin, units);
  }
  void walk(int64_t from, int64_t to) const {
    if (lstm() && !keeps) copy_rows(cells, from, start_cells, from, to - from, units);
    for (int64_t k = 0; k < steps(); ++k) {
      int64_t t = Layer::step(k), end = std::max(from, std::min(to, size_of(t)));
      int64_t going = std::clamp(size_of(before(t)), from, end);
      step(t, from, going, false);
      step(t, going, end, true);
    }
    Rows ends(to_h.tensor(), size);
    for (int64_t s = from; s < to; ++s) {
      copy_rows(ends, s, outputs, end(s), 1, size);
      if (lstm() && keeps) copy_rows(cells, s, saved_cells, end(s), 1, units);
    }
  }
};

struct Backward : Layer {
  using B = StepBackward;
  Destination of_input, of_state, of_h, of_c, to_before, of_output;
  Tensor hx, cx, saved_numbers, grad_output, grad_h, grad_c, unprojected;
  StepKernel main, arrivals, spread;
  Rows starts, start_cells, all_saved, outputs, befores, saved_cells, arriving, last, carried, cells,
      of_gates, later, projected_grads, hidden_grads;

  Backward(const Call& c, Out out)
      : Layer(c),
        of_input(out[0]),
        of_state(out[1]),
        of_h(out[2]),
        of_c(out[3]),
        to_before(out[4]),
        of_output(out[5]),
        hx(dense(c.tensor("hx"))),
        saved_numbers(dense(c.tensor("kept"))),
        main(variant(cell, true), units, gates, projected ? Tensor() : c.tensor("w_hh")),
        starts(hx, size),
        all_saved(saved_numbers, saved()),
        outputs(all_saved.column(saved_state())),
        befores(to_before.tensor(), size),
        carried(of_h.tensor(), size),
        cells(of_c.tensor(), units),
        of_gates(of_input.tensor(), gates) {
    auto gradient = [&](const char* name, Tensor& to, int64_t width) {
      if (!c.has(name)) return zeros;
      to = dense(c.tensor(name));
      return Rows(to, width);
    };
    arriving = gradient("grad_output", grad_output, size), last = gradient("grad_h", grad_h, size);
    if (lstm()) {
      cx = dense(c.tensor("cx")), start_cells = Rows(cx, units), saved_cells = all_saved.column(4 * units);
      copy_rows(cells, 0, gradient("grad_c", grad_c, units), 0, sequences, units);
    }
    if (gru()) copy_rows(carried, 0, last, 0, sequences, size);
    later = gru() ? Rows(of_state.tensor(), gates) : of_gates;
    if (!projected) return;
    arrivals = StepKernel(variant(Cell::none, true), size, gates, c.tensor("w_hh"));
    spread = StepKernel(variant(Cell::none, true), units, size, c.tensor("w_hr"));
    unprojected = Tensor::empty(Dims{SymInt(sequences), SymInt(units)}, dtype);
    hidden_grads = Rows(unprojected, units), projected_grads = Rows(of_output.tensor(), size);
  }
  bool gru() const { return cell == Cell::gru; }

  // Computes the gradient of the unprojected states of sequences [begin, end), which passes through the projection.
  void project_back(int64_t t, int64_t begin, int64_t end, bool ends) const {
    int64_t now = row(t) + begin;
    auto run = [&](const StepKernel& k, Rows external, int64_t at, Rows carried, Rows later, int64_t next,
                   Rows out, int64_t to, int64_t terms) {
      k.run<B::count>({{{external, at, P::external},
                        {k.weight()},
                        {carried, begin, P::carried},
                        {later, next, P::later},
                        {},
                        {},
                        {},
                        {},
                        {out, to, P::out},
                        {},
                        {},
                        {}}},
                      end - begin, terms);
    };
    run(arrivals, arriving, now, ends ? last : zeros, later, ends ? 0 : row(next(t)) + begin, projected_grads,
        now, ends ? 0 : gates);
    run(spread, zeros, 0, zeros, projected_grads, now, hidden_grads, begin, size);
  }
  // Computes the gradients of sequences [begin, end) of step t. `ends`, `begins`: t is the last or the first step of
  // these sequences in the walk.
  void step(int64_t t, int64_t begin, int64_t end, bool ends, bool begins) const {
    if (begin >= end) return;
    int64_t now = row(t) + begin, earlier = begins ? begin : row(before(t)) + begin;
    bool alone = ends || projected;  // the next step's products contribute nothing
    if (projected) project_back(t, begin, end, ends);
    main.run<B::count>({{{projected ? hidden_grads : arriving, projected ? begin : now, P::external},
                         {main.weight()},
                         {gru()                ? carried
                          : ends && !projected ? last
                                               : zeros,
                          begin, P::carried},
                         {later, alone ? 0 : row(next(t)) + begin, P::later},
                         {begins ? starts : outputs, earlier, P::state},
                         {begins ? start_cells : saved_cells, earlier, P::cell},
                         {all_saved, now, P::saved},
                         {cells, begin, P::cell_grad},
                         {of_gates, now, P::out},
                         {Rows(of_state.tensor(), gates), now, P::out},
                         {carried, begin, P::carry},
                         {cells, begin, P::cell_grad}}},
                       end - begin, alone ? 0 : gates);
    copy_rows(befores, now, begins ? starts : outputs, earlier, end - begin, size);
  }
  void walk(int64_t from, int64_t to) const {
    for (int64_t k = steps(); k-- > 0;) {
      int64_t t = Layer::step(k), end = std::max(from, std::min(to, size_of(t)));
      int64_t going = std::clamp(size_of(next(t)), from, end),
              starting = std::clamp(size_of(before(t)), from, end);
      int64_t middle = std::min(going, starting), upper = std::max(going, starting);
      step(t, from, middle, false, false);
      step(t, middle, upper, going < starting, starting < going);
      step(t, upper, end, true, true);
    }
  }
  // Completes the gradient of the states before the first steps.
  void reach_start(const Call& c) const {
    if (!gru() || !c.flag("needs_h")) fill_zero(of_h.tensor());
    if (!c.flag("needs_h")) return;
    Tensor at_start = Tensor::empty(Dims{SymInt(sequences), SymInt(gates)}, dtype);
    for (int64_t s = 0; s < sequences; ++s) copy_rows(Rows(at_start, gates), s, later, start(s), 1, gates);
    product(at_start, dense(c.tensor("w_hh")), of_h.tensor(), {}, 1.0, 1.0);
  }
};

}  // namespace

Results recurrence(const Call& c, Out out) {
  Forward f(c, out);
  f.share([&](int64_t from, int64_t to) { f.walk(from, to); });
  for (auto* d : {&f.to_output, &f.to_h, &f.to_c, &f.to_saved}) d->finish();
  return Results{out[0], out[1], out[2], out[3]};
}

Results recurrence_backward(const Call& c, Out out) {
  Backward b(c, out);
  b.share([&](int64_t from, int64_t to) { b.walk(from, to); });
  b.reach_start(c);
  for (auto* d : {&b.of_input, &b.of_state, &b.of_h, &b.of_c, &b.to_before, &b.of_output}) d->finish();
  return Results{out[0], out[1], out[2], out[3], out[4], out[5]};
}

}  // namespace facula::device::cpu
