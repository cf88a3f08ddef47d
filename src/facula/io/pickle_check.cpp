#include "facula/io/pickle_check.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

#include "facula/io/pickle_machine.h"

namespace facula::io {

namespace {

constexpr int kDeepest = 1000;  // nesting of tuples
constexpr uint64_t kMost = uint64_t(1) << 60;
constexpr uint64_t kTextItem = 16;  // bytes of a text that count as one item

enum class Kind : uint8_t { none, plain, text, tuple, list, dict, set, storage, tensor, global, object };

// Functions that load() calls, and the kinds of their results; others are the user's.
struct Function {
  std::string_view module, name;
  Kind result;
  bool callable = true;
};
constexpr Function kFunctions[] = {
    {"torch._utils", "_rebuild_tensor", Kind::tensor},
    {"torch._utils", "_rebuild_tensor_v2", Kind::tensor},
    {"torch._utils", "_rebuild_tensor_v3", Kind::tensor},
    {"torch._utils", "_rebuild_sparse_tensor", Kind::tensor},
    {"torch._utils", "_rebuild_parameter", Kind::tensor},
    {"torch._utils", "_rebuild_parameter_with_state", Kind::tensor},
    {"torch._tensor", "_rebuild_from_type_v2", Kind::tensor},
    {"torch", "Tensor", Kind::tensor, false},
    {"torch.nn.parameter", "Parameter", Kind::tensor, false},
    {"torch", "Size", Kind::tuple},
    {"torch", "device", Kind::plain},
    {"torch.serialization", "_get_layout", Kind::plain},
    {"collections", "OrderedDict", Kind::dict},
    {"collections", "Counter", Kind::dict},
    {"collections", "defaultdict", Kind::dict},
    {"builtins", "dict", Kind::dict},
    {"builtins", "list", Kind::list},
    {"builtins", "set", Kind::set},
    {"builtins", "frozenset", Kind::set},
    {"builtins", "complex", Kind::plain},
    {"builtins", "slice", Kind::plain},
    {"builtins", "bytearray", Kind::text},
    {"builtins", "bytes", Kind::text},
    {"_codecs", "encode", Kind::text},
};

struct Item {
  Kind kind = Kind::plain;  // none: an unused entry of the memo
  int depth = 0;            // of tuples and frozen sets
  uint64_t cost = 1;        // of hashing
  uint32_t contents = 0;    // index of its contents, which its copies share; 0: none
  const Function* function = nullptr;
  std::string_view text;  // of a literal
};

// The contents of a value.
struct Contents {
  uint64_t items = 0;         // bytes of a text
  uint64_t cost = 0;          // of hashing all items
  std::vector<Item> members;  // of a tuple: usually the arguments of a call
};

class Walk : PickleMachine<Item> {
 public:
  Walk(std::string_view data, const std::string& where) : PickleMachine(data, "load", where), contents_(1) {}

  size_t run() {
    auto* begin = take(0);
    while (step(static_cast<unsigned char>(*take(1)))) {}
    return size_t(take(0) - begin);
  }

 private:
  [[noreturn]] void damaged(const std::string& why) const { PickleMachine::damaged("its pickle " + why); }
  static uint64_t sum(uint64_t a, uint64_t b) { return std::min(a + b, kMost); }
  uint64_t decimal() {
    std::string_view s = line();
    uint64_t x = 0;
    auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
    if (error != std::errc() || end != s.data() + s.size()) damaged("names no place to keep a value");
    return x;
  }

  void push(Item i = {}) { stack_.push_back(i); }
  Item container(Kind kind, Contents b = {}) {
    Item i;
    i.kind = kind;
    i.contents = uint32_t(contents_.size());
    contents_.push_back(std::move(b));
    return i;
  }
  void push_text(uint64_t n) {
    Item i = container(Kind::text, {n, 0, {}});
    i.text = {take(n), n};
    push(i);
  }
  void push_line() {
    std::string_view s = line();
    Item i = container(Kind::text, {s.size(), 0, {}});
    i.text = s;
    push(i);
  }
  void push_global(std::string_view module, std::string_view name) {
    Item i;
    i.kind = Kind::global;
    if (module == "__builtin__") module = "builtins";  // Python 2's name, which protocol 2 uses
    for (auto& f : kFunctions)
      if (f.module == module && f.name == name) i.function = &f;
    push(i);
  }
  void keep(uint64_t k) {
    if (k > size_)
      damaged("keeps a value at place " + std::to_string(k) + " of " + std::to_string(size_) + " bytes");
    Item i = top();
    if (memo_.size() <= k) memo_.resize(k + 1, Item{Kind::none, 0, 1, 0, nullptr, {}});
    memo_size_ += memo_[k].kind == Kind::none;
    memo_[k] = i;
  }
  void recall(uint64_t k) {
    if (k >= memo_.size() || memo_[k].kind == Kind::none) damaged("refers to what it did not keep");
    push(memo_[k]);
  }

  Item frozen(Kind kind, std::vector<Item> items) {
    int depth = 0;
    uint64_t cost = 1;
    for (auto& i : items) {
      depth = std::max(depth, i.depth);
      cost = sum(cost, i.cost);
    }
    if (++depth > kDeepest) damaged("nests tuples deeper than " + std::to_string(kDeepest));
    uint64_t n = items.size();
    Item t = container(kind, {n, cost, kind == Kind::tuple ? std::move(items) : std::vector<Item>{}});
    t.depth = depth;
    t.cost = cost;
    return t;
  }
  void hashed(uint64_t cost) {
    visits_ = sum(visits_, cost);
    if (visits_ > 1'000'000 + 1000 * size_) damaged("has keys that take too long to hash");
  }
  // Adds items to the container on top; in a dict every second one is a key. Items of a list count as hashed too, because
  // a set may be created from it.
  void add(Kind kind, const std::vector<Item>& items) {
    Item to = top();
    if (to.kind != kind && to.kind != Kind::object) damaged("adds items to what does not hold such");
    size_t stride = kind == Kind::dict ? 2 : 1;
    if (items.size() % stride) damaged("has a key without a value");
    uint64_t cost = 0;
    for (size_t k = 0; k < items.size(); k += stride) cost = sum(cost, items[k].cost);
    hashed(cost);
    if (!to.contents) return;
    contents_[to.contents].items += items.size() / stride;
    contents_[to.contents].cost = sum(contents_[to.contents].cost, cost);
  }

  // Calls `f(*args)`, with options if `has_options`. A call reads its arguments once, and its result is no larger.
  void call(bool has_options) {
    Item options = has_options ? pop() : Item{}, args = pop(), f = pop();
    if (f.kind != Kind::global && f.kind != Kind::object) damaged("calls what is no function");
    if (args.kind != Kind::tuple && args.kind != Kind::object) damaged("calls with what is no tuple");
    bool makes_container =
        f.function && (f.function->result == Kind::list || f.function->result == Kind::dict ||
                       f.function->result == Kind::set || f.function->result == Kind::text);
    if (f.function && (!f.function->callable || has_options || args.kind == Kind::object))
      damaged("calls " + std::string(f.function->name) + " in a way that no checkpoint needs");
    Contents all;
    auto read = [&](const Item& i) {
      uint64_t n = contents_[i.contents].items;
      pay(i.kind == Kind::text ? n / kTextItem : n);
      all.items = sum(all.items, n);
      all.cost = sum(all.cost, sum(i.cost, contents_[i.contents].cost));
      if (makes_container && (i.kind == Kind::tensor || i.kind == Kind::storage))
        damaged("makes a " + std::string(f.function->name) + " of a tensor's elements");
    };
    read(options);
    pay(contents_[args.contents].items);
    for (size_t k = 0; k < contents_[args.contents].members.size(); ++k)
      read(contents_[args.contents].members[k]);
    hashed(all.cost);
    Item result = container(f.function ? f.function->result : Kind::object, std::move(all));
    result.depth = args.depth;
    result.cost = std::max(args.cost, uint64_t(1));
    push(result);
  }
  void build() {
    Item state = pop(), to = top();
    if (to.kind == Kind::global) damaged("sets attributes of a class or function");
    bool good = to.kind == Kind::object || to.kind == Kind::dict ||
                (to.kind == Kind::tensor && state.kind == Kind::dict);
    if (!good) damaged("gives attributes to what has none");
  }

  // Returns false at the end.
  bool step(unsigned code) {
    if (code == '.') {
      top();
      return false;
    }
    if (!stack_step(code) && !literal_step(code) && !container_step(code) && !call_step(code) &&
        !memo_step(code))
      damaged("has the instruction " + std::to_string(code) + ", which no checkpoint needs");
    return true;
  }

  // Each executes an instruction of one group, or returns false for other instructions.
  bool stack_step(unsigned code) {
    switch (code) {
      case '(': marks_.push_back(stack_.size()); break;
      case '0':  // like CPython, which lets it remove a mark
        if (!marks_.empty() && marks_.back() == stack_.size()) marks_.pop_back();
        else pop();
        break;
      case '1': pop_mark(); break;
      case '2': push(Item(top())); break;
      case 0x80:
        if (take<uint8_t>() > 5) damaged("has a newer protocol than 5");
        break;
      case 0x95: take(8); break;
      default: return false;
    }
    return true;
  }
  bool literal_step(unsigned code) {
    switch (code) {
      case 'N':
      case 0x88:
      case 0x89: push(); break;
      case 'J': push_number(4); break;
      case 'K': push_number(1); break;
      case 'M': push_number(2); break;
      case 'G': push_number(8); break;
      case 'F':
      case 'I':
      case 'L': push_number_text(); break;
      case 0x8a: push_number(take<uint8_t>()); break;
      case 0x8b: push_number(take<uint32_t>()); break;
      case 'S':
      case 'V': push_line(); break;
      case 'T':
      case 'X':
      case 'B': push_text(take<uint32_t>()); break;
      case 'U':
      case 'C':
      case 0x8c: push_text(take<uint8_t>()); break;
      case 0x8d:
      case 0x8e:
      case 0x96: push_text(take<uint64_t>()); break;
      default: return false;
    }
    return true;
  }
  bool container_step(unsigned code) {
    switch (code) {
      case ']': push(container(Kind::list)); break;
      case '}': push(container(Kind::dict)); break;
      case 0x8f: push(container(Kind::set)); break;
      case ')': push(frozen(Kind::tuple, {})); break;
      case 't': push(frozen(Kind::tuple, pop_mark())); break;
      case 0x85:
      case 0x86:
      case 0x87: push_short_tuple(code - 0x84); break;
      case 'l':
      case 'd': {
        auto items = pop_mark();
        Kind kind = code == 'l' ? Kind::list : Kind::dict;
        push(container(kind));
        add(kind, items);
        break;
      }
      case 'a': {
        Item i = pop();
        add(Kind::list, {i});
        break;
      }
      case 's': {
        Item value = pop(), key = pop();
        add(Kind::dict, {key, value});
        break;
      }
      case 'e': add_all(Kind::list); break;
      case 'u': add_all(Kind::dict); break;
      case 0x90: add_all(Kind::set); break;
      case 0x91: {
        Item set = frozen(Kind::set, pop_mark());
        hashed(set.cost);
        push(set);
        break;
      }
      default: return false;
    }
    return true;
  }
  bool call_step(unsigned code) {
    switch (code) {
      case 'c': {
        std::string_view module = line();
        push_global(module, line());
        break;
      }
      case 0x93: {
        Item name = pop(), module = pop();
        push_global(module.text, name.text);
        break;
      }
      case 'Q': push_referred(); break;
      case 'R':
      case 0x81: call(false); break;
      case 0x92: call(true); break;
      case 'b': build(); break;
      default: return false;
    }
    return true;
  }
  bool memo_step(unsigned code) {
    switch (code) {
      case 'p': keep(decimal()); break;
      case 'q': keep(take<uint8_t>()); break;
      case 'r': keep(take<uint32_t>()); break;
      case 0x94: keep(memo_size_); break;
      case 'g': recall(decimal()); break;
      case 'h': recall(take<uint8_t>()); break;
      case 'j': recall(take<uint32_t>()); break;
      default: return false;
    }
    return true;
  }

  void push_short_tuple(size_t n) {
    std::vector<Item> items(n);
    for (size_t k = n; k--;) items[k] = pop();
    push(frozen(Kind::tuple, std::move(items)));
  }
  // Pushes the object of a persistent id: a storage, or the class of a module that was saved with its source.
  void push_referred() {
    Item reference = pop();
    hashed(reference.cost);
    auto& parts = contents_[reference.contents].members;
    Item referred;
    referred.kind = !parts.empty() && parts[0].text == "module" ? Kind::global : Kind::storage;
    push(referred);
  }
  void add_all(Kind kind) {
    auto items = pop_mark();
    add(kind, items);
  }
  void push_number(uint64_t bytes) {  // hashing a long integer is expensive
    take(bytes);
    Item i;
    i.cost = 1 + bytes / 32;
    push(i);
  }
  void push_number_text() {
    Item i;
    i.cost = 1 + line().size() / 64;
    push(i);
  }

  uint64_t visits_ = 0, memo_size_ = 0;
  std::vector<Contents> contents_;
  std::vector<Item> memo_;
};

}  // namespace

size_t check_pickle(std::string_view data, const std::string& where) { return Walk(data, where).run(); }

}  // namespace facula::io
