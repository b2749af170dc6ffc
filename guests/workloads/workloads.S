// Loops that retire exactly known numbers of instructions and branches, in either ring.
//
// Each is uint64_t NAME(uint64_t n), with a record NAME_workload beside it: what an iteration and what the rest (the
// return included) retires. A REP string instruction retires once; a faulting one does not.

    .macro workload name, each_instructions, once_instructions, each_branches, once_branches
    .section .rodata
    .balign 8
    .globl \name\()_workload
\name\()_workload:
    .quad \name, \each_instructions, \once_instructions, \each_branches, \once_branches, 9f
9:  .asciz "\name"
    .section .user.text, "ax"
    .balign 64
    .globl \name
\name:
    .endm

    .macro may_fault from, to
    .pushsection .fixups, "a"
    .quad \from, \to
    .popsection
    .endm

    workload spin, 2, 1, 1, 1
1:  dec %rdi
    jnz 1b
    ret

    workload nops, 18, 1, 1, 1
1:  .rept 16
    nop
    .endr
    dec %rdi
    jnz 1b
    ret

// Loads, stores, calls, jumps taken and not taken.
    workload mixed, 12, 1, 5, 1
1:  mov user_buffer, %rax
    add $3, %rax
    mov %rax, user_buffer
    call 3f
    test %rdi, %rdi
    jz 2f
    jmp 2f
2:  xor %ecx, %edx
    dec %rdi
    jnz 1b
    ret
3:  lea 1(%rax), %rcx
    ret

// Indirect calls and jumps, LOOP, conditional moves, a locked instruction.
    workload indirect, 12, 1, 5, 1
1:  lea 3f(%rip), %rax
    call *%rax
    lea 2f(%rip), %rdx
    jmp *%rdx
2:  mov $1, %ecx
    loop 1b
    cmovz %rax, %rdx
    lock incq user_buffer + 8
    dec %rdi
    jnz 1b
    ret
3:  test %edi, %edi
    ret

// REP with many, few and no repetitions.
    workload strings, 15, 2, 1, 1
    mov %rdi, %r8
1:  lea user_buffer(%rip), %rsi
    lea user_buffer + 1024(%rip), %rdi
    mov $512, %ecx
    rep movsb
    lea user_buffer + 2048(%rip), %rdi
    xor %eax, %eax
    mov $16, %ecx
    rep stosq
    xor %ecx, %ecx
    rep stosb
    lea user_buffer + 2048(%rip), %rdi
    mov $64, %ecx
    repe scasb
    dec %r8
    jnz 1b
    ret

// A branch between two instructions that a virtual machine emulates.
    workload cpuid_pairs, 6, 4, 2, 1
    push %rbx
    mov %rdi, %r8
1:  xor %eax, %eax
    cpuid
    jc 2f
    cpuid
2:  dec %r8
    jnz 1b
    pop %rbx
    ret

    workload cpuids, 4, 4, 1, 1
    push %rbx
    mov %rdi, %r8
1:  xor %eax, %eax
    cpuid
    dec %r8
    jnz 1b
    pop %rbx
    ret

// Ring 3 alone: HLT, and a read of a kernel page, fault each time and do not retire.
    workload faults, 2, 1, 1, 1
1:  hlt
2:  mov start_guest, %rax
3:  dec %rdi
    jnz 1b
    ret
    may_fault 1b, 2b
    may_fault 2b, 3b

// Instructions of many lengths, whose addresses steps_addresses lists: where a PMI may find the processor.
    .set steps_body, 8
    workload steps, steps_body, 1, 2, 1
10: nop
11: lea 1(%rdi,%rdi), %rax
12: xor %eax, %ecx
13: jmp 14f
    nop
14: movabs $0x123456789A, %rdx
15: add $0x1000, %edx
16: dec %rdi
17: jnz 10b
18: ret
    .section .rodata
    .balign 8
    .globl steps_addresses
steps_addresses:
    .quad 10b, 11b, 12b, 13b, 14b, 15b, 16b, 17b, 18b

    workload port_reads, 3, 2, 1, 1
    mov $0x3FD, %edx
1:  in %dx, %al
    dec %rdi
    jnz 1b
    ret

    workload port_writes, 3, 2, 1, 1
    xor %eax, %eax
1:  out %al, $0x80
    dec %rdi
    jnz 1b
    ret

    workload msr_reads, 3, 2, 1, 1
    mov exit_msr, %ecx
1:  rdmsr
    dec %rdi
    jnz 1b
    ret

    workload msr_writes, 3, 3, 1, 1
    mov exit_msr, %ecx
    rdmsr
1:  wrmsr
    dec %rdi
    jnz 1b
    ret

    workload pmc_reads, 3, 2, 1, 1
    mov exit_pmc, %ecx
1:  rdpmc
    dec %rdi
    jnz 1b
    ret

    workload apic_reads, 3, 2, 1, 1
    mov $0xFEE00030, %ecx
1:  mov (%rcx), %eax
    dec %rdi
    jnz 1b
    ret

// A load that misses every cache, each time.
    workload flushed_loads, 5, 1, 1, 1
1:  clflush user_buffer
    mfence
    mov user_buffer, %rax
    dec %rdi
    jnz 1b
    ret

// A branch that depends on a bit of a congruential generator (Knuth's MMIX), so that no history tells its direction; both
// ways retire the same.
    workload unpredictable, 8, 3, 3, 1
    movabs $6364136223846793005, %rcx
    mov %rdi, %rax
1:  imul %rcx, %rax
    add $1442695, %rax
    bt $62, %rax
    jc 2f
    nop
    jmp 3f
2:  nop
    jmp 3f
3:  dec %rdi
    jnz 1b
    ret

    .section .user.data, "aw"
    .balign 4096
    .globl user_buffer
user_buffer:
    .skip 4096
    .globl exit_msr
exit_msr:
    .long 0
    .globl exit_pmc
exit_pmc:
    .long 0
