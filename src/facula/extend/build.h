// The build that a user's library was compiled against, which has to be the one that it meets at run time.
#pragma once
#include <cstdint>

#include "facula/op/operator.h"
#include "facula/version.h"

namespace facula::extend {

struct Build {
  const char* version;
  uint64_t layout;  // of the types that both sides use
};

// A digest of the sizes of types that cross the boundary: libraries with different digests are incompatible.
constexpr uint64_t layout() {
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a
  for (uint64_t n : {uint64_t(sizeof(TensorImpl)), uint64_t(sizeof(StorageImpl)), uint64_t(sizeof(op::Value)),
                     uint64_t(sizeof(op::Args)), uint64_t(sizeof(op::Results)), uint64_t(sizeof(op::Schema)),
                     uint64_t(sizeof(op::Parameter)), uint64_t(sizeof(op::Operator)),
                     uint64_t(sizeof(op::Geometry)), uint64_t(sizeof(Scalar)), uint64_t(sizeof(Error)),
                     uint64_t(sizeof(Dims)), uint64_t(op::Tag::object), uint64_t(op::Type::Object),
                     uint64_t(DType::count), uint64_t(sizeof(std::string)), uint64_t(__cplusplus > 202002L)})
    h = (h ^ n) * 0x100000001b3ull;
  return h;
}
constexpr Build kBuild{FACULA_VERSION, layout()};

// Raises RuntimeError unless `build` is the build of this library.
void check_build(const Build& build, const char* file);

}  // namespace facula::extend
