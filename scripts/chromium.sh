#!/usr/bin/env bash
# chromium.sh STAMP: the browser that the tests of the page use, from Debian's packages.
#
# Where it cannot be installed these tests are left out and say why, so this never fails. STAMP is made when it is there.
set -euo pipefail
stamp=$1

install_it() {
  [[ $(id -u) == 0 ]] || { echo "that takes root"; return 1; }
  command -v apt-get >/dev/null || { echo "there is no apt-get"; return 1; }
  { timeout 120 apt-get -qq update &&
    DEBIAN_FRONTEND=noninteractive timeout 600 apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core; } \
    >/dev/null 2>&1 || { echo "apt-get failed"; return 1; }
}

if ! command -v chromium >/dev/null; then
  echo "setup: installing chromium"
  if ! why=$(install_it); then
    echo "setup: not installed, $why; the tests of the page in a browser will be left out"
    exit 0
  fi
fi
mkdir -p "$(dirname "$stamp")"
touch "$stamp"
