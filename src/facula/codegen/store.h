// Objects of kernels on a disk. They are code that will be run, so nothing is read that others could have
// written: a folder, its parents up to the root and the file are opened one below the other, never through a
// link, and their owners and rights are those of what was opened.
//   the user's folder    the user's own, mode 0700
//   the shipped folder   of who installed the package, of root, or of the user
//   parents              of one of these; writable by others only if sticky, like /tmp
// A file is a header with the kernel's name and a SHA-256 of name and object, then the object. Whatever does
// not hold is as if there were no file; FACULA_LOG=cache says why.
#pragma once
#include <string>

namespace facula::codegen {

enum class Owner { user, package, any };  // any: of a folder that is written alone

// The object of that name, or "".
std::string read_object(const std::string& folder, const std::string& name, Owner owner);
// Appears under its name whole or not at all. What cannot be written is left out.
void write_object(const std::string& folder, const std::string& name, const std::string& object, Owner owner);

// Of what else is kept there, in a bounded number of files: it has a place that follows from its name, where the last
// one written stays.
std::string read_placed(const std::string& folder, const std::string& name, Owner owner);
void write_placed(const std::string& folder, const std::string& name, const std::string& bytes, Owner owner);

// Of the settings or of the environment, made where it is missing; "" if there is none that can be trusted.
std::string user_folder();
std::string shipped_folder();
bool make_folders(const std::string& path);

}  // namespace facula::codegen
