/* Measures calls of a package from C: prints the microseconds of loading it, of the first call and of a call, as JSON.
 *
 *   cc call.c -I src/facula/deploy -L build/python/facula -lfacula_runtime -o call
 *   ./call model.fpk BATCH
 */
#include <facula_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
  MOST = 8,
  CALLS = 200,
  ROUNDS = 20,
  ROUND_US = 200000 /* calls of a round take no longer, or are one */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int failed(void) {
  fprintf(stderr, "%s\n", facula_error());
  return 1;
}

int main(int count, char** arguments) {
  if (count != 3) return fprintf(stderr, "call PACKAGE BATCH\n"), 2;
  facula_set_threads(0);
  facula_array inputs[MOST], results[MOST];
  double started = now(), loaded, first = 0, best = 1e30;
  facula_program* program = facula_load(arguments[1]);
  if (!program) return failed();
  loaded = now();
  int n = facula_inputs(program), outputs = facula_outputs(program);
  if (n > MOST || outputs > MOST) return fprintf(stderr, "too many tensors\n"), 1;
  for (int k = 0; k < n; ++k) {
    if (facula_input(program, k, &inputs[k])) return failed();
    size_t elements = 1;
    for (int d = 0; d < inputs[k].rank; ++d) {
      if (inputs[k].sizes[d] < 0) inputs[k].sizes[d] = atoi(arguments[2]);
      elements *= (size_t)inputs[k].sizes[d];
    }
    inputs[k].data = calloc(elements + 1, 8);
  }
  int calls = 1;
  for (int round = -2; round < ROUNDS; ++round) {  // the first call, one to estimate, rounds
    double begin = now(), each;
    for (int k = 0; k < calls; ++k) {
      if (facula_run(program, inputs, n, results)) return failed();
      facula_release(results, outputs);
    }
    each = (now() - begin) / calls;
    if (round == -2) first = now();
    else if (each < best) best = each;
    if (round == -1) calls = each * CALLS < ROUND_US ? CALLS : each < ROUND_US ? (int)(ROUND_US / each) : 1;
  }
  printf("{\"loaded\": %.1f, \"first\": %.1f, \"call\": %.3f}\n", loaded - started, first - started, best);
  facula_free(program);
  return 0;
}
