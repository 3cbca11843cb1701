#!/usr/bin/env bash
# kubectl.sh VENV: make sure that there is a kubectl new enough for the tests.
#
# The one on PATH when it will do; else the one of Debian 13, from the Debian mirror that this machine's apt is set to
# use, unpacked into VENV. apt works on lists of its own below VENV, so the system's lists and packages are not changed
# and root is not needed. Without a Debian mirror nothing is fetched, and the message says what is missing.
set -euo pipefail
venv=$(cd "$1" && pwd)
oldest=31 # the minor version of 1.x

die() { echo "setup: kubectl: $*" >&2; exit 1; }

is_new_enough() {
  local minor
  minor=$("$1" version --client -o json 2>/dev/null | sed -nE 's/.*"minor": *"([0-9]+).*/\1/p' | head -1)
  [[ -n $minor && $minor -ge $oldest ]]
}

# The Debian mirror that this machine's apt sources name; nothing when they name none.
mirror() {
  cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    grep -vE '^\s*#' | grep -oE 'https?://[^ ]+/debian/?( |$)' | head -1 | tr -d ' ' | sed 's:/$::' ||
    true
}

fetch() {
  local work=$venv/apt url keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  url=$(mirror)
  [[ -n $url ]] ||
    die "needs kubectl 1.$oldest or newer on PATH; this machine has none, and its apt sources name no Debian mirror"
  [[ -r $keyring ]] || die "$keyring is missing (package debian-archive-keyring)"
  mkdir -p "$work"/{etc,state/lists/partial,cache/archives/partial,root}
  echo "deb [signed-by=$keyring] $url trixie main" >"$work/etc/sources.list"
  : >"$work/state/status"
  local apt=(apt-get -qq
    -o Dir::Etc::sourcelist="$work/etc/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State="$work/state" -o Dir::State::status="$work/state/status" -o Dir::Cache="$work/cache"
    -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3)
  "${apt[@]}" update || die "could not read Debian 13's package lists from $url"
  (cd "$work/cache" && rm -f ./*.deb && "${apt[@]}" download kubectl) || # kubernetes-client there only points to it
    die "could not download Debian 13's kubectl"
  dpkg-deb -x "$work"/cache/kubectl_*.deb "$work/root"
  install -m 755 "$work/root/usr/bin/kubectl" "$venv/bin/kubectl"
  rm -rf "$work"
}

for found in "$venv/bin/kubectl" $(type -ap kubectl); do
  is_new_enough "$found" && exit 0
done

command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
  die "needs kubectl 1.$oldest or newer on PATH; this machine has none, and no apt-get to fetch Debian's"
echo "setup: fetching kubectl from Debian 13"
fetch
is_new_enough "$venv/bin/kubectl" || die "the one from Debian 13 does not run here"
