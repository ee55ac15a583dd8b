#include "observe/proc_number.h"

#include <stdlib.h>
#include <string.h>

bool cy_proc_number(uint64_t *number, const char *text, const char *key)
{
    const size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        const char *from = line + length;
        if (length > 0 && *from != ' ' && *from != ':') continue;
        char *end = NULL;
        const uint64_t found = strtoull(from + (*from == ':'), &end, 10);
        if (end == from + (*from == ':')) return false;
        *number = found;
        return true;
    }
    return false;
}
