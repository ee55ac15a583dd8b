// Runs a fuzz target without a fuzzer: over the files of a corpus folder, and over copies of them
// that are damaged in a way that is the same in every run: bytes changed, cut off, doubled, and
// words that such files know put in.

#include "fuzz.h"

#include "base/random.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS  3000
#define LARGEST ((size_t)1 << 16)

typedef struct sample {
    uint8_t *bytes; // owned
    size_t size;
} sample;

static int read_sample(sample *into, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    into->bytes = malloc(LARGEST);
    into->size = into->bytes != NULL ? fread(into->bytes, 1, LARGEST, file) : 0;
    fclose(file);
    return into->bytes != NULL;
}

static int read_corpus(sample *samples, int most, const char *folder)
{
    DIR *list = opendir(folder);
    if (list == NULL) return 0;
    int count = 0;
    for (const struct dirent *entry = readdir(list); entry != NULL && count < most;
         entry = readdir(list)) {
        if (entry->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        count += read_sample(&samples[count], path);
    }
    closedir(list);
    return count;
}

static uint64_t draw(uint64_t *index)
{
    return cy_random_bits(0xf022, (*index)++);
}

static size_t damage(uint8_t *bytes, size_t size, uint64_t *index)
{
    static const char *const words[] = {"-1", "0", "9223372036854775807", "1e999", "null", "[[[[",
        "\"", "\\u0000", "\xff", "{}", "18446744073709551616", "\n"};
    const int changes = 1 + (int)(draw(index) % 4);
    for (int i = 0; i < changes && size > 0; i++) {
        const uint64_t bits = draw(index);
        const size_t at = (size_t)(draw(index) % size);
        const char *word = words[bits / 8 % (sizeof(words) / sizeof(words[0]))];
        switch (bits % 6) {
        case 0:
            bytes[at] = (uint8_t)(bits >> 32);
            break;
        case 1:
            bytes[at] ^= (uint8_t)(1u << (bits >> 32) % 8);
            break;
        case 2:
            size = at;
            break;
        case 3:
            memmove(bytes + at, bytes + at + 1, size - at - 1);
            size--;
            break;
        case 4:
            if (at + strlen(word) <= size) memcpy(bytes + at, word, strlen(word));
            break;
        default:
            if (size + size - at > LARGEST) break;
            memmove(bytes + size, bytes + at, size - at); // the end once more
            size += size - at;
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    sample samples[256] = {{0}};
    const int count = argc == 2 ? read_corpus(samples, 256, argv[1]) : 0;
    if (count == 0) {
        fprintf(stderr, "usage: %s FOLDER with at least one sample in it\n", argv[0]);
        return 2;
    }
    uint8_t *copy = malloc(LARGEST);
    if (copy == NULL) return 2;
    for (int i = 0; i < count; i++)
        (void)LLVMFuzzerTestOneInput(samples[i].bytes, samples[i].size);
    (void)LLVMFuzzerTestOneInput(copy, 0);
    uint64_t index = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const sample *from = &samples[round % count];
        memcpy(copy, from->bytes, from->size);
        (void)LLVMFuzzerTestOneInput(copy, damage(copy, from->size, &index));
    }
    printf("%d samples, %d damaged copies\n", count, ROUNDS);
    for (int i = 0; i < count; i++)
        free(samples[i].bytes);
    free(copy);
    return 0;
}
