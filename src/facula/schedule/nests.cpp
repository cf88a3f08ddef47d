// Translates rows, sweeps and stores into statements: see nest_spec.h.
#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "facula/loop/seen.h"
#include "facula/loop/simplify.h"
#include "facula/schedule/analysis.h"
#include "facula/schedule/nest_spec.h"
#include "facula/schedule/statements.h"
#include "facula/schedule/sweeps.h"

namespace facula::schedule {

using loop::Block;
using loop::Expr;
using loop::Kind;
using loop::LoopKind;
using loop::Monoid;
using loop::Statement;

namespace {

constexpr int64_t kListed = 256;  // places in a list: 2 KiB, which stay in the cache

class TaskWriter : SweepWriter {
 public:
  TaskWriter(const NestSpec& spec, const std::vector<BufferInfo>& buffers) : SweepWriter(spec, buffers) {
    for (auto& m : spec.merges) {
      next_local_ = std::max(next_local_, m.var + 8);
      for (int k = 0; k < loop::components(m.monoid); ++k) volatile_.insert(m.var + k);
    }
  }

  Block write(int task_var, int end_var) {
    Block out;
    Block* at = &out;
    scope_.insert(task_var);
    Expr task = loop::index(task_var);
    if (spec_.unit) {
      if (!spec_.row_vector) scope_.insert(end_var);
      own_from_ = let(*at, task * spec_.unit);
      Expr end = spec_.row_vector ? own_from_ + spec_.unit : loop::index(end_var) * spec_.unit;
      own_end_ = let(*at, loop::min(end, spec_.span));
      task = integer(0);
    }
    Share share = share_of(*at, task);
    Block after;
    std::vector<Expr> place = rows(at, share, after);
    std::vector<std::pair<int, Expr>> map;
    for (size_t k = place.size(); k-- > 0;) map.push_back({spec_.rows[k].var, place[k]});
    if (spec_.row_vector && share.first_lane) {
      int v = spec_.rows.back().var;
      map.push_back({v, share.first_lane + loop::index(v)});
    }
    auto moved = [&](Expr e) { return loop::substitute(e, map); };
    auto placed = [&](std::vector<FlatStore> stores) {
      for (auto& s : stores) {
        s.value = moved(s.value);
        s.offset = moved(s.offset);
        for (auto& l : s.sweep) l.extent = moved(l.extent);
      }
      return stores;
    };
    std::vector<FlatStore> stores = placed(spec_.stores);
    if (spec_.tiled) at = tile(*at, map, stores, share.first_row, share.tile_rows, share.lanes);
    merges_ = spec_.merges;
    for (auto& m : merges_)
      for (auto& p : m.parts) p = moved(p);
    for (auto& s : placed(spec_.first)) begin(*at, std::move(s), share.lanes);
    serial(*at, 0, stores, share.lanes);
    for (auto& s : after) at->push_back(std::move(s));
    return out;
  }

 private:
  // The part of the index space that a task computes: its row (or first row), and its lanes.
  struct Share {
    Expr row, first_lane, lanes, first_row, tile_rows;
    size_t loops;  // number of row loops, without the loop in lanes and the row loop of a tile
  };
  Share share_of(Block& at, Expr task) {
    Share s{.row = task, .loops = spec_.rows.size() - spec_.row_vector};
    if (spec_.row_vector) s.lanes = spec_.rows.back().extent;
    if (spec_.tiled) {
      Expr rest = let(at, loop::floordiv(task, spec_.chunks));
      s.first_lane = let(at, loop::remainder(task, spec_.chunks) * spec_.chunk);
      s.lanes = let(at, loop::min(s.lanes - s.first_lane, spec_.chunk));
      s.first_row = let(at, loop::remainder(rest, spec_.row_chunks) * spec_.task_rows);
      s.tile_rows = let(at, loop::min(spec_.rows[s.loops - 1].extent - s.first_row, spec_.task_rows));
      s.row = let(at, loop::floordiv(rest, spec_.row_chunks));
      s.loops -= 1;
    } else if (spec_.chunked) {
      Expr piece = task;
      if (s.loops) {
        s.row = let(at, loop::floordiv(task, spec_.chunks));
        piece = let(at, loop::remainder(task, spec_.chunks));
      }
      s.first_lane = let(at, piece * spec_.chunk);
      s.lanes = let(at, loop::min(s.lanes - s.first_lane, spec_.chunk));
    }
    return s;
  }
  // The index of the share in each row loop. A task of several rows gets a loop over them: `at` becomes its body, and
  // `after` the statements at the end of the body.
  std::vector<Expr> rows(Block*& at, const Share& share, Block& after) {
    std::vector<Expr> place(share.loops);
    auto split = [&](Expr row) {
      for (size_t k = share.loops; k-- > 0;) {
        Expr extent = spec_.rows[k].extent;
        place[k] = let(*at, k ? loop::remainder(row, extent) : row);
        if (k) row = let(*at, loop::floordiv(row, extent));
      }
    };
    bool several = share.loops && spec_.task_rows && !spec_.tiled;
    if (!several) {
      split(share.row);
      return place;
    }
    Expr first = let(*at, share.row * spec_.task_rows), count = integer(1);
    for (size_t k = 0; k < share.loops; ++k) count = count * spec_.rows[k].extent;
    Statement loop = statement(Statement::Kind::loop);
    loop.var = next_var();
    loop.extent = let(*at, loop::min(count - first, spec_.task_rows));
    scope_.insert(loop.var);
    Expr now = first + loop::index(loop.var);
    if (share.loops > 1) {  // divide once per task and count from there
      split(first);
      after = count_on(*at, loop.body, place);
    }
    at->push_back(std::move(loop));
    at = &at->back().body;
    if (share.loops == 1) split(now);
    return place;
  }
  // Declares counters that begin at `place` and replaces `place` by them; gives the statements that advance them at
  // the end of the loop over rows.
  Block count_on(Block& before, Block& body, std::vector<Expr>& place) {
    auto assign = [&](Block& b, int var, Expr v) {
      Statement s = statement(Statement::Kind::assign);
      s.var = var;
      s.values = {v};
      b.push_back(std::move(s));
    };
    Block after;
    Expr carry = integer(1);
    for (size_t k = place.size(); k-- > 0;) {
      int counter = next_local_++;
      assign(before, counter, place[k]);
      place[k] = let(body, loop::local(counter, DType::Int64), false, true);
      Expr next = let(after, place[k] + carry, false), full = loop::eq(next, spec_.rows[k].extent);
      assign(after, counter, k ? loop::select(full, integer(0), next) : next);
      if (k) carry = let(after, loop::select(full, integer(1), integer(0)), false);
    }
    return after;
  }

  // Fills the arrays of staged loads, opens the loop over the rows of the tile, and redirects `stores` to the arrays.
  Block* tile(Block& block, const std::vector<std::pair<int, Expr>>& map, std::vector<FlatStore>& stores,
              Expr first_row, Expr rows, Expr lanes) {
    int across = spec_.rows[spec_.rows.size() - 2].var, along = spec_.rows.back().var;
    std::vector<std::pair<int, Expr>> tile_row{{across, first_row + loop::index(across)}};
    std::unordered_map<const loop::Node*, Expr> arrays;
    for (auto& l : spec_.staged) {
      Expr here = loop::substitute(loop::substitute(l, map), tile_row);
      Statement array = statement(Statement::Kind::array);
      array.var = next_local_++;
      array.dtype = l->part ? real_of(l->memory) : l->memory;
      array.extent = integer(spec_.tile * (spec_.tile + 1));
      Expr place = loop::index(across) * integer(spec_.tile + 1) + loop::index(along);
      Statement lane = statement(Statement::Kind::loop), column = statement(Statement::Kind::loop);
      lane.var = along;
      lane.extent = lanes;
      column.var = across;
      column.loop = LoopKind::vector;
      column.extent = rows;
      Statement put = statement(Statement::Kind::store);
      put.buffer = -1 - array.var;
      put.values = {here};
      put.offset = place;
      column.body.push_back(std::move(put));
      lane.body.push_back(std::move(column));
      arrays[here.get()] = loop::load(-1 - array.var, array.dtype, {place});
      block.push_back(std::move(array));
      block.push_back(std::move(lane));
    }
    for (auto& s : stores) {
      s.value = loop::substitute(s.value, tile_row);
      s.offset = loop::substitute(s.offset, tile_row);
      s.value = loop::rewrite(s.value, [&](Expr x) {
        auto it = arrays.find(x.get());
        return it == arrays.end() ? Expr() : it->second;
      });
    }
    Statement loop = statement(Statement::Kind::loop);
    loop.var = across;
    loop.extent = rows;
    scope_.insert(across);
    block.push_back(std::move(loop));
    return &block.back().body;
  }

  // A store at the beginning of a share: for its lanes, or for its contiguous range of places.
  void begin(Block& block, FlatStore s, Expr lanes) {
    if (spec_.row_vector && !spec_.shares_slices()) s.sweep.push_back({spec_.rows.back().var, lanes});
    if (spec_.unit) {
      Loop& all = s.sweep.back();
      std::pair<int, Expr> own{all.var, own_from_ + loop::index(all.var)};
      s.value = loop::substitute(s.value, std::span(&own, 1));
      s.offset = loop::substitute(s.offset, std::span(&own, 1));
      all.extent = own_end_ - own_from_;
    }
    Statement put = statement(Statement::Kind::store);
    put.buffer = s.buffer;
    put.values = {s.value};
    put.offset = s.offset;
    run(block, s.sweep, 0, {std::move(put)});
  }

  // ---- serial loops, inside of them the lanes, inside of these the body of the row
  void serial(Block& block, size_t k, std::vector<FlatStore>& stores, Expr lanes) {
    size_t mark = lets_.size();
    bool in_order = k < spec_.serial.size();
    if (own_from_ && !in_order) {
      Statement own = statement(Statement::Kind::condition);
      own.values = {is_own(let(block, place_of(stores)))};
      Expr from = std::exchange(own_from_, Expr());
      serial(own.body, k, stores, lanes);
      own_from_ = from;
      block.push_back(std::move(own));
    } else if (in_order || spec_.row_vector) {
      hoist(block, roots_of(stores));
      Loop over = in_order ? spec_.serial[k] : Loop{spec_.rows.back().var, lanes};
      bool last = k + 1 == spec_.serial.size() + (spec_.row_vector && !spec_.shares_slices());
      bool listed = last && has_list(stores, over.var);
      Block& at = listed ? list(block, over, stores) : block;
      if (listed) own_from_ = Expr();  // the list contains only owned places
      Statement loop = statement(Statement::Kind::loop);
      loop.var = over.var;
      loop.extent = over.extent;
      scope_.insert(loop.var);
      if (in_order) {
        serial(loop.body, k + 1, stores, lanes);
      } else {
        loop.loop = LoopKind::vector;
        in_lanes_ = true;
        row(loop.body, stores);
      }
      at.push_back(std::move(loop));
    } else {
      row(block, stores);
    }
    lets_.resize(mark);
  }
  // The place that the stores update, or the beginning of the slice.
  Expr place_of(const std::vector<FlatStore>& stores) const {
    if (!spec_.shares_slices()) return stores[0].offset;
    std::pair<int, Expr> begin{spec_.rows.back().var, integer(0)};
    return loop::substitute(stores[0].offset, std::span(&begin, 1));
  }
  // The condition that the task owns the place.
  Expr is_own(Expr place) const { return (own_from_ <= place) & (place < own_end_); }

  // True if all stores update the same place, which an index tensor gives for each iteration of the loop over `var`.
  bool has_list(const std::vector<FlatStore>& stores, int var) {
    if (!spec_.lists_places) return false;
    Expr place = stores[0].offset;
    std::unordered_set<const loop::Node*> read, seen;
    for (auto& s : stores) {
      if (!same(s.offset, place)) return false;
      visit_once(s.value, read, [](Expr) {});
    }
    bool picked = false, pure = !place->has_reduce && read.count(place.get());
    visit_once(place, seen, [&](Expr e) {
      if (e->kind != Kind::load) return;
      auto free = free_vars(e);
      picked |= std::count(free.begin(), free.end(), var) > 0;
      pure &= e->slot >= 0 && !buffers_[size_t(e->slot)].written;
    });
    return picked && pure;
  }
  // Opens a loop over blocks of `over`, and replaces `over` by the loop over the steps of one block. Before that,
  // lanes compute the places of all steps into an array, from which `stores` then read them. If the task owns a share
  // of the places, the lanes also list the steps that update it, and only these are run.
  Block& list(Block& block, Loop& over, std::vector<FlatStore>& stores) {
    Statement array = numbers(kListed), own = numbers(kListed + 1);
    Statement pieces = statement(Statement::Kind::loop);
    pieces.var = next_var();
    pieces.extent = loop::floordiv(over.extent + integer(kListed - 1), integer(kListed));
    scope_.insert(pieces.var);
    Block body;
    Expr first = let(body, loop::index(pieces.var) * integer(kListed));
    Expr count = let(body, loop::min(over.extent - first, integer(kListed)));

    Statement fill = statement(Statement::Kind::loop), put = statement(Statement::Kind::store);
    fill.var = next_var();
    fill.loop = LoopKind::vector;
    fill.extent = count;
    int steps = over.var;
    std::pair<int, Expr> lane{steps, first + loop::index(fill.var)};
    Expr place = stores[0].offset, of_lane = loop::substitute(place_of(stores), std::span(&lane, 1));
    hoist(body, {&of_lane});
    put.buffer = -1 - array.var;
    put.offset = loop::index(fill.var);
    Expr step = loop::index(next_var());
    over.var = step->slot;
    if (own_from_) {
      of_lane = let(fill.body, of_lane, false);
      count = pick(body, fill, is_own(of_lane), own.var);
      step = loop::load(-1 - own.var, DType::Int64, {step});
      block.push_back(std::move(own));
    }
    put.values = {of_lane};
    fill.body.push_back(std::move(put));
    body.push_back(std::move(fill));

    Expr listed = loop::load(-1 - array.var, DType::Int64, {step});
    if (spec_.shares_slices()) listed = listed + loop::index(spec_.rows.back().var);
    std::pair<int, Expr> moved{steps, first + step};
    for (auto* r : roots_of(stores)) {
      *r = loop::rewrite(*r, [&](Expr x) { return same(x, place) ? listed : Expr(); });
      *r = loop::substitute(*r, std::span(&moved, 1));
    }
    over.extent = count;
    hoist(body, roots_of(stores));
    pieces.body = std::move(body);
    block.push_back(std::move(array));
    block.push_back(std::move(pieces));
    return block.back().body;
  }

  Statement numbers(int64_t count) {
    Statement array = statement(Statement::Kind::array);
    array.var = next_local_++;
    array.dtype = DType::Int64;
    array.extent = integer(count);
    return array;
  }
  // Makes the loop `fill` write the numbers of its iterations for which `wanted` holds to array `own`, one behind the
  // other; gives their count. (An unwanted number is overwritten by the next one.)
  Expr pick(Block& before, Statement& fill, Expr wanted, int own) {
    Statement total = statement(Statement::Kind::accumulator), add = statement(Statement::Kind::accumulate);
    total.var = add.var = next_local_++;
    total.monoid = add.monoid = Monoid::sum;
    total.dtype = DType::Int64;
    volatile_.insert(total.var);
    Expr count = loop::local(total.var, DType::Int64);
    Expr one = let(fill.body, loop::cast(let(fill.body, wanted, false), DType::Int64), false);
    add.values = {one};
    Statement put = statement(Statement::Kind::store);
    put.buffer = -1 - own;
    put.offset = count - one;
    put.values = {loop::index(fill.var)};
    fill.body.push_back(std::move(add));
    fill.body.push_back(std::move(put));
    before.push_back(std::move(total));
    return count;
  }

  std::vector<Expr*> roots_of(std::vector<FlatStore>& stores) {
    std::vector<Expr*> roots;
    for (auto& s : stores) {
      roots.push_back(&s.value);
      roots.push_back(&s.offset);
    }
    for (auto& m : merges_)
      for (auto& p : m.parts) roots.push_back(&p);
    return roots;
  }

  void row(Block& block, std::vector<FlatStore>& stores) {
    for (auto& m : merges_) merge(block, m);
    for (auto& m : merges_)
      for (int k = 0; k < loop::components(m.monoid); ++k) volatile_.erase(m.var + k);
    std::vector<Expr*> values;
    for (auto& s : stores) values.push_back(&s.value);
    stores_ = &stores;
    resolve(block, values);
    stores_ = nullptr;
    std::vector<bool> done(stores.size());
    for (size_t k = 0; k < stores.size(); ++k) {
      if (done[k]) continue;
      std::vector<Statement> payload;
      std::vector<Loop> sweep = stores[k].sweep;
      for (size_t j = k; j < stores.size(); ++j) {
        bool same_sweep = stores[j].sweep.size() == sweep.size();
        for (size_t i = 0; same_sweep && i < sweep.size(); ++i)
          same_sweep = stores[j].sweep[i].var == sweep[i].var;
        if (!same_sweep) continue;
        done[j] = true;
        Statement s = statement(Statement::Kind::store);
        s.buffer = stores[j].buffer;
        s.part = stores[j].part;
        s.values = {stores[j].value};
        s.offset = stores[j].offset;
        payload.push_back(std::move(s));
      }
      run(block, sweep, 0, std::move(payload));
    }
  }

  int next_var() { return next_var_++; }

  std::vector<Merge> merges_;
  int next_var_ = 1 << 20;
  Expr own_from_,
      own_end_;  // the range of places that the task owns; null if it owns all, or where only owned ones are visited
};

}  // namespace

Block task_body(const NestSpec& spec, const std::vector<BufferInfo>& buffers, int task_var, int end_var) {
  return TaskWriter(spec, buffers).write(task_var, end_var);
}

}  // namespace facula::schedule
