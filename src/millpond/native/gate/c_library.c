// Reads the C library's own symbol table: whoever exports dlsym and dlvsym can ask neither where the others are. It may be
// asked before any other library is ready, by one that stands before functions of the C library itself, as those of
// sanitizers do; so nothing here calls any.
#include "c_library.h"

#include <link.h>
#include <stddef.h>
#include <stdint.h>

#define HIDDEN_VERSION 0x8000  // of a symbol that only programs built against an older library get

struct tables {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *hashes;
    const ElfW(Half) *versions;
};

static bool begins(const char *text, const char *with) {
    while (*with && *text == *with) text++, with++;
    return !*with;
}

bool c_library_same(const char *one, const char *other) {
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

static bool is_c_library(const char *path) {
    const char *name = path;
    for (const char *letter = path; *letter; letter++)
        if (*letter == '/') name = letter + 1;
    return begins(name, "libc.so.") || begins(name, "libc-2.") || begins(name, "libdl.so.") || begins(name, "libdl-2.");
}

static struct tables read_tables(const struct link_map *library) {
    struct tables tables = {NULL, NULL, NULL, NULL};
    for (const ElfW(Dyn) *entry = library->l_ld; entry && entry->d_tag != DT_NULL; entry++) {
        // Where the loader leaves them as they are in the file, they are counted from the library's beginning.
        uintptr_t at = entry->d_un.d_ptr < library->l_addr ? library->l_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB) tables.symbols = (const void *)at;
        else if (entry->d_tag == DT_STRTAB) tables.strings = (const void *)at;
        else if (entry->d_tag == DT_GNU_HASH) tables.hashes = (const void *)at;
        else if (entry->d_tag == DT_VERSYM) tables.versions = (const void *)at;
    }
    return tables;
}

// The table is laid out as the GNU linkers write it: four words, a filter, buckets, and a chain for each bucket.
static const ElfW(Sym) *look_up(const struct tables *tables, const char *name) {
    uint32_t hash = 5381, number = tables->hashes[0], first = tables->hashes[1];
    const uint32_t *buckets = tables->hashes + 4 + tables->hashes[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + number;
    for (const char *letter = name; *letter; letter++) hash = hash * 33 + (unsigned char)*letter;
    for (uint32_t index = buckets[hash % number]; index >= first; index++) {
        const ElfW(Sym) *symbol = &tables->symbols[index];
        bool current = !tables->versions || !(tables->versions[index] & HIDDEN_VERSION);
        if (current && symbol->st_shndx != SHN_UNDEF && c_library_same(tables->strings + symbol->st_name, name)) return symbol;
        if (chain[index - first] & 1) break;
    }
    return NULL;
}

void *c_library_function(const char *name) {
    for (const struct link_map *library = _r_debug.r_map; library; library = library->l_next) {
        if (!library->l_name || !is_c_library(library->l_name)) continue;
        struct tables tables = read_tables(library);
        if (!tables.symbols || !tables.strings || !tables.hashes || !tables.hashes[0]) continue;
        const ElfW(Sym) *symbol = look_up(&tables, name);
        if (symbol) return (void *)(library->l_addr + symbol->st_value);
    }
    return NULL;
}
