// What the generator read from the catalog's text is what the running registry holds, both ways.
#include <gtest/gtest.h>

#include <map>

#include "facula/families.h"
#include "facula/op/registry.h"
#include "facula/schemas.h"

namespace facula::catalog {
namespace {

void load_once() {
  static bool loaded = [] {
    if (op::all().empty()) {
#define FACULA_DEFINE(family) define_##family();
      FACULA_FAMILIES(FACULA_DEFINE)
#undef FACULA_DEFINE
      op::finish_definitions();
    }
    return true;
  }();
  (void)loaded;
}

std::string squeezed(std::string_view text) {
  std::string out;
  for (char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) out += c;
  return out;
}

TEST(Generator, ReadEveryOperatorOfTheRegistry) {
  load_once();
  std::map<std::string_view, const ReadSchema*> read;
  for (auto& r : kReadSchemas) read[r.full_name] = &r;
  for (auto* o : op::all()) {
    auto it = read.find(o->schema.full_name());
    ASSERT_NE(it, read.end()) << o->schema.full_name() << " is defined, but the generator did not find it";
    EXPECT_EQ(squeezed(it->second->schema), squeezed(o->schema.text));
    EXPECT_EQ(it->second->in_place_form, o->forms.in_place) << o->schema.full_name();
    EXPECT_EQ(it->second->out_form, o->forms.out) << o->schema.full_name();
  }
}

TEST(Generator, ReadNothingThatIsNotInTheRegistry) {
  load_once();
  for (auto& r : kReadSchemas)
    EXPECT_NE(op::find(r.full_name), nullptr) << r.full_name << " (" << r.family << ")";
}

TEST(Generator, OperatorsAreDocumented) {
  load_once();
  for (auto* o : op::all()) EXPECT_FALSE(o->doc.empty()) << o->schema.full_name() << " has no .doc(...)";
}

}  // namespace
}  // namespace facula::catalog
