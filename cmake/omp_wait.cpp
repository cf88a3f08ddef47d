// A library that is initialised before OpenMP's (see omp_wait.cmake), which reads its settings then, once. A thread that
// waits for work spins for about as long as waking it would take (Karlin et al., "Empirical studies of competitive
// spinning", 1991: here 40 us and more, and a turn takes 15 ns), and sleeps. OpenMP's own hundred times as much gains nothing,
// and makes steps twenty times as long where another process wants a processor.
#include <cstdlib>

namespace {

bool chosen_here = false;

[[gnu::constructor]] void choose() {
  if (std::getenv("GOMP_SPINCOUNT") || std::getenv("OMP_WAIT_POLICY")) return;
  chosen_here = setenv("GOMP_SPINCOUNT", "2500", 0) == 0;
}

}  // namespace

// Once OpenMP's has read it: child processes are not told.
extern "C" void facula_omp_wait_read() {
  if (chosen_here) unsetenv("GOMP_SPINCOUNT");
  chosen_here = false;
}
