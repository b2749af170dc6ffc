// uint64_t run_in_guest_by_vmcall(function rdi, argument rsi, global_ctrl rdx), and the same by VMMCALL: the function runs
// in guest mode, on whatever stack and page tables there are; the result is the guest's GLOBAL_CTRL as of the exit.
//
// The two instructions stand for VM entry and VM exit (RAX 1 and 2). What the guest's counters see between them, the
// entering one included, beside the function itself, stands in world_switch_counts.

    .macro world_switch name, instruction
    .globl \name
    .balign 64
\name:
    push %rbx
    push %r12
    push %r13
    mov %rdi, %r12
    mov %rsi, %r13
    mov %rdx, %rbx
    mov $1, %eax
    \instruction
    mov %r13, %rdi
    call *%r12
    mov $2, %eax
    xor %ebx, %ebx
    \instruction
    pop %r13
    pop %r12
    pop %rbx
    ret
    .endm

    .text
    world_switch run_in_guest_by_vmcall, vmcall
    world_switch run_in_guest_by_vmmcall, vmmcall

    .section .rodata
    .balign 8
// Instructions, branches.
    .globl world_switch_counts
world_switch_counts:
    .quad 5, 1
