// device/device.h: a device: its memory, its queues, and the order of work on them.
//
// A device is a table of functions. The CPU is one implementation, static and without cost; others
// are opened by name. Memory belongs to a device. Where the properties say that the host has no
// access, an address of the device is a number for the host: it may be offset and compared, and
// passed to kernels, groups and copies, but not followed.
//
// Copies, fills and launches return nothing: a queue does its work in the order of the calls, and a
// fault comes out of the next cy_queue_synchronize or cy_event_wait and of all that follow. Where a
// device defers, they return before the work is done. The host memory of a deferred copy then
// belongs to the queue until an event that was recorded behind the copy is done. Pinned memory of
// the host is what copies use at full speed; other memory of the host is allowed.
//
// On a dry queue copies, fills and launches do nothing, events are done, and waits return at once.
// One thread uses a queue at a time. Any thread may allocate and free.

#ifndef CY_DEVICE_DEVICE_H
#define CY_DEVICE_DEVICE_H

#include "base/status.h"
#include "device/queue.h"

typedef struct cy_device cy_device;

typedef struct cy_device_properties {
    const char *name;     // as spelled in configurations: "cpu", "test"
    int64_t memory_bytes; // that the device has; 0: that of the host
    int units;            // that compute at once; 0: the threads of a queue's pool
    size_t alignment;     // of its allocations
    bool host_access;     // the host may follow addresses of the device
    bool deferred;        // calls return before the work is done
} cy_device_properties;

// A position in the order of a queue: a plain value, which needs no closing. A zeroed event is
// done.
typedef struct cy_event {
    void *stream; // borrowed: of the queue that recorded it
    uint64_t number;
} cy_event;

// What cy_queue_launch runs. `inner` is a queue of the CPU that runs in the device's own thread,
// with the table queue->direct. `arguments` and the array `more` are copies of what the call was
// given.
typedef void cy_launch_fn(cy_queue *inner, const void *arguments, const void *more);

typedef struct cy_device_ops {
    cy_status (*alloc)(cy_device *device, void **memory, size_t bytes);
    void (*free)(cy_device *device, void *memory, size_t bytes);
    cy_status (*alloc_host)(cy_device *device, void **memory, size_t bytes);
    void (*free_host)(cy_device *device, void *memory, size_t bytes);
    cy_status (*open_queue)(cy_queue *queue); // sets queue->stream
    void (*close_queue)(cy_queue *queue);
    void (*upload)(cy_queue *queue, void *to_device, const void *from_host, size_t bytes);
    void (*download)(cy_queue *queue, void *to_host, const void *from_device, size_t bytes);
    void (*move)(cy_queue *queue, void *to, const void *from, size_t bytes);
    void (*set)(cy_queue *queue, void *to, int byte, size_t bytes);
    void (*launch)(cy_queue *queue, cy_launch_fn *function, const void *arguments, size_t bytes,
        const void *more, size_t more_bytes);
    void *(*launch_address)(const cy_device *device, const void *memory);
    void (*record)(cy_queue *queue, cy_event *event);
    void (*wait_event)(cy_queue *queue, const cy_event *event);
    bool (*event_done)(cy_queue *queue, const cy_event *event);
    cy_status (*event_wait)(cy_queue *queue, const cy_event *event);
    cy_status (*synchronize)(cy_queue *queue);
    void (*close)(cy_device *device);
} cy_device_ops;

struct cy_device { // first member of every device's own struct
    const cy_device_ops *ops;
    cy_device_properties properties;
};

// ---- devices

// The CPU. Static storage: nothing to close.
cy_device *cy_device_cpu(void);

// Opens a device by its name. One rank uses it. The seed is that of the test device's delays. The
// caller owns *device. CY_ERR_UNSUPPORTED: this build has no such device.
CY_MUST_CHECK cy_status cy_device_open(cy_device **device, const char *name, uint64_t seed);

// All queues are closed and all memory is free by now. NULL and the CPU are left alone.
void cy_device_close(cy_device *device);

// The device of a queue: a queue without one is the CPU's.
static inline cy_device *cy_queue_device(const cy_queue *queue)
{
    return queue->device != NULL ? queue->device : cy_device_cpu();
}

// Whether calls on the queue return before their work is done.
static inline bool cy_queue_defers(const cy_queue *queue)
{
    return queue->device != NULL && queue->device->properties.deferred;
}

// Whether the host may follow addresses of the queue's device.
static inline bool cy_queue_host_access(const cy_queue *queue)
{
    return queue->device == NULL || queue->device->properties.host_access;
}

// ---- memory

// Allocates zeroed memory of the device. *memory is set only on success. Free with the same size.
CY_MUST_CHECK cy_status cy_device_alloc(cy_device *device, void **memory, size_t bytes);
void cy_device_free(cy_device *device, void *memory, size_t bytes);

// Pinned memory of the host, zeroed and aligned to CY_ARENA_ALIGN.
CY_MUST_CHECK cy_status cy_device_alloc_host(cy_device *device, void **memory, size_t bytes);
void cy_device_free_host(cy_device *device, void *memory, size_t bytes);

// ---- queues

// Makes the queue one of the device: sets queue->device and queue->stream. The pool and the scratch
// memory are set by then: the device has as many workers. Does nothing for the CPU.
CY_MUST_CHECK cy_status cy_queue_open(cy_queue *queue, cy_device *device);

// Waits for the work of the queue and makes it one of no device. A fault is lost.
void cy_queue_close(cy_queue *queue);

// Copies to the device, from it, and within it, where the two ranges may be the same or apart.
void cy_queue_upload(cy_queue *queue, void *to_device, const void *from_host, size_t bytes);
void cy_queue_download(cy_queue *queue, void *to_host, const void *from_device, size_t bytes);
void cy_queue_move(cy_queue *queue, void *to, const void *from, size_t bytes);

// Sets every byte.
void cy_queue_set(cy_queue *queue, void *to, int byte, size_t bytes);

// Runs function(inner, arguments, more) in the order of the queue with copies of both; `more` is an
// array of any length, or NULL. Pointers in them are what the function follows:
// cy_queue_launch_address makes them of addresses of the device.
void cy_queue_launch(cy_queue *queue, cy_launch_fn *function, const void *arguments, size_t bytes,
    const void *more, size_t more_bytes);

// The address under which a launched function reaches memory of the queue's device; NULL of NULL.
// Asserts that it is memory of the device.
void *cy_queue_launch_address(const cy_queue *queue, const void *memory);

// ---- events

// The event is done when all work that the queue has been given before is done.
void cy_queue_record(cy_queue *queue, cy_event *event);

// Later work of the queue waits for the event, which may be of another queue of the device. The
// host does not wait.
void cy_queue_wait_event(cy_queue *queue, const cy_event *event);

bool cy_event_done(cy_queue *queue, const cy_event *event);

// Returns when the event is done, with the fault of the queue, if it has one.
CY_MUST_CHECK cy_status cy_event_wait(cy_queue *queue, const cy_event *event);

// Returns when all work of the queue is done, with its fault, if it has one.
CY_MUST_CHECK cy_status cy_queue_synchronize(cy_queue *queue);

#endif
