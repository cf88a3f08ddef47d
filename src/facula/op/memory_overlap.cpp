#include "facula/op/memory_overlap.h"

#include <algorithm>

namespace facula::op {

// Whether two tensors that begin at the same place are the same element for element. A dimension of size 1 has one index, so that
// its stride has no effect; in a trace it may also be another one than in eager mode.
static bool shows_same_elements(const Tensor& a, const Tensor& b) {
  if (!std::ranges::equal(a.sizes(), b.sizes())) return false;
  for (int d = 0; d < a.dim(); ++d)
    if (a.size(d) != SymInt(int64_t(1)) && a.stride(d) != b.stride(d)) return false;
  return true;
}

bool may_overlap(SymSpan sizes, SymSpan strides) {
  Ints order;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d].hint() != 1 || sizes[d] != SymInt(int64_t(1))) order.push_back(int64_t(d));
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return strides[size_t(a)].hint() < strides[size_t(b)].hint(); });
  SymInt extent = int64_t(1);
  for (auto d : order) {
    if (strides[size_t(d)] < extent) return true;
    extent += (sizes[size_t(d)] - SymInt(int64_t(1))) * strides[size_t(d)];
  }
  return false;
}

void check_partial_overlap(const char* op, const Tensor& written, SymInt written_begin, const Tensor& read,
                           SymInt read_begin) {
  SymInt none(int64_t(0));
  if (written.numel() == none || read.numel() == none || !written.is_non_overlapping_and_dense() ||
      !read.is_non_overlapping_and_dense())
    return;
  auto end = [](const Tensor& t, SymInt begin) {
    return begin + t.numel() * SymInt(int64_t(itemsize(t.dtype())));
  };
  SymInt written_end = end(written, written_begin), read_end = end(read, read_begin);
  if (!(written_begin < read_end) || !(read_begin < written_end)) return;
  bool same = written_begin == read_begin && written_end == read_end && shows_same_elements(written, read);
  runtime_check(same, op)
      << "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please "
         "clone() the tensor before performing the operation."
      << hint("it writes ", to_string(written.sizes()), " and reads ", to_string(read.sizes()),
              " of the same memory");
}

}  // namespace facula::op
