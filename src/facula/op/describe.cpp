#include "facula/op/describe.h"

#include <ostream>

namespace facula::op {

namespace {
template <class F>
std::string joined(std::span<const Value> args, F&& f) {
  std::string out = "[";
  for (auto& v : args) {
    if (out.size() > 1) out += ", ";
    out += f(v);
  }
  return out + "]";
}

void print_quoted(std::ostream& s, std::string_view text) {
  s << '\'';
  for (char c : text) {
    if (c == '\'' || c == '\\') s << '\\';
    if (c == '\n') s << "\\n";
    else s << c;
  }
  s << '\'';
}

constexpr const char* kFormats[kMemoryFormats] = {"contiguous_format", "channels_last", "preserve_format",
                                                  "channels_last_3d"};
}  // namespace

const char* name(MemoryFormat f) { return kFormats[int(f)]; }

MemoryFormat format_from_name(std::string_view name) {
  for (int k = 0; k < kMemoryFormats; ++k)
    if (name == kFormats[k]) return MemoryFormat(k);
  type_check(false, "memory_format")
      << "expected contiguous_format, preserve_format, channels_last or channels_last_3d, not " << name;
  __builtin_unreachable();
}

std::string shapes_text(std::span<const Value> args) {
  return joined(args, [](const Value& v) {
    if (v.tag == Tag::tensor) return to_string(SymSpan(v.tensor->sizes));
    std::string out = "[";
    if (v.tag == Tag::tensors)
      for (auto* t : v.tensors())
        out += (out.size() > 1 ? ", " : "") + (t ? to_string(SymSpan(t->sizes)) : "[]");
    return out + "]";
  });
}

std::string dtypes_text(std::span<const Value> args) {
  return joined(args, [](const Value& v) -> std::string {
    const TensorImpl* t = v.tag == Tag::tensor ? v.tensor : nullptr;
    if (v.tag == Tag::tensors)
      for (auto* item : v.tensors())
        if (item && !t) t = item;
    if (t) return std::string("\"") + name(t->dtype) + "\"";
    return v.tag == Tag::scalar || v.tag == Tag::integer ? "\"Scalar\"" : "\"\"";
  });
}

void print_attribute(std::ostream& s, const Value& v) {
  switch (v.tag) {
    case Tag::none:
    case Tag::tensor:
    case Tag::tensors: s << "None"; break;
    case Tag::integer: s << v.integer(); break;
    case Tag::scalar: s << v.scalar; break;
    case Tag::ints: s << to_string(v.ints()); break;
    case Tag::string: print_quoted(s, v.string()); break;
    case Tag::dtype: s << name(v.dtype); break;
    case Tag::device: s << v.device; break;
    case Tag::format: s << name(v.format); break;
    case Tag::generator: s << "generator"; break;
    case Tag::object: s << "object"; break;
    case Tag::scalars: {
      s << '[';
      for (size_t i = 0; i < v.list.count; ++i) s << (i ? ", " : "") << v.scalars()[i];
      s << ']';
      break;
    }
  }
}

}  // namespace facula::op
