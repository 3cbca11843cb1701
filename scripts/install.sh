#!/usr/bin/env bash
# install.sh VENV: a virtual environment with the pinned dependencies and this project, editable.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

die() { echo "setup: $*" >&2; exit 1; }

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  die "needs Python 3.11 or newer; install one, or name it: make setup PYTHON=/path/to/python3"
}

# Debian ships ensurepip in a package of its own, without which a venv has no pip.
ensure_venv_module() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null && return
  local package
  package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "setup: installing $package"
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends "$package"; } >/dev/null ||
      die "could not install $package"
  else
    die "Python's venv module is missing; install it as root: apt-get install $package"
  fi
}

if ! { [[ -x $venv/bin/python ]] && is_new_enough "$venv/bin/python" && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
  python=$(find_python)
  ensure_venv_module "$python"
  echo "setup: creating $venv with $("$python" --version)"
  "$python" -m venv --clear "$venv"
fi

export PIP_DISABLE_PIP_VERSION_CHECK=1
echo "setup: installing the dependencies"
# The distribution's earlier name: both would own the command.
[[ -z $(compgen -G "$venv/lib/python3*/site-packages/shoal-*.dist-info") ]] || "$venv/bin/python" -m pip uninstall -qq -y shoal
# The lock is complete. Asked for dependencies, pip before 23.3 does not see that `httpx2` there also pins `httpx2[ws]`, and
# stops at a newer version, which has no hash.
"$venv/bin/python" -m pip install -qq --no-deps --require-hashes -r requirements-dev.lock
"$venv/bin/python" -m pip install -qq --no-deps --no-build-isolation --editable .
