# Everything a clean clone needs is python3.11, gcc and g++: the environment is made in .venv on first use; for another Python
# (make test PYTHON=python3.13) in .venv-python3.13.
PYTHON ?= python3.11
VENV   ?= $(if $(filter python3.11,$(notdir $(PYTHON))),.venv,.venv-$(notdir $(PYTHON)))
BIN    := $(VENV)/bin
# Extra arguments of the program that a target runs, such as `make bench ARGS=--quick`.
ARGS   ?=
STAMP  := $(VENV)/.installed
# The version that the project is developed with; 3.14 and 3.15 have been run with 2.15.
TORCH  ?= torch==$(if $(findstring python3.14,$(PYTHON))$(findstring python3.15,$(PYTHON)),2.15.0,2.13.0)
# Tests import the same modules in hundreds of processes: compiled modules are kept, also where Python is told to keep none.
unexport PYTHONDONTWRITEBYTECODE
# What the survey of models has found so far: a run that was stopped goes on.
ROWS   := benchmarks/results/partial.coverage.json

.PHONY: help install demo test triton emulate fuzz sanitize bench lint docs coverage operators clean

help:
	@echo "make demo   compile BERT-base and ResNet-18, show graphs, times and differences"
	@echo "make test   all tests"
	@echo "make triton tests of kernels with kernels in Triton, run by its interpreter: a quarter of an hour"
	@echo "make emulate tests of kernels with those of AVX-512, on a processor that has AVX2 alone: by an estimate 20 minutes"
	@echo "make fuzz   an hour of random programs, compiled and in plain Python; ARGS='--seconds 60 --small' and the like"
	@echo "make sanitize  kernels and C extensions under AddressSanitizer and UndefinedBehaviorSanitizer: half an hour,"
	@echo "               a run that was stopped goes on; ARGS=tests/guards_c and the like for some of it"
	@echo "make operators  every operator of op_db against eager: docs/operators.md"
	@echo "make bench  the table of figures in README.md, against eager and torch.compile"
	@echo "make lint   ruff and mypy"
	@echo "make docs   write the pages again that are made from tables in the code"
	@echo "make coverage  try the models of docs/coverage.md again, and every type of transformers: an hour"

install: $(STAMP)

# torch comes first and exactly: the project's own range would fetch the newest build, with CUDA, several GB.
# Modules are compiled when they are first imported: pip would compile all of them, a minute's work, of which few are used.
# A change of the sources of extensions and of prebuilt libraries makes the stamp old, and both are built again.
INDUCTOR := backends/inductor
SOURCES  := $(wildcard dynamo_lite/*.c dynamo_lite/csrc/*.[ch] dynamo_lite/csrc/*/*.[ch] $(INDUCTOR)/*.[ch] \
    $(INDUCTOR)/prebuilt.py $(INDUCTOR)/codegen/cpp/libraries.py $(INDUCTOR)/codegen/cpp/*.h $(INDUCTOR)/codegen/cpp/*.cpp)
$(STAMP): pyproject.toml setup.py $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet --no-compile $(TORCH)
	$(BIN)/python -m pip install --quiet --no-compile -e ".[test,bench,dev]"
	touch $@

demo: $(STAMP)
	$(BIN)/python benchmarks/demo.py $(ARGS)

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 $(ARGS)

# The tests of what kernels compute; those of their text in C++ are skipped.
triton: $(STAMP)
	cd tests/backends/inductor && DYNAMO_LITE_TEST_KERNELS=triton TRITON_INTERPRET=1 ../../../$(BIN)/python -m pytest -n 2 \
	    test_lowering_*.py test_op_db.py test_operators.py test_normalization_half.py test_special_*.py \
	    test_random_programs.py test_complex_pairs.py $(ARGS)

# The same with kernels of 16 lanes and the decisions of a processor that has them.
emulate: $(STAMP)
	cd tests/backends/inductor && DYNAMO_LITE_TEST_PROCESSOR=avx512 ../../../$(BIN)/python -m pytest -n 2 \
	    test_cpp.py test_lowering_*.py test_templates_*.py test_op_db.py test_operators.py test_normalization_half.py \
	    test_special_*.py test_column_sums.py test_random_programs.py test_symbolic_*.py $(ARGS)

fuzz: $(STAMP)
	cd tests && ../$(BIN)/python -W ignore -m fuzz.run --small $(ARGS)

sanitize: $(STAMP)
	.ci/sanitize $(ARGS)

operators: $(STAMP)
	$(BIN)/python benchmarks/operators.py --write docs/operators.md $(ARGS)

bench: $(STAMP)
	$(BIN)/python benchmarks/run.py $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(STAMP)
	$(BIN)/python docs/generate.py

coverage: $(STAMP)
	$(BIN)/python benchmarks/coverage_models.py
	$(BIN)/python benchmarks/coverage.py --json $(ROWS) $(ARGS)
	$(BIN)/python benchmarks/coverage.py --json $(ROWS) --sample --backend inductor_lite --train
	$(BIN)/python benchmarks/coverage.py --json $(ROWS) --sample --systems torch.compile --write

clean:
	rm -rf $(VENV) build *.egg-info dynamo_lite/*.so
