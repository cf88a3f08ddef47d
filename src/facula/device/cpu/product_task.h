// The task of a matrix product out = epilogue(alpha * a @ b + beta * out): the loops over K blocks, tiles and panels, and what becomes
// of the sums. How a task packs rows of the left operand and computes a tile differs: by fused multiplications and additions of
// vectors (product_nest.cpp), or by a matrix unit (tile_nest.cpp).
#pragma once
#include <functional>

#include "facula/device/cpu/product_nest.h"

namespace facula::device::cpu {

class ProductTask : public NestBuilder {
 public:
  struct Layout {
    int rows;              // of a tile
    int64_t columns;       // of a tile
    int operands, params;  // the first operand and the first parameter of the epilogue
  };
  ProductTask(const ProductForm& form, bool scaled, int lanes, const Layout& layout);
  virtual ~ProductTask() = default;
  void run(Expr task);

 protected:
  struct Element {
    Expr row, column;  // of the result
  };
  // The part of a tile inside of the result.
  struct Part {
    Expr row, column;  // its first element
    Expr rows, columns;
  };
  // Packs a tile's rows of the left operand over the K block.
  virtual void pack_left(Expr tile) = 0;
  // Packs a panel of the right operand over the K block, unless all are packed before.
  virtual void pack_right(Expr) {}
  // Computes the sums of a tile over the K block, and finishes them.
  virtual void compute(Expr tile, const Part& part) = 0;

  // Adds what is in the result, applies the epilogue after the last K block, and stores. The k-th sum belongs to place(k).
  void finish(const std::vector<Expr>& sums, const std::function<Element(int)>& place);
  // The same for a tile whose sums stand in the buffer ProductBuffer::tile, row by row.
  void finish_stored(const Part& part);

  const ProductForm form_;
  const Layout layout_;
  Expr first_row_, first_column_, rows_, columns_;  // of the block
  Expr batch_, a_, b_;  // the matrix of the batch, and the origins of its operands
  Expr k0_, terms_;     // of the K block

 private:
  Part part_of(Expr panel, Expr tile);
  void finish_block();
  Expr offset_of(const Element& e) const;
  Expr value_of(const Epilogue& e, Expr sum, const Element& at) const;

  const bool scaled_;  // by alpha and beta
  const bool long_;    // the epilogue
  Expr out_, batch_row_;
  Expr continues_, begins_, ends_;
};

}  // namespace facula::device::cpu
