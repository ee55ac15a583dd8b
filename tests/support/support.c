#define _GNU_SOURCE
#include "support/support.h"

#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

void cy_check_ok(cy_status status, const char *call, const char *file, int line)
{
    if (status == CY_OK) return;
    print_error("%s: %s: %s\n", call, cy_status_name(status), cy_error_text());
    _fail(file, line);
}

void cy_test_worse(double *most, double difference)
{
    if (difference <= *most || isnan(*most)) return;
    *most = difference;
}

void cy_check_fails(cy_status status, cy_status wanted, const char *words, const char *call,
    const char *file, int line)
{
    const char *text = status == CY_OK ? "" : cy_error_text();
    if (status == wanted && strstr(text, words) != NULL) return;
    print_error("%s: %s: \"%s\", wanted %s: \"%s\"\n", call, cy_status_name(status), text,
        cy_status_name(wanted), words);
    _fail(file, line);
}

// The only folders that are removed are those that cy_test_folder made.
static char made[64][256];
static int made_count;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

static void remove_folders(void)
{
    for (int i = 0; i < made_count; i++)
        nftw(made[i], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void cy_test_flip(const char *path, long offset, int mask)
{
    const int from = offset < 0 ? SEEK_END : SEEK_SET;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, from), 0);
    const int byte = fgetc(file);
    assert_int_not_equal(byte, EOF);
    assert_int_equal(fseek(file, offset, from), 0);
    assert_int_equal(fputc(byte ^ mask, file), byte ^ mask);
    assert_int_equal(fclose(file), 0);
}

void cy_test_folder(char *path, size_t bytes)
{
    const char *root = getenv("TMPDIR");
    snprintf(path, bytes, "%s/cyclotron-test-XXXXXX", root != NULL ? root : "/tmp");
    if (mkdtemp(path) == NULL || made_count == 64) {
        print_error("no folder for the test at %s\n", path);
        abort();
    }
    if (made_count == 0) atexit(remove_folders);
    snprintf(made[made_count++], sizeof(made[0]), "%s", path);
}

const char *cy_test_isa(const char *isa)
{
    static const char *const levels[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx"};
    const char *most = getenv("TEST_ISA");
    if (most == NULL) return isa;
    if (strcmp(isa, "auto") == 0) return most;
    bool beyond = false;
    for (size_t i = 0; i < CY_TEST_COUNT(levels); i++) {
        if (beyond && strcmp(isa, levels[i]) == 0) return NULL;
        beyond = beyond || strcmp(most, levels[i]) == 0;
    }
    return isa;
}

const char *cy_test_program(void)
{
    const char *path = getenv("CYCLOTRON");
    return path != NULL ? path : "build/cyclotron";
}

char *cy_test_quotes(char *text)
{
    for (char *c = text; *c != '\0'; c++) {
        if (*c == '\'') *c = '"';
    }
    return text;
}

bool cy_test_aborts(void (*call)(void))
{
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        call();
        _exit(0);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT;
}

static int json_allocations;
static int json_allocations_left;

static void *allocate_for_json(size_t bytes)
{
    json_allocations++;
    if (json_allocations_left > 0 && --json_allocations_left == 0) return NULL;
    return malloc(bytes);
}

void cy_test_json_fails_at(int at)
{
    json_set_alloc_funcs(allocate_for_json, free);
    json_allocations_left = at;
}

int cy_test_json_allocations(const char *text, size_t length)
{
    cy_test_json_fails_at(0);
    json_allocations = 0;
    json_t *value = json_loadb(text, length, JSON_ALLOW_NUL, NULL);
    assert_non_null(value);
    json_decref(value);
    return json_allocations;
}

bool cy_test_json_has_failed(void)
{
    return json_allocations_left == 0;
}
