// check_pickle: what CPython's unpickler takes on trust, looked at before it runs on a file of somebody
// else's. A walk over the instructions with a stack of what matters of each value: a few nanoseconds an
// instruction.
//   sizes       an array of bytes is made before its bytes are there; the memo grows to any index
//   classes     BUILD sets attributes of classes and functions as of any object
//   hashes      of tuples recurse without limit, and walk shared items again and again
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

#include "facula/io/pickle_machine.h"
#include "python.h"

namespace facula::bind {

namespace {

constexpr int kDeepest = 1000;  // tuples in tuples

struct Item {
  int depth = 0;        // of tuples and frozen sets; -1: nothing is kept here
  uint64_t cost = 1;    // visits of a hash
  bool global = false;  // a class or function found by name
};

class Walk : io::PickleMachine<Item> {
 public:
  using PickleMachine::PickleMachine;

  void run() {
    while (step(static_cast<unsigned char>(*take(1)))) {}
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const { PickleMachine::damaged("its pickle " + why); }
  uint64_t decimal() {
    std::string_view s = line();
    uint64_t x = 0;
    auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
    if (error != std::errc() || end != s.data() + s.size()) damaged("names no place to keep a value");
    return x;
  }
  void push(Item i = {}) { stack_.push_back(i); }
  void keep(uint64_t k) {
    if (k > size_)
      damaged("keeps a value at place " + std::to_string(k) + " of " + std::to_string(size_) + " bytes");
    Item i = top();
    if (memo_.size() <= k) memo_.resize(k + 1, Item{-1});
    kept_ += memo_[k].depth < 0;
    memo_[k] = i;
  }
  void recall(uint64_t k) {
    if (k >= memo_.size() || memo_[k].depth < 0) damaged("refers to what it did not keep");
    push(memo_[k]);
  }
  Item frozen(const std::vector<Item>& items) const {
    Item t;
    for (auto& i : items) {
      t.depth = std::max(t.depth, i.depth);
      t.cost = std::min(t.cost + i.cost, uint64_t(1) << 60);
    }
    if (++t.depth > kDeepest) damaged("nests tuples deeper than " + std::to_string(kDeepest));
    return t;
  }
  void hashed(const Item& i) {
    visits_ = std::min(visits_ + i.cost, uint64_t(1) << 60);
    if (visits_ > 1'000'000 + 1000 * size_) damaged("has keys that take too long to hash");
  }
  void hash_keys(const std::vector<Item>& pairs) {
    for (size_t k = 0; k < pairs.size(); k += 2) hashed(pairs[k]);
  }
  void hash_all(const std::vector<Item>& items) {  // of a set, or of a list, of which a set may be made
    for (auto& i : items) hashed(i);
  }
  void call(int operands) {
    Item args;
    for (int k = 1; k < operands; ++k) {
      Item a = pop();
      args.depth = std::max(args.depth, a.depth);
      args.cost += a.cost;
    }
    pop();
    hashed(args);
    push({args.depth, args.cost, false});
  }

  // False at the end.
  bool step(unsigned code) {
    switch (code) {
      case '.': top(); return false;
      case '(': marks_.push_back(stack_.size()); break;
      case '0':  // as CPython's, which lets it take a mark
        if (!marks_.empty() && marks_.back() == stack_.size()) marks_.pop_back();
        else pop();
        break;
      case '1': pop_mark(); break;
      case '2': push(Item(top())); break;
      case 'N':
      case 0x88:
      case 0x89:
      case ']':
      case '}':
      case 0x8f: push(); break;
      case ')': push(frozen({})); break;
      case 'J':
        take(4);
        push();
        break;
      case 'K':
        take(1);
        push();
        break;
      case 'M':
        take(2);
        push();
        break;
      case 'G':
        take(8);
        push();
        break;
      case 'F':
      case 'I':
      case 'L':
      case 'S':
      case 'V':
        line();
        push();
        break;
      case 'T':
      case 'X':
      case 'B':
      case 0x8b:
        take(take<uint32_t>());
        push();
        break;
      case 'U':
      case 'C':
      case 0x8c:
      case 0x8a:
        take(take<uint8_t>());
        push();
        break;
      case 0x8d:
      case 0x8e:
      case 0x96:
        take(take<uint64_t>());
        push();
        break;
      case 'c':
        line();
        line();
        push({0, 1, true});
        break;
      case 0x93:
        pop();
        pop();
        push({0, 1, true});
        break;
      case 't': push(frozen(pop_mark())); break;
      case 0x85:
      case 0x86:
      case 0x87: {
        std::vector<Item> items;
        for (unsigned k = 0x84; k < code; ++k) items.push_back(pop());
        push(frozen(items));
        break;
      }
      case 'l':
        hash_all(pop_mark());
        push();
        break;
      case 'd':
        hash_keys(pop_mark());
        push();
        break;
      case 'a':
        hashed(pop());
        top();
        break;
      case 'e':
        hash_all(pop_mark());
        top();
        break;
      case 's':
        pop();
        hashed(pop());
        top();
        break;
      case 'u':
        hash_keys(pop_mark());
        top();
        break;
      case 0x90:
        hash_all(pop_mark());
        top();
        break;
      case 0x91: {
        auto items = pop_mark();
        hash_all(items);
        push(frozen(items));
        break;
      }
      case 'Q':
        hashed(pop());
        push();
        break;
      case 'R':
      case 0x81: call(2); break;
      case 0x92: call(3); break;
      case 'b':
        pop();
        if (top().global) damaged("sets attributes of a class or function");
        break;
      case 'p': keep(decimal()); break;
      case 'q': keep(take<uint8_t>()); break;
      case 'r': keep(take<uint32_t>()); break;
      case 0x94: keep(kept_); break;
      case 'g': recall(decimal()); break;
      case 'h': recall(take<uint8_t>()); break;
      case 'j': recall(take<uint32_t>()); break;
      case 0x80:
        if (take<uint8_t>() > 5) damaged("has a newer protocol than 5");
        break;
      case 0x95: take(8); break;
      default: damaged("has the instruction " + std::to_string(code) + ", which no checkpoint needs");
    }
    return true;
  }

  uint64_t visits_ = 0, kept_ = 0;
  std::vector<Item> memo_;
};

PyObject* check_pickle(PyObject*, PyObject* args) {
  return guarded([&]() -> PyObject* {
    Py_buffer data;
    const char* where;
    if (!PyArg_ParseTuple(args, "y*s:check_pickle", &data, &where)) return nullptr;
    struct Release {
      Py_buffer* b;
      ~Release() { PyBuffer_Release(b); }
    } release{&data};
    Walk({static_cast<const char*>(data.buf), size_t(data.len)}, "load", where).run();
    Py_RETURN_NONE;
  });
}

PyMethodDef functions[] = {
    {"check_pickle", check_pickle, METH_VARARGS,
     "check_pickle(data, where): raises if unpickling would need what no checkpoint needs."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

void add_pickle(PyObject* module) { add_functions(module, functions); }

}  // namespace facula::bind
