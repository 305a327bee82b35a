#!/usr/bin/env bash
# Installs the named programs that are missing, where that can be done: as root on Debian or Ubuntu,
# whose packages have the same names; `package:program` where they differ. Elsewhere it says what is
# missing and goes on: a test or a benchmark that needs it then says loudly what was not tried.
set -euo pipefail

missing=()
for tool in "$@"; do
    # Debian's daemons are in /usr/sbin, which is not on every user's PATH.
    PATH="$PATH:/usr/sbin" command -v "${tool#*:}" >/dev/null || missing+=("${tool%%:*}")
done
[ ${#missing[@]} != 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "tools: not installed: ${missing[*]}; what needs them is skipped" >&2
    exit 0
fi
echo "tools: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Runlevel 1: a server's package does not start it; those who need one start their own.
{ apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
    >/dev/null || echo "tools: apt-get failed; what needs ${missing[*]} is skipped" >&2
