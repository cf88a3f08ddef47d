#include "facula/device/cpu/product_task.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;
using P = ProductParam;
using B = ProductBuffer;

constexpr int kSimple = 6;  // nodes of an epilogue that is repeated for every vector of a tile

// Whether the epilogue is too much code to repeat for every vector of a tile. It then runs over the whole block of a task, which the
// second cache holds, so that the tables of elementary functions are loaded once a row.
bool is_long(const Epilogue& e) {
  int nodes = 0;
  bool elementary = false;
  if (e.value)
    visit(e.value, [&](Expr x) {
      nodes += x->kind != Kind::constant && x->kind != Kind::local && x->dtype != DType::Int64;
      elementary |= x->kind == Kind::call && ulp(x->fn) > 0;
    });
  return elementary || nodes > kSimple;
}

}  // namespace

ProductTask::ProductTask(const ProductForm& form, bool scaled, int lanes, const Layout& layout)
    : NestBuilder(DType::Float32, lanes),
      form_(form),
      layout_(layout),
      scaled_(scaled),
      long_(is_long(form.epilogue)) {}

void ProductTask::run(Expr task) {
  Expr blocks = param(P::row_blocks) * param(P::column_blocks), zero = number(0);
  batch_ = let(floordiv(task, blocks));
  Expr block_of_batch = let(task - batch_ * blocks);
  Expr column_block = let(floordiv(block_of_batch, param(P::row_blocks)));
  first_row_ = let((block_of_batch - column_block * param(P::row_blocks)) * param(P::rows));
  first_column_ = let(column_block * param(P::columns));
  rows_ = let(min(param(P::m) - first_row_, param(P::rows)));
  columns_ = let(min(param(P::n) - first_column_, param(P::columns)));
  a_ = let(batch_ * param(P::a_batch));
  b_ = let(batch_ * param(P::b_batch));
  out_ = let(batch_ * param(P::out_batch));
  batch_row_ = let(batch_ * param(P::batch_rows));
  Expr tiles = ceil_div(rows_, layout_.rows), panels = ceil_div(columns_, layout_.columns);
  Expr k_blocks = let(floordiv(param(P::k) + param(P::terms) - n_of(1), param(P::terms)));
  each(k_blocks, [&](Expr k_block) {
    k0_ = let(k_block * param(P::terms));
    terms_ = let(min(param(P::k) - k0_, param(P::terms)));
    continues_ = let(scaled_ ? (k_block > zero) | ne(param(P::adds), zero) : k_block > zero);
    begins_ = let(eq(k_block, zero));
    ends_ = let(eq(k_block, k_blocks - n_of(1)));
    each(tiles, [&](Expr tile) { pack_left(tile); });
    each(panels, [&](Expr panel) {
      pack_right(panel);
      each(tiles, [&](Expr tile) { compute(tile, part_of(panel, tile)); });
    });
  });
  if (long_) finish_block();
}

ProductTask::Part ProductTask::part_of(Expr panel, Expr tile) {
  Part p;
  p.row = let(first_row_ + tile * n_of(layout_.rows));
  p.column = let(first_column_ + panel * n_of(layout_.columns));
  p.rows = let(min(first_row_ + rows_ - p.row, number(layout_.rows)));
  p.columns = let(min(first_column_ + columns_ - p.column, number(layout_.columns)));
  return p;
}

void ProductTask::finish(const std::vector<Expr>& sums, const std::function<Element(int)>& place) {
  auto each_sum = [&](auto&& f) {
    for (size_t k = 0; k < sums.size(); ++k) f(sums[k], place(int(k)));
  };
  Expr by;
  if (scaled_) {
    Expr alpha = let(read(B::numbers, number(product_alpha)));
    each_sum([&](Expr sum, const Element&) { set(sum, alpha * sum); });
    by = let(select(begins_, read(B::numbers, number(product_beta)), real(1)));
  }
  when(continues_, [&] {
    each_sum([&](Expr sum, const Element& e) {
      Expr before = read(B::out_before, offset_of(e));
      set(sum, scaled_ ? fma(by, before, sum) : sum + before);
    });
  });
  if (!long_ && (form_.epilogue.value || form_.beside))
    when(ends_, [&] {
      each_sum([&](Expr sum, const Element& e) {
        if (form_.beside) store(B::result, offset_of(e), value_of(form_.epilogue, sum, e));
        else set(sum, value_of(form_.epilogue, sum, e));
        if (form_.saved.value) set(sum, value_of(form_.saved, sum, e));
      });
    });
  each_sum([&](Expr sum, const Element& e) { store(B::out, offset_of(e), sum); });
}

void ProductTask::finish_stored(const Part& p) {
  each(p.rows, [&](Expr r) {
    vector(p.columns, [&](Expr c) {
      std::vector<Expr> sum{variable(read(B::tile, r * n_of(layout_.columns) + c))};
      finish(sum, [&](int) { return Element{p.row + r, p.column + c}; });
    });
  });
}

// A long epilogue runs over the block of a task.
void ProductTask::finish_block() {
  each(rows_, [&](Expr r) {
    vector(columns_, [&](Expr c) {
      Element at{first_row_ + r, first_column_ + c};
      Expr sum = let(read(B::out_before, offset_of(at)));
      store(form_.beside ? B::result : B::out, offset_of(at), value_of(form_.epilogue, sum, at));
      if (form_.saved.value) store(B::out, offset_of(at), value_of(form_.saved, sum, at));
    });
  });
}

loop::Expr ProductTask::offset_of(const Element& e) const {
  return out_ + e.row * param(P::out_stride) + e.column;
}

loop::Expr ProductTask::value_of(const Epilogue& e, Expr sum, const Element& at) const {
  Expr row = batch_row_ + at.row, column = at.column + param(P::first_column);
  return applied(e, sum, row, column, layout_.operands, layout_.params);
}

}  // namespace facula::device::cpu
