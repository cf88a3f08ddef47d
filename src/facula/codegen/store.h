// The store: everything that one process leaves on disk for later ones. All of it is read, checked, written and removed here.
//   kernel    the machine code of a nest (cache.cpp)
//   nests     the index of shipped kernels (nest_index.cpp)
//   plan      a plan of a program (run/stored_plan.cpp)
//   graph     the graph of a traced program, behind its passes (run/stored_graph.cpp)
//   sequence  what a process needed, in its order (prediction.cpp)
// An entry is a file: a header with its name and a SHA-256 of name and contents, then the contents. Its name is a SHA-256 of all
// that the contents follow from, so that entries are never out of date, and the folder is the index. A file that is no complete
// entry of its name is treated as absent, and replaced.
//
// Entries contain code that will be run, so files that others could have written are not read: a folder, its parents up to
// the root and the file are opened one inside the other, never through a link, and the owner and permissions are checked on
// what was opened; FACULA_LOG=cache says what was refused.
//   the user's folder    belongs to the user, mode 0700
//   the shipped folder   belongs to whoever installed the package, to root, or to the user
//   parents              belong to one of these; others may write only if they are sticky, like /tmp
//
// The user's folder is bounded: from time to time the entries that were used least recently are removed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace facula::codegen {

enum class Stored : uint8_t { kernel, nests, plan, graph, sequence };
enum class Owner { user, package, any };  // any: for a folder that is only written

// The contents of an entry, or "".
std::string read_entry(const std::string& folder, Stored kind, const std::string& name, Owner owner);
// Writes an entry atomically. Failures to write are ignored.
void write_entry(const std::string& folder, Stored kind, const std::string& name, const std::string& contents,
                 Owner owner);
// Writes an entry to the user's folder when the process ends, because writing a file takes longer than making most of them. A
// forked child does not write what its parent made.
void write_at_exit(Stored kind, std::string name, std::string contents);

struct StoreLimits {
  uint64_t bytes = uint64_t(1) << 30;  // on disk
  size_t entries = 1 << 15;
};
// If the user's folder exceeds the limits, removes entries until it is at three quarters of them. Other files remain.
void evict(const std::string& folder, const StoreLimits& limits = {});

// The folder from the settings or the environment, which is created if it is missing; "" if there is none that can be
// trusted.
std::string user_folder();
std::string shipped_folder();
bool make_folders(const std::string& path);

}  // namespace facula::codegen
