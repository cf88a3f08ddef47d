#include "code.h"

#include <opcode.h>

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

namespace facula::bind::capture {

namespace {

// An instruction with its complete argument.
struct Instruction {
  int opcode, arg, offset, next;  // offsets in code units; next: behind the instruction and its caches
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
      if (!all.empty()) all.back().next = first;  // jumps begin behind the caches
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
  void pop_jump(int unit, When when) { jump(Op::pop_jump, unit, int(when)); }
  void name_keywords(int constant) {
    names_ = PyTuple_GET_ITEM(code_->co_consts, constant);
    add(Op::nop);
  }
  int at(int unit) const {  // the micro-operation that begins at a code unit, or the next one
    auto it = begins_.lower_bound(unit);
    return it == begins_.end() ? end_ : it->second;
  }

  void one(int opcode, int arg) {
    if (simple(opcode, arg) || jumps(opcode, arg) || calls(opcode, arg) || of_version(opcode, arg)) return;
    if (!out_.refused) out_.refused = "an instruction that is not interpreted";
    add(Op::unsupported, opcode);
  }

  bool simple(int opcode, int arg) {
    switch (opcode) {
      case NOP: add(Op::nop); return true;
      case RESUME: add(Op::nop); return true;
      case LOAD_CONST: add(Op::load_const).object = PyTuple_GET_ITEM(code_->co_consts, arg); return true;
      case STORE_FAST: add(Op::store_fast, arg); return true;
      case DELETE_FAST: add(Op::delete_fast, arg); return true;
      case STORE_GLOBAL: named(Op::store_global, arg); return true;
      case DELETE_GLOBAL: named(Op::delete_global, arg); return true;
      case LOAD_DEREF: add(Op::load_deref, arg); return true;
      case STORE_DEREF: add(Op::store_deref, arg); return true;
      case DELETE_DEREF: add(Op::delete_deref, arg); return true;
      case MAKE_CELL: add(Op::make_cell, arg); return true;
      case COPY_FREE_VARS: add(Op::copy_free_vars, arg); return true;
      case POP_TOP: add(Op::pop_top); return true;
      case COPY: add(Op::copy, arg); return true;
      case SWAP: add(Op::swap, arg); return true;
      case UNARY_NEGATIVE: add(Op::unary, '-'); return true;
      case UNARY_NOT: add(Op::unary, '!'); return true;
      case UNARY_INVERT: add(Op::unary, '~'); return true;
      case BINARY_OP: add(Op::binary, arg); return true;
      case BINARY_SUBSCR: add(Op::subscr); return true;
      case STORE_SUBSCR: add(Op::store_subscr); return true;
      case DELETE_SUBSCR: add(Op::delete_subscr); return true;
      case IS_OP: add(Op::is_op, arg); return true;
      case CONTAINS_OP: add(Op::contains, arg); return true;
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
      case UNPACK_SEQUENCE: add(Op::unpack, arg); return true;
      case UNPACK_EX: add(Op::unpack_ex, arg); return true;
      case GET_ITER: add(Op::get_iter); return true;
      case GET_LEN: add(Op::get_len); return true;
      default: return false;
    }
  }

  bool jumps(int opcode, int arg) {
    switch (opcode) {
      case JUMP_FORWARD: jump(Op::jump, next_ + arg); return true;
      case JUMP_BACKWARD: jump(Op::jump, next_ - arg); return true;
      case JUMP_BACKWARD_NO_INTERRUPT: jump(Op::jump, next_ - arg); return true;
      case SEND: jump(Op::send, next_ + arg); return true;
      default: return false;
    }
  }

  bool calls(int opcode, int arg) {
    switch (opcode) {
      case CALL: add(Op::call, arg).object = std::exchange(names_, nullptr); return true;
      case CALL_FUNCTION_EX: add(Op::call_ex, arg & 1); return true;
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

#if PY_VERSION_HEX < 0x030C0000
  bool of_version(int opcode, int arg) {
    switch (opcode) {
      case PRECALL: add(Op::nop); return true;
      case KW_NAMES: name_keywords(arg); return true;
      case MAKE_FUNCTION: add(Op::make_function, arg); return true;
      case PUSH_NULL: add(Op::push_null); return true;
      case LOAD_FAST: add(Op::load_fast, arg); return true;
      case LOAD_CLOSURE: add(Op::load_closure, arg); return true;
      case LOAD_GLOBAL: named(Op::load_global, arg >> 1, arg & 1); return true;
      case LOAD_ATTR: named(Op::load_attr, arg); return true;
      case LOAD_METHOD: named(Op::load_method, arg); return true;
      case UNARY_POSITIVE: add(Op::unary, '+'); return true;
      case COMPARE_OP: add(Op::compare, arg); return true;
      case LIST_TO_TUPLE: add(Op::list_to_tuple); return true;
      case FORMAT_VALUE: add(Op::format_value, arg); return true;
      case FOR_ITER: jump(Op::for_iter, next_ + arg); return true;
      case JUMP_IF_FALSE_OR_POP: jump_or_pop(next_ + arg, When::is_false); return true;
      case JUMP_IF_TRUE_OR_POP: jump_or_pop(next_ + arg, When::is_true); return true;
      case POP_JUMP_FORWARD_IF_FALSE: pop_jump(next_ + arg, When::is_false); return true;
      case POP_JUMP_FORWARD_IF_TRUE: pop_jump(next_ + arg, When::is_true); return true;
      case POP_JUMP_FORWARD_IF_NONE: pop_jump(next_ + arg, When::is_none); return true;
      case POP_JUMP_FORWARD_IF_NOT_NONE: pop_jump(next_ + arg, When::is_not_none); return true;
      case POP_JUMP_BACKWARD_IF_FALSE: pop_jump(next_ - arg, When::is_false); return true;
      case POP_JUMP_BACKWARD_IF_TRUE: pop_jump(next_ - arg, When::is_true); return true;
      case POP_JUMP_BACKWARD_IF_NONE: pop_jump(next_ - arg, When::is_none); return true;
      case POP_JUMP_BACKWARD_IF_NOT_NONE: pop_jump(next_ - arg, When::is_not_none); return true;
      default: return false;
    }
  }
  // `x and y` keeps x: the condition is decided by a copy, because Python code may have to compute it.
  void jump_or_pop(int unit, When when) {
    add(Op::copy, 1);
    pop_jump(unit, when);
    add(Op::pop_top);
  }
#else
  // 3.12 and later.
  bool of_version(int opcode, int arg) {
    switch (opcode) {
      case LOAD_FAST: load_fast(arg); return true;
      case LOAD_FAST_CHECK: add(Op::load_fast, arg); return true;
      case LOAD_FAST_AND_CLEAR: add(Op::load_and_clear, arg); return true;
      case LOAD_ATTR: named(arg & 1 ? Op::load_method : Op::load_attr, arg >> 1); return true;
      case LOAD_SUPER_ATTR: load_super_attr(arg); return true;
      case POP_JUMP_IF_FALSE: pop_jump(next_ + arg, When::is_false); return true;
      case POP_JUMP_IF_TRUE: pop_jump(next_ + arg, When::is_true); return true;
      case POP_JUMP_IF_NONE: pop_jump(next_ + arg, When::is_none); return true;
      case POP_JUMP_IF_NOT_NONE: pop_jump(next_ + arg, When::is_not_none); return true;
      case END_SEND: add(Op::nop); return true;  // `send` has taken the receiver off the stack
      case CLEANUP_THROW: add(Op::cleanup_throw); return true;
      case RETURN_CONST:
        add(Op::load_const).object = PyTuple_GET_ITEM(code_->co_consts, arg);
        add(Op::return_value);
        return true;
      case BINARY_SLICE:
        add(Op::build_slice, 2);
        add(Op::subscr);
        return true;
      case STORE_SLICE:
        add(Op::build_slice, 2);
        add(Op::store_subscr);
        return true;
      case CALL_INTRINSIC_1: return intrinsic(arg);
      default: return since_312(opcode, arg);
    }
  }
  // The one-operand intrinsics of functions, by their numbers in CPython's pycore_intrinsics.h.
  bool intrinsic(int number) {
    switch (number) {
      case 3:  // around all of a generator: of a StopIteration that leaves it, which unwind() converts
        converters_.insert(int(out_.ops.size()));
        add(Op::nop);
        return true;
      case 5: add(Op::unary, '+'); return true;
      case 6: add(Op::list_to_tuple); return true;
      default: return false;
    }
  }
  // super(class, self).name: the stack has super, the class and self.
  void load_super_attr(int arg) {
    add(Op::push_null);
    add(Op::swap, 4);
    add(Op::swap, 3);
    add(Op::swap, 2);
    add(Op::call, 2);
    named(arg & 1 ? Op::load_method : Op::load_attr, arg >> 2);
  }
#if PY_VERSION_HEX < 0x030D0000
  void load_fast(int slot) { add(Op::load_fast, slot); }
  bool since_312(int opcode, int arg) {
    switch (opcode) {
      case KW_NAMES: name_keywords(arg); return true;
      case MAKE_FUNCTION: add(Op::make_function, arg); return true;
      case PUSH_NULL: add(Op::push_null); return true;
      case LOAD_CLOSURE: add(Op::load_closure, arg); return true;
      case LOAD_GLOBAL: named(Op::load_global, arg >> 1, arg & 1); return true;
      case COMPARE_OP: add(Op::compare, arg >> 4); return true;
      case FORMAT_VALUE: add(Op::format_value, arg); return true;
      case FOR_ITER: jump(Op::for_iter, next_ + arg + 1); return true;  // behind END_FOR
      case END_FOR:
        add(Op::pop_top);
        add(Op::pop_top);
        return true;
      default: return false;
    }
  }
#else
  // A variable that is a cell is read by LOAD_DEREF; LOAD_FAST takes the cell itself, for a closure.
  void load_fast(int slot) { add(out_.is_cell(slot) ? Op::load_closure : Op::load_fast, slot); }
  bool since_312(int opcode, int arg) {
    switch (opcode) {
      case LOAD_FAST_LOAD_FAST:
        load_fast(arg >> 4);
        load_fast(arg & 15);
        return true;
      case STORE_FAST_LOAD_FAST:
        add(Op::store_fast, arg >> 4);
        load_fast(arg & 15);
        return true;
      case STORE_FAST_STORE_FAST:
        add(Op::store_fast, arg >> 4);
        add(Op::store_fast, arg & 15);
        return true;
      case CALL_KW: {  // the instruction before it loads the names
        auto& before = out_.ops.back();
        if (before.op != Op::load_const) return false;
        PyObject* names = std::exchange(before.object, nullptr);
        before.op = Op::nop;
        add(Op::call, arg).object = names;
        return true;
      }
      case PUSH_NULL:  // behind the callable; micro-operations have it in front
        add(Op::push_null);
        add(Op::swap, 2);
        return true;
      case LOAD_GLOBAL: named(Op::load_global, arg >> 1, arg & 1); return true;
      case MAKE_FUNCTION:
        function_ = out_.ops.size();
        add(Op::make_function);
        return true;
      case SET_FUNCTION_ATTRIBUTE:  // follows MAKE_FUNCTION; its operand was pushed before the code
        if (function_ >= out_.ops.size() || out_.ops[function_].op != Op::make_function) return false;
        out_.ops[function_].arg |= arg;
        add(Op::nop);
        return true;
      case TO_BOOL: add(Op::nop); return true;  // of a condition or of `not`, which take any object
      case COMPARE_OP: add(Op::compare, arg >> 5); return true;
      case CONVERT_VALUE: add(Op::format_value, arg); return true;
      case FORMAT_SIMPLE: add(Op::format_value, 0); return true;
      case FORMAT_WITH_SPEC: add(Op::format_value, 4); return true;
      case FOR_ITER: jump(Op::for_iter, next_ + arg + 2); return true;  // behind END_FOR and POP_TOP
      case END_FOR: add(Op::pop_top); return true;
      default: return false;
    }
  }
  size_t function_ = 0;  // the micro-operation of the last MAKE_FUNCTION
#endif
#endif

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
      if (converters_.count(at(target))) continue;
      out_.handlers.push_back({at(start), at(start + length), at(target), depth >> 1, bool(depth & 1)});
    }
  }

  PyCodeObject* code_;
  Code out_;
  int offset_ = 0, next_ = 0, end_ = 0;
  PyObject* names_ = nullptr;  // of the keywords of the next call
  std::map<int, int> begins_;  // micro-operations by code unit
  std::vector<std::pair<int, int>> jumps_;
  std::set<int> converters_;  // handlers that are left out
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
