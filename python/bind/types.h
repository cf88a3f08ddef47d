// Python's dtype, device, memory_format and layout objects, and torch.Size.
#pragma once
#include "python.h"

#include "facula/base/device.h"
#include "facula/base/dtype.h"
#include "facula/tensor/sparse.h"
#include "facula/tensor/tensor.h"

namespace facula::bind {

struct DTypeObject {
  PyObject_HEAD DType value;
};
struct DeviceObject {
  PyObject_HEAD Device value;
};
struct FormatObject {
  PyObject_HEAD MemoryFormat value;
};
extern PyTypeObject *DTypeType, *DeviceType_, *FormatType, *LayoutType, *SizeType;

PyObject* wrap(DType d);  // the singleton, a new reference
PyObject* wrap(Device d);
PyObject* wrap(MemoryFormat f);
PyObject* wrap(Layout l);
PyObject* wrap_sizes(SymSpan sizes);  // facula.Size
PyObject* wrap_ints(SymSpan ints);    // tuple
PyObject* wrap_int(SymInt i);

inline bool is_dtype(PyObject* o) { return Py_TYPE(o) == DTypeType; }
// From a dtype object or Python's float, int, bool, complex; false (no exception) for anything else.
bool to_dtype(PyObject* o, DType& d);
// From a device object, a string or an index; false for anything else; a string that names no device raises
// Error.
bool to_device(PyObject* o, Device& d);
bool to_format(PyObject* o, MemoryFormat& f);

}  // namespace facula::bind
