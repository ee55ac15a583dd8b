// The calls of a group: checks arguments, serves groups of one and dry queues, counts traffic, and
// passes the rest to the backend.

#include "comm/group.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/backend.h"
#include "comm/staged.h"

#include <stdio.h>
#include <string.h>

static const char *const operation_names[] = {
    [CY_OP_ALL_REDUCE] = "all_reduce",
    [CY_OP_REDUCE_SCATTER] = "reduce_scatter",
    [CY_OP_ALL_GATHER] = "all_gather",
    [CY_OP_ALL_TO_ALL] = "all_to_all",
    [CY_OP_ALL_TO_ALLV] = "all_to_allv",
    [CY_OP_BROADCAST] = "broadcast",
    [CY_OP_BARRIER] = "barrier",
    [CY_OP_SEND] = "send",
    [CY_OP_RECV] = "recv",
};

static const char *const reduce_names[] = {
    [CY_SUM] = "sum",
    [CY_AVG] = "avg",
    [CY_MIN] = "min",
    [CY_MAX] = "max",
    [CY_PROD] = "prod",
};

const char *cy_operation_name(cy_operation_kind kind)
{
    return operation_names[kind];
}

const char *cy_reduce_op_name(cy_reduce_op reduce)
{
    return reduce_names[reduce];
}

double cy_operation_bytes(const cy_operation *operation, int rank, int size)
{
    const double in = (double)cy_view_bytes(operation->in);
    const double others = (double)(size - 1) / (double)size;
    switch (operation->kind) {
    case CY_OP_ALL_REDUCE:
        return 2.0 * others * in;
    case CY_OP_REDUCE_SCATTER:
    case CY_OP_ALL_TO_ALL:
        return others * in;
    case CY_OP_ALL_GATHER:
        return (double)(size - 1) * in;
    case CY_OP_ALL_TO_ALLV: {
        const int64_t own = operation->in_rows[rank] * operation->in.cols;
        return in - (double)own * (double)cy_dtype_size(operation->in.dtype);
    }
    case CY_OP_BROADCAST:
        return rank == operation->peer ? in : 0.0;
    case CY_OP_SEND:
        return in;
    case CY_OP_RECV:
    case CY_OP_BARRIER:
        return 0.0;
    }
    return 0.0;
}

double cy_operation_bytes_between(const cy_group *group, const cy_operation *operation)
{
    const int *nodes = group->nodes;
    if (nodes == NULL) return 0.0;
    const double in = (double)cy_view_bytes(operation->in);
    double apart = 0.0;
    double rows = 0.0;
    for (int m = 0; m < group->size; m++) {
        if (nodes[m] == nodes[group->rank]) continue;
        apart += 1.0;
        if (operation->kind == CY_OP_ALL_TO_ALLV) rows += (double)operation->in_rows[m];
    }
    switch (operation->kind) {
    case CY_OP_ALL_REDUCE:
        return 2.0 * apart / (double)group->size * in;
    case CY_OP_REDUCE_SCATTER:
    case CY_OP_ALL_TO_ALL:
        return apart / (double)group->size * in;
    case CY_OP_ALL_GATHER:
        return apart * in;
    case CY_OP_ALL_TO_ALLV:
        return rows * (double)operation->in.cols * (double)cy_dtype_size(operation->in.dtype);
    case CY_OP_BROADCAST:
        return group->rank == operation->peer ? apart * in : 0.0;
    case CY_OP_SEND:
        return nodes[operation->peer] != nodes[group->rank] ? in : 0.0;
    case CY_OP_RECV:
    case CY_OP_BARRIER:
        return 0.0;
    }
    return 0.0;
}

void cy_group_init(
    cy_group *group, const cy_group_ops *ops, int rank, int size, const char *dimension)
{
    CY_ASSERT(ops->name != NULL && ops->start != NULL && ops->wait != NULL);
    CY_ASSERT(ops->check_peers != NULL);
    CY_ASSERT(ops->test != NULL && ops->abort != NULL && ops->close != NULL);
    CY_ASSERT(0 <= rank && rank < size);
    CY_ASSERT(strlen(dimension) < CY_DIMENSION_BYTES);
    group->ops = ops;
    group->rank = rank;
    group->size = size;
    group->reduces_on_recv = false;
    group->fragment_bytes = 0;
    group->messages_only = false;
    group->counts_between = false;
    group->nodes = NULL;
    group->guard = NULL;
    group->counters = (cy_traffic){0};
    snprintf(group->dimension, sizeof(group->dimension), "%s", dimension);
    snprintf(group->label, sizeof(group->label), "%s", dimension);
}

void cy_group_set_generation(cy_group *group, int generation)
{
    if (generation == 1) return;
    snprintf(
        group->label, sizeof(group->label), "%s (generation %d)", group->dimension, generation);
}

void cy_group_abort(cy_group *group, const char *text)
{
    group->ops->abort(group, text);
}

void cy_group_close(cy_group *group)
{
    if (group == NULL) return;
    int *nodes = group->nodes;
    group->ops->close(group);
    cy_memory_free(nodes);
}

cy_status cy_group_set_nodes(cy_group *group, const int *nodes)
{
    CY_ASSERT(group->nodes == NULL);
    if (nodes == NULL) return CY_OK;
    CY_TRY(CY_ALLOC(&group->nodes, (size_t)group->size));
    memcpy(group->nodes, nodes, (size_t)group->size * sizeof(int));
    return CY_OK;
}

int cy_group_rank(const cy_group *group)
{
    return group->rank;
}

int cy_group_size(const cy_group *group)
{
    return group->size;
}

const char *cy_group_dimension(const cy_group *group)
{
    return group->dimension;
}

const char *cy_group_backend(const cy_group *group)
{
    return group->ops->name;
}

cy_traffic cy_group_counters(const cy_group *group)
{
    return group->counters;
}

void cy_group_set_counters(cy_group *group, cy_traffic counters)
{
    if (group->size > 1) group->counters = counters;
}

// ---- operations

static bool same_content(cy_view a, cy_view b)
{
    return a.dtype == b.dtype && a.exponent == b.exponent && cy_view_count(a) == cy_view_count(b);
}

// One rank is its own sum, and all its parts are its own.
static void copy_alone(cy_queue *queue, const cy_operation *operation)
{
    if (operation->kind == CY_OP_BARRIER || operation->out.data == operation->in.data) return;
    const size_t bytes = cy_view_bytes(operation->in);
    if (queue != NULL) {
        cy_queue_move(queue, operation->out.data, operation->in.data, bytes);
    } else if (bytes > 0) {
        memcpy(operation->out.data, operation->in.data, bytes);
    }
}

// Begins an operation whose views are in the memory of a device that the host cannot reach.
static cy_status launch_staged(
    cy_group *group, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    cy_operation staged = *operation;
    cy_staged_buffer *buffer = NULL;
    CY_TRY(cy_staging_begin(queue, &buffer, &staged, group->rank));
    const cy_status status =
        group->ops->start(group, cy_staging_host_queue(queue), request, &staged);
    if (status != CY_OK) {
        cy_staging_end(queue, buffer, status);
        return status;
    }
    ((cy_transfer *)request->handle)->staged = buffer;
    return CY_OK;
}

// Counts an operation and begins it, unless there is nothing to do: the request is empty then.
static cy_status launch(cy_group *group, cy_queue *queue, cy_request *request,
    const cy_operation *operation, int64_t start_ns)
{
    const double bytes = cy_operation_bytes(operation, group->rank, group->size);
    if (operation->kind != CY_OP_RECV) group->counters.messages++;
    group->counters.bytes += bytes;
    if (!group->counts_between) {
        group->counters.bytes_between_nodes += cy_operation_bytes_between(group, operation);
    }
    if (queue != NULL && queue->dry) {
        return queue->staging == NULL ? CY_OK : cy_staging_plan(queue->staging, request, operation);
    }
    if (queue != NULL && !cy_queue_host_access(queue)) {
        CY_TRY(launch_staged(group, queue, request, operation));
    } else {
        CY_TRY(group->ops->start(group, queue, request, operation));
        ((cy_transfer *)request->handle)->staged = NULL;
    }
    cy_transfer *transfer = request->handle;
    transfer->start_ns = start_ns;
    transfer->kind = operation->kind;
    transfer->bytes = bytes;
    return CY_OK;
}

static cy_status alone(cy_queue *queue, const cy_operation *operation)
{
    copy_alone(queue, operation);
    return CY_OK;
}

static cy_status start(
    cy_group *group, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    CY_ASSERT(request->handle == NULL); // one request, one transfer
    if (group->size == 1) return alone(queue, operation);
    const int64_t start_ns = cy_clock_ns();
    CY_TRY(launch(group, queue, request, operation, start_ns));
    if (request->handle != NULL) {
        group->counters.exposed_s += (double)(cy_clock_ns() - start_ns) * 1e-9;
    }
    return CY_OK;
}

// Completes a transfer; this rank has been inside the call since wait_ns.
static cy_status finish(cy_group *group, cy_queue *queue, cy_request *request, int64_t wait_ns)
{
    cy_transfer *transfer = request->handle;
    const cy_transfer started = *transfer; // the record is the backend's again after its wait
    request->handle = NULL;
    cy_status status;
    if (started.staged != NULL) {
        status = group->ops->wait(group, cy_staging_host_queue(queue), transfer);
        cy_staging_end(queue, started.staged, status);
    } else {
        status = group->ops->wait(group, queue, transfer);
    }
    const int64_t end_ns = cy_clock_ns();
    group->counters.exposed_s += (double)(end_ns - wait_ns) * 1e-9;
    group->counters.seconds += (double)(end_ns - started.start_ns) * 1e-9;
    if (queue != NULL && queue->trace != NULL) {
        const cy_cost cost = {.bytes = started.bytes};
        const char *name = cy_operation_name(started.kind);
        cy_trace_add(queue->trace, name, CY_SPAN_COMM, started.start_ns, cost, 0);
        cy_trace_add(queue->trace, name, CY_SPAN_WAIT, wait_ns, (cy_cost){0}, 0);
    }
    return status;
}

// What begins on a dry queue is counted and has no transfer.
static cy_status finish_dry(const cy_queue *queue, const cy_request *request)
{
    if (queue != NULL && queue->dry && queue->staging != NULL) {
        cy_staging_plan_end(queue->staging, request);
    }
    return CY_OK;
}

// Start and wait. The clock is read twice, which takes a tenth of a small collective.
static cy_status run(cy_group *group, cy_queue *queue, const cy_operation *operation)
{
    if (group->size == 1) return alone(queue, operation);
    cy_request request = {0};
    const int64_t start_ns = cy_clock_ns();
    CY_TRY(launch(group, queue, &request, operation, start_ns));
    if (request.handle == NULL) return finish_dry(queue, &request);
    return finish(group, queue, &request, start_ns);
}

static cy_operation all_reduce_of(cy_view data, cy_reduce_op op)
{
    CY_ASSERT(cy_view_is_dense(data));
    CY_ASSERT(data.dtype != CY_U8); // bytes are moved, never added
    return (cy_operation){.kind = CY_OP_ALL_REDUCE, .reduce = op, .out = data, .in = data};
}

cy_status cy_group_start_all_reduce(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, cy_reduce_op op)
{
    const cy_operation operation = all_reduce_of(data, op);
    return start(group, queue, request, &operation);
}

static cy_operation reduce_scatter_of(
    const cy_group *group, cy_view out, cy_view in, cy_reduce_op op)
{
    CY_ASSERT(cy_view_is_dense(out) && cy_view_is_dense(in));
    CY_ASSERT(out.dtype == in.dtype && out.exponent == in.exponent && in.dtype != CY_U8);
    CY_ASSERT(cy_view_count(in) == cy_view_count(out) * group->size);
    return (cy_operation){.kind = CY_OP_REDUCE_SCATTER, .reduce = op, .out = out, .in = in};
}

cy_status cy_group_start_reduce_scatter(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in, cy_reduce_op op)
{
    const cy_operation operation = reduce_scatter_of(group, out, in, op);
    return start(group, queue, request, &operation);
}

static cy_operation all_gather_of(const cy_group *group, cy_view out, cy_view in)
{
    CY_ASSERT(cy_view_is_dense(out) && cy_view_is_dense(in));
    CY_ASSERT(out.dtype == in.dtype && out.exponent == in.exponent);
    CY_ASSERT(cy_view_count(out) == cy_view_count(in) * group->size);
    return (cy_operation){.kind = CY_OP_ALL_GATHER, .out = out, .in = in};
}

cy_status cy_group_start_all_gather(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in)
{
    const cy_operation operation = all_gather_of(group, out, in);
    return start(group, queue, request, &operation);
}

static cy_operation all_to_all_of(const cy_group *group, cy_view out, cy_view in)
{
    CY_ASSERT(cy_view_is_dense(out) && cy_view_is_dense(in));
    CY_ASSERT(same_content(out, in));
    CY_ASSERT(cy_view_count(in) % group->size == 0);
    CY_ASSERT(out.data != in.data ||
        cy_view_count(in) == 0); // a part may be read after its place is written
    return (cy_operation){.kind = CY_OP_ALL_TO_ALL, .out = out, .in = in};
}

cy_status cy_group_start_all_to_all(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view out, cy_view in)
{
    const cy_operation operation = all_to_all_of(group, out, in);
    return start(group, queue, request, &operation);
}

cy_status cy_group_start_all_to_allv(cy_group *group, cy_queue *queue, cy_request *request,
    cy_view out, const int64_t *out_rows, cy_view in, const int64_t *in_rows)
{
    CY_ASSERT(cy_view_is_dense(out) && cy_view_is_dense(in));
    CY_ASSERT(out.dtype == in.dtype && out.exponent == in.exponent && out.cols == in.cols);
    int64_t out_total = 0;
    int64_t in_total = 0;
    for (int i = 0; i < group->size; i++) {
        CY_ASSERT(out_rows[i] >= 0 && in_rows[i] >= 0);
        out_total += out_rows[i];
        in_total += in_rows[i];
    }
    CY_ASSERT(out_total == out.rows && in_total == in.rows);
    const cy_operation operation = {
        .kind = CY_OP_ALL_TO_ALLV,
        .out = out,
        .in = in,
        .out_rows = out_rows,
        .in_rows = in_rows,
    };
    return start(group, queue, request, &operation);
}

static cy_operation broadcast_of(const cy_group *group, cy_view data, int root)
{
    CY_ASSERT(cy_view_is_dense(data));
    CY_ASSERT(0 <= root && root < group->size);
    return (cy_operation){.kind = CY_OP_BROADCAST, .out = data, .in = data, .peer = root};
}

cy_status cy_group_start_broadcast(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int root)
{
    const cy_operation operation = broadcast_of(group, data, root);
    return start(group, queue, request, &operation);
}

static cy_operation message_of(
    const cy_group *group, cy_operation_kind kind, cy_view data, int peer, int tag)
{
    CY_ASSERT(cy_view_is_dense(data));
    CY_ASSERT(0 <= peer && peer < group->size && peer != group->rank);
    CY_ASSERT(0 <= tag && tag < CY_TAG_LIMIT);
    return (cy_operation){.kind = kind, .in = data, .out = data, .peer = peer, .tag = tag};
}

cy_status cy_group_start_send(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int to, int tag)
{
    const cy_operation operation = message_of(group, CY_OP_SEND, data, to, tag);
    return start(group, queue, request, &operation);
}

cy_status cy_group_start_recv(
    cy_group *group, cy_queue *queue, cy_request *request, cy_view data, int from, int tag)
{
    const cy_operation operation = message_of(group, CY_OP_RECV, data, from, tag);
    return start(group, queue, request, &operation);
}

cy_status cy_group_wait(cy_group *group, cy_queue *queue, cy_request *request)
{
    if (request->handle == NULL) return finish_dry(queue, request);
    return finish(group, queue, request, cy_clock_ns());
}

cy_status cy_group_test(cy_group *group, cy_request *request, bool *done)
{
    if (request->handle == NULL) {
        *done = true;
        return CY_OK;
    }
    return group->ops->test(group, request->handle, done);
}

cy_status cy_group_barrier(cy_group *group)
{
    const cy_operation operation = {.kind = CY_OP_BARRIER};
    return run(group, NULL, &operation);
}

// ---- start and wait

cy_status cy_group_all_reduce(cy_group *group, cy_queue *queue, cy_view data, cy_reduce_op op)
{
    const cy_operation operation = all_reduce_of(data, op);
    return run(group, queue, &operation);
}

cy_status cy_group_reduce_scatter(
    cy_group *group, cy_queue *queue, cy_view out, cy_view in, cy_reduce_op op)
{
    const cy_operation operation = reduce_scatter_of(group, out, in, op);
    return run(group, queue, &operation);
}

cy_status cy_group_all_gather(cy_group *group, cy_queue *queue, cy_view out, cy_view in)
{
    const cy_operation operation = all_gather_of(group, out, in);
    return run(group, queue, &operation);
}

cy_status cy_group_broadcast(cy_group *group, cy_queue *queue, cy_view data, int root)
{
    const cy_operation operation = broadcast_of(group, data, root);
    return run(group, queue, &operation);
}

cy_status cy_group_all_to_all(cy_group *group, cy_queue *queue, cy_view out, cy_view in)
{
    const cy_operation operation = all_to_all_of(group, out, in);
    return run(group, queue, &operation);
}

cy_status cy_group_send(cy_group *group, cy_queue *queue, cy_view data, int to, int tag)
{
    const cy_operation operation = message_of(group, CY_OP_SEND, data, to, tag);
    return run(group, queue, &operation);
}

cy_status cy_group_recv(cy_group *group, cy_queue *queue, cy_view data, int from, int tag)
{
    const cy_operation operation = message_of(group, CY_OP_RECV, data, from, tag);
    return run(group, queue, &operation);
}
