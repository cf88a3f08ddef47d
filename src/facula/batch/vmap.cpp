#include "facula/batch/vmap.h"

#include "facula/batch/level.h"

namespace facula::batch {

static SymInt size_of(std::span<const Tensor> inputs, BatchDims& dims) {
  if (dims.empty()) dims.resize(inputs.size(), 0);
  value_check(dims.size() == inputs.size(), "vmap")
      << "in_dims has " << dims.size() << " entries for " << inputs.size() << " inputs";
  std::optional<SymInt> size;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (!dims[k]) continue;
    int rank = inputs[k].dim();
    value_check(-rank <= *dims[k] && *dims[k] < rank, "vmap")
        << "Got in_dim=" << *dims[k] << " for some input, but that input is a Tensor of dimensionality "
        << rank << " so expected in_dim to satisfy " << -rank << " <= in_dim < " << rank << ".";
    if (*dims[k] < 0) *dims[k] += rank;
    SymInt n = inputs[k].size(*dims[k]);
    value_check(!size || *size == n, "vmap")
        << "Expected all tensors to have the same size in the mapped dimension, got sizes " << *size
        << " and " << n << " for the mapped dimension";
    size = n;
  }
  value_check(size, "vmap") << "at least one input must have a dimension to map over";
  return *size;
}

struct Mapping::Entered {
  Entered(SymInt size, Randomness randomness) : level(std::move(size), randomness), on(&level) {}
  Level level;
  op::Mode::With on;
};

Mapping::Mapping(std::span<const Tensor> inputs, BatchDims in_dims, Randomness randomness)
    : entered_(std::make_unique<Entered>(size_of(inputs, in_dims), randomness)) {
  for (size_t k = 0; k < inputs.size(); ++k)
    inputs_.push_back(in_dims[k] ? entered_->level.enter(inputs[k], *in_dims[k]) : inputs[k]);
}
Mapping::~Mapping() = default;

Tensor Mapping::leave(const Tensor& t, int out_dim) const {
  int rank = t.dim() + 1;
  index_check(-rank <= out_dim && out_dim < rank, "vmap")
      << "Dimension out of range (expected to be in range of [" << -rank << ", " << rank - 1 << "], but got "
      << out_dim << ")";
  return entered_->level.leave(t, out_dim < 0 ? out_dim + rank : out_dim);
}

}  // namespace facula::batch
