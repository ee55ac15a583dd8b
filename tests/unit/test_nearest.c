// The nearest name is what a person meant, and nothing is suggested where nothing is near.

#include "support/support.h"

#include "base/nearest.h"

#include <string.h>

static const char *const names[] = {
    "tp_size", "cp_size", "pp_size", "num_hidden_layers", "learning_rate", "micro_batch_size"};

static const char *nearest(const char *name)
{
    return cy_nearest(name, names, sizeof(names) / sizeof(names[0]));
}

static void distances(void **state)
{
    (void)state;
    assert_int_equal(cy_name_distance("", ""), 0);
    assert_int_equal(cy_name_distance("abc", ""), 3);
    assert_int_equal(cy_name_distance("kitten", "sitting"), 3);
    assert_int_equal(cy_name_distance("form", "from"), 1); // a swap is one step
    assert_int_equal(cy_name_distance("save-dir", "Save_Dir"), 0);
}

static void suggestions(void **state)
{
    (void)state;
    assert_string_equal(nearest("tp_sise"), "tp_size");
    assert_string_equal(nearest("learningrate"), "learning_rate");
    assert_string_equal(nearest("layers"), "num_hidden_layers");
    assert_string_equal(nearest("micro-batch-sizes"), "micro_batch_size");
    assert_null(nearest("flash"));
    assert_null(nearest(""));
    assert_null(cy_nearest("a", names, 0));
}

static void long_names(void **state)
{
    (void)state;
    char name[4096];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_null(nearest(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
