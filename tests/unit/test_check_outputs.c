// Whether a run may write where its configuration says is known before anything is made.

#include "support/engines.h"
#include "support/support.h"

#include "base/file.h"
#include "train/checks.h"
#include "train/run_folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 512

// FOLDER/NAME in `path` [PATH_BYTES].
static const char *below(char *path, const char *folder, const char *name)
{
    snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return path;
}

static void folders_that_can_be_made_are_fine(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "a/", "a/b/c", "a//b//", "./a", "a/../b"};
    char folder[256], path[PATH_BYTES];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(cy_check_output("k", folder));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CY_CHECK_OK(cy_check_output("k", below(path, folder, names[i])));
    }
    assert_int_equal(rmdir(folder), 0); // nothing was made
    assert_int_equal(mkdir(folder, 0777), 0);

    assert_int_equal(chdir(folder), 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CY_CHECK_OK(cy_check_output("k", names[i]));
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_int_equal(chdir("/"), 0);
}

static void a_folder_below_a_file_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"file/x", "file/x/", "file/x/y/z"};
    char folder[256], path[PATH_BYTES], text[PATH_BYTES + 60];
    cy_test_folder(folder, sizeof(folder));
    CY_CHECK_OK(cy_file_write(below(path, folder, "file"), "", 0));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        below(path, folder, names[i]);
        snprintf(text, sizeof(text), "some.key = \"%s\": make folder: Not a directory", path);
        CY_CHECK_FAILS(cy_check_output("some.key", path), CY_ERR_IO, text);
        assert_string_equal(cy_error_hint(), "give a folder that you may write to");
    }
}

static void a_closed_folder_is_refused(void **state)
{
    (void)state;
    char folder[256], path[PATH_BYTES];
    if (geteuid() == 0) skip(); // root may write everywhere
    cy_test_folder(folder, sizeof(folder));
    assert_int_equal(chmod(folder, 0555), 0);
    CY_CHECK_FAILS(
        cy_check_output("some.key", folder), CY_ERR_IO, "\": write into it: Permission denied");
    CY_CHECK_FAILS(cy_check_output("some.key", below(path, folder, "a/b")), CY_ERR_IO,
        "/a/b\": make folder: Permission denied");
    assert_int_equal(chmod(folder, 0), 0);
    CY_CHECK_FAILS(cy_check_output("some.key", below(path, folder, "a/b")), CY_ERR_IO,
        "/a/b\": make folder: Permission denied");
    assert_int_equal(chmod(folder, 0777), 0);
}

// What stands in the way inside of a folder that may be written is told with the key too.
static void other_failures_keep_their_words(void **state)
{
    (void)state;
    static cy_config config;
    char folder[256], path[PATH_BYTES], text[2 * PATH_BYTES];
    cy_run_folder opened = {0};
    cy_sinks sinks = {0};
    cy_test_config(&config, CY_F32);
    cy_test_folder(folder, sizeof(folder));
    snprintf(config.logging.run_dir, sizeof(config.logging.run_dir), "%s", folder);
    assert_int_equal(mkdir(below(path, folder, "metrics.jsonl"), 0777), 0);
    snprintf(text, sizeof(text), "logging.run_dir = \"%s\": %s is a folder, not a regular file",
        folder, path);
    CY_CHECK_FAILS(cy_run_folder_open(&opened, &sinks, &config, 0), CY_ERR_IO, text);
    assert_false(opened.open);
    assert_int_equal(cy_output_status(CY_OK, "k", "file/x"), CY_OK);
    assert_int_equal(cy_output_status(CY_ERR_PEER, "k", "file/x"), CY_ERR_PEER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_that_can_be_made_are_fine),
        cmocka_unit_test(a_folder_below_a_file_is_refused),
        cmocka_unit_test(a_closed_folder_is_refused),
        cmocka_unit_test(other_failures_keep_their_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
