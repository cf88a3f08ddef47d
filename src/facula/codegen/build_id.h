// Which build of this library it is: what the linker made of everything that it linked.
#pragma once
#include <string>

namespace facula::codegen {

const std::string& build_id();  // "" if the linker noted nothing

}  // namespace facula::codegen
