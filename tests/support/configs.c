#include "support/configs.h"

#include "support/support.h"

#include <stdio.h>
#include <string.h>

#define OPTIONS_MAX 128
#define TEXT_BYTES  4096

static const char *with_quotes(char text[TEXT_BYTES], const char *given)
{
    assert_true(strlen(given) < TEXT_BYTES);
    snprintf(text, TEXT_BYTES, "%s", given);
    return cy_test_quotes(text);
}

void cy_test_read_config_on(cy_config *config, const char *text, const char *const *options,
    int count, cy_test_reading reading, cy_config_machine machine, const char *faults)
{
    static char file[TEXT_BYTES], texts[OPTIONS_MAX][TEXT_BYTES];
    const char *list[OPTIONS_MAX];
    cy_config_errors errors = {0};
    assert_true(count <= OPTIONS_MAX);
    for (int i = 0; i < count; i++)
        list[i] = with_quotes(texts[i], options[i]);
    const size_t length = text != NULL ? strlen(with_quotes(file, text)) : 0;
    cy_status status = cy_config_read(
        config, &errors, text != NULL ? file : NULL, length, "test.json", list, count);
    if (status == CY_OK && reading >= CY_TEST_RESOLVED) status = cy_config_resolve(config, &errors);
    if (status == CY_OK && reading == CY_TEST_CHECKED) {
        status = cy_config_check(config, &errors, CY_CONFIG_FOR_SHAPE, &machine);
    }
    const char *got = errors.lines.bytes != NULL ? errors.lines.bytes : "";
    const char *wanted = faults != NULL ? faults : "";
    if (strcmp(got, wanted) != 0) {
        print_error("%s\ngave:\n%swanted:\n%s", text != NULL ? text : options[0], got, wanted);
        fail();
    }
    assert_int_equal(status, faults != NULL ? CY_ERR_REQUEST : CY_OK);
    cy_config_errors_free(&errors);
}

void cy_test_read_config(cy_config *config, const char *text, const char *const *options, int count,
    cy_test_reading reading, const char *faults)
{
    cy_test_read_config_on(
        config, text, options, count, reading, (cy_config_machine){.cores = 2}, faults);
}

void cy_test_refusals(const cy_test_refusal *cases, size_t count, cy_test_reading reading)
{
    for (size_t i = 0; i < count; i++) {
        cy_config config;
        const bool is_option = reading == CY_TEST_OPTION;
        cy_test_read_config(&config, is_option ? NULL : cases[i].given, &cases[i].given, is_option,
            reading, cases[i].faults);
    }
}
