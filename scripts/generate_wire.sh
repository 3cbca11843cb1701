#!/usr/bin/env bash
# Make src/shoal/wire from proto/ with local programs only; with --check, say whether it is what proto/ makes today.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=$root/src/shoal/wire
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

cd "$root/proto"
buf lint
buf generate --output "$made" --template '{"version":"v2","plugins":[{"local":"protoc-gen-py","out":"."},{"local":"protoc-gen-connectrpc","out":"."}]}'
mv "$made/shoal" "$made/wire"
printf '"""Generated from proto/ by scripts/generate_wire.sh; never edited."""\n' >"$made/wire/__init__.py"

if [ "${1:-}" = --check ]; then
  diff -r -q --exclude=__pycache__ "$made/wire" "$out" || { echo "stale: src/shoal/wire; run: make generate" >&2; exit 1; }
else
  rm -rf "$out"
  mv "$made/wire" "$out"
fi
