// The suite of the backends with tensors of more than a megabyte, of a length that nothing divides.

#include "dist/group_suite.h"

static void megabytes(void **state)
{
    (void)state;
    suite_threads(((int64_t)1 << 20) + 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(megabytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
