#define _GNU_SOURCE
#include "base/build_id.h"

#include "base/assert.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define DIGEST_BYTES ((size_t)8)

typedef struct search {
    uintptr_t code; // an address of ours
    char *text;
    size_t bytes;
} search;

static bool holds(const struct dl_phdr_info *file, uintptr_t address)
{
    for (int i = 0; i < file->dlpi_phnum; i++) {
        const uintptr_t first = file->dlpi_addr + file->dlpi_phdr[i].p_vaddr;
        if (file->dlpi_phdr[i].p_type != PT_LOAD) continue;
        if (first <= address && address - first < file->dlpi_phdr[i].p_memsz) return true;
    }
    return false;
}

// Notes follow each other: header, name and contents, each filled up to 4 bytes.
static bool find_note(const search *wanted, const char *notes, size_t size)
{
    for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof(note));
        const size_t name = at + sizeof(note);
        const size_t contents = name + ((size_t)note.n_namesz + 3) / 4 * 4;
        const size_t next = contents + ((size_t)note.n_descsz + 3) / 4 * 4;
        if (next > size) return false;
        const bool gnu = note.n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0;
        if (gnu && note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= DIGEST_BYTES) {
            for (size_t i = 0; i < DIGEST_BYTES; i++) {
                const unsigned char byte = (unsigned char)notes[contents + i];
                snprintf(wanted->text + 2 * i, 3, "%02x", byte);
            }
            return true;
        }
        at = next;
    }
    return false;
}

static int visit(struct dl_phdr_info *file, size_t size, void *context)
{
    (void)size;
    const search *wanted = context;
    if (!holds(file, wanted->code)) return 0;
    for (int i = 0; i < file->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &file->dlpi_phdr[i];
        if (part->p_type != PT_NOTE) continue;
        const char *notes = NULL;
        const uintptr_t address = file->dlpi_addr + part->p_vaddr;
        memcpy(&notes, &address, sizeof(notes));
        if (find_note(wanted, notes, part->p_memsz)) break;
    }
    return 1;
}

void cy_build_id(char *text, size_t bytes)
{
    CY_ASSERT(bytes > 2 * DIGEST_BYTES);
    text[0] = '\0';
    static const char here = 0;
    search wanted = {.code = (uintptr_t)&here, .text = text, .bytes = bytes};
    (void)dl_iterate_phdr(visit, &wanted);
}
