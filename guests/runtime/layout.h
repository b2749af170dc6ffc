// Constants that assembly and C++ share: selectors of the GDT and vectors. Macros, since the assembler reads them.
#pragma once

// The order of the last three is what SYSRET expects (SDM volume 2, SYSRET: SS is STAR[63:48] + 8, CS is + 16).
#define KERNEL_CODE 0x08
#define KERNEL_DATA 0x10
#define SYSRET_BASE 0x1B
#define USER_DATA 0x23
#define USER_CODE 0x2B
#define TASK_STATE 0x30

#define STACK_BYTES 16384
