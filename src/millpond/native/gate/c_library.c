// Reads the C library's own symbol table: whoever exports dlsym and dlvsym can ask neither where the others are.
#include "c_library.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define HIDDEN_VERSION 0x8000  // of a symbol that only programs built against an older library get

struct search { const char *name; void *found; };

struct tables {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *hashes;
    const ElfW(Half) *versions;
};

static bool is_c_library(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return !strncmp(name, "libc.so.", 8) || !strncmp(name, "libc-2.", 7) || !strncmp(name, "libdl.so.", 9) ||
           !strncmp(name, "libdl-2.", 8);
}

static struct tables read_tables(const struct dl_phdr_info *library) {
    struct tables tables = {0};
    const ElfW(Dyn) *entry = NULL;
    for (int index = 0; index < library->dlpi_phnum; index++)
        if (library->dlpi_phdr[index].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(library->dlpi_addr + library->dlpi_phdr[index].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        // Where the loader leaves them as they are in the file, they are counted from the library's beginning.
        uintptr_t at = entry->d_un.d_ptr < library->dlpi_addr ? library->dlpi_addr + entry->d_un.d_ptr : entry->d_un.d_ptr;
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
        if (current && symbol->st_shndx != SHN_UNDEF && !strcmp(tables->strings + symbol->st_name, name)) return symbol;
        if (chain[index - first] & 1) break;
    }
    return NULL;
}

static int visit(struct dl_phdr_info *library, size_t size, void *searched) {
    struct search *search = searched;
    struct tables tables = {0};
    if (!size || !library->dlpi_name || !is_c_library(library->dlpi_name)) return 0;
    tables = read_tables(library);
    if (!tables.symbols || !tables.strings || !tables.hashes || !tables.hashes[0]) return 0;
    const ElfW(Sym) *symbol = look_up(&tables, search->name);
    if (symbol) search->found = (void *)(library->dlpi_addr + symbol->st_value);
    return symbol != NULL;
}

void *c_library_function(const char *name) {
    struct search search = {name, NULL};
    dl_iterate_phdr(visit, &search);
    return search.found;
}
