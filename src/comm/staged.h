// comm/staged.h: pinned memory through which groups move data of a device that the host cannot
// reach.
//
// A backend of groups works on host memory. On a queue whose device gives the host no access, the
// calls of group.c stage an operation: they copy its inputs to a buffer of pinned memory, wait on
// the host until they are there, run the backend on the buffer, and copy the result back in the
// order of the queue. The wait for an operation does not wait for that last copy; a buffer is used
// again when its copy is done.
//
// The buffers belong to a queue and serve all groups. Their sizes are powers of two. Operations on
// the dry queue count how many buffers of each size are in use at once, and cy_staging_place
// allocates as many. Where an operation finds none, as may be one that was not rehearsed, it
// allocates one more. The queue's thread alone uses a staging.

#ifndef CY_COMM_STAGED_H
#define CY_COMM_STAGED_H

#include "comm/backend.h"
#include "device/device.h"

typedef struct cy_staging cy_staging;
typedef struct cy_staged_buffer cy_staged_buffer;

// The caller owns *staging, and sets queue->staging to it.
CY_MUST_CHECK cy_status cy_staging_open(cy_staging **staging, cy_device *device);

// The queue is closed, or its work is done. NULL is left alone.
void cy_staging_close(cy_staging *staging);

// Allocates the buffers that the operations on the dry queue have counted.
CY_MUST_CHECK cy_status cy_staging_place(cy_staging *staging);

// Between these two, operations on the dry queue count beside all that have been counted before:
// for operations that are rehearsed after those with which they will be in flight. NULL is left
// alone.
void cy_staging_begin_beside(cy_staging *staging);
void cy_staging_end_beside(cy_staging *staging);

// Bytes of all buffers that were counted or allocated.
size_t cy_staging_bytes(const cy_staging *staging);

// ---- for group.c

// Counts an operation that begins, and one that ends, on the dry queue. A request that was not
// counted is left alone.
CY_MUST_CHECK cy_status cy_staging_plan(
    cy_staging *staging, const cy_request *request, const cy_operation *operation);
void cy_staging_plan_end(cy_staging *staging, const cy_request *request);

// Copies what this rank sends to a buffer and makes the views of *operation those of the buffer.
// Returns when the copy is done. *buffer is for the end. On failure nothing is in use.
CY_MUST_CHECK cy_status cy_staging_begin(
    cy_queue *queue, cy_staged_buffer **buffer, cy_operation *operation, int rank);

// After the backend's wait, or where its start failed: copies the result back unless the operation
// failed.
void cy_staging_end(cy_queue *queue, cy_staged_buffer *buffer, cy_status status);

// The queue that a backend gets in place of the device's.
cy_queue *cy_staging_host_queue(cy_queue *queue);

#endif
