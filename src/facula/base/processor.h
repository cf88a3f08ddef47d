// The vector registers of this processor, for kernels that are compiled for each width of them.
#pragma once

namespace facula {

// 64 with AVX-512, else 32 with AVX2. FACULA_CPU_CAPABILITY restricts it (base/settings.h). RuntimeError if the
// processor lacks AVX2, or what the setting asks for.
int vector_bytes();

}  // namespace facula
