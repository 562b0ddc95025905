#!/bin/sh
# Makes .venv and installs this project into it. Called by the Makefile.
#
#   tools/setup.sh base   what `make demo` and every command need
#   tools/setup.sh dev    and what the tests, linters and type checker need
#
# PYTHON=/path/to/python3 chooses the interpreter; NO_APT=1 never calls apt-get.
# System packages are a convenience: where they cannot be had, the tests that
# need them skip and say so.
set -eu
cd "$(dirname "$0")/.."
what=${1:-base}
venv=.venv

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

may_apt() { [ -z "${NO_APT:-}" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

apt_updated=
apt_install() {
    may_apt || return 1
    if [ -z "$apt_updated" ]; then
        apt-get update -qq >/dev/null 2>&1 || say "apt-get update failed; trying to install all the same"
        apt_updated=1
    fi
    say "installing $* with apt-get"
    mkdir -p /usr/share/man/man1 # slim images lack it and the JDK's scripts want it
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

find_python() {
    for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            # A version manager's shim stands for the real interpreter: name that one.
            "$name" -c 'import sys; print(sys.executable)'
            return 0
        fi
    done
    return 1
}

has_pip() { [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }

# Each way in turn, from the plain one to those of a Python that lacks ensurepip.
make_venv() {
    has_pip && "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' && return 0
    rm -rf "$venv"
    "$python" -m venv "$venv" >/dev/null 2>&1 && has_pip && return 0
    say "$python -m venv gives no pip (Debian keeps it in python3-venv)"
    rm -rf "$venv"
    if apt_install python3-venv; then
        "$python" -m venv "$venv" >/dev/null 2>&1 && has_pip && return 0
        rm -rf "$venv"
    fi
    if "$python" -m virtualenv --version >/dev/null 2>&1; then
        "$python" -m virtualenv -q "$venv" && has_pip && return 0
        rm -rf "$venv"
    fi
    "$python" -m venv --without-pip "$venv" >/dev/null 2>&1 || return 1
    for pip in "$python -m pip" pip3 pip; do
        $pip --python "$venv/bin/python" install -q pip >/dev/null 2>&1 && has_pip && return 0
    done
    for wheel in /usr/share/python-wheels/pip-*.whl; do
        [ -f "$wheel" ] || continue
        "$venv/bin/python" "$wheel/pip" install -q pip >/dev/null 2>&1 && has_pip && return 0
    done
    return 1
}

# The compilers and runtimes that the tests of other languages run, a browser for those of the report's page, gVisor.
system_tools() {
    missing=
    for pair in g++:g++ gcc:gcc make:make node:nodejs javac:default-jdk-headless chromium:chromium runsc:runsc; do
        command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
    done
    [ -n "$missing" ] || return 0
    if may_apt; then
        for package in $missing; do
            apt_install "$package" || say "$package could not be installed; tests that need it will skip"
        done
    else
        say "not installed:$missing; tests that need them will skip"
    fi
}

if [ -n "${PYTHON:-}" ]; then
    python=$(find_python) || die "PYTHON=$PYTHON is not a Python 3.11 or newer that can be run"
fi
python=$(find_python) || { apt_install python3 python3-venv && python=$(find_python); } ||
    die "Python 3.11 or newer is needed: install it, or name one with PYTHON=/path/to/python3"
make_venv || die "could not make $venv with pip in it: install python3-venv (Debian, Ubuntu) or virtualenv, then try again"
target='.[report]'
[ "$what" = dev ] && target='.[dev]'
say "installing proctor into $venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-input -e "$target" ||
    die "pip could not install the packages above: is a package index reachable?"
[ "$what" = dev ] && system_tools
touch "$venv/.$what"
# What the tests need holds all that the demo needs.
[ "$what" = dev ] && touch "$venv/.base"
exit 0
