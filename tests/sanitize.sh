#!/usr/bin/env bash
# sanitize.sh cpp|python|arguments|threads ARGS...: builds with the sanitizers and runs tests under them; docs/robustness.md says
# what each covers. `make sanitize`, `sanitize-python`, `sanitize-arguments` and `sanitize-threads` call it. BUILD, JOBS, PYTHON
# and CMAKE_ARGS are those of the Makefile.
#   cpp        the C++ tests under the address and undefined-behaviour sanitizers; ARGS are ctest's (-R io)
#   python     Python tests under the same build; ARGS are pytest's
#   arguments  random calls of everything that Python reaches; ARGS are those of tests/arguments/run.py
#   threads    the C++ tests of some rooms under the thread sanitizer (ROOMS="tensor autograd codegen"); ARGS are GoogleTest's
set -euo pipefail
cd "$(dirname "$0")/.."
what=$1
shift
build=$(realpath -m "${BUILD:-build}") jobs=${JOBS:-$(nproc)} python=$(realpath -s "${PYTHON:-.venv/bin/python}")
generator=()
! command -v ninja >/dev/null || generator=(-G Ninja)

configure() {  # FOLDER CMAKE_OPTION...
  [ -f "$1/CMakeCache.txt" ] || cmake -S . -B "$1" "${generator[@]}" -DCMAKE_BUILD_TYPE=Debug \
    -DPython_EXECUTABLE="$python" "${@:2}" ${CMAKE_ARGS:-}
}

if [ "$what" = threads ]; then
  folder=$build-threads
  read -ra rooms <<<"${ROOMS:-tensor autograd codegen}"
  configure "$folder" -DFACULA_SANITIZE=thread -DFACULA_PYTHON=OFF
  cmake --build "$folder" --parallel "$jobs" --target "${rooms[@]/#/test_}"
  # OpenMP's waiting is not instrumented, so libraries get one thread of it; Facula's threads are the standard library's here.
  export OMP_NUM_THREADS=1 TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1
  export FACULA_CACHE_DIR=$folder/kernel-cache FACULA_SOURCE=$PWD
  for room in "${rooms[@]}"; do "$folder/tests/test_$room" "$@"; done
  exit
fi

folder=$build-sanitize
configure "$folder" -DFACULA_SANITIZE=address,undefined
cmake --build "$folder" --parallel "$jobs"
# The address sanitizer guesses where the thread-local variables of a loaded library begin, and guesses wrong for one address in
# 256; then its leak checker reports at random. It finds these variables without the guess too (intercept_tls_get_addr=0).
options=strict_string_checks=1:check_initialization_order=1:allocator_may_return_null=1:intercept_tls_get_addr=0
export UBSAN_OPTIONS=print_stacktrace=1 FACULA_CACHE_DIR=$folder/kernel-cache
ulimit -s 65536  # frames are several times larger under the sanitizers

if [ "$what" = cpp ]; then
  export ASAN_OPTIONS=$options:detect_leaks=1
  exec ctest --test-dir "$folder" --parallel "$jobs" --output-on-failure "$@"
fi

# Python is not instrumented: the sanitizers' libraries are loaded first, and what Python keeps until its end is no leak.
options+=:detect_leaks=0
export PYTHONPATH=$folder/python
preload=$(for library in asan ubsan stdc++; do g++ -print-file-name=lib$library.so; done | xargs)
case $what in
  python) command=(-m pytest -q -s -p no:cacheprovider -p no:faulthandler "${@:-tests/python}") ;;
  arguments)  # a call that the sanitizers end counts as a crash; their reports are in the build folder
    options+=:max_allocation_size_mb=2048:hard_rss_limit_mb=4096:log_path=$folder/address
    command=(tests/arguments/run.py --jobs "$jobs" --limit 120 "$@")
    ;;
  *) sed -n '2,8s/^# //p' "$0" >&2 && exit 2 ;;
esac
ASAN_OPTIONS=$options LD_PRELOAD=$preload exec "$python" "${command[@]}"
