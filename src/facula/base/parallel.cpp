#include "facula/base/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "facula/base/settings.h"

namespace facula {

namespace {
int& threads() {
  static int n = settings().num_threads > 0 ? int(settings().num_threads) : omp_get_max_threads();
  return n;
}
}  // namespace

int num_threads() { return threads(); }
void set_num_threads(int n) {
  threads() = std::max(1, n);
  omp_set_num_threads(threads());
}
bool in_parallel() { return omp_in_parallel(); }

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& f) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  int64_t pieces = std::min<int64_t>((n + grain - 1) / grain, num_threads());
  if (pieces <= 1 || in_parallel()) return f(0, n);
  std::exception_ptr failure;
  std::mutex mutex;
#pragma omp parallel for schedule(static, 1) num_threads(int(pieces))
  for (int64_t k = 0; k < pieces; ++k) {
    try {
      f(n * k / pieces, n * (k + 1) / pieces);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace facula
