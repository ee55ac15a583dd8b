// The nearest name is what a person meant, and nothing is suggested where nothing is near.

#include "support/support.h"

#include "base/text.h"

#include <stdbool.h>
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
    static const struct {
        const char *a, *b;
        int steps;
    } cases[] = {
        {"", "", 0},
        {"abc", "", 3},
        {"", "ab", 2},
        {"kitten", "sitting", 3},
        {"form", "from", 1}, // a swap is one step
        {"ab", "ba", 1},
        {"abcd", "badc", 2},
        {"abc", "cba", 2},
        {"ca", "abc", 3}, // what was swapped is not changed again
        {"aab", "aba", 1},
        {"save-dir", "Save_Dir", 0},
        {"a_b", "ab", 1},
        {"a-b", "a b", 1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cy_edit_distance(cases[i].a, cases[i].b), cases[i].steps);
        assert_int_equal(cy_edit_distance(cases[i].b, cases[i].a), cases[i].steps);
    }
    // 63 letters are compared, more only as a whole.
    char a[70], b[70];
    for (size_t length = 62; length <= 65; length++) {
        memset(a, 'x', length);
        memset(b, 'x', length);
        a[length] = b[length] = '\0';
        assert_int_equal(cy_edit_distance(a, b), 0);
        b[0] = 'y';
        assert_int_equal(cy_edit_distance(a, b), length <= 63 ? 1 : 63);
        assert_int_equal(cy_edit_distance(a, "x"), length <= 63 ? (int)length - 1 : 63);
        assert_int_equal(cy_edit_distance("x", a), length <= 63 ? (int)length - 1 : 63);
    }
}

// What is far from a name of so many letters, and what is not.
static void limits_of_what_is_near(void **state)
{
    (void)state;
    static const struct {
        const char *name, *other;
        bool near;
    } cases[] = {
        {"a", "b", false},
        {"ab", "cb", true},
        {"ab", "cd", false},
        {"abc", "xyc", true},
        {"abcdefg", "xyzdefg", false},      // 3 of 7
        {"abcdefgh", "xyzdefgh", true},     // 3 of 8
        {"abcdefghi", "wxyzefghi", false},  // 4 of 9
        {"abcdefghij", "wxyzefghij", true}, // 4 of 10
        {"abcde", "abcdefgh", true},
        {"abc", "abcdef", false},
        {"abcd", "abcdefg", true}, // a whole word
        {"abcdefg", "abcd", false},
        // Whole words, in any order, of at least four letters.
        {"size", "tp_batch_size_of_all_ranks", true},
        {"tp", "tp_batch_size_of_all_ranks", false},
        {"all", "tp_batch_size_of_all_ranks", false},
        {"all_tp", "tp_batch_size_of_all_ranks", false},
        {"all-size", "tp_batch_size_of_all_ranks", true},
        {"ranks_of_size", "tp_batch_size_of_all_ranks", true},
        {"size_none", "tp_batch_size_of_all_ranks", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const list[1] = {cases[i].other};
        const char *found = cy_nearest(cases[i].name, list, 1);
        if ((found != NULL) != cases[i].near) fail_msg("%s, %s", cases[i].name, cases[i].other);
    }
    // The nearest wins, the first of equals, and one letter before a whole word.
    const char *const several[] = {"batch_size", "sizes", "sized", "side"};
    assert_string_equal(cy_nearest("size", several, 1), "batch_size");
    assert_string_equal(cy_nearest("size", several, 4), "sizes");
    assert_string_equal(cy_nearest("siye", several, 3), "sizes");
    assert_string_equal(cy_nearest("sidee", several, 4), "side");
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
        cmocka_unit_test(limits_of_what_is_near),
        cmocka_unit_test(suggestions),
        cmocka_unit_test(long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
