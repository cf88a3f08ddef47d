/* Runs a serialized model with the neural networks of Android (NNAPI). Portable C99 that needs nothing of Facula: copy
 * nnapi.h, nnapi_runner.h and nnapi_runner.c into an app's sources.
 *
 * The model is a list of 32-bit words as torch.backends._nnapi writes it (version 1):
 *   version, counts of operands, values, operations, inputs, outputs
 *   for each operand:   type, rank, scale (float32), zero point
 *   for each value:     operand, source (0: bytes here, 2: a numbered buffer; of ours 16: scales of channels), length in bytes
 *   for each operation: code, count of inputs, count of outputs
 *   for each operand:   its dimensions; 0 if the inputs determine them
 *   for each value:     its bytes, padded to words; of a numbered buffer: number, offset, length; of scales: the dimension of
 *                       the channels, and a float32 for each
 *   for each operation: numbers of its input and output operands
 *   numbers of the model's input and output operands
 */
#ifndef FACULA_NNAPI_RUNNER_H
#define FACULA_NNAPI_RUNNER_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct facula_nnapi facula_nnapi;

typedef struct {
  const void* data;
  size_t bytes;
} facula_nnapi_buffer;

/* Loads a model. The words are copied; the buffers have to live as long as the result. `library`: NULL for
 * "libneuralnetworks.so". `preference`: 0 low power, 1 fast single answer, 2 sustained speed. `relax`: whether float32 may be
 * computed in float16. Returns NULL on failure; `error`, of `error_bytes`, has the text. */
facula_nnapi* facula_nnapi_load(const char* library, const int32_t* words, size_t count,
                                const facula_nnapi_buffer* buffers, size_t buffer_count, int preference,
                                int relax, char* error, size_t error_bytes);

/* Loads a file of facula.backends._nnapi: the model, its weights, and the rules for dimensions that depend on the inputs'.
 * `dimensions`: those of all inputs in the model's order, one after the other; NULL if the file has fixed dimensions. */
facula_nnapi* facula_nnapi_open(const char* path, const char* library, const int32_t* dimensions,
                                size_t count, int preference, int relax, char* error, size_t error_bytes);

/* Bytes of an input or output; 0 if it does not exist. */
size_t facula_nnapi_input_bytes(const facula_nnapi* model, size_t k);
size_t facula_nnapi_output_bytes(const facula_nnapi* model, size_t k);

/* Runs the model on contiguous arrays of those sizes. Returns 0, or 1 with the text in `error`. */
int facula_nnapi_run(facula_nnapi* model, const void* const* inputs, void* const* outputs, char* error,
                     size_t error_bytes);

void facula_nnapi_free(facula_nnapi* model);

#ifdef __cplusplus
}
#endif
#endif
