// A library to be loaded in front of the C library (LD_PRELOAD): one allocation of the program
// fails.
//
// CY_FAIL_AT=N is the allocation or mapping that fails, counted from 1 over all threads; those
// after it succeed again. Only calls from the program's own code count, not those that libraries
// make for themselves. CY_FAIL_MARK=FILE is made when it has failed, so that who counts up knows
// where the end is.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PUBLIC  __attribute__((visibility("default"), noinline))
#define FAILS() fails((uintptr_t)__builtin_return_address(0))

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

typedef int program(int argc, char **argv, char **environment);
typedef int starter(program *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
    void (*loader_fini)(void), void *stack_end);
int __libc_start_main(program *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
    void (*loader_fini)(void), void *stack_end);

static uintptr_t first, last; // the program's code
static long fail_at;
static atomic_long seen;

static int find_program(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    (void)context;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
        first = object->dlpi_addr + part->p_vaddr;
        last = first + part->p_memsz;
    }
    return 1; // the first object is the program
}

// The program's main, between whose begin and end allocations fail: what a coverage build does
// before and after it is not the program's own work.
static program *program_main;

static int run_main(int argc, char **argv, char **environment)
{
    const char *at = getenv("CY_FAIL_AT");
    dl_iterate_phdr(find_program, NULL);
    fail_at = at != NULL ? strtol(at, NULL, 10) : 0;
    const int status = program_main(argc, argv, environment);
    fail_at = 0;
    return status;
}

PUBLIC int __libc_start_main(program *main, int argc, char **argv, void (*init)(void),
    void (*fini)(void), void (*loader_fini)(void), void *stack_end)
{
    void *found = dlsym(RTLD_NEXT, "__libc_start_main");
    starter *start = NULL;
    memcpy(&start, &found, sizeof(start));
    if (start == NULL) _exit(127);
    program_main = main;
    return start(run_main, argc, argv, init, fini, loader_fini, stack_end);
}

static int fails(uintptr_t caller)
{
    if (fail_at == 0 || caller < first || caller >= last) return 0;
    if (atomic_fetch_add(&seen, 1) + 1 != fail_at) return 0;
    const char *mark = getenv("CY_FAIL_MARK");
    const int fd = mark != NULL ? open(mark, O_CREAT | O_WRONLY | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) close(fd);
    errno = ENOMEM;
    return 1;
}

PUBLIC void *malloc(size_t size)
{
    return FAILS() ? NULL : __libc_malloc(size);
}

PUBLIC void *calloc(size_t count, size_t size)
{
    return FAILS() ? NULL : __libc_calloc(count, size);
}

PUBLIC void *realloc(void *block, size_t size)
{
    return FAILS() ? NULL : __libc_realloc(block, size);
}

PUBLIC void *mmap(void *place, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (FAILS()) return MAP_FAILED;
    const long map = syscall(SYS_mmap, place, bytes, protection, flags, fd, offset);
    void *found = NULL;
    memcpy(&found, &map, sizeof(found));
    return map == -1 ? MAP_FAILED : found;
}

PUBLIC char *strdup(const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = FAILS() ? NULL : __libc_malloc(bytes);
    return copy != NULL ? memcpy(copy, text, bytes) : NULL;
}
