#!/usr/bin/env bash
# Runs guests of the kvm machine on an emulated host: QEMU's TCG emulates an AMD processor with SVM, Debian's kernel
# with kvm-amd runs on it, and on that `vpmu run --machine kvm` with our bare-metal guests and Debian's cloud kernel.
# usage: run.sh PROFILE VPMU GUESTS CHECKS WORK   (command, folder of guests, guest_checks, a folder to work in)
# Exit status: 0 all checks hold, 1 some do not, 77 skipped: something is missing, and the output says what.
set -euo pipefail

profile=$1 vpmu=$2 guests=$3 checks=$4 work=$5
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
mkdir -p "$work/$profile"
packages=$(dirname "$work")/linux-packages
mkdir -p "$packages"

skip() {
  echo "SKIPPED: $*"
  exit 77
}

for tool in qemu-system-x86_64 busybox dpkg-deb apt-get apt-cache ldd; do
  command -v "$tool" >/dev/null || skip "$tool not found: install the packages of scripts/packages.txt"
done
busybox=$(command -v busybox)

# kernel META: the folder of the unpacked kernel package that META depends on, downloaded once and never installed.
kernel() {
  local name
  name=$(apt-cache depends "$1" 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
  [[ -n $name ]] || return 1
  if [[ ! -e $packages/$name/unpacked ]]; then
    rm -rf "${packages:?}/$name" && mkdir -p "$packages/$name"
    (cd "$packages/$name" && apt-get -q download "$name" >&2 && dpkg-deb -x ./*.deb . && rm ./*.deb && touch unpacked) ||
      return 1
  fi
  echo "$packages/$name"
}
# One at a time: two profiles may start at once.
exec 9>"$packages/lock"
flock 9
host_kernel=$(kernel linux-image-amd64) || skip 'cannot download linux-image-amd64 (no network, or run apt-get update)'
guest_kernel=$(kernel linux-image-cloud-amd64) || skip 'cannot download linux-image-cloud-amd64'
flock -u 9

# with_libraries FILE ROOT: what FILE is linked to.
with_libraries() {
  local library
  while read -r library; do
    mkdir -p "$2$(dirname "$library")"
    cp -L "$library" "$2$library"
  done < <(ldd "$1" | grep -o '/[^ ]*')
}
pack() { (cd "$1" && find . | "$busybox" cpio -o -H newc 2>/dev/null); }

cd "$work/$profile"
rm -rf host guest
mkdir -p guest/bin guest/usr/bin host/bin host/modules host/guests
cp "$busybox" guest/bin/busybox
ln -s busybox guest/bin/sh
cp "$checks" guest/bin/guest_checks
install -m 755 "$here/guest_init.sh" guest/init
if command -v perf >/dev/null; then
  cp -L "$(command -v perf)" guest/usr/bin/perf
  with_libraries guest/usr/bin/perf guest
else
  echo 'SKIPPED in part: perf not found: install linux-perf'
fi
pack guest >host/guest.cpio

cp "$busybox" host/bin/busybox
ln -s busybox host/bin/sh
cp "$vpmu" host/bin/vpmu
with_libraries host/bin/vpmu host
for program in example_minimal_vmm bench_kvm; do
  cp "$(dirname "$vpmu")/$program" host/bin/
  with_libraries "host/bin/$program" host
done
cp "$guests"/*.elf host/guests/
cp "$guest_kernel"/boot/vmlinuz-* host/bzImage
for module in virt/lib/irqbypass arch/x86/kvm/kvm drivers/crypto/ccp/ccp arch/x86/kvm/kvm-amd; do
  cp "$host_kernel"/lib/modules/*/kernel/$module.ko host/modules/
done
install -m 755 "$here/host_init.sh" host/init
{
  echo "profile=$profile vendor=${profile%%-*} two_cpus=${VPMU_TWO_CPUS-}"
  case $profile in amd-*) echo accept=--accept-missing-events ;; *) echo accept= ;; esac
} >host/settings
pack host >host.cpio

# Interrupt time counts as the thread's: guests cannot tell it from their own. It is long here.
append='console=ttyS0 quiet panic=-1 tsc=noirqtime'
nice=(nice -n -5)
"${nice[@]}" true 2>/dev/null || nice=()
"${nice[@]}" timeout 600 qemu-system-x86_64 -accel tcg -cpu max -m 1536 -nographic -no-reboot -net none \
  -kernel "$host_kernel"/boot/vmlinuz-* -initrd host.cpio -append "$append" </dev/null >log 2>&1 || true
tr -d '\r' <log | sed -n '/host: up/,$p'
grep -q '^host: done' log || {
  echo "the emulated host did not come to its end"
  tail -n 40 log
  exit 1
}
# A shell's prompt may stand before one.
passed=$(grep -cE '(^|# )pass ' log || true)
failed=$(grep -cE '(^|# )FAIL ' log || true)
echo "$profile: $passed checks passed, $failed failed, $(grep -c '^skip ' log || true) skipped," \
  "$(grep -c '^figure disturbed' log || true) disturbed"
((failed == 0 && passed >= 15))
