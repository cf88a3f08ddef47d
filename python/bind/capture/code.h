// Micro-operations: the bytecode of a code object in a form that does not depend on the version of CPython. Only code.cpp
// knows versions. Jump targets are numbers of micro-operations, stack effects are those of the names below.
#pragma once
#include <vector>

#include "../python.h"

namespace facula::bind::capture {

#define FACULA_MICRO_OPS(_)                                                                                   \
  _(nop) _(load_const) _(load_fast) _(store_fast) _(delete_fast) _(load_global) _(store_global)               \
  _(delete_global) _(load_deref) _(store_deref) _(delete_deref) _(load_closure) _(make_cell)                  \
  _(copy_free_vars) _(load_and_clear) _(pop_top) _(push_null) _(copy) _(swap) _(unary) _(binary) _(subscr) _(store_subscr)      \
  _(delete_subscr) _(compare) _(is_op) _(contains) _(jump) _(pop_jump) _(build_tuple)          \
  _(build_list) _(build_set) _(build_map) _(build_const_key_map) _(build_string) _(build_slice)               \
  _(list_extend) _(set_update) _(dict_update) _(dict_merge) _(list_append) _(set_add) _(map_add)              \
  _(list_to_tuple) _(unpack) _(unpack_ex) _(get_iter) _(for_iter) _(call) _(call_ex) _(make_function)         \
  _(format_value) _(return_value) _(return_generator) _(yield_value) _(send) _(get_yield_from_iter)           \
  _(raise_op) _(reraise) _(push_exc_info) _(pop_except) _(check_exc_match) _(cleanup_throw) _(before_with)                     \
  _(with_except_start) _(load_assertion_error) _(load_attr) _(load_method) _(store_attr) _(delete_attr)       \
  _(import_name) _(import_from) _(get_len) _(match_type) _(match_keys) _(match_class) _(load_build_class)     \
  _(unsupported)
enum class Op : uint8_t {
#define FACULA_MICRO_OP(name) name,
  FACULA_MICRO_OPS(FACULA_MICRO_OP)
#undef FACULA_MICRO_OP
      count
};

// Conditions of pop_jump.
enum class When : int { is_true, is_false, is_none, is_not_none };

struct MicroOp {
  Op op;
  int arg = 0;                 // count, index, or operator
  int other = 0;               // a second argument: a condition, a flag
  int target = -1;             // of a jump: number of a micro-operation
  int offset = 0;              // of the instruction, in bytes
  PyObject* object = nullptr;  // a constant or a name, which the code object keeps alive
};

// A row of the exception table: micro-operations [begin, end) continue at `target` with the stack cut to `depth`.
struct Handler {
  int begin, end, target, depth;
  bool pushes_offset;
};

struct Code {
  PyRef object;
  std::vector<MicroOp> ops;
  std::vector<Handler> handlers;
  int locals = 0;  // slots: variables, cells, free variables
  int free_begin = 0;
  const char* refused = nullptr;  // an instruction that is not interpreted, or null

  // Whether a slot has a cell: of a variable that an inner function shares, or a free one.
  bool is_cell(int slot) const {
    constexpr int kInCell = 0x40 | 0x80;  // CPython's CO_FAST_CELL and CO_FAST_FREE
    return PyBytes_AS_STRING(get()->co_localspluskinds)[slot] & kInCell;
  }
  PyCodeObject* get() const { return reinterpret_cast<PyCodeObject*>(object.get()); }
  const Handler* handler_of(int op) const;
  int line_of(int op) const;
};

// The decoded form of a code object, which is decoded once.
const Code& code_of(PyObject* code);

}  // namespace facula::bind::capture
