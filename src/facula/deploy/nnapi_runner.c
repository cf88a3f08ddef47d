/* Compiled as C99 in apps and as C++ in libfacula.so. */
#include "nnapi_runner.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nnapi.h"

/* The functions of the library. */
#define FACULA_NNAPI_POINTER(result, name, arguments) result(*name) arguments;
typedef struct {
  FACULA_NNAPI_FUNCTIONS(FACULA_NNAPI_POINTER)
} functions_t;

#define FACULA_NNAPI_NAME(result, name, arguments) #name,
static const char* const function_names[] = {FACULA_NNAPI_FUNCTIONS(FACULA_NNAPI_NAME)};

enum { kMost = 16 }; /* inputs, and outputs, of a call */

typedef struct {
  int32_t operand;
  size_t bytes;
} end_t;

struct facula_nnapi {
  void* library;
  functions_t f;
  char* file; /* contents, if the model came from one */
  int32_t* words;
  ANeuralNetworksModel* model;
  ANeuralNetworksCompilation* compilation;
  end_t inputs[kMost], outputs[kMost];
  size_t input_count, output_count;
};

typedef struct {
  char* text;
  size_t bytes;
} error_t;

static int fail(error_t e, const char* what, const char* detail) {
  if (e.text && e.bytes) snprintf(e.text, e.bytes, "nnapi: %s%s%s", what, detail[0] ? ": " : "", detail);
  return 1;
}

static int check(error_t e, int code, const char* function) {
  char number[32];
  if (code == ANEURALNETWORKS_NO_ERROR) return 0;
  snprintf(number, sizeof number, "code %d", code);
  return fail(e, function, number);
}

/* Functions of later versions of Android, which this file does not call. */
static int is_optional(const char* name) {
  return strstr(name, "Device") || strstr(name, "_compute") || strstr(name, "PerChannel") || strstr(name, "getOutput");
}

static int find_functions(facula_nnapi* m, const char* library, error_t e) {
  const char* name = library ? library : "libneuralnetworks.so";
  size_t k, count = sizeof function_names / sizeof *function_names;
  m->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!m->library) return fail(e, "the library was not loaded", dlerror());
  for (k = 0; k < count; ++k) {
    void* address = dlsym(m->library, function_names[k]);
    if (!address && !is_optional(function_names[k])) return fail(e, "the library has no", function_names[k]);
    memcpy((char*)&m->f + k * sizeof address, &address, sizeof address);
  }
  return 0;
}

/* Reads a list of words. */
typedef struct {
  const int32_t* words;
  size_t at, count;
} reader_t;

static const int32_t* take(reader_t* r, size_t count) {
  const int32_t* from = r->words + r->at;
  if (count > r->count - r->at) return NULL;
  r->at += count;
  return from;
}

static size_t element_bytes(int32_t type) {
  switch (type) {
    case ANEURALNETWORKS_FLOAT32:
    case ANEURALNETWORKS_INT32:
    case ANEURALNETWORKS_UINT32:
    case ANEURALNETWORKS_TENSOR_FLOAT32:
    case ANEURALNETWORKS_TENSOR_INT32: return 4;
    case ANEURALNETWORKS_TENSOR_QUANT8_ASYMM:
    case ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED:
    case ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL:
    case ANEURALNETWORKS_TENSOR_BOOL8:
    case ANEURALNETWORKS_BOOL: return 1;
    default: return 0;
  }
}

static size_t bytes_of(int32_t type, const int32_t* dimensions, int32_t rank) {
  size_t bytes = element_bytes(type);
  int32_t d;
  for (d = 0; d < rank; ++d) bytes *= (size_t)(dimensions[d] < 0 ? 0 : dimensions[d]);
  return bytes;
}

/* The parts of a serialized model. */
typedef struct {
  const int32_t *header, *operands, *values, *operations;
  const int32_t** dimensions; /* by operand */
} parts_t;

static int read_parts(reader_t* r, parts_t* p, error_t e) {
  int k;
  int32_t o;
  p->header = take(r, 6);
  if (!p->header || p->header[0] != 1) return fail(e, "the model is not of version 1", "");
  for (k = 1; k < 6; ++k)
    if (p->header[k] < 0) return fail(e, "the model is damaged", "a negative count");
  p->operands = take(r, 4 * (size_t)p->header[1]);
  p->values = p->operands ? take(r, 3 * (size_t)p->header[2]) : NULL;
  p->operations = p->values ? take(r, 3 * (size_t)p->header[3]) : NULL;
  if (!p->operations) return fail(e, "the model is damaged", "it ends early");
  p->dimensions = (const int32_t**)calloc((size_t)p->header[1] + 1, sizeof *p->dimensions);
  if (!p->dimensions) return fail(e, "not enough memory", "");
  for (o = 0; o < p->header[1]; ++o) {
    int32_t rank = p->operands[4 * o + 1];
    p->dimensions[o] = rank < 0 || rank > 8 ? NULL : take(r, (size_t)rank);
    if (!p->dimensions[o]) return fail(e, "the model is damaged", "dimensions");
  }
  return 0;
}

static int add_operands(facula_nnapi* m, const parts_t* p, error_t e) {
  int32_t o, d;
  for (o = 0; o < p->header[1]; ++o) {
    const int32_t* row = p->operands + 4 * o;
    uint32_t dimensions[8];
    ANeuralNetworksOperandType type;
    for (d = 0; d < row[1]; ++d) dimensions[d] = (uint32_t)p->dimensions[o][d];
    type.type = row[0];
    type.dimensionCount = (uint32_t)row[1];
    type.dimensions = row[1] ? dimensions : NULL;
    memcpy(&type.scale, row + 2, sizeof type.scale);
    type.zeroPoint = row[3];
    if (check(e, m->f.ANeuralNetworksModel_addOperand(m->model, &type), "Model_addOperand")) return 1;
  }
  return 0;
}

/* The dimension of the channels, and their scales. */
static int set_channel_scales(facula_nnapi* m, int32_t operand, const int32_t* data, size_t words, error_t e) {
  ANeuralNetworksSymmPerChannelQuantParams channels;
  if (words < 2 || data[0] < 0) return fail(e, "the model is damaged", "scales of channels");
  if (!m->f.ANeuralNetworksModel_setOperandSymmPerChannelQuantParams)
    return fail(e, "the library has no", "ANeuralNetworksModel_setOperandSymmPerChannelQuantParams");
  channels.channelDim = (uint32_t)data[0];
  channels.scaleCount = (uint32_t)(words - 1);
  channels.scales = (const float*)(const void*)(data + 1);
  return check(e, m->f.ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(m->model, operand, &channels),
               "Model_setOperandSymmPerChannelQuantParams");
}

static int set_values(facula_nnapi* m, const parts_t* p, reader_t* r, const facula_nnapi_buffer* buffers,
                      size_t buffer_count, error_t e) {
  int32_t v;
  for (v = 0; v < p->header[2]; ++v) {
    const int32_t* row = p->values + 3 * v;
    size_t words = row[2] < 0 ? r->count + 1 : ((size_t)row[2] + 3) / 4;
    const int32_t* data = take(r, words);
    const void* from = data;
    size_t bytes = (size_t)row[2];
    if (!data || row[0] < 0 || row[0] >= p->header[1]) return fail(e, "the model is damaged", "a value");
    if (row[1] == 16) {
      if (set_channel_scales(m, row[0], data, words, e)) return 1;
      continue;
    }
    if (row[1] == 2) {
      if (words != 3 || data[0] < 0 || (size_t)data[0] >= buffer_count || data[1] < 0 || data[2] < 0 ||
          (size_t)data[1] + (size_t)data[2] > buffers[data[0]].bytes)
        return fail(e, "the model is damaged", "a buffer is missing or too short");
      from = (const char*)buffers[data[0]].data + data[1];
      bytes = (size_t)data[2];
    } else if (row[1] != 0) {
      return fail(e, "the model is damaged", "a value of an unknown source");
    }
    if (check(e, m->f.ANeuralNetworksModel_setOperandValue(m->model, row[0], from, bytes), "Model_setOperandValue"))
      return 1;
  }
  return 0;
}

static int add_operations(facula_nnapi* m, const parts_t* p, reader_t* r, error_t e) {
  int32_t k;
  for (k = 0; k < p->header[3]; ++k) {
    const int32_t* row = p->operations + 3 * k;
    const int32_t* inputs = row[1] < 0 ? NULL : take(r, (size_t)row[1]);
    const int32_t* outputs = !inputs || row[2] < 0 ? NULL : take(r, (size_t)row[2]);
    if (!outputs) return fail(e, "the model is damaged", "an operation");
    if (check(e,
              m->f.ANeuralNetworksModel_addOperation(m->model, row[0], (uint32_t)row[1], (const uint32_t*)inputs,
                                                     (uint32_t)row[2], (const uint32_t*)outputs),
              "Model_addOperation"))
      return 1;
  }
  return 0;
}

static int find_ends(const parts_t* p, const int32_t* numbers, int32_t count, end_t* ends, error_t e) {
  int32_t k;
  if (!numbers || count > kMost) return fail(e, "the model has more than 16 inputs or outputs, or is damaged", "");
  for (k = 0; k < count; ++k) {
    int32_t o = numbers[k];
    if (o < 0 || o >= p->header[1]) return fail(e, "the model is damaged", "an input or output");
    ends[k].operand = o;
    ends[k].bytes = bytes_of(p->operands[4 * o], p->dimensions[o], p->operands[4 * o + 1]);
    if (!ends[k].bytes)
      return fail(e, "an input or output has a dimension of 0", "dimensions are set before the model is loaded");
  }
  return 0;
}

static int build(facula_nnapi* m, const parts_t* p, reader_t* r, const facula_nnapi_buffer* buffers,
                 size_t buffer_count, int preference, int relax, error_t e) {
  const int32_t *inputs, *outputs;
  if (check(e, m->f.ANeuralNetworksModel_create(&m->model), "Model_create") || add_operands(m, p, e) ||
      set_values(m, p, r, buffers, buffer_count, e) || add_operations(m, p, r, e))
    return 1;
  inputs = take(r, (size_t)p->header[4]);
  outputs = inputs ? take(r, (size_t)p->header[5]) : NULL;
  if (find_ends(p, inputs, p->header[4], m->inputs, e) || find_ends(p, outputs, p->header[5], m->outputs, e)) return 1;
  m->input_count = (size_t)p->header[4];
  m->output_count = (size_t)p->header[5];
  return check(e,
               m->f.ANeuralNetworksModel_identifyInputsAndOutputs(m->model, (uint32_t)m->input_count,
                                                                  (const uint32_t*)inputs, (uint32_t)m->output_count,
                                                                  (const uint32_t*)outputs),
               "Model_identifyInputsAndOutputs") ||
         check(e, m->f.ANeuralNetworksModel_relaxComputationFloat32toFloat16(m->model, relax != 0), "Model_relax") ||
         check(e, m->f.ANeuralNetworksModel_finish(m->model), "Model_finish") ||
         check(e, m->f.ANeuralNetworksCompilation_create(m->model, &m->compilation), "Compilation_create") ||
         check(e, m->f.ANeuralNetworksCompilation_setPreference(m->compilation, preference),
               "Compilation_setPreference") ||
         check(e, m->f.ANeuralNetworksCompilation_finish(m->compilation), "Compilation_finish");
}

static int load_into(facula_nnapi* m, const char* library, const int32_t* words, size_t count,
                     const facula_nnapi_buffer* buffers, size_t buffer_count, int preference, int relax, error_t e) {
  parts_t parts;
  reader_t reader;
  int failed;
  memset(&parts, 0, sizeof parts);
  m->words = (int32_t*)malloc(count * sizeof *words + 1);
  if (!m->words) return fail(e, "not enough memory", "");
  memcpy(m->words, words, count * sizeof *words);
  reader.words = m->words;
  reader.at = 0;
  reader.count = count;
  failed = find_functions(m, library, e) || read_parts(&reader, &parts, e) ||
           build(m, &parts, &reader, buffers, buffer_count, preference, relax, e);
  free((void*)parts.dimensions);
  return failed;
}

facula_nnapi* facula_nnapi_load(const char* library, const int32_t* words, size_t count,
                                const facula_nnapi_buffer* buffers, size_t buffer_count, int preference, int relax,
                                char* error, size_t error_bytes) {
  error_t e;
  facula_nnapi* m = (facula_nnapi*)calloc(1, sizeof *m);
  e.text = error;
  e.bytes = error_bytes;
  if (!m) {
    fail(e, "not enough memory", "");
    return NULL;
  }
  if (load_into(m, library, words, count, buffers, buffer_count, preference, relax, e)) {
    facula_nnapi_free(m);
    return NULL;
  }
  return m;
}

/* ---- Files. Words: the mark, counts of the model's words, of buffers, of the words of rules; the model; lengths of the buffers;
 * rules. Then the buffers, each padded to 64 bytes. A rule: the word of the model that it sets, and the length of its
 * expression in postfix words: 0 N, the number N; 1 K, the inputs' K-th dimension; 2 +, 3 -, 4 *, 5 //, 6 max, 7 min. */
enum { kMark = 0x314E4E46 };

static char* read_file(const char* path, size_t* bytes) {
  FILE* file = fopen(path, "rb");
  char* text = NULL;
  long length = -1;
  if (file && !fseek(file, 0, SEEK_END)) length = ftell(file);
  if (length >= 0 && !fseek(file, 0, SEEK_SET)) text = (char*)malloc((size_t)length + 1);
  if (text && fread(text, 1, (size_t)length, file) != (size_t)length) {
    free(text);
    text = NULL;
  }
  if (file) fclose(file);
  *bytes = text ? (size_t)length : 0;
  return text;
}

static int64_t divided_down(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

static int evaluate(const int32_t* code, size_t count, const int32_t* dimensions, size_t dimension_count,
                    int64_t* result) {
  int64_t stack[16];
  size_t at, depth = 0;
  for (at = 0; at < count; ++at) {
    int32_t op = code[at];
    if (op == 0 || op == 1) {
      if (++at == count || depth == 16) return 1;
      if (op == 1 && (code[at] < 0 || (size_t)code[at] >= dimension_count)) return 1;
      stack[depth++] = op ? dimensions[code[at]] : code[at];
      continue;
    }
    if (depth < 2) return 1;
    {
      int64_t b = stack[--depth], a = stack[depth - 1];
      if (op == 5 && b == 0) return 1;
      stack[depth - 1] = op == 2   ? a + b
                         : op == 3 ? a - b
                         : op == 4 ? a * b
                         : op == 5 ? divided_down(a, b)
                         : op == 6 ? (a > b ? a : b)
                                   : (a < b ? a : b);
    }
  }
  *result = depth == 1 ? stack[0] : 0;
  return depth != 1;
}

static int set_dimensions(int32_t* model, size_t count, const int32_t* rules, size_t rule_words,
                          const int32_t* dimensions, size_t dimension_count, error_t e) {
  size_t at = 0;
  if (rule_words && !dimensions) return fail(e, "the model's dimensions depend on the inputs'", "pass dimensions");
  while (at + 2 <= rule_words) {
    size_t word = (size_t)rules[at], length = (size_t)rules[at + 1];
    int64_t value = 0;
    at += 2;
    if (word >= count || length > rule_words - at || evaluate(rules + at, length, dimensions, dimension_count, &value))
      return fail(e, "the file is damaged, or dimensions are missing", "a rule");
    if (value < 1 || value > 0x7fffffff) return fail(e, "the inputs are too small for the model", "");
    model[word] = (int32_t)value;
    at += length;
  }
  return 0;
}

facula_nnapi* facula_nnapi_open(const char* path, const char* library, const int32_t* dimensions, size_t count,
                                int preference, int relax, char* error, size_t error_bytes) {
  error_t e;
  size_t bytes, k, at;
  char* file = read_file(path, &bytes);
  int32_t *words = (int32_t*)(void*)file, *lengths;
  facula_nnapi_buffer* buffers = NULL;
  facula_nnapi* m = NULL;
  int failed = 1;
  e.text = error;
  e.bytes = error_bytes;
  if (!file) {
    fail(e, "the file was not read", path);
    return NULL;
  }
  if (bytes < 16 || words[0] != kMark || words[1] < 0 || words[2] < 0 || words[3] < 0 ||
      4 * (4 + (size_t)words[1] + (size_t)words[2] + (size_t)words[3]) > bytes) {
    fail(e, "the file is no model, or damaged", path);
  } else {
    lengths = words + 4 + words[1];
    at = (4 * (4 + (size_t)words[1] + (size_t)words[2] + (size_t)words[3]) + 63) / 64 * 64;
    buffers = (facula_nnapi_buffer*)calloc((size_t)words[2] + 1, sizeof *buffers);
    failed = !buffers || set_dimensions(words + 4, (size_t)words[1], lengths + words[2], (size_t)words[3], dimensions,
                                        count, e);
    for (k = 0; !failed && k < (size_t)words[2]; ++k) {
      if (lengths[k] < 0 || at > bytes || (size_t)lengths[k] > bytes - at) failed = fail(e, "the file is damaged", path);
      buffers[k].data = file + at;
      buffers[k].bytes = (size_t)lengths[k];
      at += ((size_t)lengths[k] + 63) / 64 * 64;
    }
    if (!failed)
      m = facula_nnapi_load(library, words + 4, (size_t)words[1], buffers, (size_t)words[2], preference, relax, error,
                            error_bytes);
  }
  free(buffers);
  if (m)
    m->file = file;
  else
    free(file);
  return m;
}

size_t facula_nnapi_input_bytes(const facula_nnapi* m, size_t k) { return k < m->input_count ? m->inputs[k].bytes : 0; }
size_t facula_nnapi_output_bytes(const facula_nnapi* m, size_t k) {
  return k < m->output_count ? m->outputs[k].bytes : 0;
}

int facula_nnapi_run(facula_nnapi* m, const void* const* inputs, void* const* outputs, char* error,
                     size_t error_bytes) {
  ANeuralNetworksExecution* execution = NULL;
  ANeuralNetworksEvent* event = NULL;
  error_t e;
  size_t k;
  int failed;
  e.text = error;
  e.bytes = error_bytes;
  failed = check(e, m->f.ANeuralNetworksExecution_create(m->compilation, &execution), "Execution_create");
  for (k = 0; !failed && k < m->input_count; ++k)
    failed = check(
        e, m->f.ANeuralNetworksExecution_setInput(execution, (int32_t)k, NULL, inputs[k], m->inputs[k].bytes),
        "Execution_setInput");
  for (k = 0; !failed && k < m->output_count; ++k)
    failed = check(
        e, m->f.ANeuralNetworksExecution_setOutput(execution, (int32_t)k, NULL, outputs[k], m->outputs[k].bytes),
        "Execution_setOutput");
  failed = failed || check(e, m->f.ANeuralNetworksExecution_startCompute(execution, &event), "Execution_startCompute") ||
           check(e, m->f.ANeuralNetworksEvent_wait(event), "Event_wait");
  if (event) m->f.ANeuralNetworksEvent_free(event);
  if (execution) m->f.ANeuralNetworksExecution_free(execution);
  return failed;
}

void facula_nnapi_free(facula_nnapi* m) {
  if (!m) return;
  if (m->compilation) m->f.ANeuralNetworksCompilation_free(m->compilation);
  if (m->model) m->f.ANeuralNetworksModel_free(m->model);
  if (m->library) dlclose(m->library);
  free(m->words);
  free(m->file);
  free(m);
}
