"""The kernels, in PTX: what a driver alone can compile, so that no toolkit has to be there.

``spin`` counts: the same iterations are the same work, however often the card turns to others meanwhile, as a clock
would not tell. ``fill`` writes words that depend on place and seed, ``checksum`` adds words up, weighed by their place,
and ``poke`` writes where nothing is. ``takes`` is another module's.
"""

KERNELS = """
.version 7.0
.target sm_70
.address_size 64

// Counts on, a step depending on the one before; what it came to is written only if a thread hits on the one number.
.visible .entry spin(.param .u64 iterations, .param .u64 out)
{
    .reg .pred %end, %hit;
    .reg .u32 %value;
    .reg .u64 %left, %place;
    ld.param.u64 %left, [iterations];
    ld.param.u64 %place, [out];
    cvta.to.global.u64 %place, %place;
    mov.u32 %value, %clock;
STEP:
    setp.eq.u64 %end, %left, 0;
    @%end bra DONE;
    mad.lo.u32 %value, %value, 1664525, 1013904223;
    sub.u64 %left, %left, 1;
    bra STEP;
DONE:
    setp.eq.u32 %hit, %value, 271828182;
    @%hit st.global.u32 [%place], %value;
    ret;
}

// word[i] = (i + seed) * 2654435761, a thread every so many words.
.visible .entry fill(.param .u64 pointer, .param .u64 words, .param .u32 seed)
{
    .reg .pred %end;
    .reg .u32 %block, %width, %lane, %grid, %word, %seed;
    .reg .u64 %at, %words, %stride, %place, %base;
    ld.param.u64 %base, [pointer];
    ld.param.u64 %words, [words];
    ld.param.u32 %seed, [seed];
    cvta.to.global.u64 %base, %base;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %lane, %tid.x;
    mov.u32 %grid, %nctaid.x;
    mul.wide.u32 %at, %block, %width;
    cvt.u64.u32 %place, %lane;
    add.u64 %at, %at, %place;
    mul.wide.u32 %stride, %grid, %width;
NEXT:
    setp.ge.u64 %end, %at, %words;
    @%end bra DONE;
    cvt.u32.u64 %word, %at;
    add.u32 %word, %word, %seed;
    mul.lo.u32 %word, %word, 2654435761;
    shl.b64 %place, %at, 2;
    add.u64 %place, %base, %place;
    st.global.u32 [%place], %word;
    add.u64 %at, %at, %stride;
    bra NEXT;
DONE:
    ret;
}

// out += sum of word[i] * (2 i + 1), modulo 2^64.
.visible .entry checksum(.param .u64 pointer, .param .u64 words, .param .u64 out)
{
    .reg .pred %end;
    .reg .u32 %block, %width, %lane, %grid, %word;
    .reg .u64 %at, %words, %stride, %place, %base, %sum, %weight, %wide, %out;
    ld.param.u64 %base, [pointer];
    ld.param.u64 %words, [words];
    ld.param.u64 %out, [out];
    cvta.to.global.u64 %base, %base;
    cvta.to.global.u64 %out, %out;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mov.u32 %lane, %tid.x;
    mov.u32 %grid, %nctaid.x;
    mul.wide.u32 %at, %block, %width;
    cvt.u64.u32 %place, %lane;
    add.u64 %at, %at, %place;
    mul.wide.u32 %stride, %grid, %width;
    mov.u64 %sum, 0;
NEXT:
    setp.ge.u64 %end, %at, %words;
    @%end bra DONE;
    shl.b64 %place, %at, 2;
    add.u64 %place, %base, %place;
    ld.global.u32 %word, [%place];
    cvt.u64.u32 %wide, %word;
    shl.b64 %weight, %at, 1;
    add.u64 %weight, %weight, 1;
    mad.lo.u64 %sum, %wide, %weight, %sum;
    add.u64 %at, %at, %stride;
    bra NEXT;
DONE:
    red.global.add.u64 [%out], %sum;
    ret;
}

.visible .entry poke(.param .u64 place)
{
    .reg .u64 %place;
    .reg .u32 %word;
    ld.param.u64 %place, [place];
    mov.u32 %word, 1;
    st.global.u32 [%place], %word;
    ret;
}
"""

ALLOCATING = """
.version 7.0
.target sm_70
.address_size 64

.extern .func (.param .b64 given) malloc (.param .b64 asked);

// Takes a little of the heap, and writes where it lies.
.visible .entry takes(.param .u64 out)
{
    .reg .u64 %place, %got;
    .param .b64 asked;
    .param .b64 given;
    ld.param.u64 %place, [out];
    cvta.to.global.u64 %place, %place;
    st.param.b64 [asked], 1024;
    call.uni (given), malloc, (asked);
    ld.param.b64 %got, [given];
    st.global.u64 [%place], %got;
    ret;
}
"""
"""A module of its own: with the first that allocates, the driver takes memory that others do without."""


def filled(words: int, seed: int) -> list[int]:
    """What ``fill`` writes, for a check of the kernels themselves."""
    return [(at + seed) * 2654435761 % 2**32 for at in range(words)]


def summed(words: list[int]) -> int:
    """What ``checksum`` makes of words."""
    return sum(word * (2 * at + 1) for at, word in enumerate(words)) % 2**64
