// Prevents the destruction of LLVM's static objects: a background thread (ahead.h) may be compiling when the process
// ends, and they hold nothing that outlives it. This definition only applies to code that is linked into
// libfacula_llvm.so.
extern "C" [[gnu::visibility("hidden")]] int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }
