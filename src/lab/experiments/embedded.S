// Files as data; the assembler is told their folders.
    .section .rodata

.macro included symbol, file
    .balign 16
    .global \symbol
    .hidden \symbol
\symbol:
    .incbin "\file"
    .global \symbol\()_end
    .hidden \symbol\()_end
\symbol\()_end:
    .byte 0
.endm

    included vpmu_guest_exits, exits.elf
    included vpmu_guest_multiplex, multiplex.elf
    included vpmu_guest_sampling, sampling.elf
    included vpmu_guest_tick, tick.elf
    included vpmu_page_frame, page.html
    included vpmu_page_chart, chart.min.js
    included vpmu_page_script, page.js

    .section .note.GNU-stack, "", @progbits
