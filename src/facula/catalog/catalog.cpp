#include "facula/catalog/catalog.h"

#include <mutex>

#include "facula/batch/derive.h"
#include "facula/families.h"
#include "facula/op/origin.h"
#include "facula/op/registry.h"

namespace facula::catalog {

void load() {
  static std::once_flag once;
  std::call_once(once, [] {
    size_t begin = op::all().size();
#define FACULA_DEFINE_FAMILY(family) define_##family();
    FACULA_FAMILIES(FACULA_DEFINE_FAMILY)
#undef FACULA_DEFINE_FAMILY
    op::finish_definitions();
    op::fix_catalog(begin);
    op::derive_by_name(batch::by_name);
  });
}

namespace {
// With the library come its operators: no user has to remember to load them.
[[maybe_unused]] const bool loaded = (load(), true);
}  // namespace

}  // namespace facula::catalog
