#include "code.h"

#include <opcode.h>

#include <map>
#include <memory>
#include <unordered_map>

namespace facula::bind::capture {

namespace {

// An instruction with its complete argument.
struct Instruction {
  int opcode, arg, offset, next;  // offsets in code units
};

std::vector<Instruction> instructions_of(PyCodeObject* code) {
  PyRef bytes = checked(PyCode_GetCode(code));
  auto* unit = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(bytes.get()));
  int n = int(PyBytes_GET_SIZE(bytes.get()) / 2), extended = 0;
  std::vector<Instruction> all;
  for (int k = 0, first = 0; k < n; ++k) {
    int opcode = unit[2 * k], arg = unit[2 * k + 1] | extended << 8;
    if (opcode == CACHE) {
      first = k + 1;
      continue;
    }
    if (opcode == EXTENDED_ARG) {
      extended = arg;
      continue;
    }
    all.push_back({opcode, arg, first, k + 1});
    extended = 0;
    first = k + 1;
  }
  return all;
}

class Decoder {
 public:
  explicit Decoder(PyObject* code) : code_(reinterpret_cast<PyCodeObject*>(code)) {
    out_.object = PyRef::share(code);
    out_.locals = code_->co_nlocalsplus;
    out_.free_begin = code_->co_nlocalsplus - code_->co_nfreevars;
  }

  Code decode() {
    auto all = instructions_of(code_);
    for (auto& i : all) {
      begins_[i.offset] = int(out_.ops.size());
      offset_ = i.offset;
      next_ = i.next;
      one(i.opcode, i.arg);
    }
    end_ = int(out_.ops.size());
    for (auto& [op, unit] : jumps_) out_.ops[size_t(op)].target = at(unit);
    read_handlers();
    return std::move(out_);
  }

 private:
  MicroOp& add(Op op, int arg = 0, int other = 0) {
    auto& created = out_.ops.emplace_back();
    created.op = op;
    created.arg = arg;
    created.other = other;
    created.offset = offset_ * 2;
    return created;
  }
  void named(Op op, int name, int arg = 0) { add(op, arg).object = PyTuple_GET_ITEM(code_->co_names, name); }
  void jump(Op op, int unit, int other = 0) {
    jumps_.emplace_back(int(out_.ops.size()), unit);
    add(op, 0, other);
  }
  // `x and y` keeps x: the condition is decided by a copy, because Python code may have to compute it.
  void jump_or_pop(int unit, When when) {
    add(Op::copy, 1);
    jump(Op::pop_jump, unit, int(when));
    add(Op::pop_top);
  }
  int at(int unit) const {  // the micro-operation that begins at a code unit, or the next one
    auto it = begins_.lower_bound(unit);
    return it == begins_.end() ? end_ : it->second;
  }

  void one(int opcode, int arg) {
    if (simple(opcode, arg) || jumps(opcode, arg) || calls(opcode, arg)) return;
    if (!out_.refused) out_.refused = "an instruction that is not interpreted";
    add(Op::unsupported, opcode);
  }

  bool simple(int opcode, int arg) {
    switch (opcode) {
      case NOP: add(Op::nop); return true;
      case RESUME: add(Op::nop); return true;
      case LOAD_CONST: add(Op::load_const).object = PyTuple_GET_ITEM(code_->co_consts, arg); return true;
      case LOAD_FAST: add(Op::load_fast, arg); return true;
      case STORE_FAST: add(Op::store_fast, arg); return true;
      case DELETE_FAST: add(Op::delete_fast, arg); return true;
      case LOAD_GLOBAL: named(Op::load_global, arg >> 1, arg & 1); return true;
      case STORE_GLOBAL: named(Op::store_global, arg); return true;
      case DELETE_GLOBAL: named(Op::delete_global, arg); return true;
      case LOAD_DEREF: add(Op::load_deref, arg); return true;
      case STORE_DEREF: add(Op::store_deref, arg); return true;
      case DELETE_DEREF: add(Op::delete_deref, arg); return true;
      case LOAD_CLOSURE: add(Op::load_closure, arg); return true;
      case MAKE_CELL: add(Op::make_cell, arg); return true;
      case COPY_FREE_VARS: add(Op::copy_free_vars, arg); return true;
      case POP_TOP: add(Op::pop_top); return true;
      case PUSH_NULL: add(Op::push_null); return true;
      case COPY: add(Op::copy, arg); return true;
      case SWAP: add(Op::swap, arg); return true;
      case UNARY_POSITIVE: add(Op::unary, '+'); return true;
      case UNARY_NEGATIVE: add(Op::unary, '-'); return true;
      case UNARY_NOT: add(Op::unary, '!'); return true;
      case UNARY_INVERT: add(Op::unary, '~'); return true;
      case BINARY_OP: add(Op::binary, arg); return true;
      case BINARY_SUBSCR: add(Op::subscr); return true;
      case STORE_SUBSCR: add(Op::store_subscr); return true;
      case DELETE_SUBSCR: add(Op::delete_subscr); return true;
      case COMPARE_OP: add(Op::compare, arg); return true;
      case IS_OP: add(Op::is_op, arg); return true;
      case CONTAINS_OP: add(Op::contains, arg); return true;
      case LOAD_ATTR: named(Op::load_attr, arg); return true;
      case LOAD_METHOD: named(Op::load_method, arg); return true;
      case STORE_ATTR: named(Op::store_attr, arg); return true;
      case DELETE_ATTR: named(Op::delete_attr, arg); return true;
      case IMPORT_NAME: named(Op::import_name, arg); return true;
      case IMPORT_FROM: named(Op::import_from, arg); return true;
      default: return containers(opcode, arg);
    }
  }

  bool containers(int opcode, int arg) {
    switch (opcode) {
      case BUILD_TUPLE: add(Op::build_tuple, arg); return true;
      case BUILD_LIST: add(Op::build_list, arg); return true;
      case BUILD_SET: add(Op::build_set, arg); return true;
      case BUILD_MAP: add(Op::build_map, arg); return true;
      case BUILD_CONST_KEY_MAP: add(Op::build_const_key_map, arg); return true;
      case BUILD_STRING: add(Op::build_string, arg); return true;
      case BUILD_SLICE: add(Op::build_slice, arg); return true;
      case LIST_EXTEND: add(Op::list_extend, arg); return true;
      case SET_UPDATE: add(Op::set_update, arg); return true;
      case DICT_UPDATE: add(Op::dict_update, arg); return true;
      case DICT_MERGE: add(Op::dict_merge, arg); return true;
      case LIST_APPEND: add(Op::list_append, arg); return true;
      case SET_ADD: add(Op::set_add, arg); return true;
      case MAP_ADD: add(Op::map_add, arg); return true;
      case LIST_TO_TUPLE: add(Op::list_to_tuple); return true;
      case UNPACK_SEQUENCE: add(Op::unpack, arg); return true;
      case UNPACK_EX: add(Op::unpack_ex, arg); return true;
      case GET_ITER: add(Op::get_iter); return true;
      case GET_LEN: add(Op::get_len); return true;
      case FORMAT_VALUE: add(Op::format_value, arg); return true;
      default: return false;
    }
  }

  bool jumps(int opcode, int arg) {
    switch (opcode) {
      case JUMP_FORWARD: jump(Op::jump, next_ + arg); return true;
      case JUMP_BACKWARD: jump(Op::jump, next_ - arg); return true;
      case JUMP_BACKWARD_NO_INTERRUPT: jump(Op::jump, next_ - arg); return true;
      case JUMP_IF_FALSE_OR_POP: jump_or_pop(next_ + arg, When::is_false); return true;
      case JUMP_IF_TRUE_OR_POP: jump_or_pop(next_ + arg, When::is_true); return true;
      case POP_JUMP_FORWARD_IF_FALSE: jump(Op::pop_jump, next_ + arg, int(When::is_false)); return true;
      case POP_JUMP_FORWARD_IF_TRUE: jump(Op::pop_jump, next_ + arg, int(When::is_true)); return true;
      case POP_JUMP_FORWARD_IF_NONE: jump(Op::pop_jump, next_ + arg, int(When::is_none)); return true;
      case POP_JUMP_FORWARD_IF_NOT_NONE: jump(Op::pop_jump, next_ + arg, int(When::is_not_none)); return true;
      case POP_JUMP_BACKWARD_IF_FALSE: jump(Op::pop_jump, next_ - arg, int(When::is_false)); return true;
      case POP_JUMP_BACKWARD_IF_TRUE: jump(Op::pop_jump, next_ - arg, int(When::is_true)); return true;
      case POP_JUMP_BACKWARD_IF_NONE: jump(Op::pop_jump, next_ - arg, int(When::is_none)); return true;
      case POP_JUMP_BACKWARD_IF_NOT_NONE:
        jump(Op::pop_jump, next_ - arg, int(When::is_not_none));
        return true;
      case FOR_ITER: jump(Op::for_iter, next_ + arg); return true;
      case SEND: jump(Op::send, next_ + arg); return true;
      default: return false;
    }
  }

  bool calls(int opcode, int arg) {
    switch (opcode) {
      case PRECALL: add(Op::nop); return true;
      case KW_NAMES: names_ = PyTuple_GET_ITEM(code_->co_consts, arg); return add(Op::nop), true;
      case CALL: add(Op::call, arg).object = std::exchange(names_, nullptr); return true;
      case CALL_FUNCTION_EX: add(Op::call_ex, arg & 1); return true;
      case MAKE_FUNCTION: add(Op::make_function, arg); return true;
      case RETURN_VALUE: add(Op::return_value); return true;
      case RETURN_GENERATOR: add(Op::return_generator); return true;
      case YIELD_VALUE: add(Op::yield_value); return true;
      case GET_YIELD_FROM_ITER: add(Op::get_yield_from_iter); return true;
      case RAISE_VARARGS: add(Op::raise_op, arg); return true;
      case RERAISE: add(Op::reraise, arg); return true;
      case PUSH_EXC_INFO: add(Op::push_exc_info); return true;
      case POP_EXCEPT: add(Op::pop_except); return true;
      case CHECK_EXC_MATCH: add(Op::check_exc_match); return true;
      case BEFORE_WITH: add(Op::before_with); return true;
      case WITH_EXCEPT_START: add(Op::with_except_start); return true;
      case LOAD_ASSERTION_ERROR: add(Op::load_assertion_error); return true;
      case LOAD_BUILD_CLASS: add(Op::load_build_class); return true;
      case MATCH_MAPPING: add(Op::match_type, 0); return true;
      case MATCH_SEQUENCE: add(Op::match_type, 1); return true;
      case MATCH_KEYS: add(Op::match_keys); return true;
      case MATCH_CLASS: add(Op::match_class, arg); return true;
      default: return false;
    }
  }

  // The exception table: numbers of 6 bits a byte, the first byte of a row marked by bit 7 (Objects/exception_handling_notes.txt).
  void read_handlers() {
    auto* p = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(code_->co_exceptiontable));
    auto* end = p + PyBytes_GET_SIZE(code_->co_exceptiontable);
    auto number = [&] {
      int value = *p & 63;
      while (*p++ & 64) value = value << 6 | (*p & 63);
      return value;
    };
    while (p < end) {
      int start = number(), length = number(), target = number(), depth = number();
      out_.handlers.push_back({at(start), at(start + length), at(target), depth >> 1, bool(depth & 1)});
    }
  }

  PyCodeObject* code_;
  Code out_;
  int offset_ = 0, next_ = 0, end_ = 0;
  PyObject* names_ = nullptr;  // of the keywords of the next call
  std::map<int, int> begins_;  // micro-operations by code unit
  std::vector<std::pair<int, int>> jumps_;
};

}  // namespace

const Handler* Code::handler_of(int op) const {
  const Handler* innermost = nullptr;  // rows are disjoint
  for (auto& h : handlers)
    if (h.begin <= op && op < h.end) innermost = &h;
  return innermost;
}

int Code::line_of(int op) const {
  if (op < 0 || size_t(op) >= ops.size()) return get()->co_firstlineno;
  return PyCode_Addr2Line(get(), ops[size_t(op)].offset);
}

const Code& code_of(PyObject* code) {
  static auto* decoded = new std::unordered_map<PyObject*, std::unique_ptr<Code>>;
  auto& created = (*decoded)[code];
  if (!created) created = std::make_unique<Code>(Decoder(code).decode());
  return *created;
}

}  // namespace facula::bind::capture
