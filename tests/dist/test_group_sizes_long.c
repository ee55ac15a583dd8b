// The suite of the backends with tensors of 64 MB and more.

#include "dist/group_suite.h"

static void tens_of_megabytes(void **state)
{
    (void)state;
    suite_threads((int64_t)16 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tens_of_megabytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
