// The loop nests of attention: softmax(q k^T scale + mask) v and its gradient, tile by tile (Dao et al.,
// "FlashAttention", 2022; online softmax: Milakov and Gimelshein, 2018). The code generator turns them into
// kernels.
//
// Queries lie in the lanes. A tile of scores is kept transposed, [keys, queries]: its rows are products of a
// key's elements, broadcast, with the transposed queries; maxima and sums of the softmax go from row to row
// without crossing lanes; and as it is, it is the right-hand operand of the products with values, which are read
// where they are, and the left-hand one of those of the gradients. A product holds kRows x vectors of sums in
// registers.
#pragma once
#include "facula/backend/cpu/nest_builder.h"

namespace facula::backend::cpu {

// What a nest was made for; the rest are parameters.
struct AttentionVariant {
  DType dtype = DType::Float32;  // Float32 or Float64: of all operands
  enum Mask : uint8_t { none, boolean, added } mask = none;
  bool dropout = false;
  int queries = 64;  // of a tile: a multiple of the vector's lanes
  int key_vectors = 1,
      value_vectors = 1;  // backward: vectors in a register row of the gradients of keys and values
  int lanes = 0;          // 0: this machine's; of a grid as many as queries
  auto operator<=>(const AttentionVariant&) const = default;
};
constexpr int kAttentionKeys = 128;  // of a tile

// Integer parameters. Strides are in elements: of batch, head, row and, for the mask, column; the other columns are beside
// each other.
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

// Buffers. Those named *_in are the same memory as the one without, read before it is written.
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
// `numbers`: of the nest's dtype.
enum AttentionNumber : int { attention_scale, attention_keep_scale, attention_p };

// Forward: a task is a block of queries of one head; out[batch, head, row, :] and lse[batch, head, row].
TaskNest attention_forward_nest(const AttentionVariant& v);
// Backward: a task is one chunk of the query blocks of one head of keys; dq is written, dk and dv are added
// to.
TaskNest attention_backward_nest(const AttentionVariant& v);

}  // namespace facula::backend::cpu
