#!/usr/bin/env bash
# Installs a build into a folder of its own, and builds outside projects against it: the programs of docs/embedding.md,
# word for word.
set -euo pipefail
(($# == 2)) || { echo "usage: $0 BUILD_FOLDER SOURCE_FOLDER" >&2 && exit 2; }
build=$1 page=$2/docs/embedding.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

# listing NAME: the block of code after the line that ends in `NAME`: or names it first, the Nth such one.
listing() {
  awk -v name="\`$1\`" -v nth="${2-1}" '
    !inside && index($0, name) && /[:,]/ { armed = 1 }
    armed && /^```/ { inside = !inside; if (inside && ++seen != nth) { inside = 0; armed = 0; next } if (!inside) exit; next }
    inside' "$page"
}

step() { echo "--- $*"; }

step install
cmake --install "$build" --prefix "$prefix" >"$work/install.log"
for file in bin/vpmu include/vpmu/virtual_pmu.hpp share/man/man1/vpmu.1 share/bash-completion/completions/vpmu; do
  [[ -s $prefix/$file ]] || { echo "not installed: $file" && exit 1; }
done
libraries=$(dirname "$(find "$prefix" -name vpmu.pc)")/..
"$prefix/bin/vpmu" --version
[[ $(readelf -d "$libraries/libvpmu.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p') == libvpmu.so.0 ]]
if grep -rIl "$build" "$prefix/lib" "$prefix/include" "$prefix/share"; then
  echo "an installed file names the build folder" && exit 1
fi

step "outside project, CMake"
mkdir "$work/cmake"
listing CMakeLists.txt 1 >"$work/cmake/CMakeLists.txt"
listing main.cpp >"$work/cmake/main.cpp"
cmake -S "$work/cmake" -B "$work/cmake/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log"
cmake --build "$work/cmake/build" >>"$work/cmake.log" || { cat "$work/cmake.log" && exit 1; }
"$work/cmake/build/my_vmm"

step "the same, static"
sed -i 's/vpmu::vpmu/vpmu::static/' "$work/cmake/CMakeLists.txt"
cmake --build "$work/cmake/build" >>"$work/cmake.log" || { cat "$work/cmake.log" && exit 1; }
if readelf -d "$work/cmake/build/my_vmm" | grep libvpmu; then echo "still shared" && exit 1; fi
"$work/cmake/build/my_vmm"

step "outside project, pkg-config"
export PKG_CONFIG_PATH=$libraries/pkgconfig
read -ra flags < <(pkg-config --cflags --libs vpmu)
c++ -std=c++20 -Wall -Wextra -Werror "$work/cmake/main.cpp" "${flags[@]}" -o "$work/by-pkg-config"
LD_LIBRARY_PATH=$libraries "$work/by-pkg-config"

step "a whole VMM on KVM"
c++ -std=c++20 -Wall -Wextra -Werror "$2/examples/minimal_vmm.cpp" "${flags[@]}" -o "$work/minimal_vmm"
LD_LIBRARY_PATH=$libraries "$work/minimal_vmm" || (($? == 77)) # skipped without KVM

step "freestanding core, -nostdlib"
mkdir "$work/core"
listing CMakeLists.txt 2 >"$work/core/CMakeLists.txt"
listing core.cpp >"$work/core/core.cpp"
cmake -S "$work/core" -B "$work/core/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$work/core.log"
cmake --build "$work/core/build" >>"$work/core.log" || { cat "$work/core.log" && exit 1; }
[[ -z $(nm -u "$work/core/build/my_core") ]]
"$work/core/build/my_core"

step "completion"
# shellcheck disable=SC1091
source "$prefix/share/bash-completion/completions/vpmu"
COMP_WORDS=("$prefix/bin/vpmu" re) COMP_CWORD=1
_vpmu
[[ ${COMPREPLY[*]} == replay ]]
# shellcheck disable=SC2034
COMP_WORDS=("$prefix/bin/vpmu" run --back) COMP_CWORD=2
_vpmu
[[ ${COMPREPLY[*]} == --backing ]]

echo "all good"
