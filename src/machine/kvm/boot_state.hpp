// The registers with which a vCPU starts.
#pragma once

#include <linux/kvm.h>

#include "machine/kvm/linux_boot.hpp"
#include "machine/soft/multiboot.hpp"

namespace vpmu::kvm {

/// Changes `sregs` and `regs` of a vCPU that was just created. Multiboot specification 0.6.96, section 3.2: 32-bit
/// protected mode, flat, interrupts off.
void start_multiboot(kvm_sregs& sregs, kvm_regs& regs, const soft::LoadedImage& image);

/// Linux, Documentation/x86/boot.rst, "64-bit Boot Protocol": 64-bit mode, identity page tables, RSI = boot_params.
void start_linux(kvm_sregs& sregs, kvm_regs& regs, const LoadedLinux& image);

}  // namespace vpmu::kvm
