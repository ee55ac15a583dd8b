// Compares hashes of the copies that several ranks hold, and names the copy that differs.

#include "train/replicas.h"

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "optim/adamw.h"

// The kinds of copies, by the ranks that hold them.
typedef enum copies {
    COPIES_GRADIENT,
    COPIES_TP,
    COPIES_KV,
    COPIES_EMBEDDING,
    COPIES_KINDS,
} copies;

// The arrays that have copies.
typedef enum array {
    ARRAY_WEIGHT, // for compute; in an owned range the master, where the weight has no array
    ARRAY_MASTER, // where the weight has an array
    ARRAY_M,
    ARRAY_V,
    ARRAYS,
} array;

// The hashes of a rank; 0 where it holds no copy.
typedef struct table {
    int64_t of[COPIES_KINDS][ARRAYS];
} table;

#define TABLE_CELLS (COPIES_KINDS * ARRAYS)

// ---- hashing

typedef struct pass {
    cy_engine *engine;
    const cy_param *only; // NULL: all parameters
    // Device memory, [1 << COPIES_KINDS, ARRAYS] int64: hashes of an array, apart for each set of
    // kinds that count them.
    cy_view sums;
} pass;

// Whether every rank of a parameter's set owns all of it.
static bool is_whole(const cy_engine *engine, const cy_param *param)
{
    return cy_storage_set(&engine->storage, param)->zero_stage == 0;
}

// The kinds of copies that exist of a tensor's owned ranges, as bits.
static unsigned kinds_of(const cy_engine *engine, const cy_tensor *tensor)
{
    const cy_engine_groups *groups = &engine->options.groups;
    const cy_param *param = tensor->param;
    unsigned kinds = 0;
    if (is_whole(engine, param) && cy_group_size(groups->gradient) > 1) {
        kinds |= 1u << COPIES_GRADIENT;
    }
    if (param->split == CY_SPLIT_NONE && cy_group_size(groups->tp) > 1) kinds |= 1u << COPIES_TP;
    if (param->split == CY_SPLIT_KV_ROWS && tensor->slice.copies > 1) kinds |= 1u << COPIES_KV;
    if (param->key.role == CY_ROLE_EMBED && engine->storage.manifest.shape.tied &&
        cy_group_size(groups->embedding) > 1) {
        kinds |= 1u << COPIES_EMBEDDING;
    }
    return kinds;
}

static void add_hash(const pass *at, unsigned kinds, array number, cy_view data, uint64_t first)
{
    const uint64_t key = cy_random_key_at(0, (uint64_t)number);
    const cy_view sum = cy_view_cols(cy_view_rows(at->sums, kinds, 1), number, 1);
    cy_hash(&at->engine->queue, sum, data, key, first, data.cols);
}

// The hashes of each kind: sums modulo 2^64 over the sets that it is in.
static cy_status read_hashes(table *hashes, const pass *at)
{
    int64_t sums[1 << COPIES_KINDS][ARRAYS];
    cy_queue *queue = &at->engine->queue;
    cy_queue_download(queue, sums, at->sums.data, sizeof(sums));
    CY_TRY(cy_queue_synchronize(queue));
    *hashes = (table){0};
    for (int kinds = 0; kinds < 1 << COPIES_KINDS; kinds++) {
        for (int cell = 0; cell < TABLE_CELLS; cell++) {
            const int kind = cell / ARRAYS, number = cell % ARRAYS;
            if ((kinds >> kind & 1) == 0) continue;
            int64_t *total = &hashes->of[kind][number];
            *total = (int64_t)((uint64_t)*total + (uint64_t)sums[kinds][number]);
        }
    }
    return CY_OK;
}

// Numbers an element of a tensor: all ranks with a copy give it the same number.
static uint64_t place_of(const cy_param *param, int64_t element)
{
    return cy_random_key(0, param->name) + (uint64_t)element;
}

static cy_status hash_param_range(
    void *context, const cy_owned_range *range, const cy_param_range *param_range)
{
    const pass *at = context;
    const cy_param *param = param_range->tensor->param;
    unsigned kinds = kinds_of(at->engine, param_range->tensor);
    if (kinds == 0 || (at->only != NULL && at->only != param)) return CY_OK;
    const bool separate = !cy_view_is_none(range->weight);
    const cy_view arrays[ARRAYS] = {
        [ARRAY_WEIGHT] = separate ? range->weight : range->master,
        [ARRAY_MASTER] = separate ? range->master : cy_view_none(),
        [ARRAY_M] = range->m,
        [ARRAY_V] = range->v,
    };
    for (int i = 0; i < ARRAYS; i++) {
        // hash_whole_weights compares weights for compute over the gradient group.
        const unsigned wanted = i == ARRAY_WEIGHT ? kinds & ~(1u << COPIES_GRADIENT) : kinds;
        if (cy_view_is_none(arrays[i]) || wanted == 0) continue;
        add_hash(at, wanted, (array)i, cy_view_cols(arrays[i], param_range->at, param_range->count),
            place_of(param, param_range->first));
    }
    return CY_OK;
}

// Hashes the weights that every rank of the gradient group holds as a whole.
static void hash_whole_weights(const pass *at)
{
    const cy_storage *storage = &at->engine->storage;
    if (cy_group_size(at->engine->options.groups.gradient) == 1) return;
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[i];
        if (at->only != NULL && at->only != tensor->param) continue;
        if (cy_storage_set(storage, tensor->param)->zero_stage == 3) continue;
        const cy_view weight = cy_tensor_weight(storage, tensor, 0); // dense
        const cy_view all = cy_view_of(weight.data, weight.dtype, 1, cy_view_count(weight));
        add_hash(at, 1u << COPIES_GRADIENT, ARRAY_WEIGHT, all, place_of(tensor->param, 0));
    }
}

// Fills tables [world] with the tables of all ranks.
static cy_status gather(cy_engine *engine, table *tables, int world, const cy_param *only)
{
    table mine;
    cy_queue *queue = &engine->queue;
    const size_t mark = cy_arena_mark(queue->scratch);
    pass at = {
        .engine = engine,
        .only = only,
        .sums = cy_view_alloc(queue->scratch, CY_I64, 1 << COPIES_KINDS, ARRAYS),
    };
    cy_queue_set(queue, at.sums.data, 0, cy_view_bytes(at.sums));
    hash_whole_weights(&at);
    CY_TRY(cy_param_ranges_visit(&engine->storage, hash_param_range, &at));
    CY_TRY(read_hashes(&mine, &at));
    cy_arena_rewind(queue->scratch, mark);
    return cy_group_all_gather(engine->options.groups.world, NULL,
        cy_view_of(tables, CY_I64, world, TABLE_CELLS), cy_view_of(&mine, CY_I64, 1, TABLE_CELLS));
}

// ---- comparing

// The tables of all ranks, and memory for lists of ranks.
typedef struct comparison {
    const cy_engine *engine;
    const cy_mesh *mesh;
    const table *tables; // [world]
    int *ranks;          // [world]: ranks that hold the same copies
    int *others;         // [world]: of hash_of
} comparison;

typedef struct difference {
    int rank, reference; // rank differs from reference
    array number;
} difference;

// Whether the first and the last segment are on different ranks: a V schedule ends on the first.
static bool has_ends_apart(const cy_engine *engine)
{
    const int last = cy_schedule_segments(&engine->schedule) - 1;
    return cy_schedule_segment_rank(&engine->schedule, last) != 0;
}

// Fills at->ranks with the ranks that hold the same copies as `rank`. Returns their number; 0 where
// `rank` holds none.
static int list_holders(const comparison *at, copies kind, int rank)
{
    const cy_mesh *mesh = at->mesh;
    const cy_coordinates place = cy_mesh_coordinates(mesh, rank);
    const int tp = mesh->size[CY_AXIS_TP], heads = at->engine->options.config->shape.kv_heads;
    const int shared = kind == COPIES_KV && tp > heads ? tp / heads : 1;
    const int first = place.at[CY_AXIS_TP] / shared * shared;
    switch (kind) {
    case COPIES_GRADIENT:
        cy_mesh_ranks(mesh, CY_MESH_CP_DP, rank, at->ranks);
        return cy_mesh_group_size(mesh, CY_MESH_CP_DP);
    case COPIES_TP:
        cy_mesh_ranks(mesh, CY_MESH_TP, rank, at->ranks);
        return tp;
    case COPIES_KV:
        for (int i = 0; i < shared; i++)
            at->ranks[i] = cy_mesh_rank(
                mesh, first + i, place.at[CY_AXIS_CP], place.at[CY_AXIS_PP], place.at[CY_AXIS_DP]);
        return shared;
    case COPIES_EMBEDDING:
        if (cy_mesh_ranks(mesh, CY_MESH_EMBEDDING, rank, at->ranks) < 0) return 0;
        return has_ends_apart(at->engine) ? cy_mesh_group_size(mesh, CY_MESH_EMBEDDING) : 0;
    case COPIES_KINDS:
        break;
    }
    return 0;
}

// The stages cut a tied embedding into different shards, so the hashes of all shards are added.
static int64_t hash_of(const comparison *at, copies kind, array number, int rank)
{
    const cy_param *embedding = &at->engine->storage.manifest.params[0];
    if (kind != COPIES_EMBEDDING || is_whole(at->engine, embedding)) {
        return at->tables[rank].of[kind][number];
    }
    uint64_t sum = 0;
    cy_mesh_ranks(at->mesh, CY_MESH_CP_DP, rank, at->others);
    for (int i = 0; i < cy_mesh_group_size(at->mesh, CY_MESH_CP_DP); i++)
        sum += (uint64_t)at->tables[at->others[i]].of[kind][number];
    return (int64_t)sum;
}

// The number of holders that have the same hash as one of them.
static int count_agreeing(const comparison *at, copies kind, array number, int holder, int count)
{
    int same = 0;
    const int64_t hash = hash_of(at, kind, number, at->ranks[holder]);
    for (int i = 0; i < count; i++)
        same += hash_of(at, kind, number, at->ranks[i]) == hash;
    return same;
}

// Compares the copies of the ranks in at->ranks. The hash that most ranks have counts as right; of
// several such hashes, that of the first rank.
static bool differs(const comparison *at, copies kind, array number, int count, difference *found)
{
    if (count_agreeing(at, kind, number, 0, count) == count) return false;
    int reference = 0;
    for (int i = 1; i < count; i++) {
        if (count_agreeing(at, kind, number, i, count) >
            count_agreeing(at, kind, number, reference, count)) {
            reference = i;
        }
    }
    const int64_t right = hash_of(at, kind, number, at->ranks[reference]);
    int wrong = 0;
    while (hash_of(at, kind, number, at->ranks[wrong]) == right)
        wrong++;
    *found =
        (difference){.rank = at->ranks[wrong], .reference = at->ranks[reference], .number = number};
    return true;
}

// Finds the first difference; the result is the same on every rank.
static bool find(const comparison *at, difference *found)
{
    for (int kind = 0; kind < COPIES_KINDS; kind++) {
        for (int rank = 0; rank < at->mesh->world; rank++) {
            const int count = list_holders(at, (copies)kind, rank);
            if (count < 2 || at->ranks[0] != rank) continue; // each list once
            for (int number = 0; number < ARRAYS; number++) {
                if (differs(at, (copies)kind, (array)number, count, found)) return true;
            }
        }
    }
    return false;
}

// Compares parameter by parameter until one differs, and fails with its name.
static cy_status name_difference(
    cy_engine *engine, const comparison *at, table *tables, difference found, int64_t step)
{
    static const char *const of[ARRAYS] = {
        "", "the master copy of ", "the first moment of ", "the second moment of "};
    const cy_manifest *manifest = &engine->storage.manifest;
    const char *name = NULL;
    for (int i = 0; i < manifest->count && name == NULL; i++) {
        CY_TRY(gather(engine, tables, at->mesh->world, &manifest->params[i]));
        if (find(at, &found)) name = manifest->params[i].name;
    }
    if (name == NULL) {
        return CY_FAIL(CY_ERR_PEER, "rank %d: weights differ from rank %d's copy at step %lld",
            found.rank, found.reference, (long long)step);
    }
    return CY_FAIL(CY_ERR_PEER, "rank %d: %sparameter %s differs from rank %d's copy at step %lld",
        found.rank, of[found.number], name, found.reference, (long long)step);
}

cy_status cy_replicas_check(cy_engine *engine, const cy_rank *rank, int64_t step)
{
    CY_ASSERT(engine->options.train);
    const int world = rank->mesh.world;
    void *block = NULL;
    if (world == 1) return CY_OK;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, sizeof(table) + 2 * sizeof(int)));
    table *tables = block;
    int *ranks = (int *)(tables + world);
    const comparison at = {
        .engine = engine,
        .mesh = &rank->mesh,
        .tables = tables,
        .ranks = ranks,
        .others = ranks + world,
    };
    difference found;
    cy_status status = gather(engine, tables, world, NULL);
    if (status == CY_OK && find(&at, &found)) {
        status = name_difference(engine, &at, tables, found, step);
    }
    cy_memory_free(block);
    return status;
}
