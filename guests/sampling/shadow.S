// An interrupt that STI lets in comes after the instruction that follows STI (SDM volume 2, STI).

    .text
    .globl sti_shadow
    .globl shadow_end
sti_shadow:
    .rept 40
    nop
    .endr
    sti
    nop
shadow_end:
    nop
    nop
    cli
    ret
