// support/manifests.h: checkpoints whose manifest says something else.

#ifndef CY_TESTS_MANIFESTS_H
#define CY_TESTS_MANIFESTS_H

#include <stdbool.h>
#include <stddef.h>

// Writes a file with these bytes.
void cy_test_put_file(const char *path, const void *bytes, size_t count);

// Replaces the first `from` by `to` in the manifest of the checkpoint folder `path`; with `sealed`
// its checksum is made to fit.
void cy_test_edit_manifest(const char *path, const char *from, const char *to, bool sealed);

#endif
