// The table of a device: the same calls on the CPU and on the test device; and what the test device
// adds: no direct access, copies that happen later, faults that stay.

#include "support/support.h"

#include "base/thread_pool.h"
#include "device/device.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 16)

typedef struct place {
    cy_device *device;
    cy_queue queue;
    unsigned char *memory; // of the device, [BYTES]
    unsigned char *pinned; // of the host, [BYTES]
} place;

static void open_place(place *at, const char *name, uint64_t seed)
{
    *at = (place){0};
    void *memory = NULL, *pinned = NULL;
    CY_CHECK_OK(cy_device_open(&at->device, name, seed));
    assert_string_equal(at->device->properties.name, name);
    CY_CHECK_OK(cy_device_alloc(at->device, &memory, BYTES));
    CY_CHECK_OK(cy_device_alloc_host(at->device, &pinned, BYTES));
    assert_int_equal((uintptr_t)memory % CY_ARENA_ALIGN, 0);
    assert_int_equal((uintptr_t)pinned % CY_ARENA_ALIGN, 0);
    at->memory = memory;
    at->pinned = pinned;
    CY_CHECK_OK(cy_queue_open(&at->queue, at->device));
}

static void close_place(place *at)
{
    cy_queue_close(&at->queue);
    cy_device_free_host(at->device, at->pinned, BYTES);
    cy_device_free(at->device, at->memory, BYTES);
    cy_device_close(at->device);
}

// ---- on every device

static const char *const names[] = {"cpu", "test"};

static void copies(void **state)
{
    (void)state;
    for (size_t d = 0; d < CY_TEST_COUNT(names); d++) {
        place at;
        open_place(&at, names[d], 1);
        for (size_t i = 0; i < BYTES; i++) { // new memory is zero
            if (i % 4096 == 0) assert_int_equal(at.pinned[i], 0);
            at.pinned[i] = (unsigned char)(i * 7 + 3);
        }
        unsigned char back[64];
        cy_queue_download(&at.queue, back, at.memory + 100, sizeof(back));
        CY_CHECK_OK(cy_queue_synchronize(&at.queue));
        for (size_t i = 0; i < sizeof(back); i++)
            assert_int_equal(back[i], 0);

        cy_queue_upload(&at.queue, at.memory, at.pinned, 1000);
        cy_queue_move(&at.queue, at.memory + 5000, at.memory + 10, 500);
        cy_queue_set(&at.queue, at.memory + 5100, 0x11, 16);
        cy_queue_upload(&at.queue, at.memory, NULL, 0); // nothing
        cy_queue_download(&at.queue, back, at.memory + 5090, sizeof(back));
        cy_event event;
        cy_queue_record(&at.queue, &event);
        CY_CHECK_OK(cy_event_wait(&at.queue, &event));
        assert_true(cy_event_done(&at.queue, &event));
        for (size_t i = 0; i < sizeof(back); i++) {
            const bool set = i >= 10 && i < 26;
            assert_int_equal(back[i], set ? 0x11 : (unsigned char)((100 + i) * 7 + 3));
        }
        close_place(&at);
    }
}

static void dry_queues_do_nothing(void **state)
{
    (void)state;
    for (size_t d = 0; d < CY_TEST_COUNT(names); d++) {
        place at;
        open_place(&at, names[d], 1);
        unsigned char byte = 5;
        cy_event event = {.number = 3};
        at.queue.dry = true;
        cy_queue_upload(&at.queue, at.memory, &byte, 1);
        cy_queue_set(&at.queue, at.memory, 9, 1);
        cy_queue_download(&at.queue, &byte, at.memory, 1);
        cy_queue_record(&at.queue, &event);
        assert_true(cy_event_done(&at.queue, &event));
        CY_CHECK_OK(cy_event_wait(&at.queue, &event));
        CY_CHECK_OK(cy_queue_synchronize(&at.queue));
        assert_int_equal(byte, 5);
        at.queue.dry = false;
        cy_queue_download(&at.queue, &byte, at.memory, 1);
        CY_CHECK_OK(cy_queue_synchronize(&at.queue));
        assert_int_equal(byte, 0);
        close_place(&at);
    }
}

typedef struct step {
    int64_t *next; // the number of the launch that is expected
    bool *ordered;
    int64_t number, count;
} step;

static void take_step(cy_queue *inner, const void *arguments, const void *more)
{
    (void)inner;
    const step *at = arguments;
    const int64_t *numbers = more;
    if (*at->next != at->number) *at->ordered = false;
    if (at->count == 0 && more != NULL) *at->ordered = false;
    for (int64_t i = 0; i < at->count; i++) {
        if (numbers[i] != at->number + i) *at->ordered = false;
    }
    *at->next = at->number + 1;
}

// More than the ring holds, so that records wrap around its end.
static void launches_keep_their_order(void **state)
{
    (void)state;
    enum { LAUNCHES = 20000, MOST = 1000 };
    static int64_t numbers[MOST];
    for (size_t d = 0; d < CY_TEST_COUNT(names); d++) {
        place at;
        open_place(&at, names[d], 5);
        int64_t next = 0;
        bool ordered = true;
        for (int64_t i = 0; i < LAUNCHES; i++) {
            const step made = {
                .next = &next, .ordered = &ordered, .number = i, .count = i * 37 % MOST};
            for (int64_t k = 0; k < made.count; k++)
                numbers[k] = i + k;
            cy_queue_launch(&at.queue, take_step, &made, sizeof(made),
                made.count > 0 ? numbers : NULL, (size_t)made.count * sizeof(*numbers));
        }
        CY_CHECK_OK(cy_queue_synchronize(&at.queue));
        assert_true(ordered);
        assert_int_equal(next, LAUNCHES);
        close_place(&at);
    }
}

static void close_waits(void **state)
{
    (void)state;
    place at;
    open_place(&at, "test", 5);
    int64_t next = 0;
    bool ordered = true;
    for (int64_t i = 0; i < 2000; i++) {
        const step made = {.next = &next, .ordered = &ordered, .number = i};
        cy_queue_launch(&at.queue, take_step, &made, sizeof(made), NULL, 0);
    }
    close_place(&at);
    assert_int_equal(next, 2000);
}

// ---- the test device

static void unknown_devices_are_refused(void **state)
{
    (void)state;
    cy_device *device = NULL;
    CY_CHECK_FAILS(cy_device_open(&device, "cuda", 1), CY_ERR_UNSUPPORTED, "cuda");
    assert_null(device);
}

static void a_direct_access_faults(void **state)
{
    (void)state;
    place at;
    open_place(&at, "test", 1);
    assert_false(at.device->properties.host_access);
    for (int write = 0; write < 2; write++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            fclose(stderr);                 // a sanitizer would report it
            (void)signal(SIGSEGV, SIG_DFL); // the test's own handler would go on
            (void)signal(SIGBUS, SIG_DFL);
            volatile unsigned char *byte = at.memory + 40;
            if (write) {
                *byte = 1;
            } else {
                (void)*byte;
            }
            _exit(0);
        }
        int ended = 0;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_false(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    }
    close_place(&at);
}

// Holds the queue until it is let go.
static void hold(cy_queue *inner, const void *arguments, const void *more)
{
    (void)inner;
    (void)more;
    _Atomic bool *const *let_go = arguments;
    while (!atomic_load(*let_go))
        sched_yield();
}

static void hold_queue(place *at, _Atomic bool *let_go)
{
    cy_queue_launch(&at->queue, hold, &let_go, sizeof(let_go), NULL, 0);
}

static void a_download_comes_late(void **state)
{
    (void)state;
    place at;
    open_place(&at, "test", 1);
    _Atomic bool let_go = false;
    cy_event event;
    cy_queue_set(&at.queue, at.memory, 0x33, 8);
    hold_queue(&at, &let_go);
    cy_queue_download(&at.queue, at.pinned, at.memory, 8);
    cy_queue_record(&at.queue, &event);
    assert_false(cy_event_done(&at.queue, &event));
    for (int i = 0; i < 8; i++) // who forgets to wait sees no data
        assert_int_equal(at.pinned[i], 0xff);
    atomic_store(&let_go, true);
    CY_CHECK_OK(cy_event_wait(&at.queue, &event));
    assert_true(cy_event_done(&at.queue, &event));
    for (int i = 0; i < 8; i++)
        assert_int_equal(at.pinned[i], 0x33);
    close_place(&at);
}

static void an_upload_reads_late(void **state)
{
    (void)state;
    place at;
    open_place(&at, "test", 1);
    _Atomic bool let_go = false;
    unsigned char back = 0;
    at.pinned[0] = 1;
    hold_queue(&at, &let_go);
    cy_queue_upload(&at.queue, at.memory, at.pinned, 1);
    at.pinned[0] = 2; // a fault of the caller: the byte still belongs to the queue
    atomic_store(&let_go, true);
    cy_queue_download(&at.queue, &back, at.memory, 1);
    CY_CHECK_OK(cy_queue_synchronize(&at.queue));
    assert_int_equal(back, 2);
    close_place(&at);
}

static void a_queue_waits_for_another(void **state)
{
    (void)state;
    place at;
    open_place(&at, "test", 1);
    cy_queue other = {0};
    CY_CHECK_OK(cy_queue_open(&other, at.device));
    _Atomic bool let_go = false;
    cy_event filled, copied;
    hold_queue(&at, &let_go);
    cy_queue_set(&at.queue, at.memory, 0x44, 4);
    cy_queue_record(&at.queue, &filled);
    cy_queue_wait_event(&other, &filled); // returns at once
    cy_queue_move(&other, at.memory + 64, at.memory, 4);
    cy_queue_record(&other, &copied);
    for (int i = 0; i < 50; i++) { // time in which a queue that does not wait would copy
        (void)poll(NULL, 0, 2);
        assert_false(cy_event_done(&other, &copied));
    }
    atomic_store(&let_go, true);
    unsigned char back[4];
    cy_queue_download(&other, back, at.memory + 64, 4);
    CY_CHECK_OK(cy_queue_synchronize(&other));
    for (int i = 0; i < 4; i++)
        assert_int_equal(back[i], 0x44);
    cy_queue_close(&other);
    close_place(&at);
}

static void a_fault_stays(void **state)
{
    (void)state;
    place at;
    open_place(&at, "test", 1);
    cy_queue_upload(&at.queue, at.memory + BYTES - 1, at.pinned, 2); // one byte too many
    CY_CHECK_FAILS(cy_queue_synchronize(&at.queue), CY_ERR_IO, "upload of 2 bytes");
    cy_queue_set(&at.queue, at.memory, 1, 1);
    cy_event event;
    cy_queue_record(&at.queue, &event);
    CY_CHECK_FAILS(cy_event_wait(&at.queue, &event), CY_ERR_IO, "upload of 2 bytes");
    close_place(&at);

    open_place(&at, "test", 1);
    cy_queue_move(&at.queue, at.memory, at.pinned, 1); // memory of the host
    CY_CHECK_FAILS(cy_queue_synchronize(&at.queue), CY_ERR_IO, "not memory of the device");
    close_place(&at);
}

static void give_host_memory(void)
{
    place at;
    open_place(&at, "test", 1);
    (void)cy_queue_launch_address(&at.queue, at.pinned);
}

static void a_kernel_takes_memory_of_the_device(void **state)
{
    (void)state;
    assert_true(cy_test_aborts(give_host_memory));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),
        cmocka_unit_test(dry_queues_do_nothing),
        cmocka_unit_test(launches_keep_their_order),
        cmocka_unit_test(close_waits),
        cmocka_unit_test(unknown_devices_are_refused),
        cmocka_unit_test(a_direct_access_faults),
        cmocka_unit_test(a_download_comes_late),
        cmocka_unit_test(an_upload_reads_late),
        cmocka_unit_test(a_queue_waits_for_another),
        cmocka_unit_test(a_fault_stays),
        cmocka_unit_test(a_kernel_takes_memory_of_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
