// Faults planted in good schedules: each must be refused, with its reason.

#include "support/support.h"

#include "base/random.h"
#include "parallel/pipeline/build.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/timeline.h"

#include <string.h>

// A pipeline of 3 ranks and 4 microbatches: long enough for every fault.
static cy_schedule open(cy_pipeline_engine engine, int chunks)
{
    const cy_schedule_options options = {
        .engine = engine, .stages = 3, .microbatches = 4, .chunks = chunks};
    cy_schedule schedule;
    CY_CHECK_OK(cy_schedule_open(&schedule, &options));
    return schedule;
}

static size_t find(const cy_schedule *s, int rank, cy_action_kind kind, int microbatch, int chunk)
{
    const cy_action_list *list = &s->ranks[rank];
    for (size_t i = 0; i < list->count; i++) {
        const cy_action a = list->actions[i];
        if (a.kind == kind && a.microbatch == microbatch && a.chunk == chunk) return i;
    }
    fail_msg("rank %d has no %s%d.%d", rank, cy_action_code(kind), microbatch, chunk);
    return 0;
}

static void take_out(cy_schedule *s, int rank, size_t at)
{
    cy_action_list *list = &s->ranks[rank];
    list->count--;
    memmove(&list->actions[at], &list->actions[at + 1], (list->count - at) * sizeof(cy_action));
}

static void put_in(cy_schedule *s, int rank, size_t at, cy_action action)
{
    CY_CHECK_OK(cy_schedule_add(s, rank, action));
    cy_action_list *list = &s->ranks[rank];
    memmove(&list->actions[at + 1], &list->actions[at], (list->count - 1 - at) * sizeof(cy_action));
    list->actions[at] = action;
}

static void move(cy_schedule *s, int rank, size_t from, size_t to)
{
    const cy_action action = s->ranks[rank].actions[from];
    take_out(s, rank, from);
    put_in(s, rank, to, action);
}

static void exchange(cy_schedule *s, int rank, size_t a, size_t b)
{
    cy_action *actions = s->ranks[rank].actions;
    const cy_action kept = actions[a];
    actions[a] = actions[b];
    actions[b] = kept;
}

static void refused(cy_schedule *s, const char *words)
{
    cy_schedule_cost cost;
    CY_CHECK_FAILS(cy_schedule_check(&cost, s, NULL), CY_ERR_REQUEST, words);
    cy_schedule_close(s);
}

static void compute_faults(void **context)
{
    (void)context;
    cy_schedule s = open(CY_PIPELINE_1F1B, 1);
    take_out(&s, 1, find(&s, 1, CY_ACTION_FORWARD, 2, 0));
    refused(&s, "rank 1: F2 is missing");

    s = open(CY_PIPELINE_1F1B, 1);
    take_out(&s, 2, find(&s, 2, CY_ACTION_BACKWARD, 3, 0));
    refused(&s, "rank 2: B3 is missing");

    s = open(CY_PIPELINE_1F1B, 1);
    put_in(&s, 0, 0, (cy_action){.kind = CY_ACTION_FORWARD, .microbatch = 1, .peer = -1});
    refused(&s, "rank 0: F1 comes twice");

    s = open(CY_PIPELINE_1F1B, 1);
    move(&s, 2, find(&s, 2, CY_ACTION_BACKWARD, 1, 0), 0);
    refused(&s, "rank 2: F1 comes after B1");

    s = open(CY_PIPELINE_ZERO_BUBBLE, 1);
    move(&s, 1, find(&s, 1, CY_ACTION_BACKWARD_WEIGHT, 0, 0), 0);
    refused(&s, "rank 1: I0 comes after W0");

    s = open(CY_PIPELINE_ZERO_BUBBLE, 1);
    take_out(&s, 1, find(&s, 1, CY_ACTION_BACKWARD_WEIGHT, 3, 0));
    refused(&s, "rank 1: W3 is missing");

    s = open(CY_PIPELINE_ZERO_BUBBLE, 1);
    s.ranks[0].actions[find(&s, 0, CY_ACTION_BACKWARD_INPUT, 2, 0)].kind = CY_ACTION_BACKWARD;
    refused(&s, "rank 0: B2 is whole, yet there is also W2");

    s = open(CY_PIPELINE_INTERLEAVED, 2);
    s.ranks[1].actions[find(&s, 1, CY_ACTION_FORWARD, 3, 1)].chunk = 2;
    refused(&s, "rank 1: F3 of chunk 2, there are 2");

    s = open(CY_PIPELINE_1F1B, 1);
    s.ranks[1].actions[find(&s, 1, CY_ACTION_FORWARD, 3, 0)].microbatch = 4;
    refused(&s, "rank 1: F of microbatch 4, there are 4");

    s = open(CY_PIPELINE_1F1B, 1);
    s.ranks[1].actions[find(&s, 1, CY_ACTION_FORWARD, 3, 0)].microbatch = -1;
    refused(&s, "rank 1: F of microbatch -1, there are 4");

    s = open(CY_PIPELINE_1F1B, 1);
    s.ranks[1].actions[0].kind = CY_ACTION_KINDS;
    refused(&s, "rank 1: there is no action 8");

    s = open(CY_PIPELINE_1F1B, 1);
    s.ranks[2].count = 0;
    refused(&s, "rank 2: F0 is missing");
}

static void transfer_faults(void **context)
{
    (void)context;
    cy_schedule s = open(CY_PIPELINE_1F1B, 1);
    take_out(&s, 0, find(&s, 0, CY_ACTION_SEND_ACTIVATION, 1, 0));
    refused(&s, "rank 0: SF1 is missing");

    s = open(CY_PIPELINE_1F1B, 1);
    take_out(&s, 0, find(&s, 0, CY_ACTION_RECV_GRADIENT, 1, 0));
    refused(&s, "rank 0: RB1 is missing");

    s = open(CY_PIPELINE_1F1B, 1);
    s.ranks[1].actions[find(&s, 1, CY_ACTION_SEND_ACTIVATION, 0, 0)].peer = 0;
    refused(&s, "rank 1: SF0 has rank 0 as its peer, it must be 2");

    s = open(CY_PIPELINE_1F1B, 1);
    s.ranks[2].actions[find(&s, 2, CY_ACTION_RECV_ACTIVATION, 0, 0)].peer = 99;
    refused(&s, "rank 99");

    s = open(CY_PIPELINE_1F1B, 1);
    move(&s, 0, find(&s, 0, CY_ACTION_SEND_ACTIVATION, 2, 0), 0);
    refused(&s, "rank 0: F2 comes after SF2");

    s = open(CY_PIPELINE_1F1B, 1);
    move(&s, 2, find(&s, 2, CY_ACTION_RECV_ACTIVATION, 0, 0), s.ranks[2].count - 1);
    refused(&s, "rank 2: RF0 comes after F0");

    s = open(CY_PIPELINE_1F1B, 1);
    put_in(&s, 2, s.ranks[2].count,
        (cy_action){.kind = CY_ACTION_SEND_ACTIVATION, .microbatch = 0, .peer = 0});
    refused(&s, "rank 2: SF0 has no other rank to go to or come from");

    s = open(CY_PIPELINE_AFAB, 1);
    exchange(&s, 2, find(&s, 2, CY_ACTION_RECV_ACTIVATION, 0, 0),
        find(&s, 2, CY_ACTION_RECV_ACTIVATION, 1, 0));
    exchange(&s, 2, find(&s, 2, CY_ACTION_FORWARD, 0, 0), find(&s, 2, CY_ACTION_FORWARD, 1, 0));
    refused(&s,
        "activations between segments 1 and 2: message 0 is sent as microbatch 0 and "
        "received as 1");

    // All in order, but each side sends first.
    s = open(CY_PIPELINE_1F1B, 1);
    move(&s, 1, find(&s, 1, CY_ACTION_RECV_GRADIENT, 0, 0),
        find(&s, 1, CY_ACTION_SEND_ACTIVATION, 1, 0) - 1);
    refused(&s, "deadlock where a send waits for its receive: rank");
}

static void order_faults(void **context)
{
    (void)context;
    // The last rank takes microbatches in another order than the others, gradients between.
    cy_schedule s;
    CY_CHECK_OK(cy_schedule_init(&s, CY_PIPELINE_CSV, 2, 2, 1));
    for (int i = 0; i < 2; i++) {
        CY_CHECK_OK(cy_schedule_add_compute(&s, 0, CY_ACTION_FORWARD, i, 0));
        CY_CHECK_OK(cy_schedule_add_compute(&s, 0, CY_ACTION_BACKWARD, i, 0));
        CY_CHECK_OK(cy_schedule_add_compute(&s, 1, CY_ACTION_FORWARD, 1 - i, 0));
        CY_CHECK_OK(cy_schedule_add_compute(&s, 1, CY_ACTION_BACKWARD, 1 - i, 0));
    }
    CY_CHECK_FAILS(cy_schedule_add_transfers(&s), CY_ERR_REQUEST, "the schedule has a cycle");
    cy_schedule_close(&s);
}

static void memory_limit(void **context)
{
    (void)context;
    cy_schedule s = open(CY_PIPELINE_AFAB, 1);
    CY_CHECK_OK(cy_schedule_check(NULL, &s, &(cy_schedule_limits){.peak_stash = 4}));
    CY_CHECK_FAILS(cy_schedule_check(NULL, &s, &(cy_schedule_limits){.peak_stash = 3}),
        CY_ERR_REQUEST, "holds 4 stashes at once, the limit is 3");
    CY_CHECK_FAILS(cy_schedule_check(NULL, &s, &(cy_schedule_limits){.peak_kept = 2}),
        CY_ERR_REQUEST, "keeps 4 stashes");
    cy_schedule_close(&s);
}

// Random exchanges and losses: the checker answers, and what it lets pass can be played.
static void random_damage(void **context)
{
    (void)context;
    const uint64_t key = cy_random_key(7, "damage");
    int passed = 0, stopped = 0;
    for (uint64_t round = 0; round < 4000; round++) {
        const uint64_t bits = cy_random_bits(key, round);
        cy_schedule s =
            bits % 2 == 0 ? open(CY_PIPELINE_ZERO_BUBBLE, 2) : open(CY_PIPELINE_1F1B, 1);
        const int rank = (int)(bits / 2 % 3);
        const size_t count = s.ranks[rank].count;
        const size_t a = bits / 16 % count, b = (bits / 4096 % 4 + a) % count;
        if (bits / 8 % 2 == 0) {
            exchange(&s, rank, a, b);
        } else {
            move(&s, rank, a, b);
        }
        cy_schedule_cost cost;
        const cy_status status = cy_schedule_check(&cost, &s, NULL);
        if (status == CY_OK) {
            cy_timeline timeline;
            CY_CHECK_OK(cy_schedule_simulate(&timeline, &s,
                &(cy_durations){.forward = 1, .backward_input = 1, .backward_weight = 1}));
            assert_true(timeline.end >= (double)cost.ticks - 1e-9);
            cy_timeline_close(&timeline);
            cy_schedule_cost_close(&cost);
            passed++;
        } else {
            assert_int_equal(status, CY_ERR_REQUEST);
            stopped++;
        }
        cy_schedule_close(&s);
    }
    assert_true(passed > 400 && stopped > 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compute_faults),
        cmocka_unit_test(transfer_faults),
        cmocka_unit_test(order_faults),
        cmocka_unit_test(memory_limit),
        cmocka_unit_test(random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
