#!/usr/bin/env bash
# image.sh [options]: build the container image of this checkout, with podman.
#
#   --image REF        name of the image; default localhost/shoal:VERSION. To push it, name it REGISTRY/NAME:TAG.
#   --base REF         image with Python 3.11 or newer that it is built on, such as python:3.13-slim
#   --base-tar FILE    the same as a tar of files; default: one of Debian's packages, made by scripts/image_base.sh
#   --python X.Y       Python version of the base; default: read from the tar, else the one of this checkout
#   --wheelhouse DIR   folder with the wheels of requirements.lock and of pip; default: downloaded into build/wheels
#   --output FILE      also write the image as an archive for `docker load`, `podman load` and `ctr images import`
#   --podman "ARGS"    how to call podman, such as "podman --root DIR --runroot DIR"
#
# An image as a tar, on Debian as root, with podman and mmdebstrap installed:
#
#   scripts/image.sh --image registry.example.com/shoal:1.0 --output build/shoal-image.tar
#
# The build reads no package index: all wheels come from the folder. Prints the name and the size of the image.
set -euo pipefail
cd "$(dirname "$0")/.."
die() { echo "image: $*" >&2; exit 1; }

image="" base="" base_tar="" python="" wheelhouse="" output="" podman=(podman)
while [[ $# != 0 ]]; do
  case $1 in
    --help | -h) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    --image | --base | --base-tar | --python | --wheelhouse | --output | --podman)
      [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value"
      case $1 in
        --podman) read -ra podman <<<"$2" ;;
        *) name=${1#--}; printf -v "${name//-/_}" %s "$2" ;;
      esac
      shift 2 ;;
    *) die "unknown option $1; see scripts/image.sh --help" ;;
  esac
done
[[ -z $base || -z $base_tar ]] || die "name --base or --base-tar, not both"
command -v "${podman[0]}" >/dev/null || die "${podman[0]} is missing; install it, or name it with --podman"
[[ -x .venv/bin/python ]] || die "the checkout is not set up; run: make setup"
version=$(.venv/bin/python -c 'import shoal; print(shoal.__version__)')
image=${image:-localhost/shoal:$version}

work=build/image
rm -rf "$work"
mkdir -p "$work/wheels"
cp deploy/image/Dockerfile deploy/image/fill.py requirements.lock "$work/"

if [[ -z $base ]]; then
  if [[ -z $base_tar ]]; then
    base_tar=build/base.tar
    [[ $base_tar -nt scripts/image_base.sh ]] || { echo "image: making a base of Debian's packages"; scripts/image_base.sh "$base_tar"; }
  fi
  [[ -r $base_tar ]] || die "$base_tar cannot be read"
  python=${python:-$(tar tf "$base_tar" | sed -nE 's:^(\./)?usr/bin/python(3\.[0-9]+)$:\2:p' | head -1)}
  base=localhost/shoal-base:$(sha256sum "$base_tar" | cut -c1-12)
  "${podman[@]}" image exists "$base" || "${podman[@]}" import --quiet "$base_tar" "$base" >/dev/null
fi
python=${python:-$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')}

export PIP_DISABLE_PIP_VERSION_CHECK=1
if [[ -z $wheelhouse ]]; then
  wheelhouse=build/wheels/$python
  mkdir -p "$wheelhouse"
  # Without the conditions: pip asks them of this Python, not of the base's.
  sed -E 's/ ;.*\\$/ \\/' requirements.lock >"$work/all.txt"
  for wanted in "--require-hashes --requirement $work/all.txt" pip; do
    # shellcheck disable=SC2086  # two words
    .venv/bin/python -m pip download -qq --only-binary :all: --python-version "$python" --no-deps \
      --dest "$wheelhouse" -f "$wheelhouse" $wanted || die "the wheels could not be downloaded; name a folder with --wheelhouse"
  done
fi
compgen -G "$wheelhouse/pip-*.whl" >/dev/null || die "$wheelhouse has no wheel of pip; add it with: pip download pip"
rm -f "$work/all.txt"
cp "$wheelhouse"/*.whl "$work/wheels/"
(cd "$work/wheels" && ls -v pip-*.whl | head -n -1 | xargs -r rm) # one, the newest
rm -f "$work"/wheels/shoal_fleet-*.whl
.venv/bin/python -m pip wheel -qq --no-deps --no-build-isolation --no-index --wheel-dir "$work/wheels" .

# chroot: a build takes no container runtime. This isolation has the machine's network, of which nothing is used.
"${podman[@]}" build --quiet --isolation chroot --network host --build-arg "BASE=$base" --build-arg "VERSION=$version" \
  --tag "$image" "$work" >/dev/null
if [[ -n $output ]]; then
  rm -f "$output"
  "${podman[@]}" save --quiet --format docker-archive --output "$output" "$image"
fi
bytes=$("${podman[@]}" image inspect --format '{{.Size}}' "$image")
echo "image $image: $((bytes / 1000000)) MB"
