// void run_measurement(const MeasurementPlan* plan rdi): start writes, a call, stop writes.
//
// struct MeasurementPlan: 0 start, 8 stop (MsrWrite*), 16 how many in each, 24 function, 32 to 48 its arguments.
// What a counter sees stands in measurement_counts; both loops are alike, so that the counters of a longer list all
// see the same: what one misses of the first loop it has of the second.

    .text
    .balign 64
    .globl run_measurement
run_measurement:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rdi, %rbx
    mov 0(%rbx), %rsi
    mov 16(%rbx), %rdi
1:  mov 0(%rsi), %ecx
    mov 4(%rsi), %eax
    mov 8(%rsi), %edx
    wrmsr
    add $16, %rsi
    dec %edi
    jnz 1b
    mov 32(%rbx), %rdi
    mov 40(%rbx), %rsi
    mov 48(%rbx), %rdx
    call *24(%rbx)
    mov 8(%rbx), %rsi
    mov 16(%rbx), %rdi
2:  mov 0(%rsi), %ecx
    mov 4(%rsi), %eax
    mov 8(%rsi), %edx
    wrmsr
    add $16, %rsi
    dec %edi
    jnz 2b
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

    .section .rodata
    .balign 8
// struct MeasurementCounts: instructions and branches for each write of a list, then those between the lists, then the
// instructions from the only start write to the called function's first.
    .globl measurement_counts
measurement_counts:
    .quad 7, 1, 6, 1, 8
