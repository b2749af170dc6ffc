// Short sequences in which each instruction has its place.

    .text
// uint64_t write_then_read(uint32_t msr edi, uint64_t value rsi)
    .globl write_then_read
write_then_read:
    mov %edi, %ecx
    mov %esi, %eax
    mov %rsi, %rdx
    shr $32, %rdx
    wrmsr
    rdmsr
    shl $32, %rdx
    or %rdx, %rax
    ret

// void read_four_times(uint32_t msr edi, uint32_t pmc esi, uint64_t* values rdx)
    .globl read_four_times
read_four_times:
    mov %rdx, %r8
    mov %edi, %ecx
    rdmsr
    mov %eax, 0(%r8)
    mov %edx, 4(%r8)
    mov %esi, %ecx
    rdpmc
    mov %eax, 8(%r8)
    mov %edx, 12(%r8)
    rdpmc
    mov %eax, 16(%r8)
    mov %edx, 20(%r8)
    mov %edi, %ecx
    rdmsr
    mov %eax, 24(%r8)
    mov %edx, 28(%r8)
    ret

// void watch_22nd_instruction(uint32_t msr edi, uint64_t value rsi, uint32_t status edx, uint64_t* values rcx)
    .globl watch_22nd_instruction
watch_22nd_instruction:
    mov %rcx, %r8
    mov %edx, %r9d
    mov %edi, %ecx
    mov %esi, %eax
    mov %rsi, %rdx
    shr $32, %rdx
    wrmsr               // 1st
    mov %r9d, %ecx      // 2nd
    .rept 19
    nop                 // to the 21st
    .endr
    rdmsr               // reads what 21 did
    mov %eax, 0(%r8)
    mov %edx, 4(%r8)
    rdmsr
    mov %eax, 8(%r8)
    mov %edx, 12(%r8)
    ret

    .macro may_fault from, to
    .pushsection .fixups, "a"
    .quad \from, \to
    .popsection
    .endm

    .section .user.text, "ax"
    .globl user_rdpmc
user_rdpmc:
    mov %edi, %ecx
1:  rdpmc
    jmp user_value
    may_fault 1b, user_fault

    .globl user_rdmsr
user_rdmsr:
    mov %edi, %ecx
1:  rdmsr
    jmp user_value
    may_fault 1b, user_fault

    .globl user_cli
user_cli:
1:  cli
    xor %eax, %eax
    ret
    may_fault 1b, user_fault

    .globl user_in
user_in:
    mov %edi, %edx
    xor %eax, %eax
1:  in %dx, %al
    ret
    may_fault 1b, user_fault

    .globl user_kernel_read
user_kernel_read:
1:  mov start_guest, %rax
    xor %eax, %eax
    ret
    may_fault 1b, user_fault

user_value:
    shl $32, %rdx
    or %rdx, %rax
    ret
user_fault:
    mov $-1, %rax
    ret
