// Who wants to know when the host reads elements of a tensor (item(), tolist()): a trace, whose program relies on them.
#pragma once
#include "facula/tensor/tensor.h"

namespace facula {

using ReadObserver = void (*)(const Tensor&);
extern thread_local constinit ReadObserver read_observer;  // of the thread; null: nobody
inline void note_read(const Tensor& t) {
  if (read_observer) [[unlikely]]
    read_observer(t);
}

}  // namespace facula
