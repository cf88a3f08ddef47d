// Images sampled at the points of a grid.
#include <algorithm>
#include <array>

#include "facula/catalog/resample_helpers.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;
using namespace facula::catalog::resample_helpers;

namespace {
// ---- sampling at the places of a grid
struct Grid {
  int64_t interpolation, padding;
  bool align, volume;
};
Grid grid_of(const Call& c) {
  return {c.integer("interpolation_mode").guard_int(), c.integer("padding_mode").guard_int(),
          c.flag("align_corners"), c.sizes("input").size() == 5};
}
enum Padding { zeros, border, reflection };
// A position clamped to [0, last]. Its derivative is a factor of the gradient, 0 outside, so that a NaN gradient stays NaN. A NaN
// position becomes 0 in an image and `last` in a volume, which follows from the comparisons of PyTorch's kernels.
Expr clamped_place(const Grid& g, Expr x, Expr last) {
  DType t = x.dtype();
  Expr inside = (x > 0.0) & (x < last), none = zero_of(t);
  Expr beyond = g.volume ? (x >= last) | isnan(x) : x >= last;
  Expr counted = select(isnan(x) | isinf(x), none, x) * select(inside, constant(1.0, t), none);
  return select(inside, counted, counted + select(beyond, last, none));
}
// A place in elements of a dimension of n, moved inside as the padding asks.
Expr padded(const Grid& g, Expr x, Expr n) {
  DType t = x.dtype();
  Expr last = cast(n - Scalar(int64_t(1)), t);
  if (g.padding == zeros) return x;
  if (g.padding == reflection) {
    Expr low = constant(g.align ? 0.0 : -0.5, t), extent = g.align ? last : cast(n, t);
    Expr from_low = abs(x - low), whole = select(eq(extent, 0.0), 1.0, extent);
    Expr extra = fmod(from_low, whole), flips = floor(from_low / whole);
    Expr even = eq(fmod(flips, 2.0), 0.0);
    x = select(eq(extent, 0.0), zero_of(t), select(even, extra + low, extent - extra + low));
  }
  return clamped_place(g, x, last);
}
// Cubic weights have both signs, and their derivatives cancel: they, and sums with them, are taken in float64.
Expr exact(const Grid& g, Expr x) { return g.interpolation == cubic ? cast(x, DType::Float64) : x; }
// The element that is read along one dimension.
struct Read {
  Expr at, weight, valid;
};
std::vector<Read> reads(const Grid& g, Expr place, SymInt size) {
  Expr n = n_of(size);
  place = exact(g, place);
  DType t = place.dtype();
  Expr x = g.align ? (place + 1.0) / 2.0 * cast(n - Scalar(int64_t(1)), t)
                   : ((place + 1.0) * cast(n, t) - 1.0) / 2.0;
  auto read = [&](Expr at, Expr weight) {
    Expr valid = (at >= 0.0) & (at < cast(n, t));
    return Read{clipped(cast(at, DType::Int64), n), weight, valid};
  };
  if (g.interpolation == cubic) {
    Expr first = floor(x);
    auto weights = cubic_weights(x - first);
    std::vector<Read> four;
    for (int k = 0; k < 4; ++k) four.push_back(read(padded(g, first + double(k - 1), n), weights[size_t(k)]));
    return four;
  }
  x = padded(g, x, n);
  if (g.interpolation == nearest) return {read(round(x), constant(1.0, t))};
  Expr first = floor(x);
  return {read(first, first + 1.0 - x), read(first + 1.0, x - first)};
}
// The place of element i among n of [-1, 1], whose ends are centres of elements or their edges.
Expr even_place(Expr i, SymInt size, bool align, DType t) {
  if (!(size > kOne)) return constant(0.0, t);
  Expr n = cast(n_of(size), t), steps = cast(n_of(size - kOne), t), step = constant(2.0, t) / steps;
  Expr x = cast(i, t);
  Expr place = select(i < n_of(size / SymInt(int64_t(2))), x * step - 1.0, 1.0 - (steps - x) * step);
  return align ? place : place * (steps / n);
}
// The same cut off to integers at each step, as PyTorch's of integer matrices.
Expr whole_place(Expr i, SymInt size, bool align, DType t) {
  if (!(size > kOne)) return zero_of(t);
  Expr place = cast(even_place(i, size, true, DType::Float32), t);
  if (align) return place;
  Expr steps = cast(n_of(size - kOne), t);
  return cast(cast(place * steps, DType::Float32) / cast(n_of(size), DType::Float32), t);
}
Expr place_of(Expr i, SymInt size, bool align, DType t) {
  if (is_complex(t)) return cast(even_place(i, size, align, real_of(t)), t);
  return is_floating(t) ? even_place(i, size, align, t) : whole_place(i, size, align, t);
}
// The place of the given name among those of three.
int64_t place_among(const Call& c, const char* parameter, std::array<const char*, 3> names) {
  auto at = std::find(names.begin(), names.end(), c.str(parameter));
  value_check(at != names.end(), "grid_sample")
      << "expected " << parameter << " to be '" << names[0] << "', '" << names[1] << "' or '" << names[2]
      << "', but got: '" << c.str(parameter) << "'";
  return at - names.begin();
}
Tensor sampled(const Call& c, const Tensor& input, const Tensor& grid) {
  int64_t mode = place_among(c, "mode", {"bilinear", "nearest", "bicubic"}),
          padding = place_among(c, "padding_mode", {"zeros", "border", "reflection"});
  return grid_sampler(input, grid, mode, padding, c.flag("align_corners"));
}
Tensor sampled_by_numbers(const Call& c, const Tensor& input, const Tensor& grid, int rank) {
  runtime_check(input.dim() == rank, c.name())
      << "expected an input of " << rank << " dimensions, got shape " << to_string(input.sizes());
  return grid_sampler(input, grid, c.integer("interpolation_mode").guard_int(),
                      c.integer("padding_mode").guard_int(), c.flag("align_corners"));
}
// [N, C, H', W'] of input [N, C, H, W] and grid [N, H', W', 2], or as much of volumes.
Dims grid_sampler_sizes(const Call& c) {
  auto input = c.sizes("input"), grid = c.sizes("grid");
  index_check(!input.empty() && !grid.empty(), "grid_sampler")
      << "expected 4D or 5D input and grid, got " << to_string(input) << " and " << to_string(grid);
  runtime_check(c.dtype("input") == c.dtype("grid"), "grid_sampler")
      << "expected input and grid to have same dtype, but input has " << c.dtype("input") << " and grid has "
      << c.dtype("grid");
  runtime_check((input.size() == 4 || input.size() == 5) && input.size() == grid.size(), "grid_sampler")
      << "expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
      << to_string(input) << " and grid with sizes " << to_string(grid);
  runtime_check(grid.back() == SymInt(int64_t(input.size()) - 2), "grid_sampler")
      << "expected grid to have size " << input.size() - 2 << " in last dimension, but got grid with sizes "
      << to_string(grid);
  runtime_check(grid[0] == input[0], "grid_sampler")
      << "expected grid and input to have same batch size, but got input with sizes " << to_string(input)
      << " and grid with sizes " << to_string(grid);
  auto among = [&](const char* mode) {
    int64_t given = c.integer(mode).guard_int();
    value_check(given >= 0 && given <= 2, "grid_sampler")
        << "expected " << mode << " to be 0, 1 or 2, got " << given;
  };
  among("interpolation_mode");
  among("padding_mode");
  bool filled = true;
  for (size_t k = 2; k < input.size(); ++k) filled &= input[k] > kZero;
  runtime_check(filled, "grid_sampler")
      << "expected input to have non-empty spatial dimensions, but input has sizes " << to_string(input);
  runtime_check(input.size() == 4 || grid_of(c).interpolation != cubic, "grid_sampler")
      << "bicubic interpolation only supports 4D input";
  Dims out{input[0], input[1]};
  for (size_t k = 1; k + 1 < grid.size(); ++k) out.push_back(grid[k]);
  return out;
}
}  // namespace

FACULA_FAMILY(grid_sample) {
  define(
      "grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor")
      .doc(
          "Elements of [N, C, ...] at the places of grid [N, ..., dimensions], from -1 to 1; the last dimension first.")
      .grad_name(
          [](const Call& c) { return grad_name("GridSampler" + std::to_string(c.rank("input") - 2) + "D"); })
      .autocast(Autocast::fp32)
      .bind(function)
      .dtypes(d::floating)
      .shape(grid_sampler_sizes)
      .loop([](const LoopCall& c, Index i) {
        Grid g = grid_of(c);
        auto sizes = c.sizes("input");
        size_t dims = sizes.size() - 2;
        std::vector<std::vector<Read>> along;
        for (size_t k = 0; k < dims; ++k) {
          Index at{i[0]};
          at.insert(at.end(), i.begin() + 2, i.end());
          at.push_back(integer(int64_t(dims - 1 - k)));
          along.push_back(reads(g, c.load("grid", at), sizes[2 + k]));
        }
        // The sum over dimensions k and on, at the elements chosen before.
        std::function<Expr(size_t, Index, Expr)> sum = [&](size_t k, Index at, Expr valid) -> Expr {
          if (k == dims) {
            Expr x = exact(g, c.load("input", at));
            return select(valid, x, zero_of(x.dtype()));
          }
          Expr total;
          for (auto& r : along[k]) {
            Index next = at;
            next.push_back(r.at);
            Expr part = sum(k + 1, next, valid ? valid & r.valid : r.valid);
            // The weights of a place at infinity are NaN. In volumes PyTorch does not read them outside of the input.
            Expr weight = dims == 3 ? select(r.valid, r.weight, zero_of(r.weight.dtype())) : r.weight;
            if (g.interpolation != nearest) part = part * weight;
            total = total ? total + part : part;
          }
          return total;
        };
        return cast(sum(0, {i[0], i[1]}, {}), compute_type(c.dtype("input")));
      })
      .samples(
          {"input[2, 3, 4, 5], grid[2, 3, 2, 2], interpolation_mode=0, padding_mode=0, align_corners=False",
           "input[1, 2, 4, 5], grid[1, 3, 3, 2], interpolation_mode=0, padding_mode=1, align_corners=True",
           "input[1, 2, 4, 5], grid[1, 3, 3, 2], interpolation_mode=1, padding_mode=0, align_corners=False",
           "input[1, 2, 4, 5], grid[1, 3, 3, 2], interpolation_mode=2, padding_mode=2, align_corners=False",
           "input[1, 2, 3, 4, 3], grid[1, 2, 3, 2, 3], interpolation_mode=0, padding_mode=2, align_corners=False"});
  define(
      "_grid_sample(Tensor input, Tensor grid, str mode='bilinear', str padding_mode='zeros', bool align_corners=False) -> Tensor")
      .python("grid_sample(input, grid, mode='bilinear', padding_mode='zeros', align_corners=None)",
              "align_corners = aligned(align_corners)")
      .doc(
          "Elements of [N, C, H, W] at the places [N, H', W', 2], x and y from -1 to 1; three for volumes. `mode`: 'bilinear', 'nearest', 'bicubic'; "
          "padding_mode: 'zeros', 'border', 'reflection'.  Jaderberg et al., 2015.")
      .bind(hidden)
      .procedure(
          [](const Call& c, const Tensor& input, const Tensor& grid) { return sampled(c, input, grid); })
      .samples({"input[2, 3, 4, 5], grid[2, 3, 2, 2]",
                "input[1, 2, 4, 5], grid[1, 3, 3, 2], mode='nearest', padding_mode='border'"});
  define(
      "grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor")
      .doc("grid_sampler of images [N, C, H, W].")
      .bind(function)
      .procedure([](const Call& c, const Tensor& input, const Tensor& grid) {
        return sampled_by_numbers(c, input, grid, 4);
      })
      .samples(
          {"input[2, 3, 4, 5], grid[2, 3, 2, 2], interpolation_mode=0, padding_mode=0, align_corners=False"});
  define(
      "grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor")
      .doc("grid_sampler of volumes [N, C, D, H, W].")
      .bind(function)
      .procedure([](const Call& c, const Tensor& input, const Tensor& grid) {
        return sampled_by_numbers(c, input, grid, 5);
      })
      .samples(
          {"input[1, 2, 3, 4, 3], grid[1, 2, 3, 2, 3], interpolation_mode=0, padding_mode=2, align_corners=False"});
  define("affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor")
      .autocast(Autocast::lower)
      .doc(
          "The places where a result of `size` reads its input, moved by the matrices theta [N, dimensions, dimensions + 1].")
      .bind(function)
      .dtypes(d::numeric)
      .shape([](const Call& c) {
        auto size = c.ints("size"), theta = c.sizes("theta");
        index_check(theta.size() > 1, "affine_grid_generator")
            << "expected theta [N, 2, 3] or [N, 3, 4], got shape " << to_string(theta);
        runtime_check((size.size() == 4 || size.size() == 5) && theta.size() == 3 && theta[0] == size[0] &&
                          theta[1] == SymInt(int64_t(size.size()) - 2) &&
                          theta[2] == SymInt(int64_t(size.size()) - 1),
                      "affine_grid_generator")
            << "expected theta [N, 2, 3] for size [N, C, H, W] or [N, 3, 4] for [N, C, D, H, W], got theta "
            << to_string(theta) << " and size " << to_string(size);
        Dims out{size[0]};
        for (auto n : size.last(size.size() - 2)) out.push_back(n);
        out.push_back(theta[1]);
        return out;
      })
      .loop([](const LoopCall& c, Index i) {
        auto size = c.ints("size");
        size_t dims = size.size() - 2;
        auto entry = [&](size_t column) {
          return c.load("theta", {i[0], i.back(), integer(int64_t(column))});
        };
        Expr last = entry(dims), sum;
        for (size_t j = 0; j < dims; ++j) {
          size_t k = dims - 1 - j;  // the last dimension comes first
          Expr part = place_of(i[1 + k], size[2 + k], c.flag("align_corners"), last.dtype()) * entry(j);
          sum = sum ? sum + part : part;
        }
        return sum + last;
      })
      .samples({"theta[2, 2, 3], size=[2, 1, 3, 4], align_corners=False",
                "theta[1, 3, 4], size=[1, 2, 2, 3, 4], align_corners=True"});
}
