// The 256 entry points of the IDT: each leaves an InterruptFrame on the stack and calls dispatch_interrupt.
#include "layout.h"

// SDM volume 3, table "Protected-Mode Exceptions and Interrupts": these push an error code.
#define ERROR_CODE_VECTORS (1 << 8 | 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 17 | 1 << 21 | 1 << 29 | 1 << 30)

    .text
    .balign 16
    .globl interrupt_entries
interrupt_entries:
    .set vector, 0
    .rept 256
    .balign 16
    .if vector > 31 || (ERROR_CODE_VECTORS >> (vector & 31) & 1) == 0
    pushq $0
    .endif
    pushq $vector
    jmp interrupt_common
    .set vector, vector + 1
    .endr

    .balign 16
interrupt_common:
    push %rax
    push %rbx
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %rbp
    push %r8
    push %r9
    push %r10
    push %r11
    push %r12
    push %r13
    push %r14
    push %r15
    cld
    mov %rsp, %rdi
    call dispatch_interrupt
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rbp
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rbx
    pop %rax
    add $16, %rsp
    iretq
