// observe/proc_number.h: a number in one of the system's texts, as /proc/meminfo or memory.stat.

#ifndef CY_OBSERVE_PROC_NUMBER_H
#define CY_OBSERVE_PROC_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

// The number behind `key` and a space or colon at the beginning of a line, in the line's own unit;
// of the very beginning where the key is "". false where there is none, as behind a limit that says
// "max". Of several lines with the key the first counts.
bool cy_proc_number(uint64_t *number, const char *text, const char *key);

#endif
