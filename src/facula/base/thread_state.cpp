#include "facula/base/thread_state.h"

namespace facula {

constinit thread_local ThreadState thread_state;

}  // namespace facula
