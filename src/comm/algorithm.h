// comm/algorithm.h: groups whose collectives are made of point-to-point messages, and delayed
// links.
//
// cy_algorithm_open wraps a group: the result has the same ranks and does every collective by a
// schedule (algorithms/schedule.h) over the sends and receives of the group inside, which it owns.
// It makes progress in the calls that its rank makes on it and, when asked, in a thread of its own
// that sleeps while nothing is in flight. Ranks that wait on several such groups in different
// orders need the thread, or they may wait for each other for ever; cy_world_open_group asks for
// it. Sums of 16-bit floats travel as fp32 and are rounded once.
//
// cy_delay_open wraps a group whose messages then take latency + bytes / bandwidth, per pair of
// ranks, one message at a time per direction. Waiting for that takes no core, so overlap,
// hierarchy and placement can be shown on one machine. It has messages only: wrap it once more.

#ifndef CY_COMM_ALGORITHM_H
#define CY_COMM_ALGORITHM_H

#include "base/text.h"
#include "comm/group.h"

typedef enum cy_algorithm {
    CY_ALGORITHM_NATIVE, // the backend's own collectives
    CY_ALGORITHM_RING,
    CY_ALGORITHM_TREE,
    CY_ALGORITHM_DOUBLING,
    CY_ALGORITHM_HIERARCHICAL,
    CY_ALGORITHM_SERVER,
} cy_algorithm;

#define CY_ALGORITHMS 6

// "native", "ring", "tree", "doubling", "hierarchical", "server".
const char *cy_algorithm_name(cy_algorithm algorithm);
CY_MUST_CHECK cy_status cy_algorithm_from_name(cy_algorithm *algorithm, const char *name);

// Which algorithm an all_reduce takes: that of the first row whose `bytes` are not below its size.
// It holds for the whole life of a group.
#define CY_ALGORITHM_ROWS 32
typedef struct cy_algorithm_table {
    int count;
    struct {
        int64_t bytes;
        cy_algorithm algorithm;
    } rows[CY_ALGORITHM_ROWS];
} cy_algorithm_table;

// A table with one row.
cy_algorithm_table cy_algorithm_always(cy_algorithm algorithm);

// Whether it takes the backend's own at every size.
bool cy_algorithm_is_native(const cy_algorithm_table *table);

// Reads a configuration's text for the groups of a dimension. It is one name for all of them, or a
// table for each, "tp:tree<=1536,native;dp:native", where a dimension without one is native.
// *tables says whether the text has tables.
CY_MUST_CHECK cy_status cy_algorithm_find(
    cy_algorithm_table *table, bool *tables, const char *text, const char *dimension);

// A message of n bytes takes latency_s + n / bytes_per_s.
typedef struct cy_link {
    double latency_s;
    double bytes_per_s; // 0 is without limit
} cy_link;

// The links among ranks: nodes of `node_ranks` consecutive ones, which divides `ranks`.
typedef struct cy_topology {
    int ranks, node_ranks;
    cy_link inside, between; // a node; nodes
} cy_topology;

// Seconds of an all_reduce of so many bytes, by its rounds and bytes; docs/collectives.md has the
// formulas. Native counts as the ring, which a group without collectives of its own uses.
double cy_algorithm_seconds(cy_algorithm algorithm, const cy_topology *links, double bytes);

// The fastest at each size by these formulas: a function of the links alone, the same everywhere
// and in every run.
cy_algorithm_table cy_algorithm_for(const cy_topology *links);

cy_algorithm cy_algorithm_choose(const cy_algorithm_table *table, size_t bytes);

typedef struct cy_algorithm_options {
    cy_algorithm_table table;
    const int *nodes; // borrowed until open returns, [size]: as cy_coll_schedule_hierarchical takes
                      // them; NULL: the inside's
    bool native_others; // collectives but all_reduce, and its native rows, are the group's inside
    bool progress_thread;
    bool keep_inside; // closing does not close the group inside
} cy_algorithm_options;

// What the schedules have sent.
typedef struct cy_algorithm_counters {
    double bytes;
    double bytes_between_nodes;
    int64_t messages;
    int64_t rounds;
} cy_algorithm_counters;

// *group takes over `inside` when this succeeds. Closing it closes both.
CY_MUST_CHECK cy_status cy_algorithm_open(
    cy_group **group, cy_group *inside, const cy_algorithm_options *options);
cy_algorithm_counters cy_algorithm_count(const cy_group *group);

// Whether sums of so many ranks have the bits of native sums. A choice by measured times must be
// among these algorithms: docs/decisions/automatic-algorithm.md.
bool cy_algorithm_keeps_order(cy_algorithm algorithm, int ranks);

// Sizes that are measured: 8 bytes, 64, 512, and so on to 16 MiB, and 64 MiB.
#define CY_ALGORITHM_SIZES 9
int64_t cy_algorithm_size(int index);

// Seconds of an all_reduce by size and algorithm; 0 where it was not measured.
typedef struct cy_algorithm_times {
    double seconds[CY_ALGORITHM_SIZES][CY_ALGORITHMS];
} cy_algorithm_times;

// Times all_reduce with every algorithm that keeps the order of sums, from the smallest size up to
// `bytes` and for about budget_s; members get the same times. All of them call it. data [bytes],
// at least 8, is memory as a run uses it, and is overwritten. What is sent is not counted.
CY_MUST_CHECK cy_status cy_algorithm_measure(cy_algorithm_times *times, cy_group *group,
    cy_queue *queue, float *data, size_t bytes, double budget_s);

// The fastest at each size; native where nothing was measured or nothing is clearly faster.
cy_algorithm_table cy_algorithm_from_times(const cy_algorithm_times *times);

// As configurations spell it: "doubling<=1536,native" is doubling up to 1536 bytes, native beyond.
CY_MUST_CHECK cy_status cy_algorithm_table_write(cy_text *text, const cy_algorithm_table *table);
CY_MUST_CHECK cy_status cy_algorithm_table_read(
    cy_algorithm_table *table, const char *text, size_t length);

// links [size, size]: from, to; borrowed only during the call. *group takes over `inside`.
CY_MUST_CHECK cy_status cy_delay_open(cy_group **group, cy_group *inside, const cy_link *links);

#endif
