// Files of exported programs and packages: RuntimeError is the only error of loading, no code of them runs, and memory is
// bounded by the file. An input is a list of records, because checksums keep mutations out of archives:
//
//   @ NAME
//   contents
#include <zlib.h>

#include "facula/io/program.h"
#include "facula/io/program_file.h"
#include "fuzz.h"

using namespace facula;

namespace {

void put(std::string& out, uint64_t value, int bytes) {
  for (int k = 0; k < bytes; ++k) out += char(value >> (8 * k));
}

struct Entry {
  std::string name;
  std::string_view contents;
  size_t at = 0;
};

// The fields that a record's header and its entry of the directory share.
void put_fields(std::string& out, const Entry& e) {
  auto* bytes = reinterpret_cast<const unsigned char*>(e.contents.data());
  put(out, 0, 6);  // stored; time and date
  put(out, crc32(0, bytes, unsigned(e.contents.size())), 4);
  put(out, e.contents.size(), 4);
  put(out, e.contents.size(), 4);
  put(out, e.name.size(), 2);
}

std::string archive(std::vector<Entry> entries) {
  std::string out, directory;
  for (auto& e : entries) {
    e.at = out.size();
    put(out, 0x04034b50, 4);
    put(out, 20, 2);
    put(out, 0, 2);
    put_fields(out, e);
    put(out, 0, 2);
    out += e.name;
    out += e.contents;
  }
  for (auto& e : entries) {
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    put(directory, 20, 2);
    put(directory, 0, 2);
    put_fields(directory, e);
    put(directory, 0, 12);  // extra field, comment, disk, attributes
    put(directory, e.at, 4);
    directory += e.name;
  }
  size_t begin = out.size();
  out += directory;
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, entries.size(), 2);
  put(out, entries.size(), 2);
  put(out, directory.size(), 4);
  put(out, begin, 4);
  put(out, 0, 2);
  return out;
}

std::vector<Entry> entries_of(std::string_view text) {
  std::vector<Entry> entries;
  while (text.starts_with("@ ")) {
    size_t line = std::min(text.find('\n'), text.size() - 1),
           end = std::min(text.find("\n@ ", line), text.size());
    std::string_view contents = text.substr(line + 1, end > line ? end - line - 1 : 0);
    entries.push_back({std::string(text.substr(2, line - 2)), contents});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return entries;
}

void load(std::string_view data) {
  auto entries = entries_of(data);
  const std::string& path = fuzz::file_of(entries.empty() ? std::string(data) : archive(std::move(entries)));
  fuzz::raises_only(ErrorType::RuntimeError, [&] {
    if (io::is_program_file(path)) io::add_kernels_of(path);
    Program::load(path).text();
  });
}

constexpr const char* kHead = "@ facula.json\n{\"format\": \"facula program\", \"version\": 1}\n";
constexpr const char* kTensors = R"(@ tensors.json
{"tensors": [
{"dtype": "float32", "sizes": [2, 3], "strides": [3, 1], "offset": 0, "storage": 0, "requires_grad": true},
{"dtype": "float32", "sizes": [2], "strides": [1], "offset": 0, "storage": 1, "requires_grad": true}],
"storages": [24, 8]}
@ storages/0
abcdefghijklmnopqrstuvwx
@ storages/1
abcdefgh)";

std::string program(const std::string& graph, const std::string& regions) {
  return std::string(kHead) + "@ program.json\n{\"name\": \"seed\", \"graph\": [" + graph +
         "],\n\"regions\": [" + regions +
         "],\n\"captured\": [0, 1], \"results\": 1, \"differentiates\": false, \"required\": [false], "
         "\"slots\": [],\n\"checks\": [], \"extra\": \"{}\"}\n" +
         kTensors;
}

std::vector<std::string> seeds() {
  const std::string inputs = "graph(%0: float32[s0, 3], %1: float32[2, 3], %2: float32[2])";
  std::string size = "\"  size s0 = 4 from 1 to 100\",\n", head = "\"" + inputs + "\",\n" + size;
  std::string plain =
      program(head + "\"  %3: float32[s0, 2] = linear(%0, %1, %2)\",\n\"  return %3\", \"\"", "");
  std::string branch = "[" + head + "\"  %3: float32[s0, 2] = linear(%0, %1, %2)\", \"  return %3\", \"\"]";
  std::string chosen = program(
      head +
          "\"  %3: float32[] = sum(%0, dim=None, keepdim=False, dtype=None)\",\n\"  %4: bool[] = gt(%3, 0)\",\n" +
          "\"  %5: float32[s0, 2] = facula_region::cond_1([%4, %0, %1, %2], [])\",\n\"  return %5\", \"\"",
      R"({"name": "facula_region::cond_1", "kind": "cond", "split": 0, "functions": [)" + branch + ", " +
          branch + "]}");
  return {plain, chosen,
          plain +
              "\n@ kernels/avx2/0123\n\x7f"
              "ELF"};
}

}  // namespace

FACULA_FUZZ_FORMED("program_file", load, seeds, fuzz::mutated_text);
