#!/usr/bin/env bash
# The tests that break things on purpose: scripts/chaos.sh WORKERS PYTEST...
#
# Most run side by side. Those marked `alone` hold times or rates and run one after the other afterwards. Both parts run,
# whatever the first one gives, and the sum of both is the last line.
set -euo pipefail
cd "$(dirname "$0")/.."

workers=$1
shift
tally=$(mktemp)
trap 'rm -f "$tally"' EXIT
export SHOAL_CHAOS=1 SHOAL_TALLY_FILE=$tally
pytest=("$@" --durations=25 tests)

failed=0
"${pytest[@]}" -n "$workers" --dist loadgroup -m "chaos and not alone" || failed=1
"${pytest[@]}" -m "chaos and alone" || failed=1
printf '\nmake chaos took %s s: %s\n' "$SECONDS" "$(.venv/bin/python -m shoal.testing.tally "$tally")"
exit $failed
