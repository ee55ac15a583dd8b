// The group of one rank, and the group that only counts: neither moves data, so neither has work to
// wait for. The wrappers of group.c serve one rank and dry queues before a backend is asked.

#include "base/memory.h"
#include "comm/backend.h"

static cy_status no_start(
    cy_group *group, cy_queue *queue, cy_request *request, const cy_operation *operation)
{
    (void)queue;
    (void)request;
    return CY_FAIL(CY_ERR_UNSUPPORTED, "%s: a %s group of %d ranks moves no data",
        cy_operation_name(operation->kind), group->ops->name, group->size);
}

static cy_status no_wait(cy_group *group, cy_queue *queue, cy_transfer *transfer)
{
    (void)group;
    (void)queue;
    (void)transfer;
    return CY_OK;
}

static cy_status no_test(cy_group *group, cy_transfer *transfer, bool *done)
{
    (void)group;
    (void)transfer;
    *done = true;
    return CY_OK;
}

static cy_status no_look(cy_group *group, const cy_transfer *transfer, cy_watchdog *watch)
{
    (void)group;
    (void)transfer;
    (void)watch;
    return CY_OK;
}

static void no_abort(cy_group *group, const char *text)
{
    (void)group;
    (void)text;
}

static void self_close(cy_group *group)
{
    (void)group;
}

static void dry_close(cy_group *group)
{
    cy_memory_free(group);
}

static const cy_group_ops self_ops = {
    .name = "self",
    .start = no_start,
    .wait = no_wait,
    .test = no_test,
    .check_peers = no_look,
    .abort = no_abort,
    .close = self_close,
};

static const cy_group_ops dry_ops = {
    .name = "dry",
    .start = no_start,
    .wait = no_wait,
    .test = no_test,
    .check_peers = no_look,
    .abort = no_abort,
    .close = dry_close,
};

cy_group *cy_group_self(void)
{
    // Never written to: with one rank there is nothing to count.
    static cy_group self = {.ops = &self_ops, .rank = 0, .size = 1, .dimension = "self"};
    return &self;
}

cy_status cy_group_open_dry(cy_group **group, int rank, int size, const char *dimension)
{
    CY_TRY(CY_ALLOC(group, 1));
    cy_group_init(*group, &dry_ops, rank, size, dimension);
    return CY_OK;
}
