# The commands of a user and of CI. Each installs and builds what it needs first. `make help` lists them: it prints the text
# behind `##` of each rule, under the headings `##@`.
BUILD ?= build
TYPE ?= Release
JOBS ?= $(shell nproc)
CMAKE_ARGS ?=
ARGS ?=
VENV ?= .venv
PYTHON_ENV = $(VENV)/bin/python
RUN = PYTHONPATH=$(BUILD)/python $(PYTHON_ENV)
# Cached kernels are named after everything that they depend on, so a folder that outlives the build serves the next build too.
TEST_KERNELS ?= $(abspath $(BUILD))/kernel-cache
TEST_RUN = FACULA_CACHE_DIR=$(TEST_KERNELS)

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:
	@awk '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { name = $$1; sub(":", "", name); text = $$0; sub(/.*## /, "", text); gsub(/[$$][(]BUILD[)]/, "$(BUILD)", text); printf "  make %-20s %s\n", name, text }' \
	    $(firstword $(MAKEFILE_LIST))

##@ First steps
train: package ## train a network on Fashion-MNIST; results in runs/fashion_mnist (ARGS='--epochs 1')
	$(RUN) examples/fashion_mnist/train.py $(ARGS)

# Both suites always run, each leaves its output in a file, and their closing lines are printed together at the end.
test: build ## run all tests
	@failed=0; \
	( $(TEST_RUN) ctest --test-dir $(BUILD) --parallel $(JOBS) --output-on-failure; echo $$? > $(BUILD)/test-cpp.status ) 2>&1 \
	    | tee $(BUILD)/test-cpp.log; \
	( $(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider -n $(JOBS) --dist worksteal --durations=10 tests/python $(ARGS); \
	    echo $$? > $(BUILD)/test-python.status ) 2>&1 | tee $(BUILD)/test-python.log; \
	for suite in cpp python; do [ "$$(cat $(BUILD)/test-$$suite.status)" = 0 ] || failed=1; done; \
	echo; echo "C++:    $$(grep 'tests passed' $(BUILD)/test-cpp.log || tail -n 1 $(BUILD)/test-cpp.log)"; \
	echo "Python: $$(tail -n 1 $(BUILD)/test-python.log)"; exit $$failed

test-compiled: package ## run Python tests whose functions are compiled (ARGS=tests/python/test_nn.py)
	$(TEST_RUN) PYTHONPATH=$(BUILD)/python:tests/python $(PYTHON_ENV) -m pytest -q -p no:cacheprovider \
	    -p support.everything_compiled -n $(JOBS) --dist worksteal $(or $(ARGS),tests/python)

test-distributed: package ## run groups over network namespaces, which stand for hosts (needs the right to create them: root)
	$(TEST_RUN) $(RUN) tests/distributed/hosts.py $(ARGS)

##@ Building
setup: ## install what is needed
	@VENV=$(VENV) setup/setup.sh

# A build folder keeps its generator: Ninja if there is one.
configure: setup
	@test -f $(BUILD)/CMakeCache.txt || cmake -S . -B $(BUILD) -DCMAKE_BUILD_TYPE=$(TYPE) \
	    -DPython_EXECUTABLE=$(abspath $(PYTHON_ENV)) $(shell command -v ninja >/dev/null && echo -G Ninja) $(CMAKE_ARGS) \
	    > $(BUILD).log 2>&1 || { cat $(BUILD).log; rm -rf $(BUILD)/CMakeCache.txt $(BUILD).log; exit 1; }
	@rm -f $(BUILD).log

package: configure ## build the Python package alone; PYTHONPATH=$(BUILD)/python finds it
	@cmake --build $(BUILD) --parallel $(JOBS) --target kernels

build: package ## build the package, the C++ examples and the C++ tests into $(BUILD)/
	@cmake --build $(BUILD) --parallel $(JOBS)

runtime: package ## build libfacula_runtime.so, which runs packages without the rest of Facula, and test it
	@cmake --build $(BUILD) --parallel $(JOBS) --target facula_runtime facula_numerics_loaded
	$(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider tests/python/test_packages.py

# The compiler has the name by which CMake finds it in `build`, so that a compiler cache recognizes the same objects. auditwheel puts the
# system's libraries into the wheel (but not OpenMP's: cmake/install.cmake) and names it after the oldest glibc that it runs on.
wheel: setup ## make an installable package in dist/
	@rm -rf $(VENV)/wheel
	CC=cc CXX=c++ $(PYTHON_ENV) -m pip wheel --disable-pip-version-check --no-deps --no-build-isolation -w $(VENV)/wheel .
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PYTHON_ENV) -m auditwheel repair --exclude libgomp.so.1 -w dist $(VENV)/wheel/facula-*.whl

test-wheel: wheel ## make the package, install it into a new environment, use it from another folder
	$(PYTHON_ENV) tests/wheel.py dist

# Finds the Pythons of requirements.lock on the path or among pyenv's. Each but that of .venv gets an environment of its own,
# .venv-3.12; after the first one the core's objects come out of the compiler cache.
FIND_PYTHON = find_python() { for p in python$$1 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$1.*/bin/python$$1; do \
    "$$p" -c 'import ensurepip, venv' 2>/dev/null && echo "$$p" && break; done; }
PYTHONS ?= $(shell $(FIND_PYTHON); for v in $$(sed -n '1s/.*for Python \(.*\)\. .*/\1/p' setup/requirements.lock | tr -d ,); do \
    test -n "$$(find_python $$v)" && echo $$v; done)
wheels: setup ## make and test a package for each Python that this machine has (PYTHONS='3.12 3.13')
	@$(FIND_PYTHON); own=$$($(PYTHON_ENV) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for v in $(PYTHONS); do \
	    if [ $$v = $$own ]; then $(MAKE) test-wheel; else $(MAKE) test-wheel VENV=.venv-$$v PYTHON="$$(find_python $$v)"; fi || exit 1; \
	done

test-pythons: setup ## run the tests of compile with each other Python that this machine has (PYTHONS='3.12 3.13')
	@$(FIND_PYTHON); own=$$($(PYTHON_ENV) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for v in $(PYTHONS); do \
	    [ $$v != $$own ] || continue; \
	    $(MAKE) package BUILD=$(BUILD)-$$v VENV=.venv-$$v PYTHON="$$(find_python $$v)" CMAKE_ARGS=-DFACULA_TESTS=OFF || exit 1; \
	    $(TEST_RUN) PYTHONPATH=$(BUILD)-$$v/python .venv-$$v/bin/python -m pytest -q -p no:cacheprovider -n $(JOBS) \
	        --dist worksteal tests/python/test_compile*.py || exit 1; \
	done

format: setup ## lay sources out as tests/python/test_style.py asks
	$(PYTHON_ENV) tests/python/test_style.py

clean: ## remove what was built (.venv, .peer and runs/ stay)
	rm -rf $(BUILD) $(BUILD)-sanitize $(BUILD)-threads $(BUILD)-fuzz $(BUILD)-wheel-* $(BUILD)-3.* dist bench/out

##@ Beside PyTorch
bench: build ## compare speed; results in bench/results.md
	@setup/peer.sh
	@cmake --build $(BUILD) --target bench_steady bench_peak
	FACULA_PEER=.peer/bin/python $(RUN) bench/run.py $(ARGS)
	FACULA_PEER=.peer/bin/python $(RUN) bench/products.py --peak $(BUILD)/bench/bench_peak $(ARGS)
	$(BUILD)/bench/bench_steady
	$(RUN) bench/new_size.py

bench-compile: package ## compare compiled programs with eager ones: results, breaks, times, memory (ARGS="--only GPT")
	$(RUN) bench/compile.py $(ARGS)

bench-distributed: package ## compare collectives and data-parallel steps of 2 ranks with Gloo's (ARGS='--ranks 4')
	@setup/peer.sh
	FACULA_PEER=.peer/bin/python $(RUN) bench/distributed.py $(ARGS)
	FACULA_PEER=.peer/bin/python $(RUN) bench/distributed_hosts.py

peer-distributed: package ## run PyTorch's own tests of distributed programs from its wheel (ARGS="--only all_reduce")
	@setup/peer.sh
	$(TEST_RUN) $(RUN) tests/distributed/peer_tests.py --report $(BUILD)/peer_distributed.json $(ARGS)

export: package ## export models, beside PyTorch's export; test the export to ONNX (ARGS=--zoo, ARGS=--packages)
	@setup/peer.sh
	@setup/folder.sh onnx
	@case "$(ARGS)" in *--zoo*) setup/folder.sh zoo ;; esac
	@case "$(ARGS)" in *--packages*) cmake --build $(BUILD) --parallel $(JOBS) --target facula_runtime facula_numerics_loaded ;; esac
	FACULA_PEER=.peer/bin/python $(TEST_RUN) $(RUN) bench/export.py $(ARGS)
	$(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider tests/python/test_onnx.py

conformance: package ## answer the calls of PyTorch's database of operators; results in docs/conformance.md
	@setup/peer.sh
	.peer/bin/python tests/conformance/dump.py $(BUILD)/conformance.zip --jobs $(JOBS) --cache $(BUILD)/recordings
	$(TEST_RUN) $(RUN) tests/conformance/replay.py $(BUILD)/conformance.zip --jobs $(JOBS) \
	    --report docs/conformance.md $(ARGS)

edges: package ## compare calls with special values; results in $(BUILD)/edges.md (ARGS="--only 'max|sinh'")
	@setup/peer.sh
	$(TEST_RUN) $(RUN) tests/edges/run.py --jobs $(JOBS) --keep $(BUILD)/edges.zip --report $(BUILD)/edges.md $(ARGS)

quantize: package ## compare quantised operators and models, and the accuracy of a network; results in $(BUILD)/quantize.md
	@setup/peer.sh
	$(TEST_RUN) $(RUN) tests/quantize/run.py --report $(BUILD)/quantize.md $(ARGS)

zoo: package ## run published models unmodified; results in docs/zoo.md (ARGS="--only 'timm res'", ARGS=--missing)
	@setup/peer.sh
	@setup/folder.sh zoo
	$(TEST_RUN) $(RUN) tests/zoo/run.py --report docs/zoo.md $(ARGS)

zoo-suites: package ## run test suites of libraries unmodified; results in docs/suites.md
	@setup/peer.sh
	@setup/folder.sh zoo
	@setup/folder.sh suites
	$(TEST_RUN) $(RUN) tests/zoo/suites.py --report docs/suites.md $(ARGS)

dynamo-suite: package ## run the archived suite of torchdynamo; prints what differs from PyTorch
	@setup/peer.sh
	$(TEST_RUN) $(RUN) tests/dynamo/run.py --report $(BUILD)/dynamo_suite.json $(ARGS)

# The programs, and the suites above, are taken from GitHub or from a folder of clones: FACULA_PROGRAMS=FOLDER (tests/programs/sources.py).
programs: package ## run programs of other people unmodified; results in $(BUILD)/programs.md (ARGS="--only minGPT", ARGS=--offline)
	@setup/peer.sh
	@setup/folder.sh programs
	$(TEST_RUN) $(RUN) tests/programs/run.py --report $(BUILD)/programs.md --logs $(BUILD)/programs $(ARGS)

# torchaudio's shared library is built for the peer's GPU build and does not load with its CPU build; torchaudio works without it.
# dill copies modules that are not in a folder called site-packages.
ecosystem-packages: package
	@setup/peer.sh
	@setup/folder.sh ecosystem
	@rm -f .ecosystem/torchaudio/lib/*.so
	@ln -sfn . .ecosystem/site-packages

ecosystem: ecosystem-packages ## run quick starts of popular packages; results in $(BUILD)/ecosystem.md (ARGS="--only gpy", ARGS="--part 1/10")
	$(TEST_RUN) $(RUN) tests/ecosystem/run.py --report $(BUILD)/ecosystem.md $(ARGS)

packages-distributed: ecosystem-packages ## run accelerate's distributed tests, the Trainer of transformers and Lightning with two processes
	$(TEST_RUN) $(RUN) tests/distributed/packages.py $(ARGS)

ecosystem-names: ecosystem-packages ## print the names of PyTorch that these packages use and Facula lacks (ARGS=--everywhere)
	$(TEST_RUN) $(RUN) tests/ecosystem/scan.py $(ARGS)

ecosystem-suites: ecosystem-packages ## run parts of test suites of these packages; results in docs/suites.md (ARGS="--only zuko --part 2/2")
	$(TEST_RUN) $(RUN) tests/ecosystem/suites.py --report docs/suites.md $(ARGS)

##@ Searching for faults
SEED ?= 0
COUNT ?= 10000
arguments: package ## draw random calls of everything that Python reaches (SEED=1 COUNT=10000 ARGS=--peer)
	$(TEST_RUN) $(RUN) tests/arguments/run.py --seed $(SEED) --count $(COUNT) --jobs $(JOBS) $(ARGS)

gradients: package ## compare the derivatives of every operator by forward mode, reverse mode and differences; table in $(BUILD)/gradients.md
	$(TEST_RUN) $(RUN) tests/gradients/run.py --report $(BUILD)/gradients.md
	FACULA_DERIVATIVES=all $(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider -n $(JOBS) --dist worksteal \
	    tests/python/test_derivatives.py $(ARGS)

SANITIZE = BUILD=$(BUILD) JOBS=$(JOBS) PYTHON=$(PYTHON_ENV) CMAKE_ARGS="$(CMAKE_ARGS)" tests/sanitize.sh
sanitize: setup ## run the C++ tests under the address and undefined-behaviour sanitizers (ARGS='-R io')
	@$(SANITIZE) cpp $(ARGS)

sanitize-python: setup ## the same for Python tests (ARGS=tests/python/test_sizes.py)
	@$(SANITIZE) python $(ARGS)

sanitize-arguments: setup ## the same for the calls of `make arguments`
	@$(SANITIZE) arguments --seed $(SEED) --count $(COUNT) $(ARGS)

sanitize-threads: setup ## run C++ tests under the thread sanitizer (ROOMS="tensor autograd codegen")
	@$(SANITIZE) threads $(ARGS)

SECONDS_EACH ?= 60
FUZZED = $(BUILD)-fuzz
fuzz: setup ## install clang, build and run the fuzz targets (SECONDS_EACH=60)
	@setup/clang.sh
	@test -f $(FUZZED)/CMakeCache.txt || cmake -S . -B $(FUZZED) $(shell command -v ninja >/dev/null && echo -G Ninja) \
	    -DCMAKE_BUILD_TYPE=Release -DFACULA_SANITIZE=address,undefined -DFACULA_FUZZ=ON \
	    -DFACULA_PYTHON=OFF -DCMAKE_CXX_COMPILER=clang++-19 -DPython_EXECUTABLE=$(abspath $(PYTHON_ENV)) $(CMAKE_ARGS)
	@cmake --build $(FUZZED) --parallel $(JOBS) --target fuzzers
	tests/fuzz/run.sh $(FUZZED) $(SECONDS_EACH)

##@ Boards and phones
mobile: package ## compile programs to C for phones: emulators, the JVM, Android's archive, whole models beside ONNX Runtime
	@setup/mobile.sh
	@setup/folder.sh onnx
	$(TEST_RUN) $(RUN) tests/boards/run.py --group mobile $(ARGS)
	$(TEST_RUN) $(RUN) tests/boards/phones.py
	$(TEST_RUN) $(RUN) tests/boards/language.py
	$(TEST_RUN) $(RUN) tests/boards/models.py
	$(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider tests/python/test_java.py tests/python/test_nnapi.py

tiny: package ## the same for microcontrollers, and training in 8 bits (2.4 GB of compilers and emulators)
	@setup/tiny.sh
	@setup/mobile.sh
	@setup/peer.sh
	@failed=0; for check in tiny_training.py "run.py --group tiny $(ARGS)"; do \
	    $(TEST_RUN) $(RUN) tests/boards/$$check || failed=1; \
	done; $(MAKE) tiny-accuracy || failed=1; exit $$failed

tiny-accuracy: package ## train 8-bit networks on three tasks, in float32, in int8 and with sparse updates
	@setup/folder.sh tinydata
	$(TEST_RUN) $(RUN) tests/boards/accuracy.py $(ARGS)

##@ Documentation and types
# The reference is written from the catalog and the built registry; a broken link or docstring is an error.
docs: package ## write the documentation as a site into $(BUILD)/site
	@setup/folder.sh docs
	@rm -rf $(BUILD)/pages && mkdir -p $(BUILD)/pages
	@$(RUN) docs/site/reference.py $(BUILD)/pages
	@PYTHONPATH=.docs:$(BUILD)/python $(PYTHON_ENV) -m sphinx -q -W --keep-going -j $(JOBS) -c docs/site $(BUILD)/pages $(BUILD)/site
	@echo "$(BUILD)/site/index.html"

types: package ## check the examples, and what tools see of the package, with mypy and pyright
	@setup/folder.sh types
	$(TEST_RUN) $(RUN) -m pytest -q -p no:cacheprovider tests/python/test_stubs.py
