// The state that ranks publish, and how a waiting rank judges it.
#define _POSIX_C_SOURCE 200809L
#include "comm/rank_page.h"

#include "base/clock.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Ranks that wait look many times in this interval.
#define LOOK_NS_MOST 500000000

void cy_rank_page_init(cy_rank_page *page)
{
    memset(page, 0, sizeof(*page));
    atomic_store(&page->waiting_for, -1);
    atomic_store(&page->process, (int)getpid());
}

void cy_rank_page_set_call(
    cy_rank_page *page, const char *dimension, cy_operation_kind kind, uint64_t sequence)
{
    uint64_t letters = 0;
    memcpy(&letters, dimension, strnlen(dimension, sizeof(letters)));
    atomic_store_explicit(&page->last_dimension, letters, memory_order_relaxed);
    atomic_store_explicit(&page->last_call, sequence << 8 | (uint64_t)kind, memory_order_relaxed);
    // A count that is lost to another thread of the rank is no harm.
    const uint64_t heartbeat = atomic_load_explicit(&page->heartbeat, memory_order_relaxed);
    atomic_store_explicit(&page->heartbeat, heartbeat + 1, memory_order_relaxed);
}

int cy_rank_page_root_cause(cy_rank_page *const *pages, int size, int rank)
{
    for (int steps = 0; steps < size; steps++) {
        const cy_rank_page *page = pages[rank];
        const int next = page == NULL ? -1 : atomic_load(&page->waiting_for);
        if (next < 0) return rank;
        rank = next;
    }
    return rank; // ranks that wait for each other in a ring: any of them is to blame
}

uint64_t cy_rank_page_progress(const cy_rank_page *page)
{
    return atomic_load_explicit(&page->heartbeat, memory_order_relaxed) +
        atomic_load(&page->activity.count);
}

uint64_t cy_rank_page_heartbeat(const cy_rank_page *page)
{
    if (page == NULL) return 0;
    const uint64_t life = cy_rank_page_progress(page);
    return atomic_load(&page->waiting_for) >= 0 ? life : life + atomic_load(&page->looks);
}

// The state of the rank's process: the letter behind the name in /proc/PID/stat, which ends with
// the last parenthesis. '?' where it is this process or cannot be read.
static char state_of(const cy_rank_page *page)
{
    char path[64], text[512];
    const int process = atomic_load(&page->process);
    if (process == (int)getpid()) return '?';
    snprintf(path, sizeof(path), "/proc/%d/stat", process);
    // Reading another's state is not a heartbeat of this thread.
    cy_activity *shown = cy_activity_attach(NULL);
    const size_t bytes = cy_file_read_some(path, text, sizeof(text));
    cy_activity_attach(shown);
    const char *state = bytes > 0 ? strrchr(text, ')') : NULL;
    return state != NULL && strlen(state) > 2 ? state[2] : '?';
}

bool cy_rank_page_is_stopped(const cy_rank_page *page)
{
    return state_of(page) == 'T';
}

// Stopped, traced or gone.
static bool is_still(const cy_rank_page *page)
{
    return strchr("TtZX", state_of(page)) != NULL;
}

// What a rank did with a file when it was stopped lasts, but no disk is to blame.
static bool waits_for_file(const cy_rank_page *page)
{
    return cy_activity_in_progress(&page->activity) && !is_still(page);
}

double cy_rank_page_timeout_s(const cy_rank_page *page, const cy_world_options *options)
{
    const double files_s = options->file_timeout_s, others_s = options->timeout_s;
    if (page == NULL) return files_s > others_s ? files_s : others_s;
    return waits_for_file(page) ? files_s : others_s;
}

void cy_watch_begin(cy_watchdog *watch, int rank, uint64_t sign)
{
    watch->rank = rank;
    watch->heartbeat = sign;
    watch->looked_ns = cy_clock_ns();
    watch->silent_ns = 0;
}

double cy_watch_silence_s(cy_watchdog *watch)
{
    const int64_t now = cy_clock_ns();
    const int64_t passed = now - watch->looked_ns;
    watch->looked_ns = now;
    watch->silent_ns += passed < LOOK_NS_MOST ? passed : LOOK_NS_MOST;
    return (double)watch->silent_ns * 1e-9;
}

void cy_rank_page_describe_timeout(
    const cy_rank_page *page, const cy_world_options *options, char *text, size_t bytes)
{
    const bool file = page != NULL && waits_for_file(page);
    snprintf(text, bytes, "no heartbeat for %.3g s%s from", cy_rank_page_timeout_s(page, options),
        file ? " (checkpoint.timeout_s)" : "");
}

void cy_rank_page_describe(
    const cy_rank_page *page, int rank, const char *host, char *text, size_t bytes)
{
    if (page == NULL) {
        snprintf(text, bytes, "rank %d (%s)", rank, host);
        return;
    }
    char doing[160];
    cy_activity_describe(&page->activity, atomic_load(&page->process), doing, sizeof(doing));
    const char *comma = doing[0] == '\0' ? "" : is_still(page) ? ", stopped while " : ", ";
    const uint64_t letters = atomic_load_explicit(&page->last_dimension, memory_order_relaxed);
    const uint64_t call = atomic_load_explicit(&page->last_call, memory_order_relaxed);
    char dimension[sizeof(letters) + 1] = {0};
    memcpy(dimension, &letters, sizeof(letters));
    if (letters == 0) {
        snprintf(text, bytes, "rank %d (%s)%s%s, which has not communicated yet", rank, host, comma,
            doing);
        return;
    }
    snprintf(text, bytes, "rank %d (%s)%s%s, last seen in %s %llu of %s", rank, host, comma, doing,
        cy_operation_name((cy_operation_kind)(call & 0xff)), (unsigned long long)(call >> 8),
        dimension);
}
