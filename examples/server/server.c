/* A server without Python: loads a package, and several threads answer requests in batches.
 *
 *   facula.package(facula.export.export(net, ...), "model.fpk", sizes=[{"batch": n} for n in (2, 8)])
 *   cc examples/server/server.c -I src/facula/deploy -L build/python/facula -lfacula_runtime -lpthread -o server
 *   LD_LIBRARY_PATH=build/python/facula ./server model.fpk 4 1000
 */
#include <facula_c.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8 };
static facula_program* program;
static facula_array example;
static int left;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;

/* Takes up to BATCH requests from the queue; 0: it is empty. */
static int take(void) {
  pthread_mutex_lock(&queue);
  int n = left < BATCH ? left : BATCH;
  left -= n;
  pthread_mutex_unlock(&queue);
  return n;
}

static void* serve(void* answered) {
  int64_t row = 1;
  for (int d = 1; d < example.rank; ++d) row *= example.sizes[d];
  float* values = calloc((size_t)(BATCH * row), sizeof(float));
  for (int n; (n = take());) {
    facula_array input = example, results[8];
    input.sizes[0] = n;
    input.data = values;
    if (facula_run(program, &input, 1, results)) {
      fprintf(stderr, "%s\n", facula_error());
      exit(1);
    }
    *(int*)answered += (int)results[0].sizes[0];
    facula_release(results, facula_outputs(program));
  }
  free(values);
  return NULL;
}

int main(int count, char** arguments) {
  if (count != 4) return fprintf(stderr, "server PACKAGE THREADS REQUESTS\n"), 2;
  facula_set_threads(1); /* a thread for each call, not for each part of it */
  program = facula_load(arguments[1]);
  if (!program || facula_input(program, 0, &example)) return fprintf(stderr, "%s\n", facula_error()), 1;
  int threads = atoi(arguments[2]), answered[64] = {0}, total = 0;
  left = atoi(arguments[3]);
  pthread_t all[64];
  for (int k = 0; k < threads; ++k) pthread_create(&all[k], NULL, serve, &answered[k]);
  for (int k = 0; k < threads; ++k) pthread_join(all[k], NULL), total += answered[k];
  printf("answered %d requests\n", total);
  facula_free(program);
  return 0;
}
