// The text of graphs: ValueError is the only error of reading; a graph that is accepted holds together, and is read
// again as it is printed.
#include "facula/graph/graph.h"

#include "fuzz.h"

using namespace facula;

static void run(std::string_view text) {
  std::string once, what;
  fuzz::raises_only(ErrorType::ValueError, [&] {
    graph::Graph g = graph::parse_graph(text);
    graph::verify(g);
    once = graph::print(g);
  });
  if (once.empty()) return;
  try {
    graph::Graph again = graph::parse_graph(once);
    graph::verify(again);
    what = graph::print(again);
  } catch (const Error& e) { what = e.what(); }
  if (what != once) fuzz::broken("a graph is read as it was printed", once + "\n" + what);
}

static std::vector<std::string> seeds() { return fuzz::graph_texts(); }

FACULA_FUZZ_FORMED("graph", run, seeds, fuzz::mutated_text)
