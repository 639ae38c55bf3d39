# Everything starts here.  `make setup` runs by itself before the others and is quick when done.
# Each target is one line; what it does is in tools/.

PYTHON ?= python3
RUN := .venv/bin/python
SEED ?= 0
MINUTES ?= 10
JOBS ?= 4

.DEFAULT_GOAL := help
.PHONY: help setup demo test again e2e spark check interop pythons bench bench-kafka sim soak docs

help:   ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## install what the others need into .venv (kcat by apt-get, where root may)
	@$(PYTHON) tools/setup.py

demo: setup  ## a node, its log, and a shop's changes as tables and a view on Spark
	@$(RUN) tools/demo.py

test: setup  ## all tests but those of make spark, interop, sim and soak; real clients
	@$(RUN) -m pytest -n $(JOBS) --dist loadgroup --durations=40 --durations-min=10

again: setup  ## the tests that failed, alone: those that pass were short of time, and are named
	@$(RUN) tools/again.py

e2e: setup  ## only the stories with real clients
	@$(RUN) -m pytest tests/e2e

spark: setup  ## long stories of sources and views: groups and joins, the shell, --serve, the bench
	@$(RUN) -m pytest -m slow tests/pipeline

check: setup  ## lint, types, floors, and generated pages that are up to date; changes nothing
	@$(RUN) tools/check.py

interop: setup  ## servers and tools of other makers, from registries; what is missing is said aloud
	@$(RUN) tools/interop.py

pythons: setup  ## the rooms' own tests on every other Python from 3.11 to 3.14 that is found
	@$(RUN) tools/pythons.py

bench: setup  ## speed, as ratios to this machine's own limits
	@$(RUN) tools/bench.py

bench-kafka: setup  ## speed beside an Apache Kafka that it starts, in turns, as ratios
	@$(RUN) tools/bench_kafka.py

sim: setup  ## simulated worlds and storage under faults, from SEED=n; the same seed is the same run
	@$(RUN) tools/sim.py --seed $(SEED) $(if $(TRACE),--trace)

soak: setup  ## fresh seeds of the simulator, kill -9, hostile bytes and fuzzing for MINUTES=n
	@$(RUN) tools/soak.py --minutes $(MINUTES)

docs: setup  ## write the generated pages anew
	@$(RUN) tools/docs.py
