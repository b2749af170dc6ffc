// Into ring 3 and back. What each way costs in instructions and branches stands beside it, for exact counts.
#include "layout.h"

    .text
// uint64_t run_in_user_by_iret(UserFunction rdi, uint64_t argument rsi, uint64_t flags rdx)
    .globl run_in_user_by_iret
run_in_user_by_iret:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    pushfq
    mov %rsp, kernel_stack_pointer
    pushq $USER_DATA
    pushq $user_stack_top
    push %rdx
    pushq $USER_CODE
    pushq $user_start
    iretq

// uint64_t run_in_user_by_sysret(UserFunction rdi, uint64_t argument rsi, uint64_t flags rdx)
    .globl run_in_user_by_sysret
run_in_user_by_sysret:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    pushfq
    mov %rsp, kernel_stack_pointer
    mov %rdx, %r11
    mov $user_start, %ecx
    mov $user_stack_top, %esp
    sysretq

// SYSCALL comes here with interrupts off (IA32_FMASK), still on the user's stack.
    .globl syscall_entry
syscall_entry:
    mov kernel_stack_pointer, %rsp
    popfq
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

    .section .user.text, "ax"
user_start:
    mov %rdi, %rax
    mov %rsi, %rdi
    call *%rax
    syscall

    .section .rodata
    .balign 8
// struct PathCounts: kernel instructions, kernel branches, user instructions, user branches; the function apart.
    .globl iret_path
iret_path:
    .quad 14 + 9, 2, 4, 2
    .globl sysret_path
sysret_path:
    .quad 12 + 9, 2, 4, 2

    .section .bss
    .balign 16
kernel_stack_pointer:
    .skip 16

    .section .user.data, "aw"
    .balign 4096
    .skip STACK_BYTES
user_stack_top:
