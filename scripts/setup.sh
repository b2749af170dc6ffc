# shellcheck shell=bash
# To be sourced: installs the packages that are missing, configures and builds. Talks on stderr only.

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")

say() { echo "vpmu: $*" >&2; }

die() {
  say "$*"
  exit 2
}

# packages GROUP...: the packages of these groups of scripts/packages.txt.
packages() {
  local line group=
  while read -r line; do
    case $line in
      '' | '#'*) ;;
      '['*']') group=${line:1:-1} ;;
      *) [[ " $* " != *" $group "* ]] || echo "$line" ;;
    esac
  done <"$root/scripts/packages.txt"
}

# need GROUP...: installs what is missing of these groups.
need() {
  local wanted missing=() status name
  local -A installed=()
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: the counterparts of scripts/packages.txt must be there already"
    return
  fi
  mapfile -t wanted < <(packages "$@")
  while read -r status name; do
    [[ $status != installed ]] || installed[$name]=1
  done < <(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null)
  for name in "${wanted[@]}"; do
    [[ -n ${installed[$name]-} ]] || missing+=("$name")
  done
  ((${#missing[@]} == 0)) || install_packages "${missing[@]}"
}

install_packages() {
  local as_root=() log reason remedy="as root, run: apt-get update && apt-get install $*"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "missing packages, and no sudo to install them; $remedy"
    as_root=(sudo)
    [[ -t 0 ]] || as_root+=(-n)
  fi
  say "installing $*"
  log=$(mktemp)
  apt_get() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
      -o Acquire::Retries=2 -o Acquire::http::Timeout=30 "$@" >>"$log" 2>&1
  }
  if ! apt_get install --no-install-recommends "$@" &&
    ! { apt_get update; apt_get install --no-install-recommends "$@"; }; then
    reason=$(grep -m 1 -E 'Failed to fetch|^sudo:' "$log" || grep '^E:' "$log" | tail -n 1) || true
    rm -f "$log"
    die "cannot install packages${reason:+ ($reason)}; $remedy"
  fi
  rm -f "$log"
}

# build_dir PRESET
build_dir() {
  if [[ $1 == release ]]; then echo "$root/build"; else echo "$root/build-$1"; fi
}

# quietly COMMAND...: shows what it printed only if it fails.
quietly() {
  local log rc=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 </dev/null || rc=$?
  ((rc == 0)) || cat "$log" >&2
  rm -f "$log"
  return "$rc"
}

# configure PRESET: once, and again when the tree moved or the presets changed. CMake sees all other changes.
configure() {
  local dir mark
  dir=$(build_dir "$1")
  mark="$root $(cksum <"$root/CMakePresets.json")"
  [[ ! -f $dir/build.ninja || $(cat "$dir/.configured" 2>/dev/null) != "$mark" ]] || return 0
  cd "$root" || die "cannot enter $root"
  quietly cmake --fresh --preset "$1" || die "cannot configure preset $1"
  echo "$mark" >"$dir/.configured"
}

# build PRESET TARGET...: configures and builds, one build of a directory at a time.
build() {
  local preset=$1 dir
  shift
  dir=$(build_dir "$preset")
  mkdir -p "$dir" || die "cannot write to $root"
  (
    flock 9
    configure "$preset"
    cd "$dir" || exit
    if [[ $(ninja -n "$@" 2>&1 </dev/null) == *'no work to do.'* ]]; then
      exit 0
    elif [[ -t 2 ]]; then
      ninja "$@" >&2 </dev/null || die "the build failed (preset $preset)"
    else
      quietly ninja --quiet "$@" || die "the build failed (preset $preset)"
    fi
  ) 9>"$dir/.lock" || exit
}

# run_tests PRESET [CTEST ARGUMENTS]: runs the tests of a build and closes with 'N passed, N failed, N skipped'.
# Fails if a test failed or none ran.
run_tests() {
  local dir results rc=0
  dir=$(build_dir "$1")
  results=$dir/test-results
  shift
  rm -rf "$results"
  mkdir -p "$results"
  GTEST_OUTPUT="xml:$results/" ctest --test-dir "$dir" --parallel "$(nproc)" --timeout 900 --output-on-failure \
    --no-tests=error --output-junit "$results/ctest.junit" "$@" </dev/null 2>&1 || rc=$?
  python3 "$root/scripts/summarize_tests.py" "$results" && return "$rc"
}
