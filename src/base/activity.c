// What a thread does with files, shown where others see it.
#define _GNU_SOURCE
#include "base/activity.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES (CY_ACTIVITY_NAME_WORDS * sizeof(uint64_t))

static _Thread_local cy_activity *shown;
static _Thread_local int depth; // of begins inside of begins

cy_activity *cy_activity_attach(cy_activity *activity)
{
    CY_ASSERT(depth == 0);
    cy_activity *before = shown;
    shown = activity;
    return before;
}

// Only this thread writes: a load and a store are one step.
static void advance(cy_activity *activity)
{
    const uint64_t count = atomic_load_explicit(&activity->count, memory_order_relaxed);
    atomic_store_explicit(&activity->count, count + 1, memory_order_release);
}

static void show_name(cy_activity *activity, const char *path)
{
    uint64_t words[CY_ACTIVITY_NAME_WORDS] = {0};
    const size_t length = strlen(path);
    const size_t kept = length < NAME_BYTES ? length : NAME_BYTES;
    memcpy(words, path + length - kept, kept);
    for (int i = 0; i < CY_ACTIVITY_NAME_WORDS; i++)
        atomic_store_explicit(&activity->name[i], words[i], memory_order_relaxed);
}

void cy_activity_begin(cy_activity_kind kind, const char *path, int descriptor)
{
    if (shown == NULL) return;
    if (depth++ == 0) {
        if (path != NULL) show_name(shown, path);
        atomic_store_explicit(
            &shown->descriptor, path != NULL ? -1 : descriptor, memory_order_relaxed);
        atomic_store_explicit(&shown->since_ns, cy_clock_ns(), memory_order_relaxed);
        atomic_store_explicit(&shown->kind, (int)kind, memory_order_release);
    }
    advance(shown);
}

void cy_activity_end(void)
{
    if (shown == NULL) return;
    CY_ASSERT(depth > 0);
    if (--depth == 0) atomic_store_explicit(&shown->kind, CY_ACTIVITY_NONE, memory_order_release);
    advance(shown);
}

static const char *doing(int kind)
{
    static const char *const words[] = {
        [CY_ACTIVITY_OPEN] = "opening",
        [CY_ACTIVITY_READ] = "reading",
        [CY_ACTIVITY_WRITE] = "writing",
        [CY_ACTIVITY_SYNC] = "syncing",
        [CY_ACTIVITY_CLOSE] = "closing",
        [CY_ACTIVITY_RENAME] = "renaming",
        [CY_ACTIVITY_REMOVE] = "removing",
        [CY_ACTIVITY_MKDIR] = "making",
        [CY_ACTIVITY_STAT] = "looking at",
        [CY_ACTIVITY_WAIT] = "waiting for",
    };
    return words[kind];
}

// The last part of a path.
static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

void cy_activity_describe(const cy_activity *activity, int process, char *text, size_t bytes)
{
    const int kind = atomic_load(&activity->kind);
    text[0] = '\0';
    if (kind == CY_ACTIVITY_NONE) return;
    char path[4096] = "";
    const int descriptor = atomic_load_explicit(&activity->descriptor, memory_order_relaxed);
    if (descriptor >= 0) {
        char link[64];
        snprintf(link, sizeof(link), "/proc/%d/fd/%d", process, descriptor);
        const ssize_t length = readlink(link, path, sizeof(path) - 1);
        path[length > 0 ? length : 0] = '\0';
        // The kernel marks a file whose name is gone, as another rank's cleaning up leaves it.
        char *mark = strstr(path, " (deleted)");
        if (mark != NULL && mark[strlen(" (deleted)")] == '\0') *mark = '\0';
    } else {
        uint64_t words[CY_ACTIVITY_NAME_WORDS];
        for (int i = 0; i < CY_ACTIVITY_NAME_WORDS; i++)
            words[i] = atomic_load_explicit(&activity->name[i], memory_order_relaxed);
        memcpy(path, words, sizeof(words));
        path[sizeof(words)] = '\0';
    }
    const int64_t since_ns = atomic_load_explicit(&activity->since_ns, memory_order_relaxed);
    snprintf(text, bytes, "%s %s for %.0f s", doing(kind),
        path[0] != '\0' ? last_part(path) : "a file", (double)(cy_clock_ns() - since_ns) * 1e-9);
}
