// Reads microbatches ahead on a thread, into a ring of slots, for one rank that takes them in
// order.

#define _GNU_SOURCE
#include "data/loader.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/thread_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define AHEAD_DEFAULT 4

typedef struct slot {
    cy_batch batch; // its arrays are owned by the loader, in one block
    cy_status status;
    char error[512]; // the text of a failure: errors are kept per thread
} slot;

struct cy_loader {
    const cy_dataset *dataset; // borrowed
    cy_batch_shape shape;
    cy_position_range *ranges; // owned
    int32_t *block;            // owned: the arrays of all slots
    slot *slots;               // owned, [slot_count]: a ring
    int64_t slot_count;
    pthread_t thread;
    pthread_mutex_t lock; // guards the fields below
    pthread_cond_t changed;
    int64_t start;  // number of the microbatch that came first since the last seek
    int64_t filled; // microbatches read since `start`
    int64_t taken;  // microbatches taken by the rank since `start`
    int64_t run;    // number of seeks: microbatches read for an earlier one are dropped
    bool closing;
    bool started;
    cy_loader_counters counters;
};

int64_t cy_batch_columns(const cy_batch_shape *shape, int64_t seq_length)
{
    if (shape->ranges == NULL) return seq_length;
    int64_t columns = 0;
    for (int i = 0; i < shape->range_count; i++)
        columns += shape->ranges[i].count;
    return columns;
}

int64_t cy_batch_sample(const cy_batch_shape *shape, int64_t step, int microbatch, int64_t row)
{
    CY_ASSERT(step >= 1 && 0 <= microbatch && microbatch < shape->accumulation);
    CY_ASSERT(0 <= row && row < shape->micro_batch_size);
    const int64_t rank_rows = ((step - 1) * shape->accumulation + microbatch) * shape->dp_size;
    return (rank_rows + shape->dp_rank) * shape->micro_batch_size + row;
}

cy_status cy_batch_fill(cy_batch *batch, const cy_dataset *dataset, const cy_batch_shape *shape,
    int64_t step, int microbatch)
{
    const int64_t seq_length = cy_dataset_seq_length(dataset);
    const cy_position_range all = {.first = 0, .count = seq_length};
    const cy_position_range *ranges = shape->ranges != NULL ? shape->ranges : &all;
    const int range_count = shape->ranges != NULL ? shape->range_count : 1;
    batch->rows = shape->micro_batch_size;
    batch->columns = cy_batch_columns(shape, seq_length);
    batch->step = step;
    batch->microbatch = microbatch;
    int64_t column = 0;
    for (int k = 0; k < range_count; k++) {
        const cy_position_range range = ranges[k];
        CY_ASSERT(range.first >= 0 && range.count >= 0);
        CY_ASSERT(range.first + range.count <= seq_length);
        for (int64_t i = 0; i < range.count; i++) {
            batch->positions[column + i] = (int32_t)(range.first + i);
        }
        for (int64_t row = 0; row < batch->rows; row++) {
            const int64_t sample = cy_batch_sample(shape, step, microbatch, row);
            const int64_t at = row * batch->columns + column;
            CY_TRY(cy_dataset_read(
                dataset, batch->inputs + at, shape->split, sample, range.first, range.count));
            CY_TRY(cy_dataset_read(
                dataset, batch->targets + at, shape->split, sample, range.first + 1, range.count));
        }
        column += range.count;
    }
    return CY_OK;
}

// Fills a slot with microbatch `number`, counted from 0 over all steps.
static void fill(cy_loader *loader, slot *s, int64_t number)
{
    const int64_t step = number / loader->shape.accumulation + 1;
    const int microbatch = (int)(number % loader->shape.accumulation);
    s->status = cy_batch_fill(&s->batch, loader->dataset, &loader->shape, step, microbatch);
    if (s->status != CY_OK) snprintf(s->error, sizeof(s->error), "%s", cy_error_text());
}

static void *read_ahead(void *argument)
{
    cy_loader *loader = argument;
    pthread_mutex_lock(&loader->lock);
    while (!loader->closing) {
        // The rank still reads the slot that it took last, so one slot fewer can be filled.
        if (loader->filled - loader->taken >= loader->slot_count - 1) {
            pthread_cond_wait(&loader->changed, &loader->lock);
            continue;
        }
        const int64_t run = loader->run;
        const int64_t number = loader->start + loader->filled;
        slot *s = &loader->slots[loader->filled % loader->slot_count];
        pthread_mutex_unlock(&loader->lock);
        const int64_t before = cy_clock_ns();
        fill(loader, s, number);
        const int64_t spent = cy_clock_ns() - before;
        pthread_mutex_lock(&loader->lock);
        loader->counters.fill_ns += spent;
        if (loader->run != run) continue;
        loader->filled++;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static cy_status check(const cy_loader_options *options)
{
    const cy_batch_shape *shape = &options->shape;
    CY_ASSERT(options->first_step >= 1 && options->ahead >= 0);
    CY_ASSERT(shape->micro_batch_size > 0 && shape->accumulation > 0);
    CY_ASSERT(0 <= shape->dp_rank && shape->dp_rank < shape->dp_size);
    return cy_dataset_check(options->dataset, shape->split);
}

static cy_status make_slots(cy_loader *loader)
{
    const int64_t rows = loader->shape.micro_batch_size;
    const int64_t columns =
        cy_batch_columns(&loader->shape, cy_dataset_seq_length(loader->dataset));
    const int64_t each = 2 * rows * columns + columns;
    CY_TRY(CY_ALLOC(&loader->slots, (size_t)loader->slot_count));
    CY_TRY(CY_ALLOC(&loader->block, (size_t)(loader->slot_count * each)));
    for (int64_t i = 0; i < loader->slot_count; i++) {
        cy_batch *batch = &loader->slots[i].batch;
        batch->inputs = loader->block + i * each;
        batch->targets = batch->inputs + rows * columns;
        batch->positions = batch->targets + rows * columns;
    }
    return CY_OK;
}

cy_status cy_loader_open(cy_loader **loader, const cy_loader_options *options)
{
    CY_TRY(check(options));
    cy_loader *made = NULL;
    CY_TRY(CY_ALLOC(&made, 1));
    made->dataset = options->dataset;
    made->shape = options->shape;
    made->start = (options->first_step - 1) * options->shape.accumulation;
    made->slot_count = (options->ahead > 0 ? options->ahead : AHEAD_DEFAULT) + 1;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    cy_status status = CY_OK;
    if (options->shape.ranges != NULL) {
        const size_t count = (size_t)options->shape.range_count;
        status = CY_ALLOC(&made->ranges, count);
        if (status != CY_OK) goto close;
        memcpy(made->ranges, options->shape.ranges, count * sizeof(cy_position_range));
        made->shape.ranges = made->ranges;
    }
    status = make_slots(made);
    if (status != CY_OK) goto close;
    if (cy_thread_start(&made->thread, read_ahead, made) != 0) {
        status = CY_FAIL(CY_ERR_MEMORY, "the loader's thread could not be started");
        goto close;
    }
    made->started = true;
    *loader = made;
    return CY_OK;

close:
    cy_loader_close(made);
    return status;
}

void cy_loader_close(cy_loader *loader)
{
    if (loader == NULL) return;
    if (loader->started) {
        pthread_mutex_lock(&loader->lock);
        loader->closing = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->lock);
    cy_memory_free(loader->ranges);
    cy_memory_free(loader->block);
    cy_memory_free(loader->slots);
    cy_memory_free(loader);
}

cy_status cy_loader_next(cy_loader *loader, cy_batch *batch)
{
    pthread_mutex_lock(&loader->lock);
    if (loader->filled > loader->taken) {
        loader->counters.ready++;
    } else {
        const int64_t before = cy_clock_ns();
        cy_activity_begin(CY_ACTIVITY_WAIT, "the thread that reads the data set", -1);
        while (loader->filled == loader->taken) {
            pthread_cond_wait(&loader->changed, &loader->lock);
        }
        cy_activity_end();
        loader->counters.wait_ns += cy_clock_ns() - before;
    }
    const slot *s = &loader->slots[loader->taken % loader->slot_count];
    loader->taken++;
    loader->counters.batches++;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
    if (s->status != CY_OK) return CY_FAIL(s->status, "%s", s->error);
    *batch = s->batch;
    return CY_OK;
}

void cy_loader_seek(cy_loader *loader, int64_t step)
{
    CY_ASSERT(step >= 1);
    pthread_mutex_lock(&loader->lock);
    loader->start = (step - 1) * loader->shape.accumulation;
    loader->filled = loader->taken = 0;
    loader->run++;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->lock);
}

cy_loader_counters cy_loader_count(const cy_loader *loader)
{
    pthread_mutex_t *lock = cy_memory_writable(&loader->lock);
    pthread_mutex_lock(lock);
    const cy_loader_counters counters = loader->counters;
    pthread_mutex_unlock(lock);
    return counters;
}
