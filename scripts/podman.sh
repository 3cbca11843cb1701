#!/usr/bin/env bash
# podman.sh STAMP: the container engine that the tests of `--runtime docker` and of the image use, from Debian's packages.
#
# Where it cannot be installed these tests are left out and say why, so this never fails. STAMP is made when it is there.
set -euo pipefail
stamp=$1

is_static() { command -v "$1" >/dev/null && ! ldd "$(command -v "$1")" >/dev/null 2>&1; }

packages=()
for package in podman runc iptables mmdebstrap; do
  command -v "$package" >/dev/null || packages+=("$package")
done
[[ -x /usr/lib/podman/netavark || -x /usr/libexec/podman/netavark ]] || packages+=(netavark)
is_static busybox || packages+=(busybox-static)

install_them() {
  [[ $(id -u) == 0 ]] || { echo "that takes root"; return 1; }
  command -v apt-get >/dev/null || { echo "there is no apt-get"; return 1; }
  { timeout 120 apt-get -qq update &&
    DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq install -y --no-install-recommends "${packages[@]}"; } \
    >/dev/null 2>&1 || { echo "apt-get failed"; return 1; }
}

if [[ ${#packages[@]} != 0 ]]; then
  echo "setup: installing ${packages[*]}"
  if ! why=$(install_them); then
    echo "setup: not installed, $why; the tests of --runtime docker will be left out"
    exit 0
  fi
fi
mkdir -p "$(dirname "$stamp")"
touch "$stamp"
