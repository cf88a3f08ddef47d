// Pickles of checkpoints: RuntimeError is the only error; what is read can be looked at everywhere and
// written again.
#include "facula/io/pickle.h"

#include <unordered_set>

#include "fuzz.h"

using namespace facula;

// Touches the first and last byte of every tensor: a view outside of its storage is the sanitizer's to find. Each
// container once: what holds one twice, and so on, has more paths than there is time for.
static unsigned touch(const io::Value& v, std::unordered_set<const void*>& seen) {
  if (v.identity() && !seen.insert(v.identity()).second) return 0;
  unsigned sum = 0;
  if (v.is_tensor()) {
    const Tensor& t = v.tensor();
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (t.size(d).concrete() == 0) return 0;
      last += (t.size(d).concrete() - 1) * t.stride(d).concrete();
    }
    auto* p = static_cast<const unsigned char*>(t.data_ptr());
    return p[0] + p[(last + 1) * itemsize(t.dtype()) - 1];
  }
  if (v.is_dict()) {
    for (auto& [key, item] : v.dict()) sum += touch(item, seen);
  } else if (v.identity()) {
    for (auto& item : v.list()) sum += touch(item, seen);
  }
  return sum;
}

static Tensor storage_of(const std::string& key, DType dtype, int64_t numel) {
  user_check(key.size() < 8 && numel >= 0 && numel <= 64, "load") << "no such storage";
  return fuzz::zeros({numel}, dtype);
}

static void run(std::string_view data) {
  fuzz::raises_only(ErrorType::RuntimeError, [&] {
    io::Value v = io::read_pickle(data, "fuzz.pt", storage_of);
    [[maybe_unused]] static volatile unsigned sink;
    std::unordered_set<const void*> seen;
    if (data.size() < 4096) sink = touch(v, seen);
    io::to_string(v);
  });
}

static std::vector<std::string> seeds() {
  io::Dict tensors;
  for (int d = 0; d < kDTypeCount; ++d) tensors.set(name(DType(d)), fuzz::zeros({2, 3}, DType(d)));
  io::Dict state{{"epoch", 3},
                 {"loss", 0.25},
                 {"done", true},
                 {"none", std::nullopt},
                 {"big", int64_t(1) << 40},
                 {"z", std::complex<double>(1, 2)},
                 {"dtype", DType::BFloat16},
                 {"tuple", io::Tuple{{1, "two", 3.0}}},
                 {"list", io::List{io::List{1, 2}, io::Dict{{1, 2}}}},
                 {"model", tensors}};
  std::vector<std::string> all;
  for (io::Value v : {io::Value(state), io::Value(tensors), io::Value(io::List{1, 2, 3}), io::Value("text"),
                      io::Value(io::Dict{})}) {
    std::vector<Tensor> storages;
    all.push_back(io::write_pickle(v, storages));
  }
  // Instructions that only others write: protocol 4 with frames, short strings, memoised globals and appends.
  using namespace std::string_literals;
  all.push_back(
      "\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x0b"
      "collections\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94(\x8c\x01"
      "aK\x01\x8c\x01"
      "bM\x01\x02u."s);
  all.push_back("\x80\x02]q\0(K\x01J\xff\xff\xff\xffG?\xf0\0\0\0\0\0\0\x8a\x02\x01\x02NX\x01\0\0\0xe."s);
  all.push_back(
      "\x80\x02"
      "ctorch\nSize\nq\0K\x02K\x03\x86\x85R."s);
  all.push_back(
      "\x80\x02"
      "cbuiltins\ncomplex\nK\x02K\x03\x86R."s);
  // A list that is copied by every three bytes.
  std::string bomb =
      "\x80\x02"
      "cbuiltins\nlist\nq\0("s;
  bomb += std::string(100000, 'N') + "t\x85q\1"s;
  for (int k = 0; k < 50000; ++k) bomb += "h\0h\1R"s;
  all.push_back(bomb + "0.");
  return all;
}

FACULA_FUZZ("pickle", run, seeds)
