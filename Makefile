# The work is done in scripts/ and compose/; `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help setup bpf wheel packages packages-check demo demo-ceph test prove lint up status example-runs down lab-up lab-down bench soak thrash fuzz mutate recording generated manifests manifests-check containers-check site picture release clean

python := .venv/bin/python
REPEATS ?= 3
SEED ?= 1
SEEDS ?= 1
RUNS ?= 1000000
SAMPLE ?= 0

help: ## show this list
	@echo "Pinchpoint: says, live, what limits a storage benchmark run"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F '|' '{ printf "%-20s %s\n", $$1, $$2 }'
	@echo
	@echo "Ports of the local stack: PINCHPOINT_PORT (9748), JUDGE_PORT (9749), PROMETHEUS_PORT (9090),"
	@echo "ALERTMANAGER_PORT (9093), NODE_EXPORTER_PORT (9100), GRAFANA_PORT (3000);"
	@echo "for example: make up PROMETHEUS_PORT=19090. In containers: docker compose up"
	@echo "Size of the lab: OSDS (3), MDSS (2); for example: make lab-up OSDS=1"

# Each target below installs what it uses: the sets of scripts/packages that are scripts/setup's arguments.
setup: ## make .venv and install what all the other targets need (each of them installs what it needs itself)
	@scripts/setup

bpf: ## compile the BPF programs, which make sampling a hundred times cheaper (setup does it too)
	@$(MAKE) --no-print-directory -C exporter/pinchpoint/bpf

wheel: setup ## make sdist and wheel in dist/, and check what pip and PyPI make of them
	@rm -f dist/pinchpoint-*.tar.gz dist/pinchpoint-*.whl
	@$(python) -m build --no-isolation --outdir dist >/dev/null
	@$(python) -m twine check --strict dist/pinchpoint-*.tar.gz dist/pinchpoint-*.whl
	@$(python) -m check_wheel_contents dist/pinchpoint-*.whl

packages: ## make a deb and an rpm with a Python of their own in dist/; the first time fifteen minutes
	@scripts/setup packages
	@PYTHONPATH=exporter $(python) packaging/packages.py

packages-check: setup ## make wheels, a release and a host; install, scrape, upgrade, purge the deb in chroots; lintian, rpmlint
	@$(python) -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --part packages
	@PYTHONPATH=exporter packaging/check

demo: ## run a real fio workload, see its alerts arrive in Alertmanager
	@scripts/setup stack load
	@$(python) compose/demo.py

demo-ceph: ## start a real Ceph cluster with a small MDS cache: see the alert come, help and go
	@scripts/setup stack load ceph bpf
	@PYTHONPATH=compose:tests $(python) compose/demo_ceph.py

test: setup ## run the linters and all tests that other load on the machine can't fail
	@scripts/test

prove: setup ## try it on real faults, in real time, three times each, then soak and thrash; writes docs/accuracy.md; REPEATS=1: 20 minutes
	@rm -f .prove/trials.jsonl
	@REPEATS=$(REPEATS) $(python) -m pytest tests/proofs -m proof -v; status=$$?; \
	    [ $(REPEATS) -lt 3 ] && exit $$status; \
	    $(python) bench/accuracy.py .prove/trials.jsonl >/dev/null || status=1; \
	    $(MAKE) --no-print-directory soak && $(MAKE) --no-print-directory thrash SEEDS=20 MINUTES=1 && exit $$status

lint: setup ## check style, types, the oldest Python, the direction of imports, links of pages, and alert rules
	$(python) -m ruff check .
	$(python) -m ruff format --check .
	$(python) -m mypy
	.venv/bin/vermin --target=3.10- --no-tips --violations --quiet exporter/pinchpoint
	.venv/bin/lint-imports --no-logo --no-cache
	$(python) scripts/website.py
	@if command -v promtool >/dev/null; then promtool check rules alerts/*.yml; else echo "no promtool: rules not checked"; fi

up: ## start exporter, judge, Prometheus, Alertmanager, node_exporter, and Grafana if installed; leave them running
	@scripts/setup stack load bpf
	@$(python) compose/native.py up

status: ## show what of the local stack runs, and where
	@$(python) compose/native.py status || true

example-runs: ## put 18 results of IO500 into the stack's Prometheus, for the dashboard Runs
	@scripts/setup stack
	@$(python) compose/example_runs.py

down: ## stop what `make up` started
	@$(python) compose/native.py down

lab-up: ## start a real Ceph cluster from Debian's packages on loopback; leave it running
	@scripts/setup ceph bpf
	@PYTHONPATH=compose:tests $(python) -m lab up

lab-down: ## stop what `make lab-up` started, remove its data
	@PYTHONPATH=compose:tests $(python) -m lab down

bench: export PYTHONPATH = bench:compose:tests
bench: setup packages ## measure its cost, its peers', what benchmarks lose, and experiments; about an hour; writes docs/performance.md
	@$(python) bench/peers.py
	@$(python) bench/right.py
	@$(python) bench/cost.py
	@$(python) bench/live_cost.py
	@$(python) bench/losses.py
	@$(python) bench/workqueue_cost.py
	@$(python) bench/phase_cost.py
	@$(python) bench/report_cost.py
	@$(python) bench/installed.py
	@$(python) bench/waits_cost.py
	@$(python) bench/ranks_cost.py
	@$(python) bench/path_cost.py
	@$(python) bench/profile_cost.py
	@$(python) bench/ceph_cost.py
	@$(python) bench/scale_cost.py
	@$(python) bench/judge_cost.py
	@$(python) bench/judge_cost.py --many
	@$(python) bench/experiments.py
	@$(python) bench/causal.py
	@$(MAKE) --no-print-directory generated

soak: export PYTHONPATH = bench:compose:tests
soak: setup ## measure whether exporter and judge grow; MINUTES=30 after 25 of warm-up; writes docs/performance.md
	@$(python) bench/soak.py --check --minutes $(or $(MINUTES),30)

thrash: export PYTHONPATH = bench:compose:tests
thrash: setup ## make random faults on a Ceph cluster, see what breaks; SEED=1 SEEDS=1, MINUTES=1 each
	@$(python) -m thrash --seed $(SEED) --seeds $(SEEDS) --minutes $(or $(MINUTES),1)

fuzz: export PYTHONPATH = exporter:bench:compose:tests:.
fuzz: setup ## search for bytes that break a reader, guided by coverage; RUNS=1000000 for each, READER=name for one
	@$(python) -c 'import atheris' 2>/dev/null || $(python) -m pip install -q -c constraints.txt --no-build-isolation -e '.[fuzz]'
	@$(python) tests/fuzz.py --runs $(RUNS) --reader '$(READER)'

mutate: setup ## measure how many faults in diagnosis/ its tests find; hours; MODULES="blame verdict", SAMPLE=20 of each
	@[ -x .venv/bin/mutmut ] || $(python) -m pip install -q -c constraints.txt --no-build-isolation -e '.[mutate]'
	@$(python) scripts/mutate.py --sample $(SAMPLE) $(MODULES)

recording: export PYTHONPATH = bench:compose:tests:.
recording: setup ## play real runs on a real cluster and keep what Prometheus sees, for the tests of the dashboards; 3 minutes
	@$(python) tests/dashboards/recording.py

generated: setup ## write all files made from the code and its data: expositions, dashboards, tables of pages
	PYTHONPATH=exporter:bench:tests:. $(python) scripts/generate.py

manifests: setup ## make what `kubectl apply -k` reads from the Helm chart
	@$(python) scripts/manifests.py

manifests-check: setup ## lint the Helm chart, validate its objects; the first time five minutes, to build the tools
	@$(python) scripts/manifests.py --check

containers-check: setup ## build the images and start compose.yaml on a real dockerd, from Debian's packages; root, 1 GB, minutes
	@$(python) -m pytest tests/compose/test_engine.py -m containers -v -rs

site: setup ## build the documentation as a site in site/, which needs no network
	$(python) scripts/website.py site

picture: setup ## draw docs/watch.svg, the live view, from a real fio run
	$(python) scripts/picture.py

release: setup ## make dist/VERSION, signed: sdist, wheel, packages, image, SBOM, checksums; uploads nothing; KEY=FILE of ssh or NAME of GPG
	@$(python) scripts/release.py --key '$(KEY)'

clean: ## stop the local stack and the lab, remove everything that make created in this tree
	-@[ ! -x $(python) ] || $(python) compose/native.py down
	-@[ ! -x $(python) ] || PYTHONPATH=compose:tests $(python) -m lab down
	rm -rf site dist build .venv .stack .containers .prove .tmp .mutate .mypy_cache .ruff_cache .pytest_cache .hypothesis exporter/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
