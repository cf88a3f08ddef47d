// Files of exported programs, which last: zip archives of JSON and of raw tensors (facula/export/_file.py writes them and lists
// their parts). Versions are numbered from 1; a later library reads all of them.
#pragma once
#include <string>

#include "facula/io/value.h"

namespace facula::io {

// Whether the file at `path` is such an archive.
bool is_program_file(const std::string& path);
// The fields of its program as Program::from expects them. Raises RuntimeError if the file is damaged or of a later version.
Value read_program_file(const std::string& path);

}  // namespace facula::io
