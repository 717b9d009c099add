# One command each, on a fresh machine with Python 3.11+, git and make. `make help` lists them.

METHOD ?= critique_rl
ARGS ?=
EXTRAS ?=
ENVIRONMENT := pyproject.toml constraints.txt scripts/setup.sh
comma := ,
EXTRA_NAMES := $(subst $(comma), ,$(EXTRAS))
INSTALLED := .venv/.installed $(EXTRA_NAMES:%=.venv/.installed-%)
STEP = @printf '==> %s\n'

.PHONY: help setup train agents critiques test integration test-all no-cuda release-check docker-check site
.DEFAULT_GOAL := help
.NOTPARALLEL: # two installations at once would write into one .venv

help:
	@echo 'make train   Install, then train a critic with Critique-RL on the tiny world: minutes on a laptop, no GPU,'
	@echo '             no download of models or data. METHOD=bapo trains another; OUT=folder (else'
	@echo '             runs/$(METHOD)); ARGS="stage1.num_steps=10 ..."'
	@echo 'make agents  Install, then train a tiny agent in TextCraft by RL, beside more cloning of the same play:'
	@echo '             minutes too. OUT=folder (else runs/agents); ARGS="num_steps=20 ..."'
	@echo 'make critiques  Install, then make critiques without people, train a critic on them, and let an actor improve'
	@echo '             itself with it in the loop, and without at equal tokens: minutes too. OUT=folder (else runs/critiques); ARGS="num_rounds=1 ..."'
	@echo 'make test    Install, then check style, types, import directions and what is tested within whet: minutes.'
	@echo 'make test-all  The same, then the integration tier: TRL, a browser, Java, servers, SmolLM2, runs that are killed.'
	@echo 'make release-check  Build the wheel and the sdist, look into them, and try the wheel in an environment of its own.'
	@echo 'make docker-check   Run the RUN lines of the Dockerfile in a fresh folder, without Docker.'
	@echo 'make site    Build the documentation site into build/site; a broken link is an error.'
	@echo 'make setup   Only install, into .venv, with what BabyAI needs. EXTRAS=serve,data adds what they need, and keeps'
	@echo '             what is there; PYTHON=python3.12 chooses the interpreter of a new .venv.'

# Installing an extra installs whet too, so a new .venv gets everything at once.
setup: .venv/.installed-envs $(filter-out .venv/.installed,$(INSTALLED))
	$(STEP) 'whet is installed: .venv/bin/whet --help'

train: OUT ?= runs/$(METHOD)
train: $(INSTALLED)
	$(STEP) 'training $(METHOD) on the tiny world, into $(OUT)'
	@.venv/bin/whet train $(METHOD) --out '$(OUT)' $(ARGS)

agents: OUT ?= runs/agents
agents: $(INSTALLED)
	$(STEP) 'the control: cloning the careless episodes in TextCraft for longer, into $(OUT)/more_cloning'
	@.venv/bin/whet train agent_clone_more --out '$(OUT)/more_cloning'
	$(STEP) 'the ceiling: cloning an expert without mistakes, into $(OUT)/cloned_expert'
	@.venv/bin/whet train agent_clone_expert num_steps=400 --out '$(OUT)/cloned_expert'
	$(STEP) 'reinforcement learning from the same agent, beside both, into $(OUT)/rl'
	@.venv/bin/whet train agent_grpo_tiny num_steps=24 validate_every=8 --out '$(OUT)/rl' \
		'beside={more_cloning: {path: "$(OUT)/more_cloning/best"}, cloned_expert: {path: "$(OUT)/cloned_expert/best"}}' $(ARGS)

# The stubborn world: misconceptions are written 90 to 98 % of the time, so sampling again seldom finds what is right.
LOOP := data.misconceptions='[0.9,0.98]' start=warm_start merge=none
critiques: OUT ?= runs/critiques
critiques: $(INSTALLED)
	$(STEP) 'making critiques without people (AutoMathCritique), into $(OUT)/data'
	@.venv/bin/whet data critiques num_questions=600 --out '$(OUT)/data'
	$(STEP) 'training a critic on them, into $(OUT)/critic'
	@.venv/bin/whet train critique_rl warm_start.file='$(OUT)/data/critiques.jsonl' warm_start.actor_steps=0 \
		stage1.num_steps=0 stage2.num_steps=0 data.num_test=300 --out '$(OUT)/critic'
	$(STEP) 'letting an actor improve itself with that critic in the loop, into $(OUT)/loop'
	@.venv/bin/whet train critique_loop $(LOOP) critic.path='$(OUT)/critic/best' warm_start.critic_steps=0 \
		--out '$(OUT)/loop' $(ARGS)
	$(STEP) 'letting it improve itself without a critic, at as many tokens a round, into $(OUT)/vanilla'
	@.venv/bin/whet train self_improve_equal $(LOOP) --out '$(OUT)/vanilla' $(ARGS) \
		token_budget="$$(.venv/bin/python scripts/lead.py tokens '$(OUT)/loop')"
	$(STEP) 'what the critic adds at equal tokens'
	@.venv/bin/python scripts/lead.py lead '$(OUT)/loop' '$(OUT)/vanilla'

# One thread a process: the cores are taken by the processes, and OpenMP's waiting threads would hold each other up.
# Compiled files are kept, whatever the environment says: else every process compiles whet anew, and pytest the tests.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 .venv/bin/pytest -n $(JOBS) --dist loadgroup
# Many tests wait for a limit or a server, so three processes keep two cores busy.
test: JOBS ?= 3
test: .venv/.installed-dev
	$(STEP) 'ruff: style, likely mistakes, layout'
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	$(STEP) 'mypy: types'
	@.venv/bin/mypy
	$(STEP) 'pytest: all but the integration tier, in $(JOBS) processes'
	@$(PYTEST) -m 'not integration'
	$(STEP) 'no CUDA packages on a machine without a GPU'
	@$(MAKE) --no-print-directory no-cuda

integration: JOBS ?= 2
integration: .venv/.installed-dev
	$(STEP) 'pytest: the integration tier, in $(JOBS) processes'
	@$(PYTEST) -m integration

test-all: test integration

no-cuda:
	@if nvidia-smi >/dev/null 2>&1; then \
		echo 'This machine has a GPU: CUDA packages may be here.'; \
	elif .venv/bin/uv pip list --python .venv/bin/python 2>/dev/null | grep -E '^(nvidia-|triton )'; then \
		echo 'error: the packages above are gigabytes that this machine has no use for: remove .venv and set up again.'; \
		exit 1; \
	else \
		echo 'None.'; \
	fi

site: .venv/.installed-docs
	$(STEP) 'the documentation site, its links and its hosts'
	@.venv/bin/python scripts/site.py

release-check: .venv/.installed
	$(STEP) 'release: the wheel, the sdist, and the commands of the installed wheel'
	@.venv/bin/python scripts/release_check.py

docker-check: .venv/.installed
	$(STEP) 'Dockerfile: its RUN lines, in a fresh folder'
	@.venv/bin/python scripts/docker_run_lines.py

.venv/.installed: $(ENVIRONMENT)
	@bash scripts/setup.sh $(EXTRA_NAMES)

.venv/.installed-%: $(ENVIRONMENT)
	@bash scripts/setup.sh $* $(EXTRA_NAMES)
