#!/bin/sh
# /init of the Linux guest: checks its PMU. What the checks say goes to the console.
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/

check() { # NAME CONDITION-STATUS DETAIL
  if [ "$2" = 0 ]; then echo "pass $1: $3"; else echo "FAIL $1: $3"; fi
}
intel=$(grep -q GenuineIntel /proc/cpuinfo && echo intel)

echo "guest: up after $(cut -d' ' -f1 /proc/uptime) s, $(uname -r)"
driver=$(dmesg | grep -o 'Performance Events: .* PMU driver')
[ -n "$driver" ]
check 'the kernel log names the PMU driver' $? "$driver"
# Exits take too long here for the kernel's own limit on the time of PMIs.
echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent
# Debian's own setting keeps other users from all events.
echo 2 >/proc/sys/kernel/perf_event_paranoid

if grep -q two_cpus /proc/cmdline; then
  guest_checks cpus
else
  guest_checks "${intel:-amd}"
  echo 1 >/proc/sys/kernel/nmi_watchdog
  check 'the NMI watchdog runs' $((1 - $(cat /proc/sys/kernel/nmi_watchdog)))
  guest_checks multiplex "${intel:-amd}"
  if [ -x /usr/bin/perf ]; then
    perf stat -o /tmp/stat guest_checks work >/tmp/out 2>&1
    check 'perf stat' $? "$(grep -c . /tmp/stat) lines"
    cycles=$(awk '$2 == "cycles" { print $1 }' /tmp/stat)
    [ "${cycles:-0}" -gt 100000000 ]
    check 'perf stat counts cycles' $? "$cycles"
    if [ -n "$intel" ]; then
      grep -q '<not supported> *instructions' /tmp/stat
      check 'perf stat shows instructions as not supported' $? "$(grep instructions /tmp/stat)"
    fi
    perf record -q -o /tmp/data -e cycles -c 10000000 guest_checks work >/tmp/out 2>&1
    check 'perf record' $? "$(tail -n 1 /tmp/out)"
    perf report -i /tmp/data --stdio -F overhead,sample,symbol >/tmp/report 2>&1
    share=$(awk '$4 == "work_a" { a = $2 } $4 == "work_b" { b = $2 } END { if (a + b > 0) printf "%d", 100 * a / (a + b) }' /tmp/report)
    [ "${share:-0}" -ge 70 ] && [ "$share" -le 90 ]
    check 'perf report shares samples 4 to 1' $? "$share % of work_a and work_b, $(grep '^# Samples' /tmp/report)"
  else
    echo 'skip perf: not installed on the host of these tests'
  fi
fi

grep -E 'NMI|PMI' /proc/interrupts
# What may stand in the log: consequences of pci=off, of our setting above and of slow emulation, and what an Intel PMU
# lacks.
dmesg -r | grep -E '^<[0-4]>' | grep -vE 'PCI: (Fatal: No config|System does not support)|perf: (interrupt took too long|Dynamic interrupt throttling disabled)|hrtimer: interrupt took|CPUID marked event: .* unavailable|NMI handler .* took too long' >/tmp/warnings
[ ! -s /tmp/warnings ]
check 'no warning in the kernel log' $? "$(head -n 3 /tmp/warnings)"
grep -q two_cpus /proc/cmdline || {
  stty -echo
  echo shell-ready
  sh
}
poweroff -f
