#!/usr/bin/env bash
# image_base.sh FILE [SUITE]: a base image for Shoal's, as a tar of its files: Debian's Python, certificates and a shell.
#
# Takes mmdebstrap, root, and the Debian mirror that this machine's apt sources name. SUITE is this machine's release unless given.
set -euo pipefail
die() { echo "image base: $*" >&2; exit 1; }

[[ ${1:-} == --help || ${1:-} == -h ]] && { sed -n '2,4s/^# //p' "$0"; exit 0; }
[[ -n ${1:-} ]] || die "usage: image_base.sh FILE [SUITE]"
command -v mmdebstrap >/dev/null || die "mmdebstrap is missing; install it as root: apt-get install mmdebstrap"
suite=${2:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}
[[ -n $suite ]] || die "this is not Debian; name a release: image_base.sh FILE bookworm"
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
  [[ -s $file ]] && grep -qE '^[^#]*debian' "$file" && sources+=("$file")
done
[[ ${#sources[@]} != 0 ]] || die "the apt sources of this machine name no Debian mirror"

# Packages are unpacked, not configured: inside there is no package manager, and what is of no use to a program in Python goes. What
# the packages' scripts would do that matters here is the file with all certificates, the accounts, and the name sh.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/finish" <<'HOOK'
#!/bin/sh
set -eu
cd "$1"
mkdir -p etc/ssl/certs var/lib/shoal root tmp
cat usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0:root:/root:/bin/sh\nshoal:x:65532:65532:shoal:/var/lib/shoal:/bin/sh\n' >etc/passwd
printf 'root:x:0:\nshoal:x:65532:\n' >etc/group
chown 65532:65532 var/lib/shoal
chmod 700 var/lib/shoal && chmod 1777 tmp
test -e bin/sh || ln -s dash bin/sh
rm -rf usr/share/ca-certificates usr/share/perl5 usr/share/debconf usr/sbin/update-ca-certificates etc/ca-certificates* \
  usr/lib/*/gconv usr/lib/python3/dist-packages usr/lib/python3*/pydoc_data usr/lib/python3*/lib2to3 usr/bin/openssl \
  usr/bin/dpkg* usr/lib/dpkg bin/tar usr/bin/perl* usr/lib/*/perl* var/cache/* var/lib/apt var/lib/dpkg var/log/*
# compiled here, since the root of a running container is read-only
chroot . /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash usr/lib/python3.*
HOOK
chmod +x "$work/finish"
mmdebstrap --quiet --mode=root --variant=extract --include=base-files,ca-certificates,dash,libstdc++6,netbase,python3,tzdata \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --extract-hook="$work/finish" "$suite" "$1" "${sources[@]}"
