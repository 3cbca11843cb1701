#!/usr/bin/env bash
# Write requirements.lock and requirements-dev.lock from pyproject.toml, and scripts/{docs,page}/requirements.lock: every version
# and hash, for Python 3.11 and up on Linux, and no address of any package index (whoever installs decides where packages
# come from).
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { # compile OUTPUT SOURCE [extra options]
  local output=$1
  shift
  .venv/bin/uv pip compile "$@" --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-annotate --no-header --no-emit-package shoal-fleet \
    --output-file "$output"
  sed -i '1i # Written by scripts/lock.sh from pyproject.toml; install with: pip install --no-deps --require-hashes -r '"$output" "$output"
}

compile requirements.lock pyproject.toml --extra all --extra traces --extra vault
compile requirements-dev.lock pyproject.toml --extra dev --constraints requirements.lock
compile scripts/docs/requirements.lock scripts/docs/requirements.in
compile scripts/page/requirements.lock scripts/page/requirements.in
