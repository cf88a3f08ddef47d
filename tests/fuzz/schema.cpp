// Schemas of operators: ValueError is the only error, and a default is read within the schema's own limits.
#include "facula/op/schema.h"
#include "fuzz.h"

using namespace facula;

static void run(std::string_view text) {
  fuzz::raises_only(ErrorType::ValueError, [&] {
    op::Schema s = op::parse_schema(text);
    if (s.text != text || s.name.empty()) fuzz::broken("a schema keeps its text and has a name", text);
    for (auto& p : s.parameters) {
      if (s.index_of(p.name) < 0) fuzz::broken("parameters are found by name", p.name);
      if (p.has_default && p.default_text.empty()) fuzz::broken("a default has a text", p.name);
    }
    if (op::parse_schema(s.text).full_name() != s.full_name())
      fuzz::broken("a schema reads the same twice", text);
  });
}

static std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (auto& path : fuzz::sources("src/facula/catalog", ".cpp"))
    for (auto& text : fuzz::literals(path))
      if (text.find(") -> ") != text.npos) all.push_back(text);
  return all;
}

FACULA_FUZZ("schema", run, seeds)
