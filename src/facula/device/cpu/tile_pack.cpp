#include "facula/device/cpu/tile_pack.h"

namespace facula::device::cpu {

namespace {

using namespace facula::loop;

constexpr int64_t kHighHalf = -65536, kLowHalf = 65535, kMagnitude = 0x7fffffff;
static_assert(kTileRows == kTilePairs && kTilePairs == kTileColumns);

Expr word(int64_t x) { return constant(n_of(x), DType::Int32); }
Expr bits(Expr x) { return call(Fn::bits, {x}); }

// Loops over the tiles of a panel. A vector runs along the axis that is adjacent in the operand's memory, for all steps at once, so
// that ranges are reduced to numbers once a panel.
class PanelPacker {
 public:
  PanelPacker(NestBuilder& n, const PanelForm& form, const PanelSource& source, Expr into)
      : n_(n), f_(form), s_(source), into_(into) {}

  PanelRange pack() {
    Expr least, most;
    if (f_.with_range)
      least = n_.accumulator(Monoid::min, DType::Int32), most = n_.accumulator(Monoid::max, DType::Int32);
    n_.vector(number(kTileRows), [&](Expr lane) {
      lane_ = lane;
      if (f_.with_range) least_ = n_.variable(word(kMagnitude)), most_ = n_.variable(word(0));
      n_.each(ceil_div(s_.terms, kTileTerms), [&](Expr step) {
        n_.each(number(2), [&](Expr half) {
          Expr term = n_.let(step * n_of(kTileTerms)), line = n_.let(s_.first + half * n_of(kTileRows));
          Expr tile = n_.let(into_ + step * n_of(f_.parts * kPanelStep) + half * n_of(kTileWords));
          Expr full_step = term + n_of(kTileTerms) <= s_.terms;
          Expr inside =
              n_.let(f_.terms_adjacent ? full_step : full_step & (line + n_of(kTileRows) <= s_.lines));
          n_.when(inside, [&] { pack_tile(term, line, tile); });
          n_.when(bit_not(inside), [&] { pack_border(term, line, tile); });
        });
      });
      if (f_.with_range) {
        n_.accumulate(least, Monoid::min, least_);
        n_.accumulate(most, Monoid::max, most_);
      }
    });
    if (!f_.with_range) return {};
    const int64_t infinity = 0x7f800000;
    least = n_.let(select(eq(least, word(kMagnitude)), word(infinity), least - word(kMagnitude)));
    return {least, most};
  }

 private:
  // Whether the vector's axis is not the one whose words are adjacent in a tile.
  bool is_turned() const { return f_.left != f_.terms_adjacent; }
  Expr place(Expr tile, Expr other) const {
    return is_turned() ? tile + lane_ * n_of(kTileRows) + other : tile + other * n_of(kTileRows) + lane_;
  }

  Expr begin(Expr row) const { return s_.begin ? s_.begin(row) : s_.origin + row * s_.stride; }
  // The element at an offset in a line (a term) that begins there.
  Expr element(Expr begin, Expr offset) const {
    if (!s_.begin) return n_.read(f_.source, begin + offset, f_.memory);
    Expr there = begin >= n_of(0);
    return select(there, n_.read(f_.source, max(begin, number(0)) + offset, f_.memory), n_.real(0));
  }

  void pack_tile(Expr term, Expr line, Expr tile) {
    auto pair = [&](Expr other) {
      Expr at, next, offset, beyond;
      if (f_.terms_adjacent) {
        Expr row = n_.let(begin(min(line + other, s_.lines - n_of(1))));
        at = next = row;
        offset = n_.let(term), beyond = n_.let(term + n_of(kTilePairs));
      } else {
        at = n_.let(begin(term + other)), next = n_.let(begin(term + other + n_of(kTilePairs)));
        offset = beyond = line;
      }
      return std::pair(n_.let(element(at, offset + lane_)), n_.let(element(next, beyond + lane_)));
    };
    if (!is_turned()) {
      n_.each(number(kTileRows), [&](Expr other) { put({pair(other)}, tile, other); });
      return;
    }
    // Neighbouring words are stored by neighbouring statements, which are turned in registers.
    std::vector<std::pair<Expr, Expr>> pairs;
    for (int64_t other = 0; other < kTileRows; ++other) pairs.push_back(pair(number(other)));
    put(std::move(pairs), tile, number(0));
  }
  // A tile that reaches beyond the operand: elements outside are zero.
  void pack_border(Expr term, Expr line, Expr tile) {
    n_.each(number(kTileRows), [&](Expr other) {
      Expr along = f_.terms_adjacent ? lane_ : other, across = f_.terms_adjacent ? other : lane_;
      Expr l = min(line + across, s_.lines - n_of(1));
      auto element_of = [&](int64_t half) {
        Expr t = term + along + n_of(half * kTilePairs), inside = min(t, s_.terms - n_of(1));
        Expr from = n_.let(begin(f_.terms_adjacent ? l : inside));
        return n_.let(select(t < s_.terms, element(from, f_.terms_adjacent ? inside : l), n_.real(0)));
      };
      put({{element_of(0), element_of(1)}}, tile, other);
    });
  }

  // Stores the parts of pairs to the words of `other`, `other` + 1, ...
  void put(std::vector<std::pair<Expr, Expr>> rest, Expr tile, Expr other) {
    if (f_.with_range)
      for (auto& [x, y] : rest) note(x), note(y);
    for (int part = 0; part < f_.parts; ++part) {
      bool last = part + 1 == f_.parts;
      std::vector<Expr> words;
      for (auto& [x, y] : rest) {
        Expr first = rounded(x, last), second = rounded(y, last);
        Expr low = shr(first, n_of(16)) & word(kLowHalf), high = n_.let(second & word(kHighHalf));
        words.push_back(n_.let(low | high));
        if (last) continue;
        x = n_.let(x - call(Fn::from_bits, {first & word(kHighHalf)}));
        y = n_.let(y - call(Fn::from_bits, {high}));
      }
      for (size_t k = 0; k < words.size(); ++k)
        n_.store(f_.into, place(tile, other + n_of(int64_t(k))) + n_of(part * kPanelStep), words[k]);
    }
  }
  // Bits whose upper half is the nearest bfloat16, of greater size where two are as near. The rest of three parts is exact already. A
  // NaN may overflow into a zero unless it is the last part; the rest is NaN then.
  Expr rounded(Expr x, bool last) {
    Expr b = n_.let(bits(x));
    bool exact = f_.memory != DType::Float32 || (last && f_.parts == 3);
    if (exact) return b;
    Expr up = b + word(0x8000);
    return n_.let(last ? select(ne(x, x), b | word(0x400000), up) : up);
  }
  // Moved so that a zero is the largest number and all others keep their order.
  void note(Expr x) {
    Expr size = n_.let(bits(x) & word(kMagnitude)), moved = n_.let(size + word(kMagnitude));
    n_.set(least_, select(moved < least_, moved, least_));
    n_.set(most_, select(size > most_, size, most_));
  }

  NestBuilder& n_;
  const PanelForm f_;
  const PanelSource s_;
  const Expr into_;
  Expr lane_, least_, most_;
};

}  // namespace

PanelRange pack_panel(NestBuilder& n, const PanelForm& form, const PanelSource& source, Expr into) {
  return PanelPacker(n, form, source, into).pack();
}

}  // namespace facula::device::cpu
