# Every target builds what it needs first; `make help` lists them.
# ARGS is handed on: make test ARGS="-k storage", make bench ARGS=--quick.
# Tests run in three workers; tests/sharing.py says which share one. scripts/gate.py is `make test`. make quick ARGS=-n0 takes none.
BIN := .venv/bin
PYTEST := $(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0
export PYTHON ?= python3

.DEFAULT_GOAL := help
.PHONY: help setup demo docs test storm programs quick check bench soak lock clean

help: ## show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## build .venv from the lock file (nothing to do when it is up to date)
	@scripts/setup.sh

demo: setup ## count words through kill -9, and compare with a direct count
	@$(BIN)/penstock demo $(ARGS)

test: ## all checks, and each promise tried once, in ten minutes
	@scripts/setup.sh || exit 10
	@$(BIN)/python -m scripts.gate $(ARGS)

storm: setup programs ## the storms and sweeps that try the same again, in other places and orders
	@$(PYTEST) -m "(storm or hypothesis) and not soak" -o faulthandler_timeout=1800 --hypothesis-profile=storm --durations=20 $(ARGS)

programs: setup # what the tests run: other programs, a broker, and Spark's JVM, which has an archive of its classes
	@scripts/tools.sh mosquitto strace postgresql:pg_ctlcluster chromium prometheus:promtool
	@scripts/kafka.sh
	@scripts/hdfs.sh
	@report=$$($(BIN)/pytest -q -n0 tests/test_jvm.py 2>&1) || { echo "$$report"; exit 1; }

quick: setup ## the tests that need neither Spark nor kills, in three minutes
	@$(PYTEST) -q -m "not spark and not slow and not storm and not soak" $(ARGS)

check: setup ## format, lint, types, import direction, links, commands and public names of the documentation
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report"; exit 1; }
	@$(BIN)/python -m scripts.site.check
	@report=$$($(BIN)/python scripts/private_uses.py) || { echo "$$report"; exit 1; }
	@! grep -vE '^(#|$$)' tests/flaky.txt || { echo "check: tests/flaky.txt: repair these first"; exit 1; }
	@echo "check: passed"

docs: setup ## build the documentation's site into build/site, strictly
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: build/site/index.html, or $(BIN)/python -m http.server --bind 127.0.0.1 -d build/site"

bench: setup ## run every benchmark beside its peer
	@scripts/tools.sh mosquitto wrk
	@scripts/kafka.sh
	@scripts/hdfs.sh
	@scripts/kafka_connector.sh
	@scripts/bench.sh $(ARGS)

soak: setup ## the tests that take minutes
	@scripts/tools.sh mosquitto strace postgresql:pg_ctlcluster buildah debootstrap
	@scripts/kafka.sh
	@scripts/hdfs.sh
	@$(BIN)/pytest -m soak -o faulthandler_timeout=0 $(ARGS)

lock: ## write requirements.lock again (ARGS=--upgrade for newer versions)
	@scripts/lock.sh $(ARGS)

clean: ## remove .venv, caches and what was built
	@rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
