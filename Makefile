# The commands of a user and of CI. Each installs and builds what it needs first.
BUILD ?= build
TYPE ?= Release
JOBS ?= $(shell nproc)
CMAKE_ARGS ?=
ARGS ?=
VENV ?= .venv
PYTHON_ENV = $(VENV)/bin/python
RUN = PYTHONPATH=$(BUILD)/python $(PYTHON_ENV)
# Kernels are known by all that they are made of: a folder that outlives the build serves the next one.
TEST_KERNELS ?= $(abspath $(BUILD))/kernel-cache
TEST_RUN = FACULA_CACHE_DIR=$(TEST_KERNELS)

.PHONY: help setup build format train test sanitize sanitize-python sanitize-threads sanitize-arguments fuzz arguments conformance edges gradients zoo zoo-suites bench docs types wheel wheels test-wheel clean

help:
	@echo "make train   install, build, train a network on Fashion-MNIST; results in runs/fashion_mnist (ARGS='--epochs 1')"
	@echo "make test    install, build, run all tests"
	@echo "make bench   install, build, compare speed with PyTorch; results in bench/results.md (ARGS=...)"
	@echo "make conformance   install, build, answer the calls of PyTorch's database of operators; results in docs/conformance.md"
	@echo "make edges   install, build, compare calls with special values with PyTorch; results in docs/edges.md (ARGS=\"--only 'max|sinh'\")"
	@echo "make gradients   install, build, compare the gradient of every operator with finite differences; the table in $(BUILD)/gradients.md"
	@echo "make arguments   install, build, draw random calls of everything that Python reaches (SEED=1 COUNT=10000 ARGS=--peer)"
	@echo "make zoo   install, build, run published models unmodified beside PyTorch; results in docs/zoo.md (ARGS=\"--only 'timm res'\", ARGS=--missing)"
	@echo "make zoo-suites   install, build, run test suites of libraries unmodified beside PyTorch; results in docs/suites.md"
	@echo "make docs    install, build, write the documentation as a site into $(BUILD)/site"
	@echo "make types   install, build, check the examples and what tools see of the package with mypy and pyright"
	@echo "make sanitize   install, build in Debug with the address and undefined-behaviour sanitizers, run the C++ tests (ARGS='-R io')"
	@echo "make sanitize-python   the same for Python tests (ARGS=tests/python/test_sizes.py)"
	@echo "make sanitize-threads   build with the thread sanitizer, run the C++ tests of storage, autograd and kernel cache"
	@echo "make test-wheel   make the package, install it into a new environment, use it from another folder"
	@echo "make fuzz    install clang, build and run the fuzz targets (SECONDS_EACH=60)"
	@echo "make format  lay sources out as tests/python/test_style.py asks"
	@echo "make setup   install what is needed"
	@echo "make build   setup, and build into $(BUILD)/; PYTHONPATH=$(BUILD)/python finds the package"
	@echo "make wheel   setup, and make an installable package in dist/"
	@echo "make wheels  make and test one for each Python that this machine has (PYTHONS='3.12 3.13')"
	@echo "make clean   remove what was built (.venv, .peer and runs/ stay)"

setup:
	@VENV=$(VENV) setup/setup.sh

# A build folder keeps its generator: Ninja where there is one.
build: setup
	@test -f $(BUILD)/CMakeCache.txt || cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=$(TYPE) \
	    -DPython_EXECUTABLE=$(abspath $(PYTHON_ENV)) $(shell command -v ninja >/dev/null && echo -G Ninja) $(CMAKE_ARGS) \
	    > $(BUILD).log 2>&1 || { cat $(BUILD).log; rm -rf $(BUILD)/CMakeCache.txt $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log
	@cmake --build $(BUILD) --parallel $(JOBS)
	@cmake --build $(BUILD) --target kernels

train: build
	$(RUN) examples/fashion_mnist/train.py $(ARGS)

# Both suites always run, each leaves its output in a file, and their closing lines stand together at the end.
test: build
	@failed=0; \
	( $(TEST_RUN) ctest --test-dir $(BUILD) --parallel $(JOBS) --output-on-failure; echo $$? > $(BUILD)/test-cpp.status ) 2>&1 \
	    | tee $(BUILD)/test-cpp.log; \
	( $(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider -n $(JOBS) --dist worksteal --durations=10 tests/python $(ARGS); \
	    echo $$? > $(BUILD)/test-python.status ) 2>&1 | tee $(BUILD)/test-python.log; \
	for suite in cpp python; do [ "$$(cat $(BUILD)/test-$$suite.status)" = 0 ] || failed=1; done; \
	echo; echo "C++:    $$(grep 'tests passed' $(BUILD)/test-cpp.log || tail -n 1 $(BUILD)/test-cpp.log)"; \
	echo "Python: $$(tail -n 1 $(BUILD)/test-python.log)"; exit $$failed

# All have build folders of their own; docs/robustness.md says what they cover.
SANITIZED = $(BUILD)-sanitize
# The sanitizers guess where a thread's variables of a loaded library begin from what lies before them, which is wrong for one
# address in 256, and the leak checker then reads at random; it finds these variables without the guess too.
SANITIZER_CHECKS = strict_string_checks=1:check_initialization_order=1
SANITIZER_OPTIONS = ASAN_OPTIONS=$(SANITIZER_CHECKS):allocator_may_return_null=1:intercept_tls_get_addr=0:detect_leaks
SANITIZER_TRACE = UBSAN_OPTIONS=print_stacktrace=1 FACULA_CACHE_DIR=$(abspath $(SANITIZED))/kernel-cache
.PHONY: build-sanitized
build-sanitized: setup
	@test -f $(SANITIZED)/CMakeCache.txt || cmake -S . -B $(SANITIZED) $(shell command -v ninja >/dev/null && echo -G Ninja) \
	    -DCMAKE_BUILD_TYPE=Debug -DFACULA_SANITIZE=address,undefined -DPython_EXECUTABLE=$(abspath $(PYTHON_ENV)) $(CMAKE_ARGS)
	@cmake --build $(SANITIZED) --parallel $(JOBS)

# Frames are several times larger under the sanitizers, which is why the stack is.
sanitize: build-sanitized
	@ulimit -s 65536; $(SANITIZER_OPTIONS)=1 $(SANITIZER_TRACE) ctest --test-dir $(SANITIZED) --parallel $(JOBS) --output-on-failure \
	    $(ARGS)

# Python itself is not instrumented: the sanitizers' libraries go first, and what it keeps until its end is no leak.
SANITIZED_RUN = ulimit -s 65536; $(SANITIZER_OPTIONS)=0$(LIMITS) $(SANITIZER_TRACE) PYTHONPATH=$(SANITIZED)/python \
    LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so) $$(g++ -print-file-name=libstdc++.so)"
sanitize-python: build-sanitized
	@$(SANITIZED_RUN) $(PYTHON_ENV) -m pytest -q -s -p no:cacheprovider -p no:faulthandler $(or $(ARGS),tests/python)

# The calls of `make arguments`; a call that the sanitizers end is found as a crash, their reports lie in the build folder.
sanitize-arguments: LIMITS = :max_allocation_size_mb=2048:hard_rss_limit_mb=4096:log_path=$(abspath $(SANITIZED))/address
sanitize-arguments: build-sanitized
	@$(SANITIZED_RUN) $(PYTHON_ENV) tests/arguments/run.py --seed $(SEED) --count $(COUNT) --jobs $(JOBS) --limit 120 $(ARGS)


# OpenMP's own waiting is not instrumented, hence one thread of it for the libraries; ours are the standard library's there.
THREADED = $(BUILD)-threads
THREADED_ROOMS ?= tensor autograd codegen
sanitize-threads: setup
	@test -f $(THREADED)/CMakeCache.txt || cmake -S . -B $(THREADED) $(shell command -v ninja >/dev/null && echo -G Ninja) \
	    -DCMAKE_BUILD_TYPE=Debug -DFACULA_SANITIZE=thread -DFACULA_PYTHON=OFF \
	    -DPython_EXECUTABLE=$(abspath $(PYTHON_ENV)) $(CMAKE_ARGS)
	@cmake --build $(THREADED) --parallel $(JOBS) --target $(addprefix test_,$(THREADED_ROOMS))
	@export OMP_NUM_THREADS=1 TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1 \
	    FACULA_CACHE_DIR=$(abspath $(THREADED))/kernel-cache FACULA_SOURCE=$(CURDIR); \
	    $(foreach room,$(THREADED_ROOMS),$(THREADED)/tests/test_$(room) $(ARGS) &&) true

SECONDS_EACH ?= 60
FUZZED = $(BUILD)-fuzz
fuzz: setup
	@setup/clang.sh
	@test -f $(FUZZED)/CMakeCache.txt || cmake -S . -B $(FUZZED) $(shell command -v ninja >/dev/null && echo -G Ninja) \
	    -DCMAKE_BUILD_TYPE=Release -DFACULA_SANITIZE=address,undefined -DFACULA_FUZZ=ON \
	    -DFACULA_PYTHON=OFF -DCMAKE_CXX_COMPILER=clang++-19 -DPython_EXECUTABLE=$(abspath $(PYTHON_ENV)) $(CMAKE_ARGS)
	@cmake --build $(FUZZED) --parallel $(JOBS) --target fuzzers
	tests/fuzz/run.sh $(FUZZED) $(SECONDS_EACH)

bench: build
	@setup/peer.sh
	@cmake --build $(BUILD) --target bench_steady
	FACULA_PEER=.peer/bin/python $(RUN) bench/run.py $(ARGS)
	$(BUILD)/bench/bench_steady
	$(RUN) bench/new_size.py

conformance: build
	@setup/peer.sh
	.peer/bin/python tests/conformance/dump.py $(BUILD)/conformance.zip --jobs $(JOBS) --cache $(BUILD)/recordings
	$(TEST_RUN) $(RUN) tests/conformance/replay.py $(BUILD)/conformance.zip --jobs $(JOBS) \
	    --report docs/conformance.md $(ARGS)

gradients: build
	$(TEST_RUN) $(RUN) tests/gradients/run.py --report $(BUILD)/gradients.md $(ARGS)

edges: build
	@setup/peer.sh
	$(TEST_RUN) $(RUN) tests/edges/run.py --jobs $(JOBS) --keep $(BUILD)/edges.zip --report docs/edges.md $(ARGS)

SEED ?= 0
COUNT ?= 10000
arguments: build
	$(TEST_RUN) $(RUN) tests/arguments/run.py --seed $(SEED) --count $(COUNT) --jobs $(JOBS) $(ARGS)

zoo: build
	@setup/peer.sh
	@setup/folder.sh zoo
	$(TEST_RUN) $(RUN) tests/zoo/run.py --report docs/zoo.md $(ARGS)

zoo-suites: build
	@setup/peer.sh
	@setup/folder.sh zoo
	@setup/folder.sh suites
	$(TEST_RUN) $(RUN) tests/zoo/suites.py --report docs/suites.md $(ARGS)

# The reference is written from the catalog and the built registry; a link or a docstring that cannot be read is an error.
docs: build
	@setup/folder.sh docs
	@rm -rf $(BUILD)/pages && mkdir -p $(BUILD)/pages
	@$(RUN) docs/site/reference.py $(BUILD)/pages
	@PYTHONPATH=.docs:$(BUILD)/python $(PYTHON_ENV) -m sphinx -q -W --keep-going -j $(JOBS) -c docs/site $(BUILD)/pages $(BUILD)/site
	@echo "$(BUILD)/site/index.html"

types: build
	@setup/folder.sh types
	$(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider tests/python/test_stubs.py

format: setup
	$(PYTHON_ENV) tests/python/test_style.py

# The compiler by the name that CMake finds in `build`, for a compiler cache to find the same objects. auditwheel puts the
# system's libraries into the wheel (OpenMP's is there: cmake/install.cmake) and names it after the oldest glibc that it runs on.
wheel: setup
	@rm -rf $(VENV)/wheel
	CC=cc CXX=c++ $(PYTHON_ENV) -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation -w $(VENV)/wheel .
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PYTHON_ENV) -m auditwheel repair --exclude libgomp.so.1 -w dist $(VENV)/wheel/facula-*.whl

test-wheel: wheel
	$(PYTHON_ENV) tests/wheel.py dist

# Of the Pythons that requirements.lock is for, those that this machine has: on the path, or among pyenv's. Each but that of
# .venv has an environment of its own, .venv-3.12; the core's objects come out of the compiler cache after the first.
FIND_PYTHON = find_python() { for p in python$$1 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$1.*/bin/python$$1; do \
    "$$p" -c 'import ensurepip, venv' 2>/dev/null && echo "$$p" && break; done; }
PYTHONS ?= $(shell $(FIND_PYTHON); for v in $$(sed -n '1s/.*for Python \(.*\)\. .*/\1/p' setup/requirements.lock | tr -d ,); do \
    test -n "$$(find_python $$v)" && echo $$v; done)
wheels: setup
	@$(FIND_PYTHON); own=$$($(PYTHON_ENV) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for v in $(PYTHONS); do \
	    if [ $$v = $$own ]; then $(MAKE) test-wheel; else $(MAKE) test-wheel VENV=.venv-$$v PYTHON="$$(find_python $$v)"; fi || exit 1; \
	done

clean:
	rm -rf $(BUILD) $(BUILD)-sanitize $(BUILD)-threads $(BUILD)-fuzz $(BUILD)-wheel-* dist bench/out
