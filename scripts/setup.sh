#!/usr/bin/env bash
# Makes .venv and installs whet into it with packages/mathgrade, both editable. `make setup`, `make train`,
# `make agents` and `make test` call it.
#
#     scripts/setup.sh [EXTRA...]   of pyproject.toml: dev (the tests, the linter, the type checker), serve, envs, ...
#
# What was installed stays: .venv/.installed-EXTRA names each extra, and a later call installs those with its own.
# PYTHON chooses the interpreter; without it the newest of 3.11 to 3.14 is taken, or the one that a torch wheel on disk
# is built for. Torch comes, in this order, from UV_TORCH_BACKEND where that is set (empty: from PyPI), from a wheel in
# pip's find-links, on a Linux machine with a GPU from PyTorch's index for its driver, on one without from PyTorch's CPU
# index, elsewhere from PyPI.
# `sed -n 1p` takes a first line and reads the rest too: `head` may end a writer, which pipefail takes for a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
asked=("$@")
torch_version=$(sed -n 's/^torch==//p' constraints.txt)

say() { printf '==> %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

has_gpu() { nvidia-smi >/dev/null 2>&1; }

is_suitable() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; }

version_tag() { "$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])'; }

suitable_pythons() {
    local name names=(python3.14 python3.13 python3.12 python3.11 python3 python)
    if [ -n "${PYTHON:-}" ]; then names=("$PYTHON"); fi
    for name in "${names[@]}"; do
        if command -v "$name" >/dev/null 2>&1 && is_suitable "$name"; then echo "$name"; fi
    done
}

# $1: setting, $2: a Python with pip. Its value from the environment and from pip's files, a word a line.
pip_setting() {
    local variable
    variable=PIP_$(echo "$1" | tr 'a-z-' 'A-Z_')
    {
        echo "${!variable:-}"
        "$2" -m pip config get "global.$1" || true
        "$2" -m pip config get "install.$1" || true
    } 2>/dev/null | tr -s ' ' '\n' | awk 'NF && !seen[$0]++'
}

# pip passes over a find-links folder that does not exist; uv stops at it.
find_links() {
    local place
    pip_setting find-links "$1" | while read -r place; do
        case $place in
            http://* | https://*) echo "$place" ;;
            *) if [ -e "${place#file://}" ]; then echo "${place#file://}"; fi ;;
        esac
    done
}

# $1: version tag. The torch wheels on disk for that Python.
local_torch() {
    local place
    while read -r place && [ -n "$place" ]; do
        ls "$place"/torch-"$torch_version"[-+]*"$1"-*.whl 2>/dev/null || true
    done <<<"$links"
}

choose_python() {
    local name found
    found=$(suitable_pythons)
    if [ -z "$found" ]; then
        if [ -n "${PYTHON:-}" ]; then fail "PYTHON=$PYTHON is no Python 3.11 to 3.14, which whet needs"; fi
        fail "whet needs Python 3.11 to 3.14, and none is on PATH: install one (Debian, Ubuntu: apt-get install python3" \
            "python3-venv; macOS: brew install python@3.13), or name one with PYTHON=/path/to/python3"
    fi
    python=$(echo "$found" | sed -n 1p)
    links=$(find_links "$python")
    while read -r name; do
        if [ -n "$(local_torch "$(version_tag "$name")")" ]; then python=$name && return; fi
    done <<<"$found"
}

make_environment() {
    if [ -x .venv/bin/python ] && is_suitable .venv/bin/python; then
        say "using the environment .venv ($(.venv/bin/python --version))"
    else
        say "creating the environment .venv with $("$python" --version) ($(command -v "$python"))"
        "$python" -m venv --clear .venv >/dev/null || {
            rm -rf .venv
            fail "$python cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt-get install" \
                "python3-venv)"
        }
    fi
    if [ ! -x .venv/bin/uv ]; then
        # -qq: pip warns of every index in its settings that does not have uv.
        .venv/bin/python -m pip install -qq 'uv>=0.8' || fail "pip could not install uv: see above"
    fi
}

choose_torch() {
    local wheels
    wheels=$(local_torch "$(version_tag .venv/bin/python)")
    if [ -n "${UV_TORCH_BACKEND+set}" ]; then
        say "torch: as UV_TORCH_BACKEND=$UV_TORCH_BACKEND says"
        if [ -z "$UV_TORCH_BACKEND" ]; then unset UV_TORCH_BACKEND; fi
    elif [ -n "$wheels" ] && { ! has_gpu || echo "$wheels" | grep -qv '+cpu'; }; then
        say "torch: from the wheel on disk, $(echo "$wheels" | sed -n 1p)"
    elif [ "$(uname -s)" != Linux ]; then
        say "torch: from PyPI"
    elif has_gpu; then
        say "torch: for this machine's GPU (a download of some GB)"
        export UV_TORCH_BACKEND=auto
    else
        say "torch: the CPU build, as there is no NVIDIA GPU here (for another: UV_TORCH_BACKEND, e.g. cu130, rocm7.2)"
        export UV_TORCH_BACKEND=cpu
    fi
}

# Of extras that were asked for now or before, each once, with commas between. pip and uv only warn of an unknown one.
choose_extras() {
    local name known marker
    known=$(.venv/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])')
    for name in ${asked[@]+"${asked[@]}"}; do
        case " $known " in
            *" $name "*) ;;
            *) fail "there is no extra '$name': choose of $known" ;;
        esac
    done
    extras=$(
        {
            printf '%s\n' ${asked[@]+"${asked[@]}"}
            for marker in .venv/.installed-*; do
                name=${marker#.venv/.installed-}
                case " $known " in *" $name "*) echo "$name" ;; esac # one that pyproject.toml dropped is forgotten
            done
        } | awk 'NF && !seen[$0]++' | paste -sd, -
    )
}

install() {
    local place index cert
    arguments=(-q --python .venv/bin/python -c constraints.txt)
    while read -r place; do
        if [ -n "$place" ]; then arguments+=(--find-links "$place"); fi
    done <<<"$links"
    # uv does not read pip's settings: hand it the mirror and the certificates that pip was told to use.
    index=$(pip_setting index-url .venv/bin/python | sed -n 1p)
    cert=$(pip_setting cert .venv/bin/python | sed -n 1p)
    if [ -n "$index" ]; then export UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$index}; fi
    if [ -r "$cert" ]; then export SSL_CERT_FILE=${SSL_CERT_FILE:-$cert}; fi
    say "installing whet${extras:+ with what '$extras' needs} (the first time takes a minute or a few)"
    # Compiled now, because importing torch and transformers uncompiled takes twice as long, in every process.
    UV_COMPILE_BYTECODE=1 .venv/bin/uv pip install "${arguments[@]}" -e ".${extras:+[$extras]}" ||
        fail "the installation stopped (see above); run the same command to go on." \
            "${UV_TORCH_BACKEND:+Where download.pytorch.org cannot be reached, UV_TORCH_BACKEND= (empty) takes torch from PyPI;}" \
            "${UV_TORCH_BACKEND:+on Linux that build brings packages of CUDA, some GB, with a GPU or without.}"
}

# reasoning-gym needs pycosat, which comes as source: without a C compiler the tests of those tasks are skipped.
install_gym() {
    say "installing reasoning-gym, for the tests of its tasks"
    UV_COMPILE_BYTECODE=1 .venv/bin/uv pip install "${arguments[@]}" -e ".[gym]" 2>.venv/gym.log ||
        say "reasoning-gym could not be built (no C compiler? see .venv/gym.log): the tests of its tasks will be skipped"
}

choose_python
make_environment
links=$(find_links .venv/bin/python)
choose_extras
choose_torch
install
case ",$extras," in
    *,gym,*) ;;
    *,dev,*) install_gym ;;
esac
touch .venv/.installed # what the Makefile looks at
for name in ${extras//,/ }; do touch ".venv/.installed-$name"; done
