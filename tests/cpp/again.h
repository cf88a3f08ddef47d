// This test program again, with other vectors.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

namespace facula {

// Exit status and output of the tests that match `filter`, whichever part of them this process runs.
inline std::pair<int, std::string> run_again(const std::string& capability, const std::string& filter) {
  std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX FACULA_CPU_CAPABILITY=" + capability +
                        " /proc/" + std::to_string(getpid()) +
                        "/exe --gtest_brief=1 '--gtest_filter=" + filter + "' 2>&1";
  FILE* p = popen(command.c_str(), "r");
  if (!p) return {-1, "cannot run " + command};
  std::string text;
  char line[512];
  while (std::fgets(line, sizeof line, p)) text += line;
  return {pclose(p), text};
}

}  // namespace facula
