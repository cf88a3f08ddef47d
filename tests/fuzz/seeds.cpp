#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fuzz.h"

namespace facula::fuzz {

const std::string& file_of(std::string_view data) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (ftruncate(fd, 0) || pwrite(fd, data.data(), data.size(), 0) != ssize_t(data.size()))
    broken("memory for a file", "");
  return path;
}

std::string bytes_of(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

static std::string project() {
  const char* source = std::getenv("FACULA_SOURCE");
  return source ? source : ".";
}

std::vector<std::string> sources(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> paths;
  for (auto& entry : std::filesystem::directory_iterator(project() + "/" + folder))
    if (entry.path().string().ends_with(suffix)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::string> literals(const std::string& path) {
  std::string text = bytes_of(path);
  std::vector<std::string> all;
  bool joined = false;  // literals side by side are one
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '/' && text.substr(at, 2) == "//") {
      at = std::min(text.find('\n', at), text.size());
    } else if (text[at] == '\'' && (at == 0 || !std::isalnum(static_cast<unsigned char>(text[at - 1])))) {
      for (++at; at < text.size() && text[at] != '\''; ++at) at += text[at] == '\\';
      joined = false;
    } else if (text[at] == '"') {
      std::string literal;
      if (at && text[at - 1] == 'R') {
        size_t from = text.find('(', at),
               to = from == text.npos ? from
                                      : text.find(")" + text.substr(at + 1, from - at - 1) + "\"", from);
        if (to == text.npos) return all;
        literal = text.substr(from + 1, to - from - 1);
        at = to + (from - at);
        joined = false;
      } else {
        for (++at; at < text.size() && text[at] != '"'; ++at) {
          if (text[at] == '\\' && ++at < text.size() && text[at] == 'n') literal += '\n';
          else if (at < text.size()) literal += text[at];
        }
      }
      if (joined) all.back() += literal;
      else all.push_back(literal);
      joined = true;
    } else if (!std::isspace(static_cast<unsigned char>(text[at]))) {
      joined = false;
    }
  }
  return all;
}

}  // namespace facula::fuzz
