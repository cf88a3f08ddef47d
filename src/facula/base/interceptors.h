// Interceptors: what may take part in an operator call besides the kernel that computes it. A process that never uses one
// pays one test of `interceptors` a call. What each interceptor does is in run/interceptors.cpp.
#pragma once
#include <atomic>
#include <cstdint>

namespace facula {

enum class Interceptor : uint32_t {
  sparse = 1,       // sparse operands: the operator's rule computes on their parts
  lazy = 2,         // operands that are conjugated or negated when they are read
  profiled = 4,     // the call becomes an event of the running profile
  logged = 8,       // the call becomes a line of the log
  interposed = 16,  // Python dispatch modes and tensor-like classes compute in place of kernels
  device = 32,      // operands may be on another device than the CPU
};

// The interceptors in use, one bit each. Bits of operands are set when the process first makes such a tensor and stay set.
inline std::atomic<uint32_t> interceptors{0};

inline bool is_in_use(Interceptor i) { return interceptors.load(std::memory_order_relaxed) & uint32_t(i); }
inline void set_in_use(Interceptor i, bool in_use = true) {
  if (in_use) interceptors.fetch_or(uint32_t(i), std::memory_order_relaxed);
  else interceptors.fetch_and(~uint32_t(i), std::memory_order_relaxed);
}

}  // namespace facula
