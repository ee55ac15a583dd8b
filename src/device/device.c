// The calls of devices and queues, and the CPU as a device: its memory is the host's, and its work
// is done when a call returns.

#include "device/device.h"

#include "base/memory.h"
#include "device/test_device.h"

#include <stdint.h>
#include <string.h>

// ---- the CPU

static cy_status cpu_alloc(cy_device *device, void **memory, size_t bytes)
{
    (void)device;
    return cy_memory_map(memory, bytes);
}

static void cpu_free(cy_device *device, void *memory, size_t bytes)
{
    (void)device;
    cy_memory_unmap(memory, bytes);
}

static cy_status cpu_alloc_host(cy_device *device, void **memory, size_t bytes)
{
    (void)device;
    char *block = NULL;
    CY_TRY(CY_ALLOC(&block, bytes + CY_ARENA_ALIGN));
    // The byte before the aligned address says how far the block's beginning is.
    const size_t skip = CY_ARENA_ALIGN - (uintptr_t)block % CY_ARENA_ALIGN;
    block[skip - 1] = (char)skip;
    *memory = block + skip;
    return CY_OK;
}

static void cpu_free_host(cy_device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)bytes;
    if (memory == NULL) return;
    char *block = memory;
    cy_memory_free(block - block[-1]);
}

static cy_status cpu_open_queue(cy_queue *queue)
{
    (void)queue;
    return CY_OK;
}

static void cpu_close_queue(cy_queue *queue)
{
    (void)queue;
}

static void cpu_copy(cy_queue *queue, void *to, const void *from, size_t bytes)
{
    (void)queue;
    if (to != from) memcpy(to, from, bytes);
}

static void cpu_set(cy_queue *queue, void *to, int byte, size_t bytes)
{
    (void)queue;
    memset(to, byte, bytes);
}

static void cpu_launch(cy_queue *queue, cy_launch_fn *function, const void *arguments, size_t bytes,
    const void *more, size_t more_bytes)
{
    (void)bytes;
    (void)more_bytes;
    function(queue, arguments, more);
}

static void *cpu_launch_address(const cy_device *device, const void *memory)
{
    (void)device;
    return cy_memory_writable(memory);
}

static void cpu_record(cy_queue *queue, cy_event *event)
{
    (void)queue;
    *event = (cy_event){0};
}

static void cpu_wait_event(cy_queue *queue, const cy_event *event)
{
    (void)queue;
    (void)event;
}

static bool cpu_event_done(cy_queue *queue, const cy_event *event)
{
    (void)queue;
    (void)event;
    return true;
}

static cy_status cpu_event_wait(cy_queue *queue, const cy_event *event)
{
    (void)queue;
    (void)event;
    return CY_OK;
}

static cy_status cpu_synchronize(cy_queue *queue)
{
    (void)queue;
    return CY_OK;
}

static void cpu_close(cy_device *device)
{
    (void)device;
}

static const cy_device_ops cpu_ops = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc_host,
    .free_host = cpu_free_host,
    .open_queue = cpu_open_queue,
    .close_queue = cpu_close_queue,
    .upload = cpu_copy,
    .download = cpu_copy,
    .move = cpu_copy,
    .set = cpu_set,
    .launch = cpu_launch,
    .launch_address = cpu_launch_address,
    .record = cpu_record,
    .wait_event = cpu_wait_event,
    .event_done = cpu_event_done,
    .event_wait = cpu_event_wait,
    .synchronize = cpu_synchronize,
    .close = cpu_close,
};

cy_device *cy_device_cpu(void)
{
    // Never written to.
    static cy_device cpu = {.ops = &cpu_ops,
        .properties = {.name = "cpu", .alignment = CY_ARENA_ALIGN, .host_access = true}};
    return &cpu;
}

// ---- devices

cy_status cy_device_open(cy_device **device, const char *name, uint64_t seed)
{
    if (strcmp(name, "cpu") == 0) {
        *device = cy_device_cpu();
        return CY_OK;
    }
    if (strcmp(name, "test") == 0) return cy_test_device_open(device, seed);
    return CY_FAIL(CY_ERR_UNSUPPORTED, "device \"%s\": this build has cpu and test", name);
}

void cy_device_close(cy_device *device)
{
    if (device != NULL) device->ops->close(device);
}

cy_status cy_device_alloc(cy_device *device, void **memory, size_t bytes)
{
    return device->ops->alloc(device, memory, bytes);
}

void cy_device_free(cy_device *device, void *memory, size_t bytes)
{
    if (memory != NULL) device->ops->free(device, memory, bytes);
}

cy_status cy_device_alloc_host(cy_device *device, void **memory, size_t bytes)
{
    return device->ops->alloc_host(device, memory, bytes);
}

void cy_device_free_host(cy_device *device, void *memory, size_t bytes)
{
    if (memory != NULL) device->ops->free_host(device, memory, bytes);
}

// ---- queues

cy_status cy_queue_open(cy_queue *queue, cy_device *device)
{
    CY_ASSERT(queue->device == NULL);
    queue->device = device;
    const cy_status status = device->ops->open_queue(queue);
    if (status != CY_OK) queue->device = NULL;
    return status;
}

void cy_queue_close(cy_queue *queue)
{
    if (queue->device == NULL) return;
    queue->device->ops->close_queue(queue);
    queue->device = NULL;
    queue->stream = NULL;
}

void cy_queue_upload(cy_queue *queue, void *to_device, const void *from_host, size_t bytes)
{
    if (queue->dry || bytes == 0) return;
    cy_queue_device(queue)->ops->upload(queue, to_device, from_host, bytes);
}

void cy_queue_download(cy_queue *queue, void *to_host, const void *from_device, size_t bytes)
{
    if (queue->dry || bytes == 0) return;
    cy_queue_device(queue)->ops->download(queue, to_host, from_device, bytes);
}

void cy_queue_move(cy_queue *queue, void *to, const void *from, size_t bytes)
{
    if (queue->dry || bytes == 0) return;
    cy_queue_device(queue)->ops->move(queue, to, from, bytes);
}

void cy_queue_set(cy_queue *queue, void *to, int byte, size_t bytes)
{
    if (queue->dry || bytes == 0) return;
    cy_queue_device(queue)->ops->set(queue, to, byte, bytes);
}

void cy_queue_launch(cy_queue *queue, cy_launch_fn *function, const void *arguments, size_t bytes,
    const void *more, size_t more_bytes)
{
    if (queue->dry) return;
    const cy_device_ops *ops = cy_queue_device(queue)->ops;
    ops->launch(queue, function, arguments, bytes, more, more_bytes);
}

void *cy_queue_launch_address(const cy_queue *queue, const void *memory)
{
    if (memory == NULL) return NULL;
    const cy_device *device = cy_queue_device(queue);
    return device->ops->launch_address(device, memory);
}

// ---- events

void cy_queue_record(cy_queue *queue, cy_event *event)
{
    *event = (cy_event){0};
    if (!queue->dry) cy_queue_device(queue)->ops->record(queue, event);
}

void cy_queue_wait_event(cy_queue *queue, const cy_event *event)
{
    if (queue->dry || event->stream == NULL) return;
    cy_queue_device(queue)->ops->wait_event(queue, event);
}

bool cy_event_done(cy_queue *queue, const cy_event *event)
{
    if (queue->dry || event->stream == NULL) return true;
    return cy_queue_device(queue)->ops->event_done(queue, event);
}

cy_status cy_event_wait(cy_queue *queue, const cy_event *event)
{
    if (queue->dry || event->stream == NULL) return CY_OK;
    return cy_queue_device(queue)->ops->event_wait(queue, event);
}

cy_status cy_queue_synchronize(cy_queue *queue)
{
    if (queue->dry) return CY_OK;
    return cy_queue_device(queue)->ops->synchronize(queue);
}
