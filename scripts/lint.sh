#!/usr/bin/env bash
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/setup.sh"

usage="usage: scripts/lint.sh [CHECK] [FILE...]
  format   every C and C++ file is formatted as .clang-format says
  fix      formats them
  tidy     clang-tidy finds nothing in src/ and include/ (or in these files of src/)
  headers  each public header compiles alone as C++20, with g++ 12 and clang 14
  scripts  shellcheck finds nothing
Without arguments: all but fix. FILE narrows format, fix and tidy."

# cxx_files [FILE...]: these files, or all that git tracks.
cxx_files() {
  if (($# > 0)); then
    printf '%s\0' "$@"
  else
    git -c safe.directory='*' ls-files -z -- '*.cpp' '*.hpp' '*.c' '*.h'
  fi
}

check_format() { cxx_files "$@" | xargs -0r clang-format-19 --dry-run --Werror; }

fix() { cxx_files "$@" | xargs -0r clang-format-19 -i; }

check_tidy() {
  local database=$root/build/tidy
  (build release build.ninja) || return
  mkdir -p "$database" || return
  python3 scripts/tidy_database.py build/compile_commands.json "$root/src" >"$database/compile_commands.json" || return
  if (($# > 0)); then
    printf '%s\0' "$@"
  else
    sed -n 's/^ *"file": "\(.*\)",\?$/\1/p' "$database/compile_commands.json" | tr '\n' '\0'
  fi | xargs -0r -n 1 -P "$(nproc)" clang-tidy-19 -p "$database" --quiet --extra-arg=-Wno-unknown-warning-option \
    2> >(grep -vE '^[0-9]+ warnings?( and [0-9]+ errors?)? (generated|treated as errors)' >&2)
}

check_headers() {
  local compiler header rc=0
  for compiler in g++-12 clang++-14; do
    while read -r header; do
      echo "#include <${header#include/}>" | "$compiler" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -Iinclude -x c++ - ||
        { rc=1 && echo "$header does not compile alone with $compiler"; }
    done < <(find include -name '*.hpp' | sort)
  done
  return "$rc"
}

check_scripts() { shellcheck -x run test .ci/run scripts/*.sh scripts/*.bash tests/install/*.sh tests/linux/*.sh; }

cd "$root"
what=${1-all}
case $what in
  -h | --help) echo "$usage" && exit ;;
  all | format | fix | tidy | headers | scripts) ;;
  *) die "unknown check '$what'; try scripts/lint.sh --help" ;;
esac
shift $(($# > 0))
need build test lint
case $what in
  all)
    failed=()
    for check in format tidy headers scripts; do
      "check_$check" || failed+=("$check")
    done
    ((${#failed[@]} == 0)) || { say "failed: ${failed[*]}" && exit 1; }
    ;;
  fix) fix "$@" ;;
  *) "check_$what" "$@" ;;
esac
