/* The C interface of Android's neural networks (NNAPI), feature level 4, as far as nnapi_runner.c calls it and the host library
 * (nnapi_host) has it: types, codes of operands and operations, results. Source: the NDK's reference of NeuralNetworks.h.
 */
#ifndef FACULA_NNAPI_H
#define FACULA_NNAPI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ANeuralNetworksMemory ANeuralNetworksMemory;
typedef struct ANeuralNetworksModel ANeuralNetworksModel;
typedef struct ANeuralNetworksCompilation ANeuralNetworksCompilation;
typedef struct ANeuralNetworksExecution ANeuralNetworksExecution;
typedef struct ANeuralNetworksEvent ANeuralNetworksEvent;
typedef struct ANeuralNetworksDevice ANeuralNetworksDevice;

typedef struct ANeuralNetworksOperandType {
  int32_t type;
  uint32_t dimensionCount;
  const uint32_t* dimensions; /* 0: unknown until the execution */
  float scale;
  int32_t zeroPoint;
} ANeuralNetworksOperandType;

typedef struct ANeuralNetworksSymmPerChannelQuantParams {
  uint32_t channelDim;
  uint32_t scaleCount;
  const float* scales;
} ANeuralNetworksSymmPerChannelQuantParams;

enum {
  ANEURALNETWORKS_NO_ERROR = 0,
  ANEURALNETWORKS_OUT_OF_MEMORY = 1,
  ANEURALNETWORKS_INCOMPLETE = 2,
  ANEURALNETWORKS_UNEXPECTED_NULL = 3,
  ANEURALNETWORKS_BAD_DATA = 4,
  ANEURALNETWORKS_OP_FAILED = 5,
  ANEURALNETWORKS_BAD_STATE = 6,
  ANEURALNETWORKS_UNMAPPABLE = 7,
  ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE = 8
};

enum {
  ANEURALNETWORKS_FLOAT32 = 0,
  ANEURALNETWORKS_INT32 = 1,
  ANEURALNETWORKS_UINT32 = 2,
  ANEURALNETWORKS_TENSOR_FLOAT32 = 3,
  ANEURALNETWORKS_TENSOR_INT32 = 4,
  ANEURALNETWORKS_TENSOR_QUANT8_ASYMM = 5,
  ANEURALNETWORKS_BOOL = 6,
  ANEURALNETWORKS_TENSOR_BOOL8 = 9,
  ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL = 11,
  ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED = 14
};

enum {
  ANEURALNETWORKS_ADD = 0,
  ANEURALNETWORKS_AVERAGE_POOL_2D = 1,
  ANEURALNETWORKS_CONCATENATION = 2,
  ANEURALNETWORKS_CONV_2D = 3,
  ANEURALNETWORKS_DEPTHWISE_CONV_2D = 4,
  ANEURALNETWORKS_DEQUANTIZE = 6,
  ANEURALNETWORKS_FLOOR = 8,
  ANEURALNETWORKS_FULLY_CONNECTED = 9,
  ANEURALNETWORKS_LOGISTIC = 14,
  ANEURALNETWORKS_MAX_POOL_2D = 17,
  ANEURALNETWORKS_MUL = 18,
  ANEURALNETWORKS_RELU = 19,
  ANEURALNETWORKS_RELU1 = 20,
  ANEURALNETWORKS_RELU6 = 21,
  ANEURALNETWORKS_RESHAPE = 22,
  ANEURALNETWORKS_RESIZE_BILINEAR = 23,
  ANEURALNETWORKS_SOFTMAX = 25,
  ANEURALNETWORKS_TANH = 28,
  ANEURALNETWORKS_DIV = 30,
  ANEURALNETWORKS_MEAN = 31,
  ANEURALNETWORKS_PAD = 32,
  ANEURALNETWORKS_SQUEEZE = 34,
  ANEURALNETWORKS_STRIDED_SLICE = 35,
  ANEURALNETWORKS_SUB = 36,
  ANEURALNETWORKS_TRANSPOSE = 37,
  ANEURALNETWORKS_ABS = 38,
  ANEURALNETWORKS_EXP = 49,
  ANEURALNETWORKS_EXPAND_DIMS = 50,
  ANEURALNETWORKS_GROUPED_CONV_2D = 55,
  ANEURALNETWORKS_LOG = 60,
  ANEURALNETWORKS_LOG_SOFTMAX = 64,
  ANEURALNETWORKS_MAXIMUM = 65,
  ANEURALNETWORKS_MINIMUM = 66,
  ANEURALNETWORKS_NEG = 67,
  ANEURALNETWORKS_PRELU = 71,
  ANEURALNETWORKS_QUANTIZE = 72,
  ANEURALNETWORKS_REDUCE_MAX = 77,
  ANEURALNETWORKS_REDUCE_MIN = 78,
  ANEURALNETWORKS_REDUCE_SUM = 80,
  ANEURALNETWORKS_RSQRT = 83,
  ANEURALNETWORKS_SLICE = 86,
  ANEURALNETWORKS_SQRT = 88,
  ANEURALNETWORKS_TRANSPOSE_CONV_2D = 91,
  ANEURALNETWORKS_RESIZE_NEAREST_NEIGHBOR = 94,
  ANEURALNETWORKS_ELU = 98,
  ANEURALNETWORKS_HARD_SWISH = 99
};

enum {
  ANEURALNETWORKS_FUSED_NONE = 0,
  ANEURALNETWORKS_FUSED_RELU = 1,
  ANEURALNETWORKS_FUSED_RELU1 = 2,
  ANEURALNETWORKS_FUSED_RELU6 = 3
};
enum { ANEURALNETWORKS_PADDING_SAME = 1, ANEURALNETWORKS_PADDING_VALID = 2 };
enum {
  ANEURALNETWORKS_PREFER_LOW_POWER = 0,
  ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER = 1,
  ANEURALNETWORKS_PREFER_SUSTAINED_SPEED = 2
};

/* Each function of the interface: its result, name, and arguments. */
#define FACULA_NNAPI_FUNCTIONS(X)                                                                                     \
  X(int, ANeuralNetworksMemory_createFromFd, (size_t, int, int, size_t, ANeuralNetworksMemory**))                     \
  X(void, ANeuralNetworksMemory_free, (ANeuralNetworksMemory*))                                                       \
  X(int, ANeuralNetworksModel_create, (ANeuralNetworksModel**))                                                       \
  X(void, ANeuralNetworksModel_free, (ANeuralNetworksModel*))                                                         \
  X(int, ANeuralNetworksModel_finish, (ANeuralNetworksModel*))                                                        \
  X(int, ANeuralNetworksModel_addOperand, (ANeuralNetworksModel*, const ANeuralNetworksOperandType*))                 \
  X(int, ANeuralNetworksModel_setOperandSymmPerChannelQuantParams,                                                    \
    (ANeuralNetworksModel*, int32_t, const ANeuralNetworksSymmPerChannelQuantParams*))                                \
  X(int, ANeuralNetworksModel_setOperandValue, (ANeuralNetworksModel*, int32_t, const void*, size_t))                 \
  X(int, ANeuralNetworksModel_setOperandValueFromMemory,                                                              \
    (ANeuralNetworksModel*, int32_t, const ANeuralNetworksMemory*, size_t, size_t))                                   \
  X(int, ANeuralNetworksModel_addOperation,                                                                           \
    (ANeuralNetworksModel*, int32_t, uint32_t, const uint32_t*, uint32_t, const uint32_t*))                           \
  X(int, ANeuralNetworksModel_identifyInputsAndOutputs,                                                               \
    (ANeuralNetworksModel*, uint32_t, const uint32_t*, uint32_t, const uint32_t*))                                    \
  X(int, ANeuralNetworksModel_relaxComputationFloat32toFloat16, (ANeuralNetworksModel*, bool))                        \
  X(int, ANeuralNetworksCompilation_create, (ANeuralNetworksModel*, ANeuralNetworksCompilation**))                    \
  X(void, ANeuralNetworksCompilation_free, (ANeuralNetworksCompilation*))                                             \
  X(int, ANeuralNetworksCompilation_setPreference, (ANeuralNetworksCompilation*, int32_t))                            \
  X(int, ANeuralNetworksCompilation_finish, (ANeuralNetworksCompilation*))                                            \
  X(int, ANeuralNetworksExecution_create, (ANeuralNetworksCompilation*, ANeuralNetworksExecution**))                  \
  X(void, ANeuralNetworksExecution_free, (ANeuralNetworksExecution*))                                                 \
  X(int, ANeuralNetworksExecution_setInput,                                                                           \
    (ANeuralNetworksExecution*, int32_t, const ANeuralNetworksOperandType*, const void*, size_t))                     \
  X(int, ANeuralNetworksExecution_setInputFromMemory,                                                                 \
    (ANeuralNetworksExecution*, int32_t, const ANeuralNetworksOperandType*, const ANeuralNetworksMemory*, size_t,     \
     size_t))                                                                                                         \
  X(int, ANeuralNetworksExecution_setOutput,                                                                          \
    (ANeuralNetworksExecution*, int32_t, const ANeuralNetworksOperandType*, void*, size_t))                           \
  X(int, ANeuralNetworksExecution_setOutputFromMemory,                                                                \
    (ANeuralNetworksExecution*, int32_t, const ANeuralNetworksOperandType*, const ANeuralNetworksMemory*, size_t,     \
     size_t))                                                                                                         \
  X(int, ANeuralNetworksExecution_startCompute, (ANeuralNetworksExecution*, ANeuralNetworksEvent**))                  \
  X(int, ANeuralNetworksExecution_compute, (ANeuralNetworksExecution*))                                               \
  X(int, ANeuralNetworksExecution_getOutputOperandRank, (ANeuralNetworksExecution*, int32_t, uint32_t*))              \
  X(int, ANeuralNetworksExecution_getOutputOperandDimensions, (ANeuralNetworksExecution*, int32_t, uint32_t*))        \
  X(int, ANeuralNetworksEvent_wait, (ANeuralNetworksEvent*))                                                          \
  X(void, ANeuralNetworksEvent_free, (ANeuralNetworksEvent*))                                                         \
  X(int, ANeuralNetworks_getDeviceCount, (uint32_t*))                                                                 \
  X(int, ANeuralNetworks_getDevice, (uint32_t, ANeuralNetworksDevice**))                                              \
  X(int, ANeuralNetworksDevice_getName, (const ANeuralNetworksDevice*, const char**))                                 \
  X(int, ANeuralNetworksDevice_getVersion, (const ANeuralNetworksDevice*, const char**))                              \
  X(int, ANeuralNetworksDevice_getFeatureLevel, (const ANeuralNetworksDevice*, int64_t*))                             \
  X(int, ANeuralNetworksModel_getSupportedOperationsForDevices,                                                       \
    (const ANeuralNetworksModel*, const ANeuralNetworksDevice* const*, uint32_t, bool*))                              \
  X(int, ANeuralNetworksCompilation_createForDevices,                                                                 \
    (ANeuralNetworksModel*, const ANeuralNetworksDevice* const*, uint32_t, ANeuralNetworksCompilation**))

#define FACULA_NNAPI_DECLARE(result, name, arguments) result name arguments;
FACULA_NNAPI_FUNCTIONS(FACULA_NNAPI_DECLARE)
#undef FACULA_NNAPI_DECLARE

#ifdef __cplusplus
}
#endif
#endif
