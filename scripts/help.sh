#!/usr/bin/env bash
# Print the targets of a Makefile by group: "##@ Group" starts one, "target: ## text" is an entry.
set -euo pipefail
awk -F ':.*## ' '
  /^##@ /           { printf "\n%s:\n", substr($0, 5) }
  /^[a-z-]+:.*## /  { printf "  make %-18s %s\n", $1, $2 }
' "$@"
