// Groups on the test device: everything that a backend of groups must do, with the data in memory
// that the host cannot reach; and that a step's transfers find the buffers that its rehearsal has
// counted.
//
// The suite reads and writes its data itself, so it works on the host's addresses of the device's
// memory. A group of this test passes each operation on with the device's addresses, on a queue of
// the test device, and waits for that queue where the suite waits.

#include "dist/group_suite.h"

#include "comm/backend.h"
#include "comm/staged.h"
#include "device/device.h"

#include <poll.h>

// ---- a rank with memory of the test device

typedef struct rank {
    cy_device *device;
    cy_queue queue; // of the device
    cy_staging *staging;
    void *memory; // the device's address
    char *host;   // the same memory, as the host reaches it
    size_t bytes;
} rank;

static void close_rank(rank *at)
{
    cy_queue_close(&at->queue);
    cy_staging_close(at->staging);
    if (at->memory != NULL) cy_device_free(at->device, at->memory, at->bytes);
    cy_device_close(at->device);
}

static cy_status open_parts(rank *at, cy_world *world)
{
    CY_TRY(cy_device_open(&at->device, "test", (uint64_t)cy_world_rank(world)));
    CY_TRY(cy_device_alloc(at->device, &at->memory, at->bytes));
    at->queue.heartbeat = cy_world_heartbeat(world);
    CY_TRY(cy_queue_open(&at->queue, at->device));
    CY_TRY(cy_staging_open(&at->staging, at->device));
    at->queue.staging = at->staging;
    at->host = cy_queue_launch_address(&at->queue, at->memory);
    return CY_OK;
}

static cy_status open_rank(rank *at, cy_world *world, size_t bytes)
{
    *at = (rank){.bytes = cy_arena_bytes(bytes)};
    const cy_status status = open_parts(at, world);
    if (status != CY_OK) close_rank(at);
    return status;
}

static cy_view on_device(const rank *at, cy_view view)
{
    const ptrdiff_t offset = (const char *)view.data - at->host;
    if (offset < 0 || (size_t)offset > at->bytes) return view; // the sticky fault says so
    view.data = (char *)at->memory + offset;
    return view;
}

// ---- the group that passes operations on

typedef struct passing {
    cy_group base;
    cy_group *inner; // borrowed
    rank *at;
} passing;

typedef struct transfer {
    cy_transfer base;
    cy_request inner;
} transfer;

static cy_status pass_on(passing *group, cy_request *request, const cy_operation *operation)
{
    cy_queue *queue = &group->at->queue;
    const cy_view in = on_device(group->at, operation->in);
    const cy_view out = on_device(group->at, operation->out);
    switch (operation->kind) {
    case CY_OP_ALL_REDUCE:
        return cy_group_start_all_reduce(group->inner, queue, request, out, operation->reduce);
    case CY_OP_REDUCE_SCATTER:
        return cy_group_start_reduce_scatter(
            group->inner, queue, request, out, in, operation->reduce);
    case CY_OP_ALL_GATHER:
        return cy_group_start_all_gather(group->inner, queue, request, out, in);
    case CY_OP_ALL_TO_ALL:
        return cy_group_start_all_to_all(group->inner, queue, request, out, in);
    case CY_OP_ALL_TO_ALLV:
        return cy_group_start_all_to_allv(
            group->inner, queue, request, out, operation->out_rows, in, operation->in_rows);
    case CY_OP_BROADCAST:
        return cy_group_start_broadcast(group->inner, queue, request, out, operation->peer);
    case CY_OP_SEND:
        return cy_group_start_send(
            group->inner, queue, request, in, operation->peer, operation->tag);
    case CY_OP_RECV:
        return cy_group_start_recv(
            group->inner, queue, request, out, operation->peer, operation->tag);
    case CY_OP_BARRIER:
        return cy_group_barrier(group->inner);
    }
    return CY_OK;
}

static cy_status passing_start(
    cy_group *base, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    (void)queue;
    transfer *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    const cy_status status = pass_on((passing *)base, &made->inner, operation);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    request->handle = made;
    return CY_OK;
}

static cy_status passing_wait(cy_group *base, cy_queue *queue, cy_transfer *given)
{
    (void)queue;
    const passing *group = (passing *)base;
    transfer *at = (transfer *)given;
    cy_status status = cy_group_wait(group->inner, &group->at->queue, &at->inner);
    if (status == CY_OK) status = cy_queue_synchronize(&group->at->queue);
    cy_memory_free(at);
    return status;
}

static cy_status passing_test(cy_group *base, cy_transfer *given, bool *done)
{
    return cy_group_test(((passing *)base)->inner, &((transfer *)given)->inner, done);
}

static cy_status passing_check_peers(cy_group *base, const cy_transfer *given, cy_watchdog *watch)
{
    (void)base;
    (void)given;
    (void)watch;
    return CY_OK;
}

static void passing_abort(cy_group *base, const char *text)
{
    cy_group_abort(((passing *)base)->inner, text);
}

static void passing_close(cy_group *base)
{
    (void)base;
}

static const cy_group_ops passing_ops = {
    .name = "passing",
    .start = passing_start,
    .wait = passing_wait,
    .test = passing_test,
    .check_peers = passing_check_peers,
    .abort = passing_abort,
    .close = passing_close,
};

// ---- the suite

static cy_status run_suite(cy_world *world, void *context)
{
    const int64_t large = *(const int64_t *)context;
    const int size = cy_world_size(world);
    cy_group *all = NULL;
    rank at;
    CY_TRY(open_rank(&at, world, suite_bytes(size, large)));
    CY_TRY(cy_test_open_all(world, &all, "dp"));
    passing group = {.inner = all, .at = &at};
    cy_group_init(&group.base, &passing_ops, cy_group_rank(all), size, "dp");
    cy_arena scratch;
    cy_arena_init(&scratch, "suite", at.host, at.bytes);
    cy_queue host = {.scratch = &scratch, .heartbeat = cy_world_heartbeat(world)};
    const cy_status status = suite_group(&group.base, &host, large);
    if (status != CY_OK) return status;       // other ranks may be at work in the memory
    (void)cy_arena_alloc(&scratch, at.bytes); // the device is given it without poison
    close_rank(&at);
    cy_group_close(all);
    return CY_OK;
}

static void the_suite_on_the_test_device(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 5};
    int64_t large = 20000;
    for (size_t i = 0; i < CY_TEST_COUNT(sizes); i++) {
        cy_world_options options = cy_world_defaults();
        options.ranks = sizes[i];
        options.check = i % 2 == 1;
        CY_CHECK_OK(cy_world_run_threads(&options, run_suite, &large));
    }
}

// ---- what else a run needs of it

#define COUNT 1000

// Each rank uploads its data and starts the sum without a wait; what follows in the queue uses the
// result without a wait of the host.
static cy_status sum_in_order(cy_world *world, void *context)
{
    (void)context;
    const int size = cy_world_size(world);
    cy_group *all = NULL;
    rank at;
    CY_TRY(open_rank(&at, world, 1 << 16));
    CY_TRY(cy_test_open_all(world, &all, "dp"));
    int32_t host[COUNT], back[COUNT];
    const cy_view data = cy_view_of(at.memory, CY_I32, 1, COUNT);
    void *copy = (char *)at.memory + sizeof(host);
    for (int repeat = 0; repeat < 50; repeat++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = cy_world_rank(world) * 1000 + i + repeat;
        cy_queue_upload(&at.queue, at.memory, host, sizeof(host));
        CY_TRY(cy_group_all_reduce(all, &at.queue, data, CY_SUM));
        cy_queue_move(&at.queue, copy, at.memory, sizeof(host));
        cy_queue_set(&at.queue, at.memory, 0, sizeof(host));
        cy_queue_download(&at.queue, back, copy, sizeof(host));
        CY_TRY(cy_queue_synchronize(&at.queue));
        for (int i = 0; i < COUNT; i++) {
            const int wanted = size * (size - 1) / 2 * 1000 + size * (i + repeat);
            SUITE_EXPECT(back[i] == wanted, "repeat %d: element %d is %d, not %d", repeat, i,
                back[i], wanted);
        }
    }
    close_rank(&at);
    cy_group_close(all);
    return CY_OK;
}

static void the_queue_orders_transfers(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 3;
    CY_CHECK_OK(cy_world_run_threads(&options, sum_in_order, NULL));
}

// A step of transfers of several sizes, some of them in flight at once.
static cy_status take_step(rank *at, cy_group *all, int size)
{
    cy_request requests[3] = {0};
    cy_view views[3];
    int64_t first = 0;
    for (int i = 0; i < 3; i++) {
        views[i] = cy_view_of((char *)at->memory + 4 * first, CY_I32, size, 100 << i);
        first += cy_view_count(views[i]);
        CY_TRY(cy_group_start_all_reduce(all, &at->queue, &requests[i], views[i], CY_MAX));
    }
    for (int i = 0; i < 3; i++)
        CY_TRY(cy_group_wait(all, &at->queue, &requests[i]));
    const int own = cy_group_rank(all);
    CY_TRY(cy_group_all_gather(all, &at->queue, views[2], cy_view_rows(views[2], own, 1)));
    return cy_group_all_reduce(all, &at->queue, views[1], CY_SUM);
}

static cy_status plan_then_run(cy_world *world, void *context)
{
    (void)context;
    const int size = cy_world_size(world);
    cy_group *all = NULL;
    rank at;
    CY_TRY(open_rank(&at, world, 1 << 16));
    CY_TRY(cy_test_open_all(world, &all, "dp"));
    at.queue.dry = true;
    CY_TRY(take_step(&at, all, size));
    CY_TRY(take_step(&at, all, size));
    at.queue.dry = false;
    // 2 ranks: 800, 1600 and 3200 bytes in place, and 1600 + 3200.
    const size_t planned = cy_staging_bytes(at.staging);
    SUITE_EXPECT(planned == 1024 + 2048 + 4096 + 8192, "%zu bytes were planned", planned);
    CY_TRY(cy_staging_place(at.staging));
    for (int i = 0; i < 20; i++)
        CY_TRY(take_step(&at, all, size));
    SUITE_EXPECT(cy_staging_bytes(at.staging) == planned, "the steps took %zu bytes more",
        cy_staging_bytes(at.staging) - planned);
    close_rank(&at);
    cy_group_close(all);
    return CY_OK;
}

static void a_step_finds_its_buffers(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    CY_CHECK_OK(cy_world_run_threads(&options, plan_then_run, NULL));
}

static void take_long(cy_queue *inner, const void *arguments, const void *more)
{
    (void)inner;
    (void)arguments;
    (void)more;
    (void)poll(NULL, 0, 20);
}

// Two messages arrive while the device is busy: the second may not take the place of the first
// before the first has been copied to the device.
static cy_status receive_twice(cy_world *world, void *context)
{
    (void)context;
    cy_group *all = NULL;
    rank at;
    CY_TRY(open_rank(&at, world, 1 << 16));
    CY_TRY(cy_test_open_all(world, &all, "dp"));
    int32_t numbers[2] = {17, 18};
    if (cy_world_rank(world) == 0) {
        cy_queue_upload(&at.queue, at.memory, numbers, sizeof(numbers));
    } else {
        cy_queue_launch(&at.queue, take_long, numbers, 0, NULL, 0);
    }
    for (int i = 0; i < 2; i++) {
        const cy_view place = cy_view_of((char *)at.memory + 4 * i, CY_I32, 1, 1);
        if (cy_world_rank(world) == 0) {
            CY_TRY(cy_group_send(all, &at.queue, place, 1, 0));
        } else {
            CY_TRY(cy_group_recv(all, &at.queue, place, 0, 0));
        }
    }
    cy_queue_download(&at.queue, numbers, at.memory, sizeof(numbers));
    CY_TRY(cy_queue_synchronize(&at.queue));
    SUITE_EXPECT(numbers[0] == 17 && numbers[1] == 18, "%d and %d", numbers[0], numbers[1]);
    SUITE_EXPECT(cy_staging_bytes(at.staging) == 64, "more than one buffer");
    close_rank(&at);
    cy_group_close(all);
    return CY_OK;
}

static void a_buffer_waits_for_its_copy(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    CY_CHECK_OK(cy_world_run_threads(&options, receive_twice, NULL));
}

// A sum that overflows sets the flag on the device.
static cy_status overflow(cy_world *world, void *context)
{
    (void)context;
    cy_group *all = NULL;
    rank at;
    CY_TRY(open_rank(&at, world, 1 << 16));
    CY_TRY(cy_test_open_all(world, &all, "dp"));
    int64_t host[2] = {1, INT64_MAX / 4 * 3};
    uint32_t flag = 0;
    void *cell = (char *)at.memory + 1024;
    at.queue.fixed_overflow = cell;
    for (int i = 0; i < 2; i++) {
        cy_queue_upload(&at.queue, at.memory, &host[i], sizeof(host[i]));
        CY_TRY(cy_group_all_reduce(all, &at.queue, cy_view_of(at.memory, CY_FX64, 1, 1), CY_SUM));
        cy_queue_download(&at.queue, &flag, cell, sizeof(flag));
        CY_TRY(cy_queue_synchronize(&at.queue));
        SUITE_EXPECT(flag == (uint32_t)i, "sum %d: the flag is %u", i, flag);
    }
    close_rank(&at);
    cy_group_close(all);
    return CY_OK;
}

static void an_overflow_reaches_the_device(void **state)
{
    (void)state;
    cy_world_options options = cy_world_defaults();
    options.ranks = 2;
    CY_CHECK_OK(cy_world_run_threads(&options, overflow, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_suite_on_the_test_device),
        cmocka_unit_test(the_queue_orders_transfers),
        cmocka_unit_test(a_step_finds_its_buffers),
        cmocka_unit_test(a_buffer_waits_for_its_copy),
        cmocka_unit_test(an_overflow_reaches_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
