// A device whose addresses the host cannot follow and whose queues are threads that work later.
#define _GNU_SOURCE
#include "device/test_device.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/thread_pool.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// What addresses are too high by: more than any processor's addresses of a process.
#define SHIFT ((uintptr_t)1 << 52)

// One record in so many waits before it begins, for at most so long.
#define SLOW_ONE_IN 64
#define SLOWEST_US  300

#define RING_BYTES ((size_t)1 << 20)

typedef struct allocation {
    char *memory; // as the host reaches it
    size_t bytes;
} allocation;

typedef struct test_device {
    cy_device base;
    uint64_t seed;
    pthread_mutex_t lock;    // of all below
    allocation *allocations; // owned
    size_t capacity;
    int count;
    uint64_t queues; // opened so far
} test_device;

// One piece of work in the ring. Its arguments follow, and then the array `more`.
typedef struct record {
    cy_launch_fn *function; // NULL: the rest of the ring is unused
    size_t bytes;           // of the record with all that follows
    char *scratch;          // the unused part of the queue's scratch memory at the time of the call
    size_t scratch_bytes;
    const void *more; // in the record; NULL: there is none
} record;

typedef struct stream {
    cy_queue *queue; // borrowed
    cy_queue inner;  // its pool is owned
    cy_arena scratch;
    pthread_t thread;
    pthread_mutex_t lock; // of the next five; `tail` is also read without it
    pthread_cond_t given, taken;
    char *ring;            // owned, [RING_BYTES]
    uint64_t head;         // bytes of all records so far
    _Atomic uint64_t tail; // bytes of all records that are done
    bool closing;
    cy_status fault; // the thread that calls alone uses it and the text
    char text[256];
    uint64_t key; // of the delays; the queue's thread alone uses it and the next
    uint64_t delays;
} stream;

// A record begins at a multiple of this, so the rest of the ring has room for a header.
#define RECORD_ALIGN ((size_t)64)
_Static_assert(sizeof(record) <= RECORD_ALIGN, "a header fits wherever a record may begin");

// ---- memory

static void *shifted(const void *memory)
{
    return (void *)((uintptr_t)memory + SHIFT); // NOLINT(performance-no-int-to-ptr): see SHIFT
}

static char *unshifted(const void *memory)
{
    return (char *)((uintptr_t)memory - SHIFT); // NOLINT(performance-no-int-to-ptr): see SHIFT
}

// Whether [memory, memory + bytes), as the host reaches it, lies in one allocation.
static bool owns(const cy_device *base, const char *memory, size_t bytes)
{
    test_device *device = cy_memory_writable(base);
    bool found = false;
    pthread_mutex_lock(&device->lock);
    for (int i = 0; i < device->count && !found; i++) {
        const allocation *at = &device->allocations[i];
        const uintptr_t first = (uintptr_t)at->memory, wanted = (uintptr_t)memory;
        found =
            wanted >= first && wanted - first <= at->bytes && bytes <= at->bytes - (wanted - first);
    }
    pthread_mutex_unlock(&device->lock);
    return found;
}

static cy_status test_alloc(cy_device *base, void **memory, size_t bytes)
{
    test_device *device = (test_device *)base;
    void *mapped = NULL;
    CY_TRY(cy_memory_map(&mapped, bytes));
    pthread_mutex_lock(&device->lock);
    void *list = device->allocations;
    const cy_status status =
        cy_memory_grow(&list, &device->capacity, (size_t)device->count + 1, sizeof(allocation));
    if (status == CY_OK) {
        device->allocations = list;
        device->allocations[device->count++] = (allocation){.memory = mapped, .bytes = bytes};
    }
    pthread_mutex_unlock(&device->lock);
    if (status != CY_OK) {
        cy_memory_unmap(mapped, bytes);
        return status;
    }
    *memory = shifted(mapped);
    return CY_OK;
}

static void test_free(cy_device *base, void *memory, size_t bytes)
{
    test_device *device = (test_device *)base;
    char *mapped = unshifted(memory);
    bool found = false;
    pthread_mutex_lock(&device->lock);
    for (int i = 0; i < device->count && !found; i++) {
        found = device->allocations[i].memory == mapped && device->allocations[i].bytes == bytes;
        if (found) device->allocations[i] = device->allocations[--device->count];
    }
    pthread_mutex_unlock(&device->lock);
    CY_ASSERT(found);
    cy_memory_unmap(mapped, bytes);
}

static cy_status test_alloc_host(cy_device *base, void **memory, size_t bytes)
{
    (void)base;
    return cy_device_alloc_host(cy_device_cpu(), memory, bytes);
}

static void test_free_host(cy_device *base, void *memory, size_t bytes)
{
    (void)base;
    cy_device_free_host(cy_device_cpu(), memory, bytes);
}

static void *test_launch_address(const cy_device *base, const void *memory)
{
    char *reached = unshifted(memory);
    CY_ASSERT(owns(base, reached, 0)); // a kernel was given memory that is not the device's
    return reached;
}

// ---- the thread of a queue

static record *record_at(const stream *self, uint64_t number)
{
    void *place = self->ring + number % RING_BYTES;
    return place;
}

static void delay(stream *self)
{
    const uint64_t bits = cy_random_bits(self->key, self->delays++);
    if (bits % SLOW_ONE_IN != 0) return;
    const long us = (long)(bits / SLOW_ONE_IN % SLOWEST_US);
    const struct timespec time = {.tv_nsec = us * 1000};
    (void)nanosleep(&time, NULL);
}

static void run_record(stream *self, const record *at)
{
    const cy_queue *queue = self->queue;
    if (at->function == NULL) return;
    delay(self);
    self->inner.kernels = queue->direct;
    self->inner.kernel_state = queue->kernel_state;
    self->inner.fixed_overflow = cy_queue_launch_address(queue, queue->fixed_overflow);
    cy_arena_init_remote(&self->scratch, "scratch", at->scratch, at->scratch_bytes);
    at->function(&self->inner, at + 1, at->more);
}

static void *run_stream(void *context)
{
    stream *self = context;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (self->tail == self->head && !self->closing)
            pthread_cond_wait(&self->given, &self->lock);
        if (self->tail == self->head) break;
        pthread_mutex_unlock(&self->lock);
        const record *at = record_at(self, self->tail);
        const size_t bytes = at->bytes;
        run_record(self, at);
        pthread_mutex_lock(&self->lock);
        self->tail += bytes;
        pthread_cond_broadcast(&self->taken);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

// Waits under the lock until everything before `number` is done.
static void wait_for(stream *self, uint64_t number)
{
    while (self->tail < number)
        pthread_cond_wait(&self->taken, &self->lock);
}

// Adds a record, under the lock. There is room for it.
static record *add(stream *self, cy_launch_fn *function, size_t bytes)
{
    record *made = record_at(self, self->head);
    *made = (record){.function = function, .bytes = bytes};
    self->head += bytes;
    return made;
}

// Bytes that a part of a record takes.
static size_t padded(size_t bytes)
{
    return (bytes + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

static void test_launch(cy_queue *queue, cy_launch_fn *function, const void *arguments,
    size_t bytes, const void *more, size_t more_bytes)
{
    stream *self = queue->stream;
    const size_t first = padded(sizeof(record) + bytes);
    const size_t size = first + padded(more_bytes);
    CY_ASSERT(size <= RING_BYTES / 2);
    pthread_mutex_lock(&self->lock);
    const size_t rest = RING_BYTES - self->head % RING_BYTES;
    const size_t skipped = rest < size ? rest : 0;
    if (self->head + skipped + size > RING_BYTES) {
        wait_for(self, self->head + skipped + size - RING_BYTES);
    }
    if (skipped > 0) add(self, NULL, skipped);
    record *made = add(self, function, size);
    if (queue->scratch != NULL) {
        const cy_arena *scratch = queue->scratch;
        made->scratch = cy_queue_launch_address(queue, scratch->base + cy_arena_mark(scratch));
        made->scratch_bytes = scratch->capacity - cy_arena_mark(scratch);
    }
    if (bytes > 0) memcpy(made + 1, arguments, bytes);
    if (more_bytes > 0) {
        void *copied = (char *)made + first;
        memcpy(copied, more, more_bytes);
        made->more = copied;
    }
    pthread_cond_signal(&self->given);
    pthread_mutex_unlock(&self->lock);
}

// ---- copies: records too

typedef struct copy {
    void *to;
    const void *from;
    size_t bytes;
} copy;

typedef struct setting {
    void *to;
    int byte;
    size_t bytes;
} setting;

static void run_copy(cy_queue *inner, const void *arguments, const void *more)
{
    (void)inner;
    (void)more;
    const copy *at = arguments;
    memmove(at->to, at->from, at->bytes);
}

static void run_setting(cy_queue *inner, const void *arguments, const void *more)
{
    (void)inner;
    (void)more;
    const setting *at = arguments;
    memset(at->to, at->byte, at->bytes);
}

// Whether the bytes at an address of the device are its own; where not, the queue has a fault.
static bool reaches(cy_queue *queue, const char *call, const void *memory, size_t bytes)
{
    if (owns(queue->device, unshifted(memory), bytes)) return true;
    stream *self = queue->stream;
    if (self->fault == CY_OK) {
        self->fault = CY_FAIL(CY_ERR_IO,
            "device test: %s of %zu bytes at %p, which is not memory of the device", call, bytes,
            memory);
        snprintf(self->text, sizeof(self->text), "%s", cy_error_text());
    }
    return false;
}

static void test_upload(cy_queue *queue, void *to_device, const void *from_host, size_t bytes)
{
    if (!reaches(queue, "upload", to_device, bytes)) return;
    const copy made = {.to = unshifted(to_device), .from = from_host, .bytes = bytes};
    test_launch(queue, run_copy, &made, sizeof(made), NULL, 0);
}

static void test_download(cy_queue *queue, void *to_host, const void *from_device, size_t bytes)
{
    if (!reaches(queue, "download", from_device, bytes)) return;
    memset(to_host, 0xff, bytes); // who reads it before the copy is done shall see it
    const copy made = {.to = to_host, .from = unshifted(from_device), .bytes = bytes};
    test_launch(queue, run_copy, &made, sizeof(made), NULL, 0);
}

static void test_move(cy_queue *queue, void *to, const void *from, size_t bytes)
{
    if (!reaches(queue, "copy", to, bytes) || !reaches(queue, "copy", from, bytes)) return;
    const copy made = {.to = unshifted(to), .from = unshifted(from), .bytes = bytes};
    test_launch(queue, run_copy, &made, sizeof(made), NULL, 0);
}

static void test_set(cy_queue *queue, void *to, int byte, size_t bytes)
{
    if (!reaches(queue, "fill", to, bytes)) return;
    const setting made = {.to = unshifted(to), .byte = byte, .bytes = bytes};
    test_launch(queue, run_setting, &made, sizeof(made), NULL, 0);
}

// ---- events: a number of bytes of a stream's records

static bool is_done(const cy_event *event)
{
    const stream *of = event->stream;
    return of->tail >= event->number;
}

static void await(const cy_event *event)
{
    stream *of = event->stream;
    pthread_mutex_lock(&of->lock);
    wait_for(of, event->number);
    pthread_mutex_unlock(&of->lock);
}

static void run_wait(cy_queue *inner, const void *arguments, const void *more)
{
    (void)inner;
    (void)more;
    await(arguments);
}

static void test_record(cy_queue *queue, cy_event *event)
{
    stream *self = queue->stream;
    *event = (cy_event){.stream = self, .number = self->head}; // this thread alone adds records
}

static void test_wait_event(cy_queue *queue, const cy_event *event)
{
    if (event->stream == queue->stream) return; // the order of the queue does it
    test_launch(queue, run_wait, event, sizeof(*event), NULL, 0);
}

static bool test_event_done(cy_queue *queue, const cy_event *event)
{
    (void)queue;
    return is_done(event);
}

static cy_status sticky(stream *self)
{
    return self->fault == CY_OK ? CY_OK : CY_FAIL(self->fault, "%s", self->text);
}

static cy_status test_event_wait(cy_queue *queue, const cy_event *event)
{
    await(event);
    return sticky(queue->stream);
}

static cy_status test_synchronize(cy_queue *queue)
{
    cy_event last;
    test_record(queue, &last);
    return test_event_wait(queue, &last);
}

// ---- opening

static cy_status test_open_queue(cy_queue *queue)
{
    test_device *device = (test_device *)queue->device;
    stream *self = NULL;
    CY_TRY(CY_ALLOC(&self, 1));
    cy_status status = CY_ALLOC(&self->ring, RING_BYTES);
    if (status != CY_OK) goto free_stream;
    status = cy_thread_pool_open(&self->inner.pool, cy_queue_workers(queue), -1, false);
    if (status != CY_OK) goto free_ring;
    self->queue = queue;
    self->inner.scratch = &self->scratch;
    self->inner.heartbeat = queue->heartbeat;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->given, NULL);
    pthread_cond_init(&self->taken, NULL);
    pthread_mutex_lock(&device->lock);
    self->key = cy_random_key_at(device->seed, device->queues++);
    pthread_mutex_unlock(&device->lock);
    const int error = cy_thread_start(&self->thread, run_stream, self);
    if (error != 0) {
        status =
            CY_FAIL(CY_ERR_MEMORY, "no thread for a queue of the test device: %s", strerror(error));
        goto close_pool;
    }
    queue->stream = self;
    return CY_OK;

close_pool:
    cy_thread_pool_close(self->inner.pool);
free_ring:
    cy_memory_free(self->ring);
free_stream:
    cy_memory_free(self);
    return status;
}

static void test_close_queue(cy_queue *queue)
{
    stream *self = queue->stream;
    pthread_mutex_lock(&self->lock);
    self->closing = true;
    pthread_cond_signal(&self->given);
    pthread_mutex_unlock(&self->lock);
    pthread_join(self->thread, NULL);
    pthread_cond_destroy(&self->taken);
    pthread_cond_destroy(&self->given);
    pthread_mutex_destroy(&self->lock);
    cy_thread_pool_close(self->inner.pool);
    cy_memory_free(self->ring);
    cy_memory_free(self);
}

static void test_close(cy_device *base)
{
    test_device *device = (test_device *)base;
    CY_ASSERT(device->count == 0);
    pthread_mutex_destroy(&device->lock);
    cy_memory_free(device->allocations);
    cy_memory_free(device);
}

static const cy_device_ops test_ops = {
    .alloc = test_alloc,
    .free = test_free,
    .alloc_host = test_alloc_host,
    .free_host = test_free_host,
    .open_queue = test_open_queue,
    .close_queue = test_close_queue,
    .upload = test_upload,
    .download = test_download,
    .move = test_move,
    .set = test_set,
    .launch = test_launch,
    .launch_address = test_launch_address,
    .record = test_record,
    .wait_event = test_wait_event,
    .event_done = test_event_done,
    .event_wait = test_event_wait,
    .synchronize = test_synchronize,
    .close = test_close,
};

cy_status cy_test_device_open(cy_device **device, uint64_t seed)
{
    test_device *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->base = (cy_device){.ops = &test_ops,
        .properties = {.name = "test", .alignment = CY_ARENA_ALIGN, .deferred = true}};
    made->seed = seed;
    pthread_mutex_init(&made->lock, NULL);
    *device = &made->base;
    return CY_OK;
}
