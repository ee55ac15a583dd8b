// Copies the data of group operations between the memory of a device and pinned host memory.

#include "comm/staged.h"

#include "base/memory.h"

#include <stdatomic.h>
#include <stdint.h>

#define CLASSES 48 // of sizes: class c holds buffers of 2^c bytes

struct cy_staged_buffer {
    cy_staged_buffer *next;   // of its class, while it is free
    cy_staged_buffer *before; // of all, the one that was allocated before
    char *memory;             // owned
    int size_class;
    cy_event copied;  // its last copy back
    void *out;        // the result's place on the device; NULL: there is none
    char *out_staged; // the result in the buffer
    size_t out_bytes;
};

// The buffers of one size. Those that are free wait in the order in which they became so.
typedef struct buffer_class {
    cy_staged_buffer *first, *last;
    int count;   // allocated
    int planned; // the most in use at once on the dry queue
    int in_use;  // on the dry queue
    int beside;  // `planned` as it was before cy_staging_begin_beside, or 0
} buffer_class;

// An operation in flight on the dry queue.
typedef struct planned_use {
    const cy_request *request;
    int size_class;
} planned_use;

struct cy_staging {
    cy_device *device;         // borrowed
    cy_queue host;             // what backends get
    _Atomic uint32_t overflow; // of `host`
    cy_staged_buffer *all;     // owned, the one that was allocated last
    buffer_class classes[CLASSES];
    planned_use *uses; // owned
    size_t uses_capacity;
    int use_count;
};

static bool is_in_place(const cy_operation *operation)
{
    return operation->in.data == operation->out.data &&
        cy_view_bytes(operation->in) == cy_view_bytes(operation->out);
}

// The size follows from the operation alone: where its views overlap, the dry queue cannot know.
static int class_of(const cy_operation *operation)
{
    size_t bytes = cy_arena_bytes(cy_view_bytes(operation->in));
    if (!is_in_place(operation)) bytes += cy_view_bytes(operation->out);
    int size_class = 6;
    while (((size_t)1 << size_class) < bytes)
        size_class++;
    CY_ASSERT(size_class < CLASSES);
    return size_class;
}

// ---- planning

cy_status cy_staging_plan(
    cy_staging *staging, const cy_request *request, const cy_operation *operation)
{
    void *uses = staging->uses;
    CY_TRY(cy_memory_grow(
        &uses, &staging->uses_capacity, (size_t)staging->use_count + 1, sizeof(planned_use)));
    staging->uses = uses;
    const int size_class = class_of(operation);
    staging->uses[staging->use_count++] =
        (planned_use){.request = request, .size_class = size_class};
    buffer_class *of = &staging->classes[size_class];
    of->in_use++;
    const int together = of->beside + of->in_use;
    if (together > of->planned) of->planned = together;
    return CY_OK;
}

void cy_staging_begin_beside(cy_staging *staging)
{
    for (int i = 0; staging != NULL && i < CLASSES; i++)
        staging->classes[i].beside = staging->classes[i].planned;
}

void cy_staging_end_beside(cy_staging *staging)
{
    for (int i = 0; staging != NULL && i < CLASSES; i++)
        staging->classes[i].beside = 0;
}

void cy_staging_plan_end(cy_staging *staging, const cy_request *request)
{
    for (int i = 0; i < staging->use_count; i++) {
        if (staging->uses[i].request != request) continue;
        staging->classes[staging->uses[i].size_class].in_use--;
        staging->uses[i] = staging->uses[--staging->use_count];
        return;
    }
}

size_t cy_staging_bytes(const cy_staging *staging)
{
    size_t bytes = 0;
    for (int i = 0; i < CLASSES; i++) {
        const buffer_class *of = &staging->classes[i];
        bytes += (size_t)(of->count > of->planned ? of->count : of->planned) << i;
    }
    return bytes;
}

// ---- buffers

static void add_free(cy_staging *staging, cy_staged_buffer *buffer)
{
    buffer_class *of = &staging->classes[buffer->size_class];
    buffer->next = NULL;
    if (of->first == NULL) {
        of->first = buffer;
    } else {
        of->last->next = buffer;
    }
    of->last = buffer;
}

static cy_status allocate(cy_staging *staging, int size_class)
{
    cy_staged_buffer *made = NULL;
    void *memory = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    const cy_status status =
        cy_device_alloc_host(staging->device, &memory, (size_t)1 << size_class);
    if (status != CY_OK) {
        cy_memory_free(made);
        return status;
    }
    *made = (cy_staged_buffer){.before = staging->all, .memory = memory, .size_class = size_class};
    staging->all = made;
    staging->classes[size_class].count++;
    add_free(staging, made);
    return CY_OK;
}

cy_status cy_staging_place(cy_staging *staging)
{
    for (int i = 0; i < CLASSES; i++) {
        while (staging->classes[i].count < staging->classes[i].planned)
            CY_TRY(allocate(staging, i));
    }
    return CY_OK;
}

// Takes the buffer that has been free for longest. Its last copy may still be under way.
static cy_status take(
    cy_staging *staging, cy_queue *queue, cy_staged_buffer **buffer, int size_class)
{
    buffer_class *of = &staging->classes[size_class];
    if (of->first == NULL) CY_TRY(allocate(staging, size_class));
    cy_staged_buffer *found = of->first;
    CY_TRY(cy_event_wait(queue, &found->copied));
    of->first = found->next;
    *buffer = found;
    return CY_OK;
}

cy_status cy_staging_open(cy_staging **staging, cy_device *device)
{
    CY_TRY(CY_ALLOC(staging, 1));
    (*staging)->device = device;
    (*staging)->host.fixed_overflow = &(*staging)->overflow;
    return CY_OK;
}

void cy_staging_close(cy_staging *staging)
{
    if (staging == NULL) return;
    for (cy_staged_buffer *at = staging->all; at != NULL;) { // also what a failed run left in use
        cy_staged_buffer *before = at->before;
        cy_device_free_host(staging->device, at->memory, (size_t)1 << at->size_class);
        cy_memory_free(at);
        at = before;
    }
    cy_memory_free(staging->uses);
    cy_memory_free(staging);
}

// ---- operations

// Where the views of an operation lie in a buffer. Views of one memory keep their distance, so that
// what is in place, or a part of the other, stays so.
typedef struct placing {
    size_t in, out; // offsets
} placing;

static placing place_views(const cy_operation *operation)
{
    const size_t in_bytes = cy_view_bytes(operation->in), out_bytes = cy_view_bytes(operation->out);
    const uintptr_t in = (uintptr_t)operation->in.data, out = (uintptr_t)operation->out.data;
    if (in >= out + out_bytes || out >= in + in_bytes) {
        return (placing){.out = cy_arena_bytes(in_bytes)};
    }
    return (placing){.in = in > out ? in - out : 0, .out = out > in ? out - in : 0};
}

static bool sends(const cy_operation *operation, int rank)
{
    if (operation->kind == CY_OP_BROADCAST) return operation->peer == rank;
    return operation->kind != CY_OP_RECV;
}

static bool receives(const cy_operation *operation, int rank)
{
    if (operation->kind == CY_OP_BROADCAST) return operation->peer != rank;
    return operation->kind != CY_OP_SEND;
}

cy_status cy_staging_begin(
    cy_queue *queue, cy_staged_buffer **buffer, cy_operation *operation, int rank)
{
    cy_staging *staging = queue->staging;
    CY_ASSERT(staging != NULL);
    cy_staged_buffer *made = NULL;
    CY_TRY(take(staging, queue, &made, class_of(operation)));
    const placing at = place_views(operation);
    made->out = receives(operation, rank) ? operation->out.data : NULL;
    made->out_bytes = cy_view_bytes(operation->out);
    made->out_staged = made->memory + at.out;
    cy_status status = CY_OK;
    if (sends(operation, rank)) {
        cy_event copied;
        cy_queue_download(
            queue, made->memory + at.in, operation->in.data, cy_view_bytes(operation->in));
        cy_queue_record(queue, &copied);
        status = cy_event_wait(queue, &copied);
    }
    operation->in.data = made->memory + at.in;
    operation->out.data = made->memory + at.out;
    *buffer = made;
    if (status != CY_OK) cy_staging_end(queue, made, status);
    return status;
}

void cy_staging_end(cy_queue *queue, cy_staged_buffer *buffer, cy_status status)
{
    cy_staging *staging = queue->staging;
    buffer->copied = (cy_event){0};
    if (status == CY_OK && buffer->out != NULL) {
        cy_queue_upload(queue, buffer->out, buffer->out_staged, buffer->out_bytes);
        cy_queue_record(queue, &buffer->copied);
    }
    if (atomic_exchange(&staging->overflow, 0) != 0 && queue->fixed_overflow != NULL) {
        cy_queue_set(queue, queue->fixed_overflow, 1, 1);
    }
    add_free(staging, buffer);
}

cy_queue *cy_staging_host_queue(cy_queue *queue)
{
    cy_queue *host = &queue->staging->host;
    host->heartbeat = queue->heartbeat;
    return host;
}
