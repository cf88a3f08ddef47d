// The C interface of NNAPI on this machine: libneuralnetworks.so. Calls are checked as Android's documentation of the interface
// asks; the reason of a refusal is a line on standard error, as Android writes one to its log.
#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <memory>

#include "facula/autograd/autograd.h"
#include "facula/base/error.h"
#include "facula/deploy/nnapi_host/model.h"
#include "facula/ops.h"

#define FACULA_EXPORTED extern "C" __attribute__((visibility("default")))

using facula::DType;
using facula::Tensor;
using facula::nnapi::Model;
using facula::nnapi::Operand;

struct ANeuralNetworksMemory {
  uint8_t* data;
  size_t bytes;
};
struct ANeuralNetworksModel : Model {};
struct ANeuralNetworksCompilation {
  const Model* model;
  bool finished = false;
};
struct Bound {
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  std::vector<int64_t> dims;
};
struct ANeuralNetworksExecution {
  const Model* model;
  std::vector<Bound> inputs, outputs;
  bool started = false, done = false;
};
struct ANeuralNetworksEvent {
  int result;
};
struct ANeuralNetworksDevice {};

namespace {

int refuse(int code, const std::string& why) {
  std::fprintf(stderr, "neuralnetworks: %s\n", why.c_str());
  return code;
}

// Runs f, and turns exceptions into codes.
template <class F>
int guarded(const char* what, F&& f) noexcept {
  try {
    return f();
  } catch (const std::bad_alloc&) { return ANEURALNETWORKS_OUT_OF_MEMORY; } catch (const std::exception& e) {
    return refuse(ANEURALNETWORKS_OP_FAILED, std::string(what) + ": " + e.what());
  }
}

std::vector<int64_t> dims_of(const ANeuralNetworksOperandType& type) {
  return std::vector<int64_t>(type.dimensions, type.dimensions + type.dimensionCount);
}
size_t bytes_of(const Operand& o, const std::vector<int64_t>& dims) {
  size_t bytes = size_t(facula::itemsize(facula::nnapi::dtype_of(o.type)));
  for (int64_t d : dims) bytes *= size_t(d);
  return bytes;
}
bool has(const Model& m, uint32_t count, const uint32_t* list) {
  for (uint32_t k = 0; k < count; ++k)
    if (list[k] >= m.operands.size()) return false;
  return true;
}

int set_value(Model& m, int32_t index, const void* data, size_t bytes, bool copied) {
  if (m.finished) return ANEURALNETWORKS_BAD_STATE;
  if (index < 0 || size_t(index) >= m.operands.size())
    return refuse(ANEURALNETWORKS_BAD_DATA, "setOperandValue: no operand " + std::to_string(index));
  Operand& o = m.operands[size_t(index)];
  if (!data) {
    if (bytes) return ANEURALNETWORKS_UNEXPECTED_NULL;
    o.kind = Operand::omitted;
    return ANEURALNETWORKS_NO_ERROR;
  }
  if (bytes != bytes_of(o, o.dims))
    return refuse(ANEURALNETWORKS_BAD_DATA, "setOperandValue: operand " + std::to_string(index) + " has " +
                                                std::to_string(bytes_of(o, o.dims)) + " bytes, given are " +
                                                std::to_string(bytes));
  o.kind = Operand::constant;
  if (copied && bytes <= 128) {
    auto* from = static_cast<const uint8_t*>(data);
    o.copy.assign(from, from + bytes);
  } else {
    o.data = data;
  }
  return ANEURALNETWORKS_NO_ERROR;
}

int bound(ANeuralNetworksExecution& e, std::vector<Bound>& all, const std::vector<uint32_t>& operands,
          int32_t index, const ANeuralNetworksOperandType* type, const void* from, void* to, size_t bytes) {
  if (e.started) return ANEURALNETWORKS_BAD_STATE;
  if (index < 0 || size_t(index) >= all.size())
    return refuse(ANEURALNETWORKS_BAD_DATA, "no such input or output");
  const Operand& o = e.model->operands[operands[size_t(index)]];
  Bound b{from, to, bytes, type && type->dimensionCount ? dims_of(*type) : o.dims};
  if (type && type->dimensionCount) {
    bool fits = o.dims.empty() || b.dims.size() == o.dims.size();
    for (size_t d = 0; fits && d < o.dims.size(); ++d)
      fits = !o.dims[d] || !b.dims[d] || o.dims[d] == b.dims[d];
    if (!fits)
      return refuse(ANEURALNETWORKS_BAD_DATA, "the dimensions of an argument differ from the model's");
  }
  bool unknown = false;
  for (int64_t d : b.dims) unknown = unknown || !d;
  if (from && unknown) return refuse(ANEURALNETWORKS_BAD_DATA, "an input has an unknown dimension");
  if (!unknown && bytes != bytes_of(o, b.dims))
    return refuse(ANEURALNETWORKS_BAD_DATA, "an argument has " + std::to_string(bytes) +
                                                " bytes, expected are " +
                                                std::to_string(bytes_of(o, b.dims)));
  all[size_t(index)] = std::move(b);
  return ANEURALNETWORKS_NO_ERROR;
}

int run(ANeuralNetworksExecution& e) {
  if (e.started) return ANEURALNETWORKS_BAD_STATE;
  e.started = true;
  facula::autograd::GradMode off(false);
  std::vector<Tensor> values(e.model->operands.size());
  for (size_t k = 0; k < e.inputs.size(); ++k) {
    const Bound& b = e.inputs[k];
    if (!b.from) return refuse(ANEURALNETWORKS_BAD_DATA, "input " + std::to_string(k) + " is not set");
    uint32_t operand = e.model->inputs[k];
    DType dtype = facula::nnapi::dtype_of(e.model->operands[operand].type);
    Tensor t = Tensor::empty(facula::IntSpan(b.dims), dtype);
    std::memcpy(t.data_ptr(), b.from, b.bytes);
    values[operand] = t;
  }
  facula::nnapi::execute(*e.model, values);
  for (size_t k = 0; k < e.outputs.size(); ++k) {
    Bound& b = e.outputs[k];
    Tensor t = facula::contiguous(values[e.model->outputs[k]]);
    auto sizes = t.int_sizes();
    size_t bytes = size_t(t.numel().concrete()) * size_t(t.itemsize());
    b.dims.assign(sizes.begin(), sizes.end());
    if (!b.to) return refuse(ANEURALNETWORKS_BAD_DATA, "output " + std::to_string(k) + " is not set");
    if (b.bytes < bytes)
      return refuse(ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE, "an output's buffer is too small");
    std::memcpy(b.to, t.data_ptr(), bytes);
  }
  e.done = true;
  return ANEURALNETWORKS_NO_ERROR;
}

}  // namespace

FACULA_EXPORTED int ANeuralNetworksMemory_createFromFd(size_t bytes, int protection, int file, size_t offset,
                                                       ANeuralNetworksMemory** memory) {
  if (!memory) return ANEURALNETWORKS_UNEXPECTED_NULL;
  void* data = mmap(nullptr, bytes, protection, MAP_SHARED, file, off_t(offset));
  if (data == MAP_FAILED) return ANEURALNETWORKS_UNMAPPABLE;
  *memory = new ANeuralNetworksMemory{static_cast<uint8_t*>(data), bytes};
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED void ANeuralNetworksMemory_free(ANeuralNetworksMemory* m) {
  if (m) munmap(m->data, m->bytes);
  delete m;
}

FACULA_EXPORTED int ANeuralNetworksModel_create(ANeuralNetworksModel** model) {
  if (!model) return ANEURALNETWORKS_UNEXPECTED_NULL;
  *model = new ANeuralNetworksModel;
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED void ANeuralNetworksModel_free(ANeuralNetworksModel* m) { delete m; }

FACULA_EXPORTED int ANeuralNetworksModel_addOperand(ANeuralNetworksModel* m,
                                                    const ANeuralNetworksOperandType* type) {
  if (!m || !type || (type->dimensionCount && !type->dimensions)) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (m->finished) return ANEURALNETWORKS_BAD_STATE;
  return guarded("addOperand", [&] {
    facula::nnapi::dtype_of(type->type);  // refuses unknown ones
    Operand o{type->type,         dims_of(*type), type->scale, type->zeroPoint, {}, 0,
              Operand::temporary, nullptr,        {}};
    m->operands.push_back(std::move(o));
    return ANEURALNETWORKS_NO_ERROR;
  });
}
FACULA_EXPORTED int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(
    ANeuralNetworksModel* m, int32_t index, const ANeuralNetworksSymmPerChannelQuantParams* channels) {
  if (!m || !channels || !channels->scales) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (m->finished) return ANEURALNETWORKS_BAD_STATE;
  if (index < 0 || size_t(index) >= m->operands.size()) return ANEURALNETWORKS_BAD_DATA;
  Operand& o = m->operands[size_t(index)];
  if (o.type != ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL || channels->channelDim >= o.dims.size() ||
      int64_t(channels->scaleCount) != o.dims[channels->channelDim])
    return refuse(ANEURALNETWORKS_BAD_DATA, "scales of channels do not fit the operand");
  o.channel_dim = channels->channelDim;
  o.channel_scales.assign(channels->scales, channels->scales + channels->scaleCount);
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksModel_setOperandValue(ANeuralNetworksModel* m, int32_t index,
                                                         const void* data, size_t bytes) {
  return m ? set_value(*m, index, data, bytes, true) : ANEURALNETWORKS_UNEXPECTED_NULL;
}
FACULA_EXPORTED int ANeuralNetworksModel_setOperandValueFromMemory(ANeuralNetworksModel* m, int32_t index,
                                                                   const ANeuralNetworksMemory* memory,
                                                                   size_t offset, size_t bytes) {
  if (!m || !memory) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (offset > memory->bytes || bytes > memory->bytes - offset) return ANEURALNETWORKS_BAD_DATA;
  return set_value(*m, index, memory->data + offset, bytes, false);
}
FACULA_EXPORTED int ANeuralNetworksModel_addOperation(ANeuralNetworksModel* m, int32_t code,
                                                      uint32_t input_count, const uint32_t* inputs,
                                                      uint32_t output_count, const uint32_t* outputs) {
  if (!m || !inputs || !outputs) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (m->finished) return ANEURALNETWORKS_BAD_STATE;
  if (!has(*m, input_count, inputs) || !has(*m, output_count, outputs))
    return refuse(ANEURALNETWORKS_BAD_DATA, "addOperation: an operand does not exist");
  m->operations.push_back({code, {inputs, inputs + input_count}, {outputs, outputs + output_count}});
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksModel_identifyInputsAndOutputs(ANeuralNetworksModel* m,
                                                                  uint32_t input_count,
                                                                  const uint32_t* inputs,
                                                                  uint32_t output_count,
                                                                  const uint32_t* outputs) {
  if (!m || !inputs || !outputs) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (m->finished) return ANEURALNETWORKS_BAD_STATE;
  if (!has(*m, input_count, inputs) || !has(*m, output_count, outputs))
    return refuse(ANEURALNETWORKS_BAD_DATA, "identifyInputsAndOutputs: an operand does not exist");
  m->inputs.assign(inputs, inputs + input_count);
  m->outputs.assign(outputs, outputs + output_count);
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksModel_relaxComputationFloat32toFloat16(ANeuralNetworksModel* m, bool) {
  return !m            ? ANEURALNETWORKS_UNEXPECTED_NULL
         : m->finished ? ANEURALNETWORKS_BAD_STATE
                       : ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksModel_finish(ANeuralNetworksModel* m) {
  if (!m) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (m->finished) return ANEURALNETWORKS_BAD_STATE;
  if (m->outputs.empty()) return refuse(ANEURALNETWORKS_BAD_DATA, "the model has no outputs");
  std::vector<bool> computed(m->operands.size());
  for (size_t k = 0; k < computed.size(); ++k) computed[k] = m->operands[k].kind != Operand::temporary;
  for (uint32_t k : m->inputs) computed[k] = true;
  for (auto& o : m->operations) {
    for (uint32_t k : o.inputs)
      if (!computed[k])
        return refuse(ANEURALNETWORKS_BAD_DATA,
                      "operand " + std::to_string(k) + " is read before an operation computes it");
    for (uint32_t k : o.outputs) computed[k] = true;
  }
  m->finished = true;
  return ANEURALNETWORKS_NO_ERROR;
}

FACULA_EXPORTED int ANeuralNetworksCompilation_create(ANeuralNetworksModel* m,
                                                      ANeuralNetworksCompilation** compilation) {
  if (!m || !compilation) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (!m->finished) return ANEURALNETWORKS_BAD_STATE;
  *compilation = new ANeuralNetworksCompilation{m};
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED void ANeuralNetworksCompilation_free(ANeuralNetworksCompilation* c) { delete c; }
FACULA_EXPORTED int ANeuralNetworksCompilation_setPreference(ANeuralNetworksCompilation* c,
                                                             int32_t preference) {
  if (!c) return ANEURALNETWORKS_UNEXPECTED_NULL;
  bool computed =
      preference >= ANEURALNETWORKS_PREFER_LOW_POWER && preference <= ANEURALNETWORKS_PREFER_SUSTAINED_SPEED;
  return c->finished ? ANEURALNETWORKS_BAD_STATE
         : computed  ? ANEURALNETWORKS_NO_ERROR
                     : ANEURALNETWORKS_BAD_DATA;
}
FACULA_EXPORTED int ANeuralNetworksCompilation_finish(ANeuralNetworksCompilation* c) {
  if (!c) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (c->finished) return ANEURALNETWORKS_BAD_STATE;
  for (auto& o : c->model->operations)
    if (!facula::nnapi::is_supported(o.code))
      return refuse(ANEURALNETWORKS_BAD_DATA,
                    "operation " + std::to_string(o.code) + " is not supported here");
  c->finished = true;
  return ANEURALNETWORKS_NO_ERROR;
}

FACULA_EXPORTED int ANeuralNetworksExecution_create(ANeuralNetworksCompilation* c,
                                                    ANeuralNetworksExecution** execution) {
  if (!c || !execution) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (!c->finished) return ANEURALNETWORKS_BAD_STATE;
  *execution = new ANeuralNetworksExecution{c->model, std::vector<Bound>(c->model->inputs.size()),
                                            std::vector<Bound>(c->model->outputs.size())};
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED void ANeuralNetworksExecution_free(ANeuralNetworksExecution* e) { delete e; }
FACULA_EXPORTED int ANeuralNetworksExecution_setInput(ANeuralNetworksExecution* e, int32_t index,
                                                      const ANeuralNetworksOperandType* type,
                                                      const void* data, size_t bytes) {
  if (!e || !data) return ANEURALNETWORKS_UNEXPECTED_NULL;
  return bound(*e, e->inputs, e->model->inputs, index, type, data, nullptr, bytes);
}
FACULA_EXPORTED int ANeuralNetworksExecution_setInputFromMemory(ANeuralNetworksExecution* e, int32_t index,
                                                                const ANeuralNetworksOperandType* type,
                                                                const ANeuralNetworksMemory* memory,
                                                                size_t offset, size_t bytes) {
  if (!e || !memory) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (offset > memory->bytes || bytes > memory->bytes - offset) return ANEURALNETWORKS_BAD_DATA;
  return bound(*e, e->inputs, e->model->inputs, index, type, memory->data + offset, nullptr, bytes);
}
FACULA_EXPORTED int ANeuralNetworksExecution_setOutput(ANeuralNetworksExecution* e, int32_t index,
                                                       const ANeuralNetworksOperandType* type, void* data,
                                                       size_t bytes) {
  if (!e || !data) return ANEURALNETWORKS_UNEXPECTED_NULL;
  return bound(*e, e->outputs, e->model->outputs, index, type, nullptr, data, bytes);
}
FACULA_EXPORTED int ANeuralNetworksExecution_setOutputFromMemory(ANeuralNetworksExecution* e, int32_t index,
                                                                 const ANeuralNetworksOperandType* type,
                                                                 const ANeuralNetworksMemory* memory,
                                                                 size_t offset, size_t bytes) {
  if (!e || !memory) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (offset > memory->bytes || bytes > memory->bytes - offset) return ANEURALNETWORKS_BAD_DATA;
  return bound(*e, e->outputs, e->model->outputs, index, type, nullptr, memory->data + offset, bytes);
}
FACULA_EXPORTED int ANeuralNetworksExecution_compute(ANeuralNetworksExecution* e) {
  return e ? guarded("compute", [&] { return run(*e); }) : ANEURALNETWORKS_UNEXPECTED_NULL;
}
// The computation is done when this returns; waiting for the event gives its result.
FACULA_EXPORTED int ANeuralNetworksExecution_startCompute(ANeuralNetworksExecution* e,
                                                          ANeuralNetworksEvent** event) {
  if (!e || !event) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (e->started) return ANEURALNETWORKS_BAD_STATE;
  *event = new ANeuralNetworksEvent{guarded("compute", [&] { return run(*e); })};
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksEvent_wait(ANeuralNetworksEvent* event) {
  return event ? event->result : ANEURALNETWORKS_UNEXPECTED_NULL;
}
FACULA_EXPORTED void ANeuralNetworksEvent_free(ANeuralNetworksEvent* event) { delete event; }

FACULA_EXPORTED int ANeuralNetworksExecution_getOutputOperandRank(ANeuralNetworksExecution* e, int32_t index,
                                                                  uint32_t* rank) {
  if (!e || !rank) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (!e->started) return ANEURALNETWORKS_BAD_STATE;
  if (index < 0 || size_t(index) >= e->outputs.size()) return ANEURALNETWORKS_BAD_DATA;
  *rank = uint32_t(e->outputs[size_t(index)].dims.size());
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksExecution_getOutputOperandDimensions(ANeuralNetworksExecution* e,
                                                                        int32_t index, uint32_t* dimensions) {
  if (!e || !dimensions) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (!e->started) return ANEURALNETWORKS_BAD_STATE;
  if (index < 0 || size_t(index) >= e->outputs.size()) return ANEURALNETWORKS_BAD_DATA;
  for (int64_t d : e->outputs[size_t(index)].dims) *dimensions++ = uint32_t(d);
  return ANEURALNETWORKS_NO_ERROR;
}

FACULA_EXPORTED int ANeuralNetworks_getDeviceCount(uint32_t* count) {
  if (!count) return ANEURALNETWORKS_UNEXPECTED_NULL;
  *count = 1;
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworks_getDevice(uint32_t index, ANeuralNetworksDevice** device) {
  static ANeuralNetworksDevice only;
  if (!device) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (index) return ANEURALNETWORKS_BAD_DATA;
  *device = &only;
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksDevice_getName(const ANeuralNetworksDevice* d, const char** name) {
  if (!d || !name) return ANEURALNETWORKS_UNEXPECTED_NULL;
  *name = "facula-host";
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksDevice_getVersion(const ANeuralNetworksDevice* d, const char** version) {
  if (!d || !version) return ANEURALNETWORKS_UNEXPECTED_NULL;
  *version = "1";
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksDevice_getFeatureLevel(const ANeuralNetworksDevice* d, int64_t* level) {
  if (!d || !level) return ANEURALNETWORKS_UNEXPECTED_NULL;
  *level = 30;
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksModel_getSupportedOperationsForDevices(
    const ANeuralNetworksModel* m, const ANeuralNetworksDevice* const* devices, uint32_t count,
    bool* supported) {
  if (!m || !devices || !supported) return ANEURALNETWORKS_UNEXPECTED_NULL;
  if (!count) return ANEURALNETWORKS_BAD_DATA;
  for (auto& o : m->operations) *supported++ = facula::nnapi::is_supported(o.code);
  return ANEURALNETWORKS_NO_ERROR;
}
FACULA_EXPORTED int ANeuralNetworksCompilation_createForDevices(ANeuralNetworksModel* m,
                                                                const ANeuralNetworksDevice* const* devices,
                                                                uint32_t count,
                                                                ANeuralNetworksCompilation** compilation) {
  if (!devices || !count) return devices ? ANEURALNETWORKS_BAD_DATA : ANEURALNETWORKS_UNEXPECTED_NULL;
  return ANeuralNetworksCompilation_create(m, compilation);
}
