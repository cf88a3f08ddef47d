// The plans of ducc0 that Facula uses, for the real type FACULA_FFT_TYPE. Its own files would make much more, which takes
// minutes.
#include "ducc0/fft/fft.h"
#include "ducc0/fft/fft1d_impl.h"

namespace DUCC0_NAMESPACE::detail_fft {
template class cfftpass<FACULA_FFT_TYPE>;
template class rfftpass<FACULA_FFT_TYPE>;
}  // namespace DUCC0_NAMESPACE::detail_fft
