// JSON for output: numbers, strings that are not UTF-8, the order of fields, values that are
// missing.

#include "support/support.h"

#include "base/json.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static void check(json_t *value, size_t flags, const char *wanted)
{
    cy_text text = {0};
    CY_CHECK_OK(cy_text_add(&text, "> "));
    CY_CHECK_OK(cy_json_add(&text, value, flags));
    assert_string_equal(text.bytes + 2, wanted);
    cy_text_free(&text);
}

static void numbers_read_back_as_the_same_bits(void **state)
{
    (void)state;
    check(cy_json_real(0.1), 0, "0.10000000000000001");
    check(cy_json_real(1), 0, "1");
    check(cy_json_real(0), 0, "0");
    check(cy_json_real(-99999999999999984.0), 0, "-99999999999999984");
    check(cy_json_real(1e17), 0, "1e17");
    check(cy_json_real(-0.0), 0, "-0.0");
    check(cy_json_real(1e-5), 0, "1.0000000000000001e-5");
    check(cy_json_real(12.345), JSON_REAL_PRECISION(15), "12.345");
    check(cy_json_real((double)NAN), 0, "null");
    check(cy_json_real((double)INFINITY), 0, "null");
    check(cy_json_real(-(double)INFINITY), 0, "null");
    const double values[] = {0.1, 1.0 / 3, 3e-320, DBL_MAX, DBL_MIN, 123456789.123456789, 5e-324};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        cy_text text = {0};
        CY_CHECK_OK(cy_json_add(&text, cy_json_real(values[i]), 0));
        assert_true(strtod(text.bytes, NULL) == values[i]);
        cy_text_free(&text);
    }
}

static void strings_become_valid(void **state)
{
    (void)state;
    check(cy_json_string("a\"\\\n\xc3\xa9", 6), 0, "\"a\\\"\\\\\\n\xc3\xa9\"");
    check(cy_json_string("", 0), 0, "\"\"");
    check(cy_json_string("a\xffz\xc3", 4), 0, "\"a\xef\xbf\xbdz\xef\xbf\xbd\"");
    check(cy_json_string("a\0\xff", 3), 0, "\"a\\u0000\xef\xbf\xbd\"");
}

static void fields_keep_their_order(void **state)
{
    (void)state;
    json_t *object = json_pack("{s:i, s:i}", "z", 1, "a", 2);
    json_t *list = json_array();
    cy_json_append(&list, json_true());
    cy_json_append(&list, json_null());
    cy_json_set(&object, "m", list);
    cy_json_set(&object, "b", cy_json_real(0.5));
    check(object, JSON_COMPACT, "{\"z\":1,\"a\":2,\"m\":[true,null],\"b\":0.5}");
}

// A value for which there was no memory makes what holds it fail, and nothing is lost or printed.
static void a_missing_value_fails_at_the_end(void **state)
{
    (void)state;
    cy_text text = {0};
    json_t *object = json_pack("{s:i}", "a", 1);
    cy_json_set(&object, "b", NULL);
    assert_null(object);
    cy_json_set(&object, "c", json_integer(3));
    json_t *list = json_array();
    cy_json_append(&list, object);
    assert_null(list);
    cy_json_append(&list, json_integer(4));
    CY_CHECK_FAILS(cy_json_add(&text, list, 0), CY_ERR_MEMORY, "no memory for JSON");
    CY_CHECK_FAILS(
        cy_json_add(&text, json_pack("{s:o}", "a", NULL), 0), CY_ERR_MEMORY, "no memory for JSON");
    assert_int_equal(text.length, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_read_back_as_the_same_bits),
        cmocka_unit_test(strings_become_valid),
        cmocka_unit_test(fields_keep_their_order),
        cmocka_unit_test(a_missing_value_fails_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
