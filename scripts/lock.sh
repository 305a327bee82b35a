#!/usr/bin/env bash
# Writes requirements.lock from pyproject.toml: every supported Python, with hashes, without URLs.
# Pins that still fit are kept; `make lock ARGS=--upgrade` takes the newest of everything.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
"${PYTHON:-python3}" -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check uv
UV_CUSTOM_COMPILE_COMMAND="make lock" "$tools/bin/uv" pip compile pyproject.toml --group dev \
    --universal --python-version 3.10 --generate-hashes --no-emit-index-url --quiet \
    --output-file requirements.lock "$@"
if grep -n "://" requirements.lock; then
    echo "lock: error: requirements.lock names an address, so it would not install elsewhere" >&2
    exit 1
fi
