// Arrangements of tensors: stacks, parts, mirrored and turned ones, matrices from diagonals and blocks, lists of
// indices and of choices.
#include "facula/catalog/shifts.h"
#include "facula/catalog/warns.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/views.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;
namespace d = facula::dtypes;

namespace {
// Operator `name` joins what `raise` makes of each tensor along `dim`.
Definer stack_raised(const char* name, int dim, Tensor (*raise)(const Tensor&)) {
  return define(std::string(name) + "(Tensor[] tensors) -> Tensor")
      .converting_out()
      .bad_conversion(ErrorType::TypeError)
      .bind(function)
      .procedure([dim, raise](const Call& c, const std::vector<Tensor>& tensors) {
        runtime_check(!tensors.empty(), c.name()) << "expects a non-empty list of tensors";
        std::vector<Tensor> raised;
        for (auto& t : tensors) raised.push_back(raise(t));
        return cat(raised, dim);
      });
}
Tensor as_column(const Tensor& t) { return t.dim() < 2 ? reshape(t, Sizes{t.numel(), int64_t(1)}) : t; }
Tensor as_row(const Tensor& t) { return t.dim() < 2 ? reshape(t, Sizes{int64_t(1), t.numel()}) : t; }
Tensor with_depth(const Tensor& t) { return t.dim() > 2 ? t : unsqueeze(as_row(t), -1); }
// Operator `name` gives a tensor, or each of several, what `raise` makes of it.
void at_least(const char* name, const char* doc, Tensor (*raise)(const Tensor&)) {
  define(std::string(name) + "(Tensor self) -> Tensor")
      .doc(doc)
      .dtypes(d::stored)
      .bind(function)
      .procedure([raise](const Tensor& self) { return raise(self); })
      .samples({"self[]", "self[3]", "self[2, 3]"});
  define(std::string(name) + ".Sequence(Tensor[] tensors) -> Tensor[]")
      .doc(doc)
      .dtypes(d::stored)
      .bind(function)
      .procedure([raise](std::vector<Tensor> tensors) {
        for (Tensor& t : tensors) t = raise(t);
        return tensors;
      })
      .samples({"tensors{[], [3]}"});
}
// ---- channels and pixels
bool lies_channels_last(const Tensor& t) {
  return t.dim() == 4 && !t.is_contiguous() && t.is_channels_last();
}
struct Pixels {
  Tensor images;  // [*, channels, height, width], the channels last in memory where `is_last`
  bool is_last;
  Dims lead;
  SymInt channels, height, width;
};
Pixels pixels(const char* name, const Tensor& self, const char* factor, int64_t r) {
  runtime_check(r > 0, name) << "expects a positive " << factor << ", but got " << r;
  runtime_check(self.dim() >= 3, name)
      << "expects input to have at least 3 dimensions, but got " << self.dim();
  auto sizes = self.sizes();
  return {self,
          lies_channels_last(self),
          Dims(sizes.first(sizes.size() - 3)),
          self.size(-3),
          self.size(-2),
          self.size(-1)};
}
// The images seen with five dimensions, `apart`, in place of the last three: those that make up the channels and
// then those that make up a place become the dimensions `together`.
Tensor rearranged(const Pixels& p, const Dims& apart, Ints of_channels, Ints of_places, Dims together) {
  auto joined = [&](const Dims& of) {
    Dims sizes = p.lead;
    for (SymInt n : of) sizes.push_back(n);
    return sizes;
  };
  if (p.is_last) {
    std::swap(of_channels, of_places);
    together = {together[1], together[2], together[0]};
  }
  Ints order;
  for (size_t k = 0; k < p.lead.size(); ++k) order.push_back(int64_t(k));
  for (auto* part : {&of_channels, &of_places})
    for (int64_t k : *part) order.push_back(int64_t(p.lead.size()) + k);
  Tensor made = reshape(permute(reshape(p.images, joined(apart)), order), joined(together));
  return p.is_last ? movedim(made, {-1}, {1}) : made;
}
// n over k, or `far` where it is no less.
int64_t binomial(__int128 n, __int128 k, int64_t far) {
  __int128 count = 1;
  k = std::min(k, n - k);
  for (__int128 i = 1; i <= k && count < far; ++i) count = count * (n - k + i) / i;
  return int64_t(std::min<__int128>(count, far));
}
// The rows of r places below n: each increasing, or not falling where places may come again.
Tensor choices(int64_t n, int64_t r, bool again) {
  if (n == 0 || (!again && r > n)) return empty(Sizes{int64_t(0), r}, DType::Int64);
  int64_t rows = binomial(again ? __int128(n) + r - 1 : n, r, int64_t(1) << 60);
  Tensor t = Tensor::empty(IntSpan(Ints{rows, r}), DType::Int64);
  auto* at = t.data<int64_t>();
  for (int64_t k = 0; k < r; ++k) at[k] = again ? 0 : k;
  for (int64_t row = 1; row < rows; ++row) {
    int64_t* before = std::exchange(at, at + r);
    int64_t k = r - 1;
    for (int64_t last = n - 1; before[k] == last; --k) last -= again ? 0 : 1;
    std::copy(before, before + k, at);
    for (int64_t next = before[k] + 1; k < r; ++k) at[k] = again ? next : next++;
  }
  return _to_device(t, default_device());  // that of the call
}
Tensor turned(const Tensor& self, int64_t k, int a, int b) {
  switch (((k % 4) + 4) % 4) {
    case 1: return transpose(flip(self, Sizes{int64_t(b)}), a, b);
    case 2: return flip(self, Sizes{int64_t(a), int64_t(b)});
    case 3: return flip(transpose(self, a, b), Sizes{int64_t(b)});
    default: return clone(self, MemoryFormat::contiguous);
  }
}
}  // namespace

FACULA_FAMILY(arrange) {
  stack_raised("column_stack", 1, as_column)
      .doc("Joined along dimension 1, vectors as columns.")
      .samples({"tensors{[3], [3, 2]}", "tensors{[], []}"});
  stack_raised("dstack", 2, with_depth)
      .doc("Joined along dimension 2; what has fewer dimensions is raised to [1, n, 1] or [n, m, 1].")
      .samples({"tensors{[3], [3]}", "tensors{[2, 3], [2, 3, 2]}"});
  define("fliplr(Tensor self) -> Tensor")
      .doc("Order reversed along dimension 1.")
      .procedure([](const Tensor& self) {
        runtime_check(self.dim() >= 2, "fliplr")
            << "input must be >= 2-d, got shape " << to_string(self.sizes());
        return flip(self, Sizes{int64_t(1)});
      })
      .samples({"self[2, 3]"});
  define("flipud(Tensor self) -> Tensor")
      .doc("Order reversed along dimension 0.")
      .procedure([](const Tensor& self) {
        runtime_check(self.dim() >= 1, "flipud")
            << "input must be >= 1-d, got shape " << to_string(self.sizes());
        return flip(self, Sizes{int64_t(0)});
      })
      .samples({"self[2, 3]", "self[3]"});
  define("rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor")
      .grad_name("Rot90")
      .doc(
          "Turned k times by a right angle in the plane of `dims`, from the first dimension towards the second.")
      .procedure([](const Tensor& self, int64_t k, SymSpan dims) {
        runtime_check(dims.size() == 2, "rot90")
            << "expected total rotation dims == 2, but got dims = " << to_string(dims);
        runtime_check(self.dim() >= 2, "rot90")
            << "expected total dims >= 2, but got shape " << to_string(self.sizes());
        check_shift("rot90", "k", k);
        int a = wrap_dim("rot90", dims[0].guard_int(), self.dim()),
            b = wrap_dim("rot90", dims[1].guard_int(), self.dim());
        runtime_check(a != b, "rot90")
            << "expected rotation dims to be different, but got " << to_string(dims);
        return turned(self, k, a, b);
      })
      .samples({"self[2, 3]", "self[2, 3, 4], k=-1, dims=[1, 2]", "self[2, 3], k=2", "self[2, 3], k=4"});
  at_least("atleast_1d", "self, as a vector where it is 0-d.",
           [](const Tensor& t) { return t.dim() ? t : reshape(t, Sizes{int64_t(1)}); });
  at_least("atleast_2d", "self, as a matrix of one row where it has fewer dimensions.", as_row);
  at_least("atleast_3d", "self, with dimensions of size 1 in front and behind where it has fewer than 3.",
           with_depth);
  define("broadcast_tensors(Tensor[] tensors) -> Tensor[]")
      .doc("Views of all tensors with the shape that they broadcast to.")
      .bind(function)
      .procedure([](const std::vector<Tensor>& tensors) {
        std::vector<SymSpan> shapes;
        for (auto& t : tensors) shapes.push_back(t.sizes());
        Dims sizes = broadcast_sizes("broadcast_tensors", shapes);
        std::vector<Tensor> out;
        for (auto& t : tensors) out.push_back(expand(t, sizes));
        return out;
      })
      .samples({"tensors{[2, 1], [3], []}"});
  define("meshgrid(Tensor[] tensors, *, str? indexing=None) -> Tensor[]")
      .doc(
          "Coordinates of a grid from one vector for each dimension; indexing='xy' exchanges the first two dimensions, 'ij', as None, "
          "does not.")
      .bind(function)
      .check([](const Call& c) {
        if (!c.has("indexing"))
          warn_once(
              "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.");
      })
      .procedure([](const std::vector<Tensor>& tensors, std::optional<std::string> given) {
        std::string indexing = given.value_or("ij");
        runtime_check(!tensors.empty(), "meshgrid") << "expects at least one tensor";
        runtime_check(indexing == "ij" || indexing == "xy", "meshgrid")
            << "indexing must be 'ij' or 'xy', not '" << indexing << "'";
        bool exchanged = indexing == "xy" && tensors.size() > 1;
        std::vector<Tensor> vectors;
        for (auto& t : tensors) {
          runtime_check(t.dim() <= 1, "meshgrid")
              << "expected vectors or 0-d tensors, got shape " << to_string(t.sizes());
          runtime_check(t.dtype() == tensors[0].dtype(), "meshgrid")
              << "expects all tensors to have the same dtype, got " << tensors[0].dtype() << " and "
              << t.dtype();
          vectors.push_back(reshape(t, Sizes{t.numel()}));
        }
        if (exchanged) std::swap(vectors[0], vectors[1]);
        Dims sizes;
        for (auto& v : vectors) sizes.push_back(v.size(0));
        for (size_t k = 0; k < vectors.size(); ++k) {
          Dims along(vectors.size(), SymInt(int64_t(1)));
          along[k] = sizes[k];
          vectors[k] = expand(view(vectors[k], along), sizes);
        }
        if (exchanged) std::swap(vectors[0], vectors[1]);
        return vectors;
      })
      .samples({"tensors{[2], [3]}, indexing='ij'", "tensors{[2], [3], []}, indexing='xy'"});
  define("cartesian_prod(Tensor[] tensors) -> Tensor")
      .doc("All choices of one element of each vector, one a row; of a single vector itself.")
      .bind(function)
      .procedure([](const std::vector<Tensor>& tensors) {
        for (auto& t : tensors)
          runtime_check(t.dim() == 1, "cartesian_prod")
              << "expected 1D vectors, but got shape " << to_string(t.sizes());
        if (tensors.size() == 1) return tensors[0];
        std::vector<Tensor> columns = meshgrid(tensors, "ij");
        for (Tensor& t : columns) t = reshape(t, Sizes{t.numel()});
        return stack(columns, 1);
      })
      .samples({"tensors{[2], [3]}", "tensors{[2]}"});
  define("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")
      .grad_name("PixelShuffle")
      .doc("[*, C r^2, H, W] to [*, C, H r, W r].  Shi et al., 2016.")
      .dtypes(d::stored)
      .bind(function | nn_functional)
      .procedure([](const Tensor& self, int64_t upscale_factor) {
        Pixels p = pixels("pixel_shuffle", self, "upscale_factor", upscale_factor);
        SymInt r(upscale_factor), squared = r * r;
        runtime_check(p.channels % squared == SymInt(int64_t(0)), "pixel_shuffle")
            << "expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            << "input.size(-3)=" << p.channels << " is not divisible by " << squared;
        return rearranged(p, {p.channels / squared, r, r, p.height, p.width}, {0}, {3, 1, 4, 2},
                          {p.channels / squared, p.height * r, p.width * r});
      })
      .samples({"self[2, 8, 2, 3], upscale_factor=2", "self[4, 1, 2], upscale_factor=2"});
  define("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor")
      .grad_name("PixelUnshuffle")
      .doc("[*, C, H r, W r] to [*, C r^2, H, W]: the inverse of pixel_shuffle.")
      .dtypes(d::stored)
      .bind(function | nn_functional)
      .procedure([](const Tensor& self, int64_t downscale_factor) {
        Pixels p = pixels("pixel_unshuffle", self, "downscale_factor", downscale_factor);
        SymInt r(downscale_factor), none(int64_t(0));
        runtime_check(p.height % r == none && p.width % r == none, "pixel_unshuffle")
            << "expects height and width to be divisible by downscale_factor, but input "
            << to_string(self.sizes()) << " is not by " << r;
        return rearranged(p, {p.channels, p.height / r, r, p.width / r, r}, {0, 2, 4}, {1, 3},
                          {p.channels * r * r, p.height / r, p.width / r});
      })
      .samples({"self[2, 2, 4, 6], downscale_factor=2", "self[1, 2, 4], downscale_factor=2"});
  define("channel_shuffle(Tensor self, int groups) -> Tensor")
      .grad_name("ChannelShuffle")
      .doc(
          "Channels [N, C, ...] in groups of C / groups, dealt out one of each group in turn.  Zhang et al., 2018.")
      .dtypes(d::stored)
      .bind(function | nn_functional)
      .alias("native_channel_shuffle")
      .procedure([](const Tensor& self, int64_t groups) {
        runtime_check(groups > 0, "channel_shuffle")
            << "number of groups to divide channels in must be positive, got " << groups;
        runtime_check(self.dim() >= 3, "channel_shuffle")
            << "expects input with > 2 dims, but got shape " << to_string(self.sizes());
        SymInt each = self.size(1) / SymInt(groups);
        runtime_check(each * SymInt(groups) == self.size(1), "channel_shuffle")
            << "number of channels must be divisible by groups, got " << self.size(1) << " channels and "
            << groups << " groups";
        bool last = lies_channels_last(self);
        Tensor x = last ? movedim(self, {1}, {-1}) : contiguous(self);
        int k = last ? 3 : 1;
        Dims apart = inserted(with(x.sizes(), k, SymInt(groups)), k + 1, each);
        Tensor dealt = reshape(transpose(view(x, apart), k, k + 1), x.sizes());
        return last ? movedim(dealt, {-1}, {1}) : dealt;
      })
      .samples({"self[2, 6, 2, 2], groups=3", "self[1, 4, 3], groups=2"});
  define("unravel_index(Tensor indices, SymInt[1] shape) -> Tensor[]")
      .doc(
          "The coordinates, a tensor a dimension, of positions in row-major order in a tensor of `shape`; of one beyond it "
          "modulo the sizes.")
      .bind(function)
      .non_differentiable("the results are positions")
      .reads_data()
      .procedure([](const Tensor& indices, SymSpan shape) {
        type_check(is_integral(indices.dtype()) && indices.dtype() != DType::Bool, "unravel_index")
            << "expected 'indices' to be integer dtype, but got " << indices.dtype();
        for (SymInt n : shape)
          value_check(!(n < SymInt(int64_t(0))), "unravel_index")
              << "'shape' cannot have negative values, but got " << to_string(shape);
        bool none = std::ranges::any_of(shape, [](SymInt n) { return n == SymInt(int64_t(0)); });
        runtime_check(!none || indices.numel() == SymInt(int64_t(0)), "unravel_index")
            << "a tensor of shape " << to_string(shape) << " has no elements, got " << indices.numel()
            << " positions";
        std::vector<Tensor> out(shape.size());
        Tensor wide = to_dtype(indices, DType::Int64);
        SymInt one = int64_t(1), stride = one;
        for (size_t k = shape.size(); k-- > 0; stride *= max(shape[k], one))
          out[k] = remainder(floor_divide(wide, stride), max(shape[k], one));
        return out;
      })
      .samples({"indices<12>[5], shape=[3, 4]", "indices<2>[], shape=[2, 1, 3]"});
  define("combinations(Tensor self, int r=2, bool with_replacement=False) -> Tensor")
      .grad_name("Stack")
      .doc(
          "All choices of r elements of a vector in their order, one a row; an element again where `with_replacement`.")
      .procedure([](const Tensor& self, int64_t r, bool again) {
        runtime_check(self.dim() == 1, "combinations")
            << "expects a 1D vector, but got shape " << to_string(self.sizes());
        runtime_check(r >= 0, "combinations") << "expects a non-negative number, but got " << r;
        if (r == 0) return empty(Sizes{int64_t(0)}, self.dtype());
        Tensor at = choices(self.size(0).guard_int(), r, again);
        return view(index_select(self, 0, reshape(at, Sizes{at.numel()})), at.sizes());
      })
      .samples({"self[4]", "self[3], r=3, with_replacement=True", "self[3], r=1", "self[2], r=3"});
}
