#include <algorithm>

#include "facula/base/parallel.h"
#include "facula/codegen/kernel.h"
#include "facula/op/refusal.h"
#include "facula/op/registry.h"
#include "facula/profile/profile.h"

namespace facula::codegen {
namespace {

// The scalar operations that make a piece worth a thread: they take a few microseconds, while waking a thread takes
// as long or ten times as long.
constexpr int64_t kGrainCost = 131072;

int64_t floor_div(int64_t a, int64_t b) {
  if (!b) return 0;
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

[[noreturn, gnu::cold]] void raise(const Status& s, const char* op) {
  runtime_check(s.failed != 2, op) << "ZeroDivisionError: an integer is divided by zero"
                                   << hint("replace zeros first: where(other == 0, 1, other)");
  auto overloads = op::overloads(op);
  if (s.size == 1) {
    auto [refusing, text] = op::find_refusal(s.index);
    std::string said = !refusing || overloads.size() ? op
                       : refusing->called.empty()    ? refusing->name()
                                                     : refusing->called;
    if (refusing) throw Error(ErrorKind::user, refusing->bad_index, said, text);
  }
  throw Error(ErrorKind::user, overloads.size() ? overloads[0]->bad_index : ErrorType::IndexError, op,
              "index " + std::to_string(s.index) + " is out of bounds for dimension with size " +
                  std::to_string(s.size));
}

// Pieces are contiguous, so the failure of the first failing piece is the failure that a serial run would meet.
[[gnu::noinline]] void launch_parallel(const Kernel& k, void* const* buffers, const int64_t* params,
                                       int64_t tasks, int64_t grain, const char* op) {
  struct First {
    int64_t begin;
    Status status;
  };
  First first{tasks, {}};
  bool busy = false;
  parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    Status status;
    k.fn(buffers, params, begin, end, &status);
    if (!status.failed) return;
    while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) {}
    if (begin < first.begin) first = {begin, status};
    __atomic_clear(&busy, __ATOMIC_RELEASE);
  });
  if (first.status.failed) raise(first.status, op);
}

inline void launch_now(const Kernel& k, Work work, void* const* buffers, const int64_t* params,
                       const char* op) {
  if (work.tasks > 1 && work.tasks > work.grain)
    return launch_parallel(k, buffers, params, work.tasks, work.grain, op);
  Status status;
  k.fn(buffers, params, 0, work.tasks, &status);
  if (status.failed) [[unlikely]]
    raise(status, op);
}

[[gnu::noinline, gnu::cold]] void launch_profiled(const Kernel& k, Work work, void* const* buffers,
                                                  const int64_t* params, const char* op) {
  profile::Scope scope(profile::Category::kernel, k.name);
  launch_now(k, work, buffers, params, op);
}

}  // namespace

int64_t eval_params(loop::Expr e, const int64_t* p) {
  using loop::Fn;
  switch (e->kind) {
    case loop::Kind::constant: return e->value.to_int();
    case loop::Kind::param: return p[e->slot];
    case loop::Kind::cast: return eval_params(e->args[0], p);
    case loop::Kind::select:
      return eval_params(e->args[0], p) ? eval_params(e->args[1], p) : eval_params(e->args[2], p);
    case loop::Kind::call: break;
    default: internal_check(false) << "not an expression over parameters: " << loop::print(e);
  }
  int64_t a = eval_params(e->args[0], p), b = e->args.size() > 1 ? eval_params(e->args[1], p) : 0;
  switch (e->fn) {
    case Fn::neg: return -a;
    case Fn::abs: return a < 0 ? -a : a;
    case Fn::add: return a + b;
    case Fn::sub: return a - b;
    case Fn::mul: return a * b;
    case Fn::floordiv: return floor_div(a, b);
    case Fn::truncdiv:
    case Fn::div: return b ? a / b : 0;
    case Fn::remainder: return b ? a - floor_div(a, b) * b : 0;
    case Fn::fmod: return b ? a % b : 0;
    case Fn::max: return std::max(a, b);
    case Fn::min: return std::min(a, b);
    case Fn::eq: return a == b;
    case Fn::ne: return a != b;
    case Fn::lt: return a < b;
    case Fn::le: return a <= b;
    case Fn::gt: return a > b;
    case Fn::ge: return a >= b;
    case Fn::bit_and: return a & b;
    case Fn::bit_or: return a | b;
    case Fn::bit_not: return e->dtype == DType::Bool ? !a : ~a;
    case Fn::fma: return a * b + eval_params(e->args[2], p);
    default: internal_check(false) << "not an integer function of parameters: " << loop::print(e);
  }
  __builtin_unreachable();
}

Work work_of(const Kernel& k, const int64_t* params) {
  Work w{eval_params(k.tasks, params), 1};
  if (w.tasks > 0)
    w.grain = std::max<int64_t>(1, kGrainCost / std::max<int64_t>(1, eval_params(k.cost, params)));
  return w;
}

void launch(const Kernel& k, Work work, void* const* buffers, const int64_t* params, const char* op) {
  if (work.tasks <= 0) return;
  if (profile::on()) [[unlikely]]
    return launch_profiled(k, work, buffers, params, op);
  launch_now(k, work, buffers, params, op);
}

}  // namespace facula::codegen
