// What a group says of its transfers: what a trace shows and what the counters add up, of blocking
// calls and of those under which a rank does something else.
#define _GNU_SOURCE
#include "support/support.h"
#include "support/worlds.h"

#include "base/clock.h"
#include "comm/group.h"

#include <string.h>
#include <time.h>

#define RANKS 2
#define PAUSE 0.02

typedef struct seen {
    cy_span spans[8];
    int64_t count;
    cy_traffic traffic;
    double took; // of all of it, by the clock
} seen;

static void pause_s(double seconds)
{
    const struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    while (nanosleep(&time, NULL) != 0)
        continue;
}

// An all_reduce of 96 bytes, an all_gather into 64 bytes under a pause, a message of 8 bytes, and
// one rank alone, of which nothing is to be seen.
static cy_status traffic(cy_test_machine *machine, cy_group *group, void *context)
{
    seen *s = (seen *)context + cy_group_rank(group);
    const int other = 1 - cy_group_rank(group);
    float data[24] = {0}, all[16] = {0};
    const cy_view many = cy_view_of(data, CY_F32, 1, 24), half = cy_view_of(data, CY_F32, 1, 8);
    const cy_view gathered = cy_view_of(all, CY_F32, 1, 16), two = cy_view_of(data, CY_F32, 1, 2);
    cy_queue *queue = &machine->queue;
    cy_trace trace;
    cy_request request = {0};
    CY_TRY(cy_trace_open(&trace, 8));
    queue->trace = &trace;
    const double start = cy_clock_s();
    CY_TRY(cy_group_all_reduce(group, queue, many, CY_SUM));
    CY_TRY(cy_group_start_all_gather(group, queue, &request, gathered, half));
    pause_s(PAUSE);
    CY_TRY(cy_group_wait(group, queue, &request));
    if (other == 1) CY_TRY(cy_group_send(group, queue, two, other, 3));
    if (other == 0) CY_TRY(cy_group_recv(group, queue, two, other, 3));
    s->took = cy_clock_s() - start;
    CY_TRY(cy_group_all_reduce(cy_group_self(), queue, many, CY_SUM));
    CY_TRY(cy_group_wait(group, queue, &request)); // an empty request is over
    s->count = trace.count;
    memcpy(s->spans, trace.spans, sizeof(s->spans));
    s->traffic = cy_group_counters(group);
    queue->trace = NULL;
    cy_trace_close(&trace);
    return CY_OK;
}

static void expect_transfer(const cy_span *pair, const char *name, double bytes)
{
    assert_string_equal(pair[0].name, name);
    assert_string_equal(pair[1].name, name);
    assert_int_equal(pair[0].kind, CY_SPAN_COMM);
    assert_int_equal(pair[1].kind, CY_SPAN_WAIT);
    assert_true(pair[0].cost.bytes == bytes && pair[0].cost.flops == 0.0);
    assert_true(pair[1].cost.bytes == 0.0);
    assert_true(pair[0].start_ns <= pair[1].start_ns && pair[1].start_ns <= pair[1].end_ns);
}

static double length_s(const cy_span *span)
{
    return (double)(span->end_ns - span->start_ns) * 1e-9;
}

static void traces_and_counters(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = RANKS;
    seen all[RANKS] = {0};
    CY_CHECK_OK(cy_test_on_machines(&options, "ref", 1 << 16, traffic, all));
    for (int r = 0; r < RANKS; r++) {
        const seen *s = &all[r];
        assert_int_equal(s->count, 6);
        expect_transfer(&s->spans[0], "all_reduce", 96.0);
        expect_transfer(&s->spans[2], "all_gather", 32.0);
        expect_transfer(&s->spans[4], r == 0 ? "send" : "recv", r == 0 ? 8.0 : 0.0);
        assert_int_equal(s->spans[0].start_ns, s->spans[1].start_ns); // blocking: it waits at once
        assert_true(s->spans[3].start_ns - s->spans[2].start_ns >= (int64_t)(PAUSE * 1e9));
        assert_int_equal(s->traffic.messages, r == 0 ? 3 : 2); // a message counts where it is sent
        assert_true(s->traffic.bytes == (r == 0 ? 136.0 : 128.0));
        // The pause is time of the transfer, and none that was waited.
        const double hidden = s->traffic.seconds - s->traffic.exposed_s;
        assert_true(s->traffic.exposed_s > 0.0 && s->traffic.seconds <= s->took);
        assert_true(hidden >= 0.99 * PAUSE && hidden <= s->took);
        // The spans end a little after the counters have read the clock.
        const double waited =
            length_s(&s->spans[1]) + length_s(&s->spans[3]) + length_s(&s->spans[5]);
        assert_true(s->traffic.exposed_s <= waited + s->took - hidden);
        assert_true(s->traffic.seconds <=
            length_s(&s->spans[0]) + length_s(&s->spans[2]) + length_s(&s->spans[4]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(traces_and_counters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
