// Observes reads of elements by the host (item(), tolist()), for traces, whose programs rely on these values.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula {

using ReadObserver = void (*)(const Tensor&);
extern thread_local constinit ReadObserver read_observer;  // of the thread; null: none
inline void note_read(const Tensor& t) {
  if (read_observer) [[unlikely]]
    read_observer(t);
}

}  // namespace facula
