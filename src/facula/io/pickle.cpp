#include "facula/io/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "facula/autograd/autograd.h"
#include "facula/io/pickle_machine.h"
#include "facula/ops.h"

namespace facula::io {

namespace {
constexpr int kDeepest = 500;  // maximum nesting of containers

enum class Global : uint8_t {
  tensor,
  tensor_class,
  from_type,
  parameter,
  size,
  device,
  ordered_dict,
  counter,
  dict,
  list,
  complex,
  storage_type,
  typed_tensor,
  tagged,       // TorchScript's: a container with its type
  object_class  // TorchScript's
};
struct SupportedGlobal {
  const char* name;
  Global global;
};
constexpr SupportedGlobal kGlobals[] = {{"torch._utils._rebuild_tensor_v2", Global::tensor},
                                        {"torch._utils._rebuild_tensor_v3", Global::typed_tensor},
                                        {"torch._utils._rebuild_parameter", Global::parameter},
                                        {"torch._utils._rebuild_parameter_with_state", Global::parameter},
                                        {"torch._tensor._rebuild_from_type_v2", Global::from_type},
                                        {"torch.Tensor", Global::tensor_class},
                                        {"torch.Size", Global::size},
                                        {"torch.device", Global::device},
                                        {"collections.OrderedDict", Global::ordered_dict},
                                        {"collections.Counter", Global::counter},
                                        {"builtins.dict", Global::dict},
                                        {"builtins.list", Global::list},
                                        {"__builtin__.dict", Global::dict},
                                        {"__builtin__.list", Global::list},
                                        {"builtins.complex", Global::complex},
                                        {"__builtin__.complex", Global::complex},
                                        {"torch.jit._pickle.build_intlist", Global::list},
                                        {"torch.jit._pickle.build_doublelist", Global::list},
                                        {"torch.jit._pickle.build_boollist", Global::list},
                                        {"torch.jit._pickle.build_tensorlist", Global::list},
                                        {"torch.jit._pickle.restore_type_tag", Global::tagged}};

struct Item {
  enum class Kind : uint8_t { value, global, storage } kind = Kind::value;
  Global global{};
  DType dtype{};  // of a storage type
  Value value;    // for a storage: its elements
};

class Reader : PickleMachine<Item> {
 public:
  Reader(std::string_view data, const std::string& path, const LoadStorage& storage, bool objects)
      : PickleMachine(data, "load", path), storage_(storage), objects_(objects) {}
  ~Reader() { take_apart(); }
  Value run();
  using Heights = std::unordered_map<const void*, int>;
  // Clears every container but those of the result, so that cycles are freed and none is freed recursively.
  void take_apart(const Heights& result = {}) {
    for (auto& v : containers_) {
      if (result.count(v.identity())) continue;
      if (v.is_dict()) v.dict().clear();
      else v.list().clear();
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    user_check(false, op_) << where_ << " holds a " << what
                           << ", which is neither tensor, container nor number"
                           << hint("read the file in Python, and save the tensors in it");
    __builtin_unreachable();
  }
  Value value(Item i) const {
    if (i.kind != Item::Kind::value) damaged("its pickle uses a class or storage as a value");
    return std::move(i.value);
  }
  Value pop_value() { return value(pop()); }
  void push(Value v) { stack_.push_back({Item::Kind::value, {}, {}, std::move(v)}); }
  void push_container(Value v) {
    containers_.push_back(v);
    push(std::move(v));
  }
  void push_tuple(std::vector<Item> items);
  void push_text(uint64_t n) { push(Value(std::string_view(take(n), n))); }
  void push_long(const char* bytes, size_t n);
  void remember(uint32_t k) { memo_[k] = top(); }
  void recall(uint32_t k) {
    auto it = memo_.find(k);
    if (it == memo_.end()) damaged("its pickle refers to what it did not keep");
    stack_.push_back(it->second);
  }
  // Each executes an instruction of one group, or returns false for other instructions.
  bool literal_step(unsigned code);
  bool container_step(unsigned code);
  bool object_step(unsigned code);
  void find_global(std::string_view module, std::string_view name);
  void load_storage();
  void reduce();
  void build();
  void make_object();
  void set_items(Value dict, const std::vector<Item>& items);
  Tensor rebuild(std::vector<Item> args, bool typed);  // typed: a view of bytes, _rebuild_tensor_v3
  int64_t whole_number(const Item& i) const { return value(i).integer(); }
  Heights check_nesting(const Value& root) const;

  const LoadStorage& storage_;
  bool objects_;
  std::unordered_set<const void*> made_objects_;  // dicts that stand for objects of TorchScript's classes
  std::unordered_map<uint32_t, Item> memo_;
  std::unordered_map<const void*, std::vector<Item>>
      tuples_;                     // that contain storages or classes: arguments of calls
  std::vector<Value> containers_;  // all containers, to break cycles
};

void Reader::push_tuple(std::vector<Item> items) {
  Tuple t;
  bool plain = true;
  for (auto& i : items) {
    plain = plain && i.kind == Item::Kind::value;
    t.items.push_back(i.value);
  }
  Value v(std::move(t));
  if (!plain) tuples_[v.identity()] = std::move(items);
  push_container(std::move(v));
}
void Reader::push_long(const char* bytes, size_t n) {
  if (n > 8) damaged("it holds an integer of more than 64 bits");
  int64_t x = n && bytes[n - 1] < 0 ? -1 : 0;
  std::memcpy(&x, bytes, n);
  push(x);
}
void Reader::find_global(std::string_view module, std::string_view name) {
  std::string full = std::string(module) + "." + std::string(name);
  for (auto& g : kGlobals)
    if (full == g.name) return stack_.push_back({Item::Kind::global, g.global, {}, {}});
  auto storage_type = [&](DType d) { stack_.push_back({Item::Kind::global, Global::storage_type, d, {}}); };
  if (full == "torch.storage.UntypedStorage") return storage_type(DType::UInt8);
  for (int k = 0; module == "torch" && k < kDTypeCount; ++k) {
    auto d = DType(k);
    if (name == facula::name(d)) return push(d);
    if (!is_limited(d) && name == std::string(class_name(d)) + "Storage") return storage_type(d);
  }
  if (objects_ && (module == "__torch__" || module.starts_with("__torch__.")))
    return stack_.push_back({Item::Kind::global, Global::object_class, {}, {}});
  refuse(full);
}
void Reader::load_storage() {
  Value id = pop_value();
  auto it = tuples_.find(id.identity());
  if (it == tuples_.end() || it->second.size() != 5 || !(it->second[0].value == Value("storage")) ||
      it->second[1].global != Global::storage_type || it->second[1].kind != Item::Kind::global)
    damaged("it refers to something that is no storage");
  const auto& v = it->second;
  Item s;
  s.kind = Item::Kind::storage;
  s.dtype = v[1].dtype;
  s.value = storage_(value(v[2]).string(), s.dtype, whole_number(v[4]));
  stack_.push_back(std::move(s));
}
Tensor Reader::rebuild(std::vector<Item> args, bool typed) {
  if (args.size() < (typed ? 7 : 4) || args.size() > (typed ? 8 : 7) || args[0].kind != Item::Kind::storage)
    damaged("a tensor has no storage");
  const Tensor& all = args[0].value.tensor();
  DType dtype = args[0].dtype;
  if (typed) {  // a view of bytes
    dtype = value(args[6]).dtype();
    args.erase(args.begin() + 6);
  }
  int64_t offset = whole_number(args[1]);
  const List &size = value(args[2]).list(), &stride = value(args[3]).list();
  Dims sizes, strides;
  constexpr int64_t kLimit = int64_t(1) << 60;
  bool good = size.size() == stride.size() && size.size() <= 64 && offset >= 0 && offset <= kLimit,
       empty = false;
  __int128 last = offset;
  int64_t count = 1;
  for (size_t d = 0; good && d < size.size(); ++d) {
    int64_t n = size[d].integer(), s = stride[d].integer();
    good = n >= 0 && n < kLimit && s >= 0 && s < kLimit &&
           !__builtin_mul_overflow(count, std::max<int64_t>(n, 1), &count) && count < kLimit;
    empty = empty || n == 0;
    last += __int128(n - 1) * s;
    sizes.push_back(n);
    strides.push_back(s);
  }
  int64_t held = all.numel().concrete() * all.itemsize() / itemsize(dtype);
  if (!good || (!empty && last >= held))
    damaged("a tensor of size " + to_string(value(args[2]), 200) + ", stride " +
            to_string(value(args[3]), 200) + " and offset " + std::to_string(offset) +
            " lies outside of its storage of " + std::to_string(held) + " elements");
  Tensor t(make_ref<TensorImpl>(all.impl()->storage, std::move(sizes), std::move(strides), SymInt(offset),
                                dtype, Device{}));
  auto is_put_off = [&](const char* what) {  // applied after the elements are read
    if (args.size() <= 6 || !value(args[6]).is_dict()) return false;
    const Value* v = value(args[6]).dict().find(what);
    return v && v->kind() == Value::Kind::boolean && v->boolean();
  };
  if (is_put_off("conj")) t = conj(t);
  if (is_put_off("neg")) t = is_differentiable(t.dtype()) ? _neg_view(t) : neg(t);
  if (args.size() > 4 && value(args[4]).boolean()) autograd::set_requires_grad(t, true);
  return t;
}
void Reader::set_items(Value dict, const std::vector<Item>& items) {
  if (!dict.is_dict() || items.size() % 2) damaged("its pickle sets items of something that is no dict");
  for (size_t k = 0; k < items.size(); k += 2) dict.dict().set(value(items[k]), value(items[k + 1]));
}
void Reader::reduce() {
  Value packed = pop_value();
  Item f = pop();
  if (packed.kind() != Value::Kind::tuple || f.kind != Item::Kind::global)
    damaged("its pickle calls what is no function");
  pay(packed.size());
  std::vector<Item> args;
  if (auto it = tuples_.find(packed.identity()); it != tuples_.end()) args = it->second;
  else
    for (auto& v : packed.list()) args.push_back({Item::Kind::value, {}, {}, v});
  auto argument = [&](size_t k) {
    if (k >= args.size()) damaged("its pickle calls with too few arguments");
    Value v = value(args[k]);
    if (v.identity()) pay(v.size());
    return v;
  };
  switch (f.global) {
    case Global::tensor:
    case Global::typed_tensor: return push(rebuild(args, f.global == Global::typed_tensor));
    case Global::from_type: {  // a tensor with attributes, which are dropped
      bool typed = args.size() == 4 && args[0].global == Global::typed_tensor;
      if (args.size() != 4 || args[0].kind != Item::Kind::global ||
          (!typed && args[0].global != Global::tensor) || args[1].global != Global::tensor_class)
        damaged("it holds a tensor of another class");
      auto inner = tuples_.find(value(args[2]).identity());
      if (inner == tuples_.end()) damaged("a tensor has no storage");
      return push(rebuild(inner->second, typed));
    }
    case Global::parameter: {
      Tensor t = argument(0).tensor().detached();
      if (argument(1).boolean()) autograd::set_requires_grad(t, true);
      return push(std::move(t));
    }
    case Global::size: return push_container(Tuple{argument(0).list()});
    case Global::device: return push(argument(0).string());
    case Global::complex: return push(std::complex<double>(argument(0).number(), argument(1).number()));
    case Global::list: return push_container(args.empty() ? List() : argument(0).list());
    case Global::ordered_dict:
    case Global::counter:
    case Global::dict: {
      Dict d;
      if (!args.empty() && argument(0).is_dict()) d = argument(0).dict();
      else if (!args.empty())
        for (auto& pair : argument(0).list()) d.set(pair[0], pair[1]);
      return push_container(std::move(d));
    }
    case Global::tagged: return push(argument(0));
    case Global::tensor_class:
    case Global::object_class:
    case Global::storage_type: break;
  }
  damaged("its pickle calls a class of tensors or storages");
}
void Reader::make_object() {
  pop_value();  // arguments: none
  Item type = pop();
  if (type.kind != Item::Kind::global || type.global != Global::object_class)
    damaged("its pickle makes an object of what is no class");
  Value object = Dict();
  made_objects_.insert(object.identity());
  push_container(std::move(object));
}
// Attributes of an OrderedDict, such as a state_dict's versions, are dropped.
void Reader::build() {
  Value state = pop_value();
  if (top().kind == Item::Kind::value && made_objects_.contains(top().value.identity())) {
    if (!state.is_dict()) damaged("the attributes of an object are no dict");
    pay(state.size());
    for (auto& [name, v] : state.dict()) top().value.dict().set(name, v);
    return;
  }
  if (top().kind != Item::Kind::value || !top().value.is_dict())
    damaged("its pickle gives attributes to what has none");
}

Value Reader::run() {
  while (true) {
    auto code = static_cast<unsigned char>(*take(1));
    if (code == '.') {
      Value v = pop_value();
      take_apart(check_nesting(v));  // containers that the pickle created and dropped
      containers_.clear();
      return v;
    }
    if (!literal_step(code) && !container_step(code) && !object_step(code))
      damaged("its pickle has an unknown instruction " + std::to_string(code));
  }
}

bool Reader::literal_step(unsigned code) {
  switch (code) {
    case 0x80:
      if (take<uint8_t>() > 5) damaged("its pickle has a newer protocol than 5");
      break;
    case 0x95: take<uint64_t>(); break;  // frame
    case 'N': push(Value()); break;
    case 0x88: push(true); break;
    case 0x89: push(false); break;
    case 'J': push(take<int32_t>()); break;
    case 'K': push(take<uint8_t>()); break;
    case 'M': push(take<uint16_t>()); break;
    case 'G': push(std::bit_cast<double>(__builtin_bswap64(take<uint64_t>()))); break;
    case 0x8a: {
      size_t n = take<uint8_t>();
      push_long(take(n), n);
      break;
    }
    case 0x8b: {
      int32_t n = take<int32_t>();
      push_long(take(uint64_t(std::max(n, 0))), size_t(std::max(n, 0)));
      break;
    }
    case 'X': push_text(take<uint32_t>()); break;
    case 0x8c: push_text(take<uint8_t>()); break;
    case 0x8d: push_text(take<uint64_t>()); break;
    case 'B':
    case 'C':
    case 0x8e:
    case 0x96: refuse("builtins.bytes");
    default: return false;
  }
  return true;
}

bool Reader::container_step(unsigned code) {
  switch (code) {
    case '(': marks_.push_back(stack_.size()); break;
    case '0': pop(); break;
    case '}': push_container(Dict()); break;
    case ']': push_container(List()); break;
    case ')': push_tuple({}); break;
    case 't': push_tuple(pop_mark()); break;
    case 0x85:
    case 0x86:
    case 0x87: {
      std::vector<Item> items(size_t(code - 0x84));
      for (size_t k = items.size(); k--;) items[k] = pop();
      push_tuple(std::move(items));
      break;
    }
    case 'a':
    case 'e': {
      std::vector<Item> items;
      if (code == 'e') items = pop_mark();
      else items.push_back(pop());
      if (top().value.kind() != Value::Kind::list) damaged("its pickle appends to what is no list");
      Value list = top().value;
      for (auto& i : items) list.list().push_back(value(std::move(i)));
      break;
    }
    case 's': {
      Item v = pop(), k = pop();
      set_items(top().value, {k, v});
      break;
    }
    case 'u': {
      auto items = pop_mark();
      set_items(top().value, items);
      break;
    }
    case 0x8f: refuse("builtins.set");
    default: return false;
  }
  return true;
}

bool Reader::object_step(unsigned code) {
  switch (code) {
    case 'c': {
      auto module = line();
      find_global(module, line());
      break;
    }
    case 0x93: {
      Value n = pop_value(), m = pop_value();
      find_global(m.string(), n.string());
      break;
    }
    case 'Q': load_storage(); break;
    case 'R': reduce(); break;
    case 0x81: make_object(); break;
    case 'b': build(); break;
    case 'q': remember(take<uint8_t>()); break;
    case 'r': remember(take<uint32_t>()); break;
    case 0x94: remember(uint32_t(memo_.size())); break;
    case 'h': recall(take<uint8_t>()); break;
    case 'j': recall(take<uint32_t>()); break;
    default: return false;
  }
  return true;
}

// Raises for containers that contain themselves, or are nested too deeply for recursive readers. Returns the reachable
// containers.
Reader::Heights Reader::check_nesting(const Value& root) const {
  struct Visit {
    Value v;
    size_t next = 0;
    int height = 1;
  };
  Heights heights;  // 0: being visited
  auto child = [](const Value& v, size_t k) {
    return v.is_dict() ? (v.dict().begin() + long(k))->second : v.list()[k];
  };
  std::vector<Visit> path;
  if (!root.identity()) return heights;
  path.push_back({root});
  heights[root.identity()] = 0;
  while (!path.empty()) {
    Visit& at = path.back();
    if (at.height > kDeepest || int(path.size()) > kDeepest)
      damaged("its containers are nested deeper than " + std::to_string(kDeepest));
    if (at.next == at.v.size()) {
      int h = at.height;
      heights[at.v.identity()] = h;
      path.pop_back();
      if (!path.empty()) path.back().height = std::max(path.back().height, h + 1);
      continue;
    }
    Value c = child(at.v, at.next++);
    if (!c.identity()) continue;
    auto [it, is_new] = heights.try_emplace(c.identity(), 0);
    if (is_new) path.push_back({c});
    else if (!it->second) damaged("a container holds itself");
    else at.height = std::max(at.height, it->second + 1);
  }
  return heights;
}

// ---- writing

class Writer {
 public:
  Writer(std::vector<Tensor>& storages, const Classes& classes) : storages_(storages), classes_(classes) {}
  std::string run(const Value& v) {
    out_ = "\x80\x02";
    write(v, 0);
    return out_ + ".";
  }

 private:
  template <class T>
  void raw(T x) {
    out_.append(reinterpret_cast<const char*>(&x), sizeof x);
  }
  void global(const char* module, const std::string& name) {
    ((((out_ += 'c') += module) += '\n') += name) += '\n';
  }
  void integer(int64_t i) {
    if (i == int32_t(i)) {
      out_ += 'J';
      raw(int32_t(i));
    } else {
      out_ += "\x8a\x08";
      raw(i);
    }
  }
  void text(std::string_view s) {
    user_check(s.size() <= UINT32_MAX, "save") << "a string of " << s.size() << " bytes is too long";
    out_ += 'X';
    raw(uint32_t(s.size()));
    out_ += s;
  }
  void real(double d) {
    out_ += 'G';
    raw(__builtin_bswap64(std::bit_cast<uint64_t>(d)));
  }
  void flag(bool b) { out_ += b ? '\x88' : '\x89'; }
  void keep(const void* what) {
    uint32_t k = uint32_t(memo_.size());
    memo_[what] = k;
    out_ += 'r';
    raw(k);
  }
  bool again(const void* what) {
    auto it = memo_.find(what);
    if (it == memo_.end()) return false;
    out_ += 'j';
    raw(it->second);
    return true;
  }
  void sizes(IntSpan s) {
    out_ += '(';
    for (int64_t n : s) integer(n);
    out_ += 't';
  }
  void tensor(const Tensor& t);
  void write(const Value& v, int depth);

  std::string out_;
  std::vector<Tensor>& storages_;
  const Classes& classes_;
  std::unordered_map<const void*, uint32_t> memo_;
  std::unordered_map<const void*, size_t> keys_;
  std::vector<const void*> open_;  // containers that are being written
};

void Writer::tensor(const Tensor& t) {
  if (!t.defined()) {
    out_ += 'N';
    return;
  }
  user_check(t.device().type == DeviceType::cpu && !t.is_traced(), "save")
      << "a tensor on " << to_string(t.device()) << " has no elements to save";
  if (again(t.impl())) return;
  t.data_ptr();  // restores the logical layout
  auto [it, is_new] = keys_.try_emplace(t.impl()->storage.get(), storages_.size());
  if (is_new) storages_.push_back(t);
  const Tensor& holder = storages_[it->second];
  user_check(holder.dtype() == t.dtype(), "save") << "a storage is viewed as " << holder.dtype() << " and as "
                                                  << t.dtype() << hint("save a clone of one of the tensors");
  bool typed = is_limited(t.dtype());  // PyTorch has no storage classes for these dtypes: bytes and a dtype
  global("torch._utils", typed ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  out_ += "((";
  text("storage");
  if (typed) global("torch.storage", "UntypedStorage");
  else global("torch", std::string(class_name(t.dtype())) + "Storage");
  text(std::to_string(it->second));
  text("cpu");
  auto elements = int64_t(t.impl()->storage->bytes() / size_t(t.itemsize()));
  integer(typed ? elements * t.itemsize() : elements);
  out_ += "tQ";
  integer(t.offset().concrete());
  sizes(t.int_sizes());
  sizes(t.int_strides());
  flag(t.requires_grad());
  global("collections", "OrderedDict");
  out_ += ")R";
  if (typed) global("torch", facula::name(t.dtype()));
  if (t.impl()->is_lazy()) {
    out_ += "}(";
    for (auto [name, on] : {std::pair("conj", t.impl()->conj), std::pair("neg", t.impl()->neg)}) {
      if (!on) continue;
      text(name);
      flag(true);
    }
    out_ += 'u';
  }
  out_ += "tR";
  keep(t.impl());
}

void Writer::write(const Value& v, int depth) {
  using Kind = Value::Kind;
  user_check(depth <= kDeepest, "save") << "containers are nested deeper than " << kDeepest;
  const void* id = v.identity();
  if (id) {
    user_check(std::find(open_.begin(), open_.end(), id) == open_.end(), "save")
        << "a " << io::name(v.kind()) << " holds itself";
    if (again(id)) return;
    open_.push_back(id);
  }
  switch (v.kind()) {
    case Kind::none: out_ += 'N'; break;
    case Kind::boolean: flag(v.boolean()); break;
    case Kind::integer: integer(v.integer()); break;
    case Kind::real: real(v.number()); break;
    case Kind::complex:
      global("__builtin__", "complex");
      real(v.complex().real());
      real(v.complex().imag());
      out_ += "\x86R";
      break;
    case Kind::string: text(v.string()); break;
    case Kind::dtype: global("torch", facula::name(v.dtype())); break;
    case Kind::tensor: tensor(v.tensor()); break;
    case Kind::tuple:
      out_ += '(';
      for (auto& x : v.list()) write(x, depth + 1);
      out_ += 't';
      keep(id);
      break;
    case Kind::list:
      out_ += ']';
      keep(id);
      out_ += '(';
      for (auto& x : v.list()) write(x, depth + 1);
      out_ += 'e';
      break;
    case Kind::dict: {
      auto type = classes_.find(id);
      if (type != classes_.end()) {  // an object, and its attributes
        size_t dot = type->second.rfind('.');
        global(type->second.substr(0, dot).c_str(), type->second.substr(dot + 1));
        out_ += ")\x81";
        keep(id);
        out_ += '}';
      } else {
        out_ += '}';
        keep(id);
      }
      out_ += '(';
      for (auto& [key, x] : v.dict()) {
        write(key, depth + 1);
        write(x, depth + 1);
      }
      out_ += type != classes_.end() ? "ub" : "u";
      break;
    }
    case Kind::object: type_check(false, "save") << io::to_string(v, 100) << " can't be written to a file";
  }
  if (id) open_.pop_back();
}
}  // namespace

Value read_pickle(std::string_view data, const std::string& path, const LoadStorage& storage, bool objects) {
  Reader r(data, path, storage, objects);
  try {
    return r.run();
  } catch (const Error& e) {
    user_check(!e.op().empty(), "load") << path << " is damaged: " << e.message();
    throw;
  }
}

std::string write_pickle(const Value& value, std::vector<Tensor>& storages, const Classes& classes) {
  return Writer(storages, classes).run(value);
}

}  // namespace facula::io
