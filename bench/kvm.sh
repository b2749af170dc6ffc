#!/bin/sh
# The kvm machine before and after, in one run: the policies in turn, five times each; medians. Measured on this host.
#   a guest's PMI handler, and exits by port with the PMU off, idle and counting: guest RDTSC
#   the host's system calls of a PMI: counted
# Counting needs a host that counts instructions: on the clock it is n/a on Intel, and stands still on AMD.
# usage: kvm.sh VPMU GUESTS [PROFILE]   (the command, the folder of the bare-metal guests)
vpmu=$1 guests=$2 profile=${3:-intel-v2}
runs=5
if [ ! -e /dev/kvm ]; then
  echo 'SKIPPED: /dev/kvm not found'
  exit 0
fi
options='lvtpc_mask=0 user_rdpmc=0 cycle_rings=0'
run() { # POLICY GUEST OPTIONS
  "$vpmu" run "$guests/$2.elf" --machine kvm --profile "$profile" --accept-missing-events --policy "$1" --timeout 60 \
    --append "$options $3" 2>/tmp/vpmu-bench.err
}
# figure TEXT KEY: the values of key=value in the figure lines that hold TEXT.
figure() { grep "figure $1" | tr ' ' '\n' | sed -n "s/^$2=//p"; }
median() { sort -n | awk '{ v[NR] = $1 } END { if (NR > 0) print v[int((NR + 1) / 2)]; else print "n/a" }'; }

samples=20
for policy in before-s0 best; do
  : >"/tmp/vpmu-bench.$policy"
done
n=0
while [ "$n" -lt "$runs" ]; do
  for policy in before-s0 best; do
    out=/tmp/vpmu-bench.$policy
    run "$policy" sampling "only=configured event=cycles ring=kernel period=20000000 samples=$samples" >/tmp/vpmu-bench.out
    echo "handler $(figure handler p50 </tmp/vpmu-bench.out)" >>"$out"
    calls=$(sed -n 's/.*system calls \([0-9]*\).*/\1/p' /tmp/vpmu-bench.err)
    echo "calls $((${calls:-0} / samples))" >>"$out"
    for pmu in off idle counting; do
      run "$policy" exits "kind=port-write pmu=$pmu ring=kernel count=1000" >/tmp/vpmu-bench.out
      echo "$pmu $(figure "exits .*pmu=$pmu" each </tmp/vpmu-bench.out)" >>"$out"
    done
  done
  n=$((n + 1))
done
printf '%-44s %12s %12s\n' "$profile, medians of $runs runs" before-s0 best
row() { # KEY TEXT
  printf '%-44s %12s %12s\n' "$2" "$(awk -v k="$1" '$1 == k && $2 != "" { print $2 }' /tmp/vpmu-bench.before-s0 | median)" \
    "$(awk -v k="$1" '$1 == k && $2 != "" { print $2 }' /tmp/vpmu-bench.best | median)"
}
row handler 'PMI handler in the guest, TSC ticks'
row calls "host system calls a PMI (the run's, shared)"
row off 'exit by OUT, PMU off, TSC ticks'
row idle 'exit by OUT, PMU idle, TSC ticks'
row counting 'exit by OUT, counting, TSC ticks'
