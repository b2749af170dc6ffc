#!/usr/bin/env bash
# Links the object files given and fails if they need more from outside than a ring-0 host has.
set -euo pipefail
[ "$#" -gt 0 ] || { echo "usage: $0 OBJECT..." >&2; exit 2; }
whole=$(mktemp)
trap 'rm -f "$whole"' EXIT
ld -r -o "$whole" "$@"
needed=$(nm -u "$whole" | awk '{print $2}' | grep -vxE 'memcpy|memmove|memset|memcmp|abort' || true)
if [ -n "$needed" ]; then
  echo "the core needs these symbols, which a freestanding host lacks:"
  echo "$needed"
  exit 1
fi
echo "the core needs from outside: $(nm -u "$whole" | awk '{print $2}' | tr '\n' ' ')"
