// LLVM's own objects are never destroyed: a thread beside the program (ahead.h) may be compiling while the process
// ends, and nothing that they hold outlives it. This definition serves what is linked into libfacula_llvm.so only.
extern "C" [[gnu::visibility("hidden")]] int __cxa_atexit(void (*)(void*), void*, void*) { return 0; }
