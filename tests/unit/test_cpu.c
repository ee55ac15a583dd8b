// What the processor offers, held against what the system says of it.

#include "support/support.h"

#include "base/file.h"
#include "base/platform.h"
#include "build_info.h"

#include <string.h>

static bool flag(const char *flags, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = strstr(flags, name); at != NULL; at = strstr(at + 1, name)) {
        if (at[-1] == ' ' && (at[length] == ' ' || at[length] == '\n')) return true;
    }
    return false;
}

static void features_are_those_of_the_system(void **state)
{
    (void)state;
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, "/proc/cpuinfo", 64 << 20));
#if defined(__aarch64__)
    const char *flags =
        strstr(text.bytes, "Features"); // an emulator shows another processor's file
#else
    const char *flags = strstr(text.bytes, "flags");
#endif
    if (flags == NULL) {
        cy_text_free(&text);
        skip();
        return; // never, but that analysers do not know
    }
    cy_cpu told = {.neon = flag(flags, "asimd"),
        .avx2 = flag(flags, "avx2") && flag(flags, "fma") && flag(flags, "f16c")};
    told.avx512 = told.avx2 && flag(flags, "avx512f") && flag(flags, "avx512bw") &&
        flag(flags, "avx512dq") && flag(flags, "avx512vl");
    told.avx512_bf16 = told.avx512 && flag(flags, "avx512_bf16");
    cy_cpu_limit(&told, CY_MAX_ISA); // a build that is held to a level finds no more
    assert_int_equal(cpu.neon, told.neon);
    assert_int_equal(cpu.avx2, told.avx2);
    assert_int_equal(cpu.avx512, told.avx512);
    assert_int_equal(cpu.avx512_bf16, told.avx512_bf16);
    // The kernel may show tiles and yet refuse them to this process, not the other way round.
    if (cpu.amx) assert_true(flag(flags, "amx_bf16") && flag(flags, "amx_tile"));
    cy_text_free(&text);
}

// The next word from `at` on, of at most 63 characters, in `word`; where it ends.
static const char *next_word(const char *at, char word[64])
{
    size_t length = 0;
    while (*at == ' ')
        at++;
    while (*at != ' ' && *at != '\n' && *at != '\0' && length < 63)
        word[length++] = *at++;
    word[length] = '\0';
    return at;
}

// The system leaves out spaces at the ends and further ones between words.
static void the_name_is_that_of_the_system(void **state)
{
    (void)state;
    cy_cpu cpu;
    cy_cpu_detect(&cpu);
    cy_text text = {0};
    CY_CHECK_OK(cy_file_read(&text, "/proc/cpuinfo", 64 << 20));
#if defined(__aarch64__)
    const char *line = NULL; // numbers, not a name
    assert_true(cpu.name[0] == '\0' || strncmp(cpu.name, "aarch64", 7) == 0);
#else
    const char *line = strstr(text.bytes, "model name");
#endif
    const char *theirs = line == NULL ? NULL : strchr(line, ':');
    if (theirs == NULL) {
        cy_text_free(&text);
        skip();
        return; // never, but that analysers do not know
    }
    const char *ours = cpu.name;
    char word[64], wanted[64];
    theirs++;
    do {
        theirs = next_word(theirs, wanted);
        ours = next_word(ours, word);
        assert_string_equal(word, wanted);
    } while (wanted[0] != '\0');
    cy_text_free(&text);
}

static void a_second_look_sees_the_same(void **state)
{
    (void)state;
    cy_cpu first, second;
    cy_cpu_detect(&first);
    cy_cpu_detect(&second);
    assert_memory_equal(first.name, second.name, sizeof(first.name));
    assert_int_equal(first.amx, second.amx);
    assert_int_equal(first.cores, second.cores);
    assert_true(first.cores >= 1);
    if (first.l1_bytes > 0) assert_in_range(first.l1_bytes, 4 << 10, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_are_those_of_the_system),
        cmocka_unit_test(the_name_is_that_of_the_system),
        cmocka_unit_test(a_second_look_sees_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
