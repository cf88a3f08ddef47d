// Operators derived from views: for each view, one that returns a copy of it, and one that returns a copy of the base with the
// view overwritten; and splitting without view tracking.
#include "facula/autograd/autograd.h"
#include "facula/op/call.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/op/registry.h"
#include "facula/ops.h"

using namespace facula;
using namespace facula::op;

namespace {

// A public view, or one whose public forms follow from it (slice).
bool has_copy(const Operator& op) {
  return op.is<View>() && op.schema.name[0] != '_' && !(op.namespaces & property);
}

std::string without_aliases(std::string schema) {
  for (size_t at; (at = schema.find("(a)")) != std::string::npos;) schema.erase(at, 3);
  return schema;
}

// The generator (op/generate.py) derives the same declarations.
void define_copy(const Operator& view) {
  std::string schema = without_aliases(view.schema.text), name = view.schema.name;
  Definer copy = define(schema.replace(schema.find(name), name.size(), name + "_copy"));
  copy.doc("A copy of what `" + name + "` shows, in row-major order.")
      .bind(name == "narrow" ? function | method : uint32_t(function))  // PyTorch has this one as a method
      .procedure([&view](const Call& c) {
        Results shown = call(view, c.args()), copies;
        for (size_t k = 0; k < shown.size(); ++k) copies.push_back(clone(shown[k], MemoryFormat::contiguous));
        return copies;
      })
      .samples(view.recipes);
  copy.dtypes(view.dtypes);
  if (!view.differentiable) copy.non_differentiable(view.undifferenced);
  if (view.schema.returns[0].list) copy.with_out();
  if (name == "narrow") {
    copy.converting_out().bad_conversion(ErrorType::TypeError).check([](const Call& c) {
      int64_t dim = c.integer("dim").guard_int();
      runtime_check(!c.rank("self") || dim < c.rank("self"), "narrow_copy")
          << "expected dim below " << c.rank("self") << ", the number of dimensions of shape "
          << to_string(c.sizes("self")) << ", got " << dim;
    });
  }
  for (auto& other : view.aliases) copy.alias(other + "_copy");
  for (auto& [parameter, also] : view.parameter_aliases) copy.also(parameter, also);
}

// A copy with the strides of self, and of all memory before it, for views that count from its start.
Tensor copied_memory(const Tensor& self) {
  if (self.is_traced() || self.numel() == SymInt(int64_t(0)) ||
      (self.is_contiguous() && self.offset() == SymInt(int64_t(0))))
    return clone(self);
  SymInt extent = self.offset() + SymInt(int64_t(1));
  for (int k = 0; k < self.dim(); ++k)
    extent += (self.size(k) - SymInt(int64_t(1))) * self.strides()[size_t(k)];
  return as_strided(clone(as_strided(self, Sizes{extent}, Sizes{int64_t(1)}, SymInt(int64_t(0)))),
                    self.sizes(), self.strides(), self.offset());
}

Definer view_scatter(const char* view, const char* parameters) {
  return define(std::string(view) + "_scatter(Tensor self, Tensor src, " + parameters + ") -> Tensor")
      .procedure([shown = &get(view)](const Call& c) {
        Tensor self = c.tensor("self"), src = c.tensor("src");
        Tensor copy = shown->schema.name == "as_strided" ? copied_memory(self) : clone(self);
        std::vector<Value> args(c.args().begin(), c.args().end());
        args[0] = Value(copy);
        args.erase(args.begin() + 1);
        Tensor part = call(*shown, args)[0];
        bool fits = part.dim() == src.dim() && std::ranges::equal(part.sizes(), src.sizes());
        runtime_check(fits, c.name()) << "expected src to have the sizes of what it is written to, "
                                      << to_string(part.sizes()) << ", got " << to_string(src.sizes());
        copy_(part, src);
        return copy;
      });
}

// The results of unsafe_split share memory with their base, but to autograd they are no views of it.
std::vector<Tensor> parted(std::vector<Tensor> parts) {
  for (auto& t : parts) {
    if (!autograd::grad_enabled()) t = detach(t);
    else if (auto* meta = autograd::meta_of(t)) meta->base = {};
  }
  return parts;
}

}  // namespace

FACULA_FAMILY(view_copy) {
  finish_definitions();
  std::vector<const Operator*> views;
  std::ranges::copy_if(op::all(), std::back_inserter(views), [](auto* op) { return has_copy(*op); });
  for (auto* view : views) define_copy(*view);

  view_scatter("diagonal", "SymInt offset=0, int dim1=0, int dim2=1")
      .doc("A copy of self with src on its diagonal.")
      .samples({"self[3, 4], src[3]", "self[2, 3, 4], src[2, 3], offset=1, dim1=1, dim2=2"});
  view_scatter("select", "int dim, SymInt index")
      .doc("A copy of self with src as the slice at `index` of `dim`.")
      .samples({"self[2, 3], src[2], dim=1, index=-1"});
  view_scatter("slice", "int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1")
      .doc("A copy of self with src as elements start, start + step, ... below end of `dim`.")
      .samples({"self[5, 3], src[2, 3], dim=0, start=1, end=4, step=2", "self[3], src[3]"});
  view_scatter("as_strided", "SymInt[] size, SymInt[] stride, SymInt? storage_offset=None")
      .doc("A copy of self with src at the elements that as_strided shows.")
      .samples({"self[12], src[3, 2], size=[3, 2], stride=[2, 1], storage_offset=1"});

  define("unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]")
      .grad_name("UnsafeSplit")
      .doc("What `chunk` gives; each piece may be written where others are read.")
      .procedure(
          [](const Tensor& self, int64_t chunks, int64_t dim) { return parted(chunk(self, chunks, dim)); })
      .samples({"self[5, 3], chunks=3"});
  define("unsafe_split(Tensor self, SymInt split_size, int dim=0) -> Tensor[]")
      .grad_name("UnsafeSplit")
      .also("self", "tensor")
      .doc("What `split` gives; each piece may be written where others are read.")
      .procedure([](const Tensor& self, SymInt size, int64_t dim) { return parted(split(self, size, dim)); })
      .samples({"self[5, 3], split_size=2"});
  define("unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]")
      .grad_name("UnsafeSplitWithSizes")
      .doc("What `split_with_sizes` gives; each piece may be written where others are read.")
      .procedure(
          [](const Tensor& self, SymSpan sizes, int64_t dim) { return parted(split(self, sizes, dim)); })
      .samples({"self[5, 3], split_sizes=[1, 4]"});
}
