#include "comm/algorithm.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "comm/backend.h"

#include <stdio.h>
#include <string.h>

static const char *const names[CY_ALGORITHMS] = {
    [CY_ALGORITHM_NATIVE] = "native",
    [CY_ALGORITHM_RING] = "ring",
    [CY_ALGORITHM_TREE] = "tree",
    [CY_ALGORITHM_DOUBLING] = "doubling",
    [CY_ALGORITHM_HIERARCHICAL] = "hierarchical",
    [CY_ALGORITHM_SERVER] = "server",
};

const char *cy_algorithm_name(cy_algorithm algorithm)
{
    return names[algorithm];
}

cy_status cy_algorithm_from_name(cy_algorithm *algorithm, const char *name)
{
    for (int i = 0; i < CY_ALGORITHMS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *algorithm = (cy_algorithm)i;
        return CY_OK;
    }
    const cy_status status = CY_FAIL(CY_ERR_REQUEST, "algorithm \"%s\" is none", name);
    cy_error_set_hint("auto, native, ring, tree, doubling, hierarchical or server");
    return status;
}

cy_algorithm_table cy_algorithm_always(cy_algorithm algorithm)
{
    return (cy_algorithm_table){.count = 1, .rows = {{INT64_MAX, algorithm}}};
}

bool cy_algorithm_is_native(const cy_algorithm_table *table)
{
    for (int i = 0; i < table->count; i++) {
        if (table->rows[i].algorithm != CY_ALGORITHM_NATIVE) return false;
    }
    return true;
}

// ---- the choice by formulas

static double message_s(const cy_link *link, double bytes)
{
    return link->latency_s + (link->bytes_per_s > 0.0 ? bytes / link->bytes_per_s : 0.0);
}

static bool is_power(int ranks)
{
    return (ranks & (ranks - 1)) == 0;
}

// Ranks beyond a power of two hand their data to a neighbour first and get the sum at the end.
static double leaning_s(const cy_topology *links, const cy_link *slowest, double bytes)
{
    return is_power(links->ranks) ? 0.0 : 2.0 * message_s(slowest, bytes);
}

// The slowest message of a round in which partners are `distance` ranks apart. All numbers are
// powers of two, so partners that are less than a node apart stay in it.
static const cy_link *link_of(const cy_topology *links, int distance)
{
    return distance < links->node_ranks ? &links->inside : &links->between;
}

double cy_algorithm_seconds(cy_algorithm algorithm, const cy_topology *links, double bytes)
{
    const double ranks = links->ranks;
    const double node = links->node_ranks;
    const double nodes = ranks / node;
    const bool power = is_power(links->ranks);
    // A round ends with its slowest message.
    const cy_link *slowest = nodes > 1.0 ? &links->between : &links->inside;
    switch (algorithm) {
    case CY_ALGORITHM_NATIVE:
    case CY_ALGORITHM_RING:
        return 2.0 * (ranks - 1.0) * message_s(slowest, bytes / ranks);
    case CY_ALGORITHM_TREE: {
        double seconds = leaning_s(links, slowest, bytes);
        double part = bytes / 2.0; // halves to the neighbour, quarters to the one behind it, ...
        for (int distance = 1; 2 * distance <= links->ranks; distance *= 2) {
            seconds += 2.0 * message_s(power ? link_of(links, distance) : slowest, part);
            part /= 2.0;
        }
        return seconds;
    }
    case CY_ALGORITHM_DOUBLING: {
        double seconds = leaning_s(links, slowest, bytes);
        for (int distance = 1; 2 * distance <= links->ranks; distance *= 2)
            seconds += message_s(power ? link_of(links, distance) : slowest, bytes);
        return seconds;
    }
    case CY_ALGORITHM_HIERARCHICAL:
        return 2.0 * (node - 1.0) * message_s(&links->inside, bytes / node) +
            2.0 * (nodes - 1.0) * message_s(&links->between, bytes / ranks);
    case CY_ALGORITHM_SERVER:
        return 2.0 * message_s(slowest, bytes); // at the least: the server's messages take turns
    }
    return 0.0;
}

cy_algorithm_table cy_algorithm_for(const cy_topology *links)
{
    cy_algorithm_table made = {0};
    for (int64_t bytes = 8; made.count < CY_ALGORITHM_ROWS && bytes < INT64_C(1) << 36;
         bytes *= 2) {
        cy_algorithm best = CY_ALGORITHM_RING;
        for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHM_SERVER; a++) {
            if (a == CY_ALGORITHM_HIERARCHICAL && links->node_ranks == links->ranks) continue;
            if (a == CY_ALGORITHM_HIERARCHICAL && links->node_ranks == 1) continue;
            if (cy_algorithm_seconds((cy_algorithm)a, links, (double)bytes) <
                cy_algorithm_seconds(best, links, (double)bytes)) {
                best = (cy_algorithm)a;
            }
        }
        if (made.count == 0 || made.rows[made.count - 1].algorithm != best) {
            made.rows[made.count++].algorithm = best;
        }
        made.rows[made.count - 1].bytes = bytes;
    }
    made.rows[made.count - 1].bytes = INT64_MAX;
    return made;
}

cy_algorithm cy_algorithm_choose(const cy_algorithm_table *table, size_t bytes)
{
    int row = 0;
    while (row < table->count - 1 && (int64_t)bytes > table->rows[row].bytes)
        row++;
    return table->rows[row].algorithm;
}

// ---- the choice by measuring

#define TUNE_SAMPLES 5
#define TUNE_BATCH   16
#define TUNE_BATCH_S 50e-6
#define TUNE_STEP    8 // from one size to the next

bool cy_algorithm_keeps_order(cy_algorithm algorithm, int ranks)
{
    if (ranks == 2) return true; // two operands have one order
    return algorithm == CY_ALGORITHM_NATIVE || algorithm == CY_ALGORITHM_TREE ||
        algorithm == CY_ALGORITHM_DOUBLING;
}

// Seconds of an all_reduce, of `batch` one after the other.
static cy_status time_batch(
    double *seconds, cy_group *group, cy_queue *queue, cy_view data, int batch)
{
    CY_TRY(cy_group_barrier(group));
    const double start = cy_clock_s();
    for (int i = 0; i < batch; i++)
        CY_TRY(cy_group_all_reduce(group, queue, data, CY_SUM));
    *seconds = (cy_clock_s() - start) / batch;
    return CY_OK;
}

// Short ones are timed many at a time. Every rank gets the same number, from what one takes on the
// slowest.
static cy_status choose_batch(
    int *batch, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    double slowest = 0.0;
    for (int a = 0; a < CY_ALGORITHMS; a++) {
        double seconds = 0.0;
        if (groups[a] == NULL) continue;
        CY_TRY(time_batch(&seconds, groups[a], queue, data, 1)); // takes buffers, too
        CY_TRY(time_batch(&seconds, groups[a], queue, data, 1));
        if (seconds > slowest) slowest = seconds;
    }
    CY_TRY(cy_group_all_reduce(
        groups[CY_ALGORITHM_NATIVE], queue, cy_view_of(&slowest, CY_F64, 1, 1), CY_MAX));
    const double wanted = TUNE_BATCH_S / (slowest + 1e-9);
    *batch = wanted < 1.0 ? 1 : wanted > TUNE_BATCH ? TUNE_BATCH : (int)wanted;
    return CY_OK;
}

// Medians of all algorithms. They take turns, so that what else the machine does in the meantime
// slows all of them alike.
static cy_status time_algorithms(
    double *seconds, cy_group *const *groups, cy_queue *queue, cy_view data)
{
    double times[CY_ALGORITHMS][TUNE_SAMPLES];
    int batch = 1;
    CY_TRY(choose_batch(&batch, groups, queue, data));
    for (int i = 0; i < TUNE_SAMPLES; i++) {
        for (int a = 0; a < CY_ALGORITHMS; a++) {
            if (groups[a] == NULL) continue;
            CY_TRY(time_batch(&times[a][i], groups[a], queue, data, batch));
        }
    }
    for (int a = 0; a < CY_ALGORITHMS; a++)
        seconds[a] = groups[a] == NULL ? 0.0 : cy_median(times[a], TUNE_SAMPLES);
    return CY_OK;
}

// Whether all have spent the time that was given: every rank gets the same answer.
static cy_status is_over(bool *over, cy_group *group, cy_queue *queue, double until_s)
{
    double late = cy_clock_s() > until_s;
    CY_TRY(cy_group_all_reduce(group, queue, cy_view_of(&late, CY_F64, 1, 1), CY_MAX));
    *over = late > 0.0;
    return CY_OK;
}

static cy_status measure_sizes(cy_algorithm_times *times, cy_group *const *groups, cy_queue *queue,
    float *data, size_t bytes_max, double budget_s)
{
    const double until_s = cy_clock_s() + budget_s;
    bool over = false;
    for (int s = 0; s < CY_ALGORITHM_SIZES && !over; s++) {
        const size_t bytes = (size_t)cy_algorithm_size(s);
        if (s > 0 && bytes > bytes_max) break;
        const cy_view view = cy_view_of(data, CY_F32, 1, (int64_t)(bytes / sizeof(float)));
        CY_TRY(time_algorithms(times->seconds[s], groups, queue, view));
        CY_TRY(is_over(&over, groups[CY_ALGORITHM_NATIVE], queue, until_s));
    }
    return CY_OK;
}

int64_t cy_algorithm_size(int index)
{
    if (index == CY_ALGORITHM_SIZES - 1) return INT64_C(64) << 20;
    int64_t bytes = TUNE_STEP;
    for (int i = 0; i < index; i++)
        bytes *= TUNE_STEP;
    return bytes;
}

cy_status cy_algorithm_measure(
    cy_algorithm_times *times, cy_group *group, cy_queue *queue, size_t bytes_max, double budget_s)
{
    *times = (cy_algorithm_times){0};
    const cy_traffic before = group->counters;
    cy_group *groups[CY_ALGORITHMS] = {[CY_ALGORITHM_NATIVE] = group};
    cy_status status = CY_OK;
    void *data = NULL;
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS && status == CY_OK; a++) {
        // A server only shows what not to do.
        if (a == CY_ALGORITHM_SERVER || a == CY_ALGORITHM_HIERARCHICAL) continue;
        if (!cy_algorithm_keeps_order((cy_algorithm)a, group->size)) continue;
        const cy_algorithm_options options = {
            .table = cy_algorithm_always((cy_algorithm)a), .keep_inside = true};
        status = cy_algorithm_open(&groups[a], group, &options);
    }
    const int64_t largest = cy_algorithm_size(CY_ALGORITHM_SIZES - 1);
    const size_t room = bytes_max < (size_t)largest ? bytes_max : (size_t)largest;
    if (status == CY_OK) status = cy_memory_alloc(&data, room + 8, 1);
    if (status == CY_OK) status = measure_sizes(times, groups, queue, data, room, budget_s);
    for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++)
        cy_group_close(groups[a]);
    cy_memory_free(data);
    group->counters = before; // what a run sends is counted, not this
    return status;
}

cy_algorithm_table cy_algorithm_from_times(const cy_algorithm_times *times)
{
    cy_algorithm_table made = {0};
    for (int s = 0; s < CY_ALGORITHM_SIZES; s++) {
        const double *seconds = times->seconds[s];
        if (seconds[CY_ALGORITHM_NATIVE] <= 0.0) break; // no time was left for it
        cy_algorithm best = CY_ALGORITHM_NATIVE;
        for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHMS; a++) {
            // What is faster by less than a twentieth may be so by chance.
            const double limit = seconds[best] * (best == CY_ALGORITHM_NATIVE ? 0.95 : 1.0);
            if (seconds[a] > 0.0 && seconds[a] < limit) best = (cy_algorithm)a;
        }
        if (made.count == 0 || made.rows[made.count - 1].algorithm != best) {
            made.rows[made.count++].algorithm = best;
        }
        // About half way to the next size, as sizes multiply.
        made.rows[made.count - 1].bytes = cy_algorithm_size(s) * 3;
    }
    if (made.count == 0) return cy_algorithm_always(CY_ALGORITHM_NATIVE);
    made.rows[made.count - 1].bytes = INT64_MAX;
    return made;
}

// ---- tables as text

cy_status cy_algorithm_table_write(cy_text *text, const cy_algorithm_table *table)
{
    for (int i = 0; i < table->count; i++) {
        if (i > 0) CY_TRY(cy_text_add(text, ","));
        CY_TRY(cy_text_add(text, "%s", cy_algorithm_name(table->rows[i].algorithm)));
        if (i == table->count - 1) break;
        CY_TRY(cy_text_add(text, "<=%lld", (long long)table->rows[i].bytes));
    }
    return CY_OK;
}

cy_status cy_algorithm_table_read(cy_algorithm_table *table, const char *text, size_t length)
{
    cy_algorithm_table made = {0};
    const char *end = text + length;
    for (const char *at = text; at <= end && made.count < CY_ALGORITHM_ROWS;) {
        const size_t word = strcspn(at, "<,; ");
        char name[24];
        if (at + word > end || word >= sizeof(name)) break;
        memcpy(name, at, word);
        name[word] = '\0';
        CY_TRY(cy_algorithm_from_name(&made.rows[made.count].algorithm, name));
        at += word;
        long long bytes = INT64_MAX;
        int read = 0;
        if (at < end && *at == '<' && sscanf(at, "<=%lld%n", &bytes, &read) != 1) break;
        at += read;
        const int64_t before = made.count == 0 ? 0 : made.rows[made.count - 1].bytes;
        if (bytes <= before) break;
        made.rows[made.count++].bytes = bytes;
        if (at == end && bytes == INT64_MAX) {
            *table = made;
            return CY_OK;
        }
        if (at >= end || *at != ',' || bytes == INT64_MAX) break;
        at++;
    }
    return CY_FAIL(CY_ERR_REQUEST, "\"%.*s\" is no table of algorithms", (int)length, text);
}

cy_status cy_algorithm_find(
    cy_algorithm_table *table, bool *tables, const char *text, const char *dimension)
{
    *tables = strchr(text, ':') != NULL;
    if (!*tables) {
        cy_algorithm algorithm;
        CY_TRY(cy_algorithm_from_name(&algorithm, text));
        *table = cy_algorithm_always(algorithm);
        return CY_OK;
    }
    cy_algorithm_table found = cy_algorithm_always(CY_ALGORITHM_NATIVE);
    for (const char *at = text; *at != '\0';) {
        const size_t name = strcspn(at, ":;");
        if (at[name] != ':')
            return CY_FAIL(CY_ERR_REQUEST, "\"%s\": no algorithm stands there", at);
        const char *value = at + name + 1;
        const size_t length = strcspn(value, ";");
        cy_algorithm_table read;
        CY_TRY(cy_algorithm_table_read(&read, value, length));
        if (strlen(dimension) == name && strncmp(at, dimension, name) == 0) found = read;
        at = value + length + (value[length] == ';');
    }
    *table = found;
    return CY_OK;
}
