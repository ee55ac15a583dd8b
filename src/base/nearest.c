#include "base/nearest.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 63

static int letter(char c)
{
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

int cy_edit_distance(const char *a, const char *b)
{
    const size_t rows = strlen(a);
    const size_t cols = strlen(b);
    if (rows > LONGEST || cols > LONGEST) return strcmp(a, b) == 0 ? 0 : LONGEST;

    // Three rows of the table of prefixes: a swap of neighbours looks two rows back.
    int table[3][LONGEST + 1] = {{0}};
    for (size_t j = 0; j <= cols; j++)
        table[0][j] = (int)j;
    for (size_t i = 1; i <= rows; i++) {
        int *row = table[i % 3];
        const int *above = table[(i - 1) % 3];
        const int *two_above = table[(i + 1) % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= cols; j++) {
            const int cost = letter(a[i - 1]) != letter(b[j - 1]);
            row[j] = least(least(above[j] + 1, row[j - 1] + 1), above[j - 1] + cost);
            const int is_swap = i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                letter(a[i - 2]) == letter(b[j - 1]);
            if (is_swap) row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return table[rows % 3][cols];
}

// Whether each word of `name` (parts between `_` and `-`) is in `in`: "num_layers" in
// "num_hidden_layers". Words of fewer than three letters are everywhere and do not count.
static int has_words(const char *in, const char *name)
{
    int found = 0;
    while (*name != '\0') {
        const size_t length = strcspn(name, "_-");
        char word[LONGEST + 1];
        if (length >= 3 && length <= LONGEST) {
            memcpy(word, name, length);
            word[length] = '\0';
            if (strstr(in, word) == NULL) return 0;
            found += (int)length;
        }
        name += length;
        if (*name != '\0') name++;
    }
    return found >= 4;
}

// Too many changes for names of which the longer one has so many letters.
static int is_far(int distance, size_t longer)
{
    return distance > 2 && (size_t)distance * 5 > longer * 2;
}

const char *cy_nearest(const char *name, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 0;
    const size_t length = strlen(name);
    if (length > LONGEST) return NULL;
    for (size_t i = 0; i < count; i++) {
        const size_t other = strlen(names[i]);
        const size_t longer = other > length ? other : length;
        const int words = has_words(names[i], name);
        // No distance is below that of the lengths, and most names are told apart by it.
        if (!words && is_far((int)(longer - (other < length ? other : length)), longer)) continue;
        int distance = cy_edit_distance(name, names[i]);
        // A word that was cut short ("layers" for "num_hidden_layers") is one or two steps away.
        if (words) distance = least(distance, 2);
        if (is_far(distance, longer) || (size_t)distance >= longer) continue;
        if (best == NULL || distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}
