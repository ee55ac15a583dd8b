// Any bytes as a configuration file, and after a zero byte as one --section.key=value: read,
// resolved, checked, and where that succeeded written and read again, which must come to the same.

#include "fuzz.h"

#include "config/config.h"

#include <stdlib.h>
#include <string.h>

// The resolved configuration as JSON in *json; false where it is refused.
static int load(cy_text *json, const char *text, size_t length, const char *override)
{
    static cy_config config; // large, and of no interest between calls
    const cy_config_machine machine = {.cores = 2};
    cy_config_errors errors = {0};
    const char *overrides[] = {override};
    cy_status status =
        cy_config_read(&config, &errors, text, length, "fuzz", overrides, override != NULL ? 1 : 0);
    if (status == CY_OK) status = cy_config_resolve(&config, &errors);
    if (status == CY_OK) {
        status = cy_config_check(&config, &errors, CY_CONFIG_FOR_SHAPE, &machine);
    }
    if (status == CY_OK) status = cy_config_to_json(json, &config);
    // A refusal says why.
    if (status == CY_ERR_REQUEST && errors.count == 0) abort();
    if (status != CY_OK && status != CY_ERR_REQUEST) abort();
    cy_config_errors_free(&errors);
    return status == CY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    const size_t length = strlen(text);
    const char *override = length < size ? text + length + 1 : NULL;

    cy_text first = {0};
    cy_text second = {0};
    if (load(&first, text, length, override)) {
        if (!load(&second, first.bytes, first.length, NULL)) abort();
        if (strcmp(first.bytes, second.bytes) != 0) abort();
    }
    cy_text_free(&first);
    cy_text_free(&second);
    free(text);
    return 0;
}
