#!/usr/bin/env bash
# prometheus.sh STAMP: Debian's Prometheus, into which a test loads the alert rules.
#
# Where it cannot be installed these tests are left out and say why, so this never fails. STAMP is made when it is there.
set -euo pipefail
stamp=$1

install_it() {
  [[ $(id -u) == 0 ]] || { echo "that takes root"; return 1; }
  command -v apt-get >/dev/null || { echo "there is no apt-get"; return 1; }
  # the package would start a server of its own: the policy keeps it from doing so
  local policy=/usr/sbin/policy-rc.d made=
  [[ -e $policy ]] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=1; }
  { timeout 120 apt-get -qq update &&
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install -y --no-install-recommends prometheus; } \
    >/dev/null 2>&1 || { [[ -z $made ]] || rm -f "$policy"; echo "apt-get failed"; return 1; }
  [[ -z $made ]] || rm -f "$policy"
}

if ! command -v prometheus >/dev/null || ! command -v promtool >/dev/null; then
  echo "setup: installing prometheus"
  if ! why=$(install_it); then
    echo "setup: not installed, $why; the tests of alert rules will be left out"
    exit 0
  fi
fi
mkdir -p "$(dirname "$stamp")"
touch "$stamp"
