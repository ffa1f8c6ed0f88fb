# What scripts/demo, scripts/docs and scripts/test have in common: find Python and Java, make an environment, install.
# To be sourced by bash, with `root` set to the checkout.

script=scripts/${0##*/}
say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '== %s\n' "$*" >&2; }
die() { printf '%s: %s\n' "$script" "$*" >&2; exit 1; }
refuse() { printf '%s: %s\n' "$script" "$*" >&2; exit 2; }

export PIP_DISABLE_PIP_VERSION_CHECK=1
# Where somebody has set it, each of a run's many processes would compile everything anew.
unset PYTHONDONTWRITEBYTECODE
# Tests of these scripts run in the environment that the tests themselves run in.
environment=${ROCKETSTREAM_ENVIRONMENT:-$root/.venv}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

# find_python [PYTHON]: that one, or the first of PATH that is new enough.
find_python() {
    local candidate said
    if [ -n "${1:-}" ]; then
        if ! said=$("$1" -c '' 2>&1); then
            command -v "$1" >/dev/null 2>&1 || refuse "--python $1: there is no such Python on PATH"
            refuse "--python $1 is on PATH, but does not run: ${said%%$'\n'*}. Give the path of one that does."
        fi
        is_new_enough "$1" || refuse "--python $1 is $("$1" --version 2>&1): Python 3.11 or newer is needed"
        echo "$1"
        return
    fi
    for candidate in python3 python3.13 python3.12 python3.11 python3.14 python; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    die "Python 3.11 or newer is needed, and none of python3, python3.11 ... python3.14 on PATH is one. Install it (for example with your package manager or pyenv)."
}

# check_java WHAT [HINT]: WHAT needs it. Before anything is installed: who has no Java should not wait to hear of it.
check_java() {
    local java version
    for java in ${JAVA_HOME:+"$JAVA_HOME/bin/java"} java; do
        version=$("$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1) || true
        if [ "${version:-0}" -ge 17 ]; then
            return
        fi
    done
    die "Java 17 or newer is needed $1, and neither JAVA_HOME (${JAVA_HOME:-not set}) nor PATH has one. Install a JDK 17 or newer, or set JAVA_HOME to one${2:-.}"
}

which_python() { "$1" -c 'import sys; print(sys.base_prefix, sys.version)'; }

# is_whole DIRECTORY [PYTHON]: whether the environment was made to its end, runs, and is one of that Python.
is_whole() {
    [ -f "$1/made-with.txt" ] && is_new_enough "$1/bin/python" || return
    [ -z "${2:-}" ] || [ "$(which_python "$2")" = "$(cat "$1/made-with.txt")" ]
}

# make_environment EXTRAS [PYTHON]: a virtual environment with rocketstream[EXTRAS], made or brought up to date. Sets
# `python`. What is installed is what this pyproject.toml asked for, unless it has changed since; "dev" has all.
make_environment() {
    local directory=$environment extras=$1 base mark
    python=$directory/bin/python
    if ! is_whole "$directory" "${2:-}"; then
        base=$(find_python "${2:-}") || exit
        say "making ${directory#"$root/"} with $("$base" --version)"
        rm -rf "$directory"
        if command -v uv >/dev/null 2>&1; then
            uv venv --quiet --python "$(command -v "$base")" "$directory" || die "uv can't make a virtual environment with $base"
        else
            "$base" -m venv "$directory" || die "$base can't make a virtual environment: install its venv package (python3-venv on Debian and Ubuntu)."
        fi
        which_python "$base" >"$directory/made-with.txt"
    fi
    for mark in dev "$extras"; do
        if cmp -s "$root/pyproject.toml" "$directory/installed-$mark.toml"; then
            return
        fi
    done
    say "installing rocketstream[$extras] into ${directory#"$root/"}"
    if command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$python" --editable "$root[$extras]"
    else
        # uv makes environments without pip.
        "$python" -m pip --version >/dev/null 2>&1 || "$python" -m ensurepip >/dev/null 2>&1 || true
        "$python" -m pip install --quiet --editable "$root[$extras]"
    fi || die "rocketstream[$extras] could not be installed: the lines above say why"
    cp "$root/pyproject.toml" "$directory/installed-$extras.toml"
}
