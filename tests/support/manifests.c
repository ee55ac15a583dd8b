#include "support/manifests.h"

#include "base/file.h"
#include "checkpoint/manifest.h"
#include "support/support.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void cy_test_put_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

void cy_test_edit_manifest(const char *path, const char *from, const char *to, bool sealed)
{
    char file[400];
    cy_text text = {0}, edited = {0};
    snprintf(file, sizeof(file), "%s/manifest.json", path);
    CY_CHECK_OK(cy_file_read(&text, file, 1 << 20));
    char *place = strstr(text.bytes, from);
    assert_non_null(place);
    *place = '\0';
    CY_CHECK_OK(cy_text_add_bytes(&edited, text.bytes, strlen(text.bytes)));
    CY_CHECK_OK(cy_text_add(&edited, "%s", to));
    const char *rest = place + strlen(from);
    CY_CHECK_OK(cy_text_add_bytes(&edited, rest, strlen(rest)));
    char *tail = strstr(edited.bytes, "\"checksum\": \"");
    assert_non_null(tail);
    if (sealed) {
        char digits[17];
        const uint64_t sum = cy_checksum(edited.bytes, (size_t)(tail - edited.bytes));
        snprintf(digits, sizeof(digits), "%016" PRIx64, sum);
        memcpy(tail + strlen("\"checksum\": \""), digits, 16);
    }
    cy_test_put_file(file, edited.bytes, edited.length);
    cy_text_free(&text);
    cy_text_free(&edited);
}
