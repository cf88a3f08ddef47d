// The text of expressions and nests: ValueError is the only error of reading; what is read is printed, read
// again and printed the same; verifying takes any nest.
#include "facula/loop/nest.h"
#include "facula/loop/print.h"
#include "fuzz.h"

using namespace facula;
using namespace facula::loop;

static void run(std::string_view text) {
  sym::Shapes shapes;
  fuzz::raises_only(ErrorType::ValueError, [&] {
    std::string once = print(parse_expr(text));
    if (print(parse_expr(once)) != once) fuzz::broken("an expression is read as it was printed", once);
  });
  fuzz::raises_only(ErrorType::ValueError, [&] {
    Nest nest = parse_nest(text);
    std::string once = print(nest);
    if (print(parse_nest(once)) != once) fuzz::broken("a nest is read as it was printed", once);
    try {
      verify(nest);
    } catch (const Error&) {}
  });
}

static std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (auto& path : fuzz::sources("tests/cpp", ".cpp"))
    for (auto& text : fuzz::literals(path)) {
      bool is_text = text.starts_with("nest ");
      try {
        if (!is_text && text.size() > 3) {
          parse_expr(text);
          is_text = true;
        }
      } catch (const Error&) {}
      if (is_text) all.push_back(text);
    }
  const Expr x = load(0, DType::Float32, {index(0), index(1)}), y = index(0) * param(1) + index(1);
  for (Expr e : {x + constant(2, DType::Float32), reduce(Monoid::sum, {{1, param(0)}}, {x}),
                 select(y < param(0), x, exp(x)), cast(x, DType::Float64), check(y, param(2)),
                 constant(std::complex<double>(1, -2), DType::Complex64)})
    all.push_back(print(e));
  for (size_t deep : {900, 100000}) {  // the second one is refused
    std::string text, close(deep, ')');
    for (size_t k = 0; k < deep; ++k) text += "neg(";
    all.push_back(text + "load[0:float32](i0)" + close);
  }
  return all;
}

FACULA_FUZZ("loop", run, seeds)
