// The identity of this build of the library: the build ID that the linker computed from everything that it linked.
#pragma once
#include <string>

namespace facula::codegen {

const std::string& build_id();  // "" if the linker wrote none

}  // namespace facula::codegen
