#!/usr/bin/env bash
# Runs every benchmark in turn with the given arguments; the exit status is 1 when one failed.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
for script in bench/[!_]*.py; do
    [ -e "$script" ] || { echo "bench: error: there are no benchmarks in bench/" >&2; exit 1; }
    echo "bench: $script"
    .venv/bin/python "$script" "$@" || failed+=("$script")
done
if [ "${#failed[@]}" -gt 0 ]; then
    echo "bench: FAILED: ${failed[*]}" >&2
    exit 1
fi
