#!/usr/bin/env bash
# Builds .venv: the locked packages, checked by hash, and this project in editable form.
#
# Needs Python 3.10 or later and Java 17 or later. On Debian and Ubuntu, when run as root, what is
# missing of them is installed; elsewhere the error names the command that installs it.
#
# The stamp is written last and says what the environment was built from: a second run does nothing,
# and a run that was interrupted is done again.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
VENV=.venv
STAMP="$VENV/.setup-stamp"
JAVA_WANTED=17

say() { echo "setup: $*"; }

fail() {
    echo "setup: error: $*" >&2
    exit 1
}

# Whether packages can be installed here: root, on Debian or Ubuntu.
can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# The first of the named packages that the distribution has.
install_first_of() {
    local package
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null || fail "apt-get update failed"
    for package in "$@"; do
        if [ -n "$(apt-cache madison "$package" 2>/dev/null)" ]; then
            say "installing $package"
            apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
                fail "apt-get install $package failed"
            return
        fi
    done
    fail "the distribution has none of: $*"
}

# The command that installs a package here: as named by apt, by dnf and by brew.
install_command() {
    if command -v apt-get >/dev/null; then
        echo "sudo apt-get update && sudo apt-get install -y $1"
    elif command -v dnf >/dev/null; then
        echo "sudo dnf install -y $2"
    elif command -v brew >/dev/null; then
        echo "brew install $3"
    else
        echo "your system's package manager"
    fi
}

# The major version of the Java that Spark will start (JAVA_HOME first, as spark-class does), or 0.
java_version() {
    local java="java" major
    [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
    major=$("$java" -version 2>&1 | sed -nE 's/.* version "(1\.)?([0-9]+).*/\2/p' | head -n 1) || true
    echo "${major:-0}"
}

ensure_java() {
    [ "$(java_version)" -lt "$JAVA_WANTED" ] || return 0
    if [ -z "${JAVA_HOME:-}" ] && can_install; then
        install_first_of openjdk-17-jre-headless default-jre-headless
    fi
    local found where=""
    found=$(java_version)
    [ "$found" -lt "$JAVA_WANTED" ] || return 0
    [ "$found" != 0 ] && found="Java $found" || found="none"
    [ -z "${JAVA_HOME:-}" ] || where=" in JAVA_HOME=$JAVA_HOME, which must name it or be unset"
    fail "Java $JAVA_WANTED or later is needed, found $found$where. Install it with:" \
        "$(install_command \
            "openjdk-17-jre-headless || sudo apt-get install -y default-jre-headless" \
            java-21-openjdk-headless \
            "openjdk@21 && export JAVA_HOME=\"\$(brew --prefix openjdk@21)\"")"
}

ensure_python() {
    if ! command -v "$PYTHON" >/dev/null && can_install; then
        install_first_of python3
    fi
    command -v "$PYTHON" >/dev/null ||
        fail "$PYTHON is not there. Install it with: $(install_command python3 python3 python)"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
        fail "Python 3.10 or later is needed, $PYTHON is $("$PYTHON" --version 2>&1)." \
            "Name a later one: make setup PYTHON=python3.12"
    if ! has_venv && can_install; then
        install_first_of python3-venv
    fi
    has_venv ||
        fail "$PYTHON lacks the venv module. Install it with:" \
            "$(install_command python3-venv python3 python)"
}

has_venv() { "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null; }

# What .venv is built from, as two words: the locked environment (with its place, because a moved one
# does not work) and the project in it.
fingerprint() {
    "$PYTHON" - <<'PY'
import hashlib, os, platform
digest = lambda *parts: hashlib.sha256(b"\0".join(parts)).hexdigest()
here = (platform.python_version() + os.getcwd()).encode()
print(digest(here, open("requirements.lock", "rb").read()), digest(open("pyproject.toml", "rb").read()))
PY
}

# The named package's entry in the lock file, with its hashes.
locked() { awk -v name="$1" '/^[a-z0-9]/ { keep = index($0, name "==") == 1 } keep' requirements.lock; }

pip_install() {
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@"
}

build_environment() {
    say "creating $VENV with $("$PYTHON" --version)"
    "$PYTHON" -m venv --clear "$VENV"
    say "installing the locked packages (a minute or more the first time: pyspark is 400 MB)"
    # pyspark comes as source only. Its build runs with the locked setuptools, which therefore has to
    # be there first, and not with whatever is newest.
    pip_install --require-hashes --no-deps -r <(locked setuptools)
    pip_install --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
}

install_project() {
    say "installing penstock in editable form"
    pip_install --no-index --no-deps --no-build-isolation --editable .
}

ensure_java
ensure_python
wanted=$(fingerprint)
read -r environment project <<<"$wanted"
built_environment="" built_project=""
[ ! -f "$STAMP" ] || read -r built_environment built_project <"$STAMP"
if [ "$built_environment $built_project" = "$wanted" ]; then
    exit 0
fi
[ "$built_environment" = "$environment" ] || build_environment
install_project
echo "$wanted" >"$STAMP"
say "done"
