// Sums of products in the notation of Einstein.
#include <algorithm>
#include <cctype>
#include <map>

#include "facula/catalog/matrices.h"
#include "facula/catalog/no_derivative.h"
#include "facula/op/batched.h"
#include "facula/op/helpers.h"
#include "facula/op/operator.h"
#include "facula/ops.h"
#include "facula/sym/one_sided.h"

using namespace facula;
using namespace facula::loop;
using namespace facula::op;

namespace {
// ---- einsum: every operand permuted to [batch, kept, summed] matrices, contracted from left to right
struct Subscripts {
  std::vector<std::string> inputs;
  std::string output;
};
void check_subscripts(const Subscripts& s, std::string_view text, const std::vector<Tensor>& operands) {
  for (size_t k = 0; k < s.inputs.size(); ++k) {
    for (char ch : s.inputs[k])
      runtime_check(std::isalnum(static_cast<unsigned char>(ch)), "einsum")
          << "invalid subscript '" << ch << "' in \"" << std::string(text)
          << "\": letters and \"...\" are allowed";
    runtime_check(int(s.inputs[k].size()) == operands[k].dim(), "einsum")
        << "the number of subscripts \"" << s.inputs[k] << "\" does not match operand " << k << " of shape "
        << to_string(operands[k].sizes());
  }
  for (char ch : s.output) {
    bool known = std::any_of(s.inputs.begin(), s.inputs.end(),
                             [&](auto& in) { return in.find(ch) != std::string::npos; });
    runtime_check(known && std::count(s.output.begin(), s.output.end(), ch) == 1, "einsum")
        << "output subscript '" << ch << "' must appear in an input, and once in the output";
  }
}
void check_characters(std::string_view text) {
  for (size_t k = 0; k < text.size(); ++k)
    runtime_check(std::isalpha(static_cast<unsigned char>(text[k])) ||
                      std::string_view(" ,.->").find(text[k]) != std::string_view::npos,
                  "einsum")
        << "invalid subscript given at index " << k << " in the equation string \"" << std::string(text)
        << "\", subscripts must be in [a-zA-Z]";
}
Subscripts parse_equation(std::string_view text, const std::vector<Tensor>& operands) {
  check_characters(text);
  std::string eq;
  for (char ch : text)
    if (ch != ' ') eq += ch;
  Subscripts s;
  size_t arrow = eq.find("->");
  std::string left = eq.substr(0, arrow), current;
  for (char ch : left + ",") {
    if (ch == ',') {
      s.inputs.push_back(current);
      current.clear();
    } else current += ch;
  }
  runtime_check(s.inputs.size() == operands.size(), "einsum")
      << "the equation \"" << std::string(text) << "\" has " << s.inputs.size() << " operands, but "
      << operands.size() << " tensors were given";
  // "..." becomes digits, aligned at the right.
  size_t most = 0;
  std::vector<size_t> dots(s.inputs.size(), 0);
  for (size_t k = 0; k < s.inputs.size(); ++k) {
    size_t at = s.inputs[k].find("...");
    if (at == std::string::npos) continue;
    size_t named = s.inputs[k].size() - 3;
    runtime_check(size_t(operands[k].dim()) >= named, "einsum")
        << "operand " << k << " of shape " << to_string(operands[k].sizes())
        << " has fewer dimensions than \"" << s.inputs[k] << "\"";
    dots[k] = size_t(operands[k].dim()) - named;
    most = std::max(most, dots[k]);
  }
  runtime_check(most <= 9, "einsum") << "at most 9 dimensions can stand for \"...\"";
  auto digits = [&](size_t n) {
    std::string t;
    for (size_t i = most - n; i < most; ++i) t += char('0' + i);
    return t;
  };
  for (size_t k = 0; k < s.inputs.size(); ++k)
    if (size_t at = s.inputs[k].find("..."); at != std::string::npos)
      s.inputs[k].replace(at, 3, digits(dots[k]));
  if (arrow != std::string::npos) {
    s.output = eq.substr(arrow + 2);
    if (size_t at = s.output.find("..."); at != std::string::npos) s.output.replace(at, 3, digits(most));
  } else {
    std::map<char, int> count;
    for (auto& in : s.inputs)
      for (char ch : in) ++count[ch];
    s.output = digits(most);
    for (auto [ch, n] : count)
      if (n == 1 && std::isalpha(static_cast<unsigned char>(ch))) s.output += ch;
  }
  check_subscripts(s, text, operands);
  return s;
}
// Repeated subscripts of one operand: its diagonal.
void take_diagonals(Tensor& t, std::string& names) {
  for (size_t a = 0; a < names.size(); ++a)
    for (size_t b = names.size() - 1; b > a; --b)
      if (names[b] == names[a]) {
        runtime_check(t.size(int(a)) == t.size(int(b)), "einsum")
            << "subscript '" << names[a]
            << "' is repeated for dimensions of different sizes: " << to_string(t.sizes());
        t = movedim(diagonal(t, int64_t(0), int(a), int(b)), -1, int(a));
        names.erase(b, 1);
      }
}
bool has(const std::string& names, char ch) { return names.find(ch) != std::string::npos; }
// Sums t over the subscripts that stand neither in `other` nor in `keep`.
void sum_alone(Tensor& t, std::string& own, const std::string& other, const std::string& keep) {
  Ints over;
  std::string left;
  for (size_t k = 0; k < own.size(); ++k) {
    if (has(other, own[k]) || has(keep, own[k])) left += own[k];
    else over.push_back(int64_t(k));
  }
  if (!over.empty()) t = sum(t, over);
  own = left;
}
using Extents = std::map<char, SymInt>;
// Adds the sizes of t's subscripts; those of size 1 are expanded to what the other operand has.
void note_sizes(Extents& size, const Tensor& t, const std::string& own) {
  for (size_t k = 0; k < own.size(); ++k) {
    auto [it, fresh] = size.try_emplace(own[k], t.size(int(k)));
    if (fresh) continue;
    auto both = sym::broadcast_size(it->second, t.size(int(k)));
    runtime_check(both, "einsum") << "subscript '" << own[k] << "' has size " << t.size(int(k))
                                  << " for one operand and " << it->second << " for another";
    it->second = *both;
  }
}
// t as matrices [batch..., outer, last], each of the two one dimension for all its subscripts.
Tensor arranged(Tensor t, const std::string& own, Extents& size, const std::string& batch,
                const std::string& outer, const std::string& last) {
  Ints order;
  Dims full, to;
  SymInt first = int64_t(1), second = int64_t(1);
  for (char ch : batch + outer + last) {
    order.push_back(int64_t(own.find(ch)));
    full.push_back(size[ch]);
  }
  for (char ch : batch) to.push_back(size[ch]);
  for (char ch : outer) first *= size[ch];
  for (char ch : last) second *= size[ch];
  to.push_back(first);
  to.push_back(second);
  return reshape(expand(permute(t, order), full), to);
}
Tensor contract(Tensor a, std::string in_a, Tensor b, std::string in_b, const std::string& keep,
                std::string& names) {
  sum_alone(a, in_a, in_b, keep);
  sum_alone(b, in_b, in_a, keep);
  std::string batch, rows, columns, inner;
  for (char ch : in_a) (has(in_b, ch) ? (has(keep, ch) ? batch : inner) : rows) += ch;
  for (char ch : in_b)
    if (!has(in_a, ch)) columns += ch;
  Extents size;
  note_sizes(size, a, in_a);
  note_sizes(size, b, in_b);
  Tensor left = arranged(a, in_a, size, batch, rows, inner),
         right = arranged(b, in_b, size, batch, inner, columns);
  Tensor y = inner.empty() ? mul(left, right) : matmul(left, right);
  names = batch + rows + columns;
  Dims sizes;
  for (char ch : names) sizes.push_back(size[ch]);
  return reshape(y, sizes);
}
Tensor einsum_of(std::string_view equation, const std::vector<Tensor>& operands) {
  value_check(!operands.empty(), "einsum") << "must be given at least one tensor";
  Subscripts s = parse_equation(equation, operands);
  Tensor t = operands[0];
  std::string names = s.inputs[0];
  take_diagonals(t, names);
  for (size_t k = 1; k < operands.size(); ++k) {
    Tensor next = operands[k];
    std::string own = s.inputs[k], keep = s.output, result;
    take_diagonals(next, own);
    for (size_t j = k + 1; j < operands.size(); ++j) keep += s.inputs[j];
    t = contract(t, names, next, own, keep, result);
    names = result;
  }
  Ints over, order;
  std::string left;
  for (size_t k = 0; k < names.size(); ++k) {
    if (s.output.find(names[k]) == std::string::npos) over.push_back(int64_t(k));
    else left += names[k];
  }
  if (!over.empty()) t = sum(t, over);
  for (char ch : s.output) order.push_back(int64_t(left.find(ch)));
  return permute(t, order);
}
// PyTorch views a product, multiplies where nothing is summed, and sums what has one operand.
std::string einsum_name(const Call& c) {
  std::string_view equation = c.str("equation");
  size_t arrow = equation.find("->");
  auto given = equation.substr(0, arrow), kept = arrow == equation.npos ? "" : equation.substr(arrow);
  bool summed = false;
  for (char label : given) {
    bool letter = std::isalpha(static_cast<unsigned char>(label));
    summed |= letter && (arrow == equation.npos ? std::count(given.begin(), given.end(), label) > 1
                                                : kept.find(label) == kept.npos);
  }
  if (c.tensors("tensors").size() > 1) return grad_name(summed ? "View" : "Mul");
  return summed ? grad_name("Sum", 1) : "";
}
}  // namespace

FACULA_FAMILY(einsum) {
  define("einsum(str equation, Tensor[] tensors) -> Tensor")
      .doc("Sums of products over named dimensions, for example einsum('bij,bjk->bik', [a, b]).")
      .grad_name(einsum_name)
      .bind(function)
      .procedure([](std::string_view equation, const std::vector<Tensor>& tensors) {
        return einsum_of(equation, tensors);
      })
      .samples({"equation='ij,jk->ik', tensors{[2, 3], [3, 4]}",
                "equation='bij,bjk->bik', tensors{[5, 2, 3], [5, 3, 4]}", "equation='ii->i', tensors{[3, 3]}",
                "equation='ij->', tensors{[3, 3]}", "equation='i,j', tensors{[3], [4]}",
                "equation='...ij,jk->...ik', tensors{[2, 2, 3], [3, 4]}"});
}
