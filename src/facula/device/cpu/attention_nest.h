// The loop nests of attention: softmax(q k^T scale + mask) v and its gradient, tile by tile (Dao et al.,
// "FlashAttention", 2022; online softmax: Milakov and Gimelshein, 2018). The code generator turns them into
// kernels.
//
// Queries are in the lanes. A tile of scores is stored transposed, [keys, queries]. Its rows are products of a key's
// elements, broadcast, with the transposed queries; maxima and sums of the softmax go from row to row without crossing
// lanes. In this form a tile is the right operand of the products with values, which are read where they are stored, and
// the left operand of the products for the gradients. A product holds kRows x vectors of sums in registers.
#pragma once
#include "facula/device/cpu/nest_builder.h"

namespace facula::device::cpu {

// The properties that a nest is built for; everything else is a parameter.
struct AttentionVariant {
  DType dtype = DType::Float32;  // Float32 or Float64: of all operands
  enum Mask : uint8_t { none, boolean, added } mask = none;
  bool dropout = false;
  int queries = 64;  // queries per tile: a multiple of the vector's lanes
  int key_vectors = 1,
      value_vectors = 1;  // backward: vectors in a register row of the gradients of keys and values
  int lanes = 0;          // 0: as many as this machine has; for a grid, the number of queries
  auto operator<=>(const AttentionVariant&) const = default;
};
constexpr int kAttentionKeys = 128;  // keys per tile

// Integer parameters. Strides of batch, head, row and, for the mask, column are in elements; columns of other operands
// are adjacent.
struct AttentionParam {
  enum : int {
    heads,
    group,
    rows,
    keys,
    width,
    value_width,
    blocks,
    causal,
    chunks,
    q,
    k = q + 4,
    v = k + 4,
    mask = v + 4,
    out = mask + 4,
    grad = out + 4,  // [batch, head, row, column]
    dq = grad + 4,
    dk = dq + 4,
    dv = dk + 4,  // dk, dv: [chunk, batch, head, row]
    padded_width = dv + 4,
    padded_value_width,
    tasks,
    count,
  };
};

// Buffers. A buffer named *_in shares the memory of the one without the suffix and is read before that is written.
struct AttentionForward {
  enum : int {
    q,
    k,
    v,
    mask,
    state,
    numbers,
    out,
    lse,
    qr,
    qt,
    scores,
    sum,
    sum_in,
    maximum,
    total,
    factor,
    count
  };
};
struct AttentionBackward {
  enum : int {
    q,
    k,
    v,
    mask,
    state,
    numbers,
    grad,
    lse,
    delta,
    dq,
    dk,
    dv,
    dk_in,
    dv_in,
    qt,
    gt,
    qr,
    gr,
    kr,
    p,
    ds,
    dqr,
    dqr_in,
    lse_row,
    delta_row,
    count
  };
};
// Elements of the buffer `numbers`, in the nest's dtype.
enum AttentionNumber : int { attention_scale, attention_keep_scale, attention_p };

// Forward: a task is a block of queries of one head; out[batch, head, row, :] and lse[batch, head, row].
TaskNest attention_forward_nest(const AttentionVariant& v);
// Backward: a task is one chunk of the query blocks of one head of keys; it writes dq and adds to dk and dv.
TaskNest attention_backward_nest(const AttentionVariant& v);

}  // namespace facula::device::cpu
