/* Training without Python: loads a training step, runs it on batches from a file, and saves what it has learned.
 *
 *   facula.package(facula.program.trace(step, x, y), "step.fpk")
 *   cc examples/server/train.c -I src/facula/deploy -L build/python/facula -lfacula_runtime -o train
 *   LD_LIBRARY_PATH=build/python/facula ./train step.fpk batches.bin 200 trained.fpt
 *
 * batches.bin has, for each step, the arguments of the step one after another, as dense arrays in native byte order.
 */
#include <facula_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, facula_error());
  return 1;
}

/* The bytes of a dense array. */
static size_t bytes_of(const facula_array* a) {
  size_t bytes = strstr(a->dtype, "64") ? 8 : strstr(a->dtype, "32") ? 4 : strstr(a->dtype, "16") ? 2 : 1;
  for (int d = 0; d < a->rank; ++d) bytes *= (size_t)a->sizes[d];
  return bytes;
}

int main(int count, char** arguments) {
  if (count != 5) return fprintf(stderr, "train PACKAGE BATCHES STEPS TRAINED\n"), 2;
  facula_set_threads(2);
  facula_program* step = facula_load(arguments[1]);
  if (!step) return failed("load");
  facula_array inputs[MOST];
  int n = facula_inputs(step);
  for (int k = 0; k < n && k < MOST; ++k) {
    if (facula_input(step, k, &inputs[k])) return failed("input");
    inputs[k].data = malloc(bytes_of(&inputs[k]));
  }
  FILE* batches = fopen(arguments[2], "rb");
  if (!batches) return perror(arguments[2]), 1;
  for (int s = 0; s < atoi(arguments[3]); ++s) {
    for (int k = 0; k < n; ++k)
      if (fread(inputs[k].data, 1, bytes_of(&inputs[k]), batches) != bytes_of(&inputs[k])) return 1;
    double loss;
    if (facula_train_step(step, inputs, n, &loss)) return failed("step");
    printf("%.17g\n", loss);
  }
  fclose(batches);
  if (facula_save(step, arguments[4])) return failed("save");
  for (int k = 0; k < n; ++k) free(inputs[k].data);
  facula_free(step);
  return 0;
}
