// The multiboot header, and the way from 32-bit protected mode to 64-bit mode.
#include "layout.h"

// Multiboot specification 0.6.96, section 3.1: the loader states the memory (bit 1) and places the image by the
// addresses below (bit 16), so that loaders which take no ELF64 file take this one.
#define MULTIBOOT_MAGIC 0x1BADB002
#define MULTIBOOT_FLAGS (1 << 1 | 1 << 16)

    .section .multiboot, "a"
    .balign 4
multiboot_header:
    .long MULTIBOOT_MAGIC
    .long MULTIBOOT_FLAGS
    .long -(MULTIBOOT_MAGIC + MULTIBOOT_FLAGS)
    .long multiboot_header
    .long image_begin
    .long image_data_end
    .long image_end
    .long start32

#define CR4_PAE (1 << 5)
#define EFER 0xC0000080
#define EFER_SCE_LME (1 << 0 | 1 << 8)
#define CR0_CACHE_OFF (1 << 29 | 1 << 30)
#define CR0_PG_WP_NE_PE (1 << 31 | 1 << 16 | 1 << 5 | 1 << 0)

    .section .boot32, "ax"
    .code32
    .globl start32
start32:
    cli
    cld
    mov $boot_stack_top, %esp
    mov %eax, multiboot_magic
    mov %ebx, multiboot_information
    mov %cr4, %eax
    or $CR4_PAE, %eax
    mov %eax, %cr4
    mov $page_map, %eax
    mov %eax, %cr3
    mov $EFER, %ecx
    rdmsr
    or $EFER_SCE_LME, %eax
    wrmsr
    mov %cr0, %eax
    and $~CR0_CACHE_OFF, %eax
    or $CR0_PG_WP_NE_PE, %eax
    mov %eax, %cr0
    lgdt boot_gdt_pointer
    ljmp $KERNEL_CODE, $start64

    .code64
start64:
    mov $KERNEL_DATA, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    xor %ebp, %ebp
    mov $boot_stack_top, %rsp
    mov multiboot_magic, %edi
    mov multiboot_information, %esi
    call start_guest
1:  hlt
    jmp 1b

    .section .rodata
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00AF9B000000FFFF  // code, ring 0, 64-bit
    .quad 0x00CF93000000FFFF  // data, ring 0
boot_gdt_pointer:
    .word . - boot_gdt - 1
    .quad boot_gdt

// Linear addresses are physical ones in the low 4 GB: by 4 KB in the first 2 MB, where single pages are the user's,
// and by 2 MB in the rest.
#define PRESENT_WRITE 3
#define PRESENT_WRITE_USER 7
#define LARGE 0x80
#define UNCACHED 0x18
#define APIC_PAGE 0xFEE00000

    .section .data
    .balign 4096
page_map:
    .quad page_directory_pointers + PRESENT_WRITE_USER
    .fill 511, 8, 0
page_directory_pointers:
    .quad page_directories + PRESENT_WRITE_USER
    .quad page_directories + 0x1000 + PRESENT_WRITE
    .quad page_directories + 0x2000 + PRESENT_WRITE
    .quad page_directories + 0x3000 + PRESENT_WRITE
    .fill 508, 8, 0
page_directories:
    .quad first_pages + PRESENT_WRITE_USER
    .set page, 0x200000
    .rept 2047
    .if page == APIC_PAGE
    .quad page + PRESENT_WRITE + LARGE + UNCACHED
    .else
    .quad page + PRESENT_WRITE + LARGE
    .endif
    .set page, page + 0x200000
    .endr
    .globl first_pages
first_pages:
    .set page, 0
    .rept 512
    .quad page + PRESENT_WRITE
    .set page, page + 0x1000
    .endr

multiboot_magic:
    .long 0
multiboot_information:
    .long 0

    .section .bss
    .balign 16
    .skip STACK_BYTES
boot_stack_top:
