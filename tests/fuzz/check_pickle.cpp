// What is looked at before Python's unpickler runs: RuntimeError is the only error, and the time is the
// pickle's length's.
#include <chrono>

#include "facula/io/pickle_check.h"
#include "fuzz.h"

using namespace facula;

static void run(std::string_view data) {
  auto start = std::chrono::steady_clock::now();
  fuzz::raises_only(ErrorType::RuntimeError, [&] { io::check_pickle(data, "fuzz.pt"); });
  auto spent = std::chrono::steady_clock::now() - start;
  if (spent > std::chrono::seconds(5)) fuzz::broken("a check takes as long as its pickle", "");
}

static std::vector<std::string> seeds() {
  using namespace std::string_literals;
  std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
      "0X\3\0\0\0cpuK\4tQK\0K\4\x85K\1\x85\x89}tR"s;
  std::string start = "\x80\2"s, copies = start + "cbuiltins\nset\nq\0("s;
  copies += std::string(2000, 'N') + "t\x85q\1"s;
  for (int k = 0; k < 1000; ++k) copies += "h\0h\1R0"s;
  return {
      start + tensor + ".",
      start +
          "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n)}tR."s,
      start + "ccollections\nOrderedDict\n)R(X\1\0\0\0aK\1X\1\0\0\0bK\2u}X\1\0\0\0xK\1sb."s,
      start +
          "((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"
          "0X\3\0\0\0cpuK\4NtQ}X\x09\0\0\0_elementsK\1sb."s,
      start + "(X\6\0\0\0modulectorch.nn.modules.linear\nLinear\nNNtQ)\x81}X\1\0\0\0aK\1sb.\x80\2K\1."s,
      start + "c__builtin__\nset\n](K\1K\2e\x85R."s,
      start + "c_codecs\nencode\nX\2\0\0\0abX\6\0\0\0latin1\x86R."s,
      "\x80\4\x95\x10\0\0\0\0\0\0\0\x8c\x0b"s +
          "collections\x94\x8c\7Counter\x94\x93\x94}\x94(\x8c\1a\x94K\1u\x85R."s,
      "\x80\5\x8f\x94(K\1\x85\x90(K\1K\2\x91\x96\2\0\0\0\0\0\0\0ab."s,
      "(dp0\nS'a'\np1\n(I1\nI2\ntp2\ns(lp3\nI5\na0."s,
      "\x80\2\x8a\x09\1\2\3\4\5\6\7\x08\x09\x8b\3\0\0\0abcG?\xf0\0\0\0\0\0\0N\x88\x89]q\0h\0j\0\0\0\0r\1\0\0\0."s,
      start + "cbuiltins\nlist\n"s + tensor + "\x85R."s,
      copies + "N."s,
  };
}

FACULA_FUZZ("check_pickle", run, seeds)
