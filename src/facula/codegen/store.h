// Stores objects of kernels on disk. They are code that will be run, so files that others could have written are not
// read: a folder, its parents up to the root and the file are opened one inside the other, never through a link, and
// the owner and permissions are checked on what was opened.
//   the user's folder    belongs to the user, mode 0700
//   the shipped folder   belongs to whoever installed the package, to root, or to the user
//   parents              belong to one of these; others may write only if they are sticky, like /tmp
// A file is a header with the kernel's name and a SHA-256 of name and object, followed by the object. A file that
// violates any of this is treated as absent; FACULA_LOG=cache says why.
#pragma once
#include <string>

namespace facula::codegen {

enum class Owner { user, package, any };  // any: for a folder that is only written

// The object of that name, or "".
std::string read_object(const std::string& folder, const std::string& name, Owner owner);
// Writes the object atomically under its name. Failures to write are ignored.
void write_object(const std::string& folder, const std::string& name, const std::string& object, Owner owner);

// Further entries, in a bounded number of files: the name determines the place, and the last entry written to a place
// stays.
std::string read_placed(const std::string& folder, const std::string& name, Owner owner);
void write_placed(const std::string& folder, const std::string& name, const std::string& bytes, Owner owner);

// The folder from the settings or the environment, which is created if it is missing; "" if there is none that can be
// trusted.
std::string user_folder();
std::string shipped_folder();
bool make_folders(const std::string& path);

}  // namespace facula::codegen
