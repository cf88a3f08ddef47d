// facula._C.OpenTrace and facula._C.Segment: traces that are recorded call by call (facula/run/open_trace.h).
#pragma once
#include <memory>

#include "facula/run/open_trace.h"
#include "python.h"

namespace facula::bind {

PyObject* wrap(std::shared_ptr<run::Segment> s);
// Gives the exception that is set its `trace_break` if it stands for a call that a trace cannot record.
void describe_break(const Error& e) noexcept;
// Makes breaks of traces carry the user's line, and gives exceptions their attribute `trace_break`.
void add_open_trace(PyObject* module);

}  // namespace facula::bind
