/* The C interface of packaged programs (facula.package in Python): 15 functions that load, run and train programs without Python,
 * without LLVM and without a compiler. Link with libfacula_runtime.so, or with
 * libfacula.so, which also has a compiler and loads libraries of users.
 *
 * Functions that return a pointer return NULL on failure, those that return an int return 0 on success; facula_error() has the
 * text. All functions may be called from several threads at once; calls of a program that writes its state wait for each other.
 */
#ifndef FACULA_C_H
#define FACULA_C_H
#include <stdint.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

typedef struct facula_program facula_program;

enum { FACULA_MAX_RANK = 16 };

/* A dense array in row-major order. */
typedef struct {
  const char* dtype; /* "float32", "int64", ... */
  int rank;
  int64_t sizes[FACULA_MAX_RANK]; /* -1 in a description: any size */
  void* data;
  void* owner; /* of results: facula_release frees it */
} facula_array;

const char* facula_version(void);
/* The text of this thread's last failure. */
const char* facula_error(void);
/* Threads of one call; 0: all cores. */
int facula_set_threads(int count);

/* Loads a shared library of operators and classes (facula/extension.h), which a program may call. libfacula_runtime.so refuses. */
int facula_load_library(const char* path);

/* Loads a package, or a file of facula.export.save. */
facula_program* facula_load(const char* path);
void facula_free(facula_program* program);

int facula_inputs(const facula_program* program);
int facula_outputs(const facula_program* program);
/* Describes an input; its data is NULL. */
int facula_input(const facula_program* program, int k, facula_array* description);

/* Runs the program. `results` receives facula_outputs() arrays, which facula_release() frees. */
int facula_run(facula_program* program, const facula_array* inputs, int count, facula_array* results);
void facula_release(facula_array* results, int count);
/* Runs a program that is a training step and returns its first result, the loss. */
int facula_train_step(facula_program* program, const facula_array* inputs, int count, double* loss);

/* The parameters, buffers and optimizer states of the program. A state's data is the program's own memory. */
int facula_states(const facula_program* program);
int facula_state(facula_program* program, int k, facula_array* state);
/* Writes the program with its present state to a file that facula_load and Python read. */
int facula_save(const facula_program* program, const char* path);

#ifdef __cplusplus
}
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#endif
