// Loads and verifies checkpoints: decides which rank reads and checks which chunk, and runs the
// threads that do it.

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "checkpoint/fetch.h"
#include "checkpoint/file_io.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

// How many bytes ahead of the reads the system is asked to prefetch, on all ranks together.
#define PREFETCH_BYTES     ((uint64_t)64 << 20)
#define PREFETCH_BYTES_MIN ((uint64_t)4 << 20)

// Reads past the page cache in flight on all ranks together, and on one rank: a disk is fastest
// with several. Reads below DIRECT_BYTES go through the page cache: whole blocks would cost more
// than they save.
#define READERS      8
#define READERS_MAX  4
#define DIRECT_BYTES ((uint64_t)128 << 10)

#define UNASSIGNED INT64_MAX

// One chunk, or several that follow each other in a file and are read together.
typedef struct batch {
    int64_t first, count; // in the tasks
    int file;
    uint64_t offset, bytes;
    bool direct; // to be read past the page cache
} batch;

typedef struct loader {
    cy_checkpoint *checkpoint;
    cy_group *ranks; // borrowed
    cy_queue *queue; // borrowed: of the device that holds the shards; NULL: of the host
    int rank, size;  // of `ranks`
    bool checks;     // checksums are compared, of tensors of the kinds below `kinds`
    bool bids;       // ranks bid for the chunks that they want
    cy_tensor_kind kinds;
    cy_chunks chunks;
    cy_load_plan plan;
    uint64_t bytes;    // of all chunks
    int64_t *checkers; // owned, [chunks.count]: the rank that checks a chunk, or UNASSIGNED
    int64_t *tasks;    // owned, [task_count]: the chunks that this rank reads, ascending
    int64_t task_count;
    batch *batches; // owned, [batch_count]
    int64_t batch_count;
    cy_direct_file *direct;   // owned, [files of the checkpoint]; NULL unless it is read once
    cy_thread_pool *pool;     // the checkpoint's or own_pool; NULL: the caller reads
    cy_thread_pool *own_pool; // owned
    char *buffers;            // owned, [workers, CY_FETCH_BYTES]
    size_t buffer_bytes;
    cy_fetcher **fetchers; // owned, [workers]
    int workers;

    pthread_mutex_t lock; // guards what follows, but for the atomics
    int64_t asked;        // batches that the system was asked for
    int64_t prefetched_bytes;
    atomic_llong begun_bytes; // of tasks that were begun
    atomic_bool failed;
    cy_status status; // of the first failure, with its text
    char text[1024];
} loader;

// ---- who checks what

// True for a chunk whose checksum one of the ranks compares. All ranks get the same answer.
static bool is_checked(const loader *in, const cy_chunk *chunk)
{
    const cy_chunk_range *range = chunk->range;
    if (!in->checks || range->checksums == NULL) return false;
    return range->tensor < 0 || in->checkpoint->tensors[range->tensor].tensor.kind < in->kinds;
}

// A rank's bid for a chunk. The lowest bid of all ranks wins: that of the rank that wants most of
// the chunk and, of several that want the same, a random one, so that copies share the work. The
// lowest bits are the rank.
#define RANK_BITS   20
#define RANDOM_BITS 20
#define RANKS_MAX   (1 << RANK_BITS)

static int64_t bid_of(const loader *in, const cy_chunk *chunk)
{
    const uint64_t wanted = cy_load_plan_bytes(&in->plan, chunk);
    if (wanted == 0) return UNASSIGNED;
    const uint64_t missing = wanted < chunk->bytes ? chunk->bytes - wanted : 0;
    const uint64_t random =
        cy_random_bits((uint64_t)chunk->number, (uint64_t)in->rank) >> (64 - RANDOM_BITS);
    const uint64_t rank = (uint64_t)in->rank;
    return (int64_t)((missing << RANDOM_BITS | random) << RANK_BITS | rank);
}

// Sets the rank that checks each chunk: the winner of the bids. Chunks without a bid are divided
// evenly among the ranks.
static cy_status assign_checkers(loader *in)
{
    const int64_t count = in->chunks.count;
    for (int64_t i = 0; i < count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, i);
        in->bytes += chunk.bytes;
        in->checkers[i] = in->bids && is_checked(in, &chunk) ? bid_of(in, &chunk) : UNASSIGNED;
    }
    if (in->bids) {
        const cy_view bids = cy_view_of(in->checkers, CY_I64, 1, count);
        CY_TRY(cy_group_all_reduce(in->ranks, NULL, bids, CY_MIN));
    }
    const uint64_t share = in->bytes / (uint64_t)in->size + 1;
    uint64_t start = 0;
    for (int64_t i = 0; i < count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, i);
        const int64_t bid = in->checkers[i];
        if (is_checked(in, &chunk)) {
            in->checkers[i] = bid == UNASSIGNED ? (int64_t)(start / share) : bid & (RANKS_MAX - 1);
        }
        start += chunk.bytes;
    }
    return CY_OK;
}

// Opens a file before the threads start, since they may not change the checkpoint.
static cy_status open_file(loader *in, int file)
{
    const cy_checkpoint_file *entry = &in->checkpoint->files[file];
    int fd = -1;
    CY_TRY(cy_bytes_open(&fd, in->checkpoint, file));
    if (!in->checkpoint->read_once || in->direct[file].bytes > 0) return CY_OK;
    char *path = NULL;
    CY_TRY(cy_folder_join(&path, in->checkpoint->path, entry->name));
    cy_direct_open(&in->direct[file], path, entry->bytes);
    cy_memory_free(path);
    return CY_OK;
}

// True where a chunk can be read past the page cache together with the batch before it.
static bool follows(const cy_chunk *chunk, const batch *last)
{
    return last->direct && last->file == chunk->range->file &&
        last->offset + last->bytes == chunk->offset &&
        cy_direct_block_bytes(last->offset, last->bytes + chunk->bytes) <= CY_FETCH_BYTES;
}

// Adds a chunk to the last batch, or as a batch of its own. Chunks that this rank checks are read
// whole, so neighbours can be read together; of the others it may want only a few rows.
static void add_task(loader *in, const cy_chunk *chunk)
{
    const bool mine = in->checkers[chunk->number] == in->rank;
    const bool direct = mine && in->direct != NULL && in->direct[chunk->range->file].fd >= 0;
    if (direct && in->batch_count > 0 && follows(chunk, &in->batches[in->batch_count - 1])) {
        in->batches[in->batch_count - 1].bytes += chunk->bytes;
        in->batches[in->batch_count - 1].count++;
    } else {
        in->batches[in->batch_count++] = (batch){
            .first = in->task_count,
            .count = 1,
            .file = chunk->range->file,
            .offset = chunk->offset,
            .bytes = chunk->bytes,
            .direct = direct,
        };
    }
    in->tasks[in->task_count++] = chunk->number;
}

static cy_status list_tasks(loader *in)
{
    for (int64_t i = 0; i < in->chunks.count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, i);
        const bool wanted = cy_load_plan_bytes(&in->plan, &chunk) > 0;
        if (!wanted && in->checkers[i] != in->rank) continue;
        CY_TRY(open_file(in, chunk.range->file));
        add_task(in, &chunk);
    }
    return CY_OK;
}

// ---- the threads

// Asks the system to prefetch the next batches. One thread at a time does so; the others go on
// reading.
static void prefetch(loader *in)
{
    const uint64_t share = PREFETCH_BYTES / (uint64_t)in->size;
    const int64_t ahead = (int64_t)(share > PREFETCH_BYTES_MIN ? share : PREFETCH_BYTES_MIN);
    if (pthread_mutex_trylock(&in->lock) != 0) return;
    while (in->asked < in->batch_count &&
        in->prefetched_bytes < atomic_load(&in->begun_bytes) + ahead) {
        const batch *next = &in->batches[in->asked++];
        in->prefetched_bytes += (int64_t)next->bytes;
        if (!next->direct) {
            cy_bytes_prefetch(in->checkpoint, next->file, next->offset, next->bytes);
        }
    }
    pthread_mutex_unlock(&in->lock);
}

static void note_failure(loader *in, cy_status status)
{
    pthread_mutex_lock(&in->lock);
    if (in->status == CY_OK) {
        in->status = status;
        snprintf(in->text, sizeof(in->text), "%s", cy_error_text());
    }
    pthread_mutex_unlock(&in->lock);
    atomic_store(&in->failed, true);
}

// Reads a batch past the page cache, unless the page cache holds it.
static void read_block(const loader *in, const batch *some, int worker)
{
    if (!some->direct || some->bytes < DIRECT_BYTES) return;
    const cy_direct_file *file = &in->direct[some->file];
    if (cy_direct_is_cached(file, some->offset, some->bytes)) return;
    // Where this fails, cy_fetch reads through the page cache and names what is wrong.
    cy_fetcher_read_block(in->fetchers[worker], file, some->file, some->offset, some->bytes);
}

static void fetch_batch(void *context, int64_t number, int worker)
{
    loader *in = context;
    const batch *some = &in->batches[number];
    if (atomic_load(&in->failed)) return;
    atomic_fetch_add(&in->begun_bytes, (long long)some->bytes);
    prefetch(in);
    read_block(in, some, worker);
    for (int64_t i = 0; i < some->count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, in->tasks[some->first + i]);
        const bool checked = in->checkers[chunk.number] == in->rank;
        const cy_status status = cy_fetch(in->fetchers[worker], &chunk, checked);
        if (status != CY_OK) note_failure(in, status);
    }
}

// Reads that wait for the disk need threads, not cores: a rank with too few threads opens a pool
// for the load.
static cy_status open_pool(loader *in)
{
    const int share = READERS / in->size;
    const int readers = share < 1 ? 1 : share < READERS_MAX ? share : READERS_MAX;
    in->pool = in->checkpoint->pool;
    if (!in->checkpoint->read_once || cy_thread_pool_size(in->pool) >= readers) return CY_OK;
    CY_TRY(cy_thread_pool_open(&in->own_pool, readers, -1, false));
    in->pool = in->own_pool;
    return CY_OK;
}

static cy_device *device_of(const loader *in)
{
    return in->queue != NULL ? cy_queue_device(in->queue) : cy_device_cpu();
}

static cy_status open_fetchers(loader *in)
{
    void *memory = NULL;
    CY_TRY(open_pool(in));
    const int workers = cy_thread_pool_size(in->pool);
    CY_TRY(cy_memory_alloc(&memory, (size_t)workers, sizeof(cy_fetcher *)));
    in->fetchers = memory;
    CY_TRY(cy_memory_map(&memory, (size_t)workers * CY_FETCH_BYTES));
    in->buffers = memory;
    in->buffer_bytes = (size_t)workers * CY_FETCH_BYTES;
    for (; in->workers < workers; in->workers++) {
        char *buffer = in->buffers + (size_t)in->workers * CY_FETCH_BYTES;
        CY_TRY(cy_fetcher_open(
            &in->fetchers[in->workers], in->checkpoint, &in->plan, buffer, device_of(in)));
    }
    return CY_OK;
}

// The fetchers' queues are not ordered behind the rank's.
static cy_status fetch_all(loader *in)
{
    if (in->queue != NULL) CY_TRY(cy_queue_synchronize(in->queue));
    cy_thread_pool_run(in->pool, fetch_batch, in, in->batch_count);
    return in->status == CY_OK ? CY_OK : CY_FAIL(in->status, "%s", in->text);
}

// ---- all of it

// Lists the chunks of the wanted tensors alone: the cost of a load that checks nothing must not
// depend on the other tensors.
static cy_status list_wanted(loader *in)
{
    void *memory = NULL;
    int64_t count = 0;
    CY_TRY(cy_memory_alloc(&memory, (size_t)in->plan.count + 1, sizeof(int)));
    int *tensors = memory;
    for (int64_t i = 0; i < in->plan.count; i++) { // sorted
        const int tensor = in->plan.list[i].tensor;
        if (count == 0 || tensors[count - 1] != tensor) tensors[count++] = tensor;
    }
    const cy_status status = cy_chunks_open_tensors(&in->chunks, in->checkpoint, tensors, count);
    cy_memory_free(memory);
    return status;
}

static cy_status open_loader(
    loader *in, const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count)
{
    void *memory = NULL;
    CY_ASSERT(in->size > 0 && in->size <= RANKS_MAX);
    CY_TRY(cy_load_plan_open(&in->plan, in->checkpoint, tensors, pieces, piece_count));
    CY_TRY(in->checks ? cy_chunks_open(&in->chunks, in->checkpoint) : list_wanted(in));
    CY_TRY(cy_memory_alloc(&memory, (size_t)in->chunks.count + 1, sizeof(int64_t)));
    in->checkers = memory;
    CY_TRY(cy_memory_alloc(&memory, (size_t)in->chunks.count + 1, sizeof(int64_t)));
    in->tasks = memory;
    CY_TRY(cy_memory_alloc(&memory, (size_t)in->chunks.count + 1, sizeof(batch)));
    in->batches = memory;
    if (!in->checkpoint->read_once) return open_fetchers(in);
    CY_TRY(
        cy_memory_alloc(&memory, (size_t)in->checkpoint->file_count + 1, sizeof(cy_direct_file)));
    in->direct = memory;
    for (int i = 0; i < in->checkpoint->file_count; i++)
        in->direct[i].fd = -1;
    return open_fetchers(in);
}

static void close_loader(loader *in, cy_checkpoint_traffic *traffic)
{
    for (int i = 0; i < in->workers; i++)
        cy_fetcher_close(in->fetchers[i], traffic);
    for (int i = 0; in->direct != NULL && i < in->checkpoint->file_count; i++)
        cy_direct_close(&in->direct[i]);
    cy_thread_pool_close(in->own_pool);
    cy_memory_unmap(in->buffers, in->buffer_bytes);
    cy_memory_free(in->direct);
    cy_memory_free(in->fetchers);
    cy_memory_free(in->batches);
    cy_memory_free(in->tasks);
    cy_memory_free(in->checkers);
    cy_load_plan_close(&in->plan);
    cy_chunks_close(&in->chunks);
    pthread_mutex_destroy(&in->lock);
}

cy_status cy_checkpoint_agree(cy_group *ranks, cy_status mine, const char *did, const char *folder)
{
    int64_t worst = mine;
    const cy_status talked =
        cy_group_all_reduce(ranks, NULL, cy_view_of(&worst, CY_I64, 1, 1), CY_MAX);
    if (mine != CY_OK) return mine;
    CY_TRY(talked);
    if (worst == CY_OK) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "another rank %s %s", did, folder);
}

static cy_status agree(const loader *in, cy_status mine)
{
    return cy_checkpoint_agree(in->ranks, mine, "could not read", in->checkpoint->path);
}

static cy_status load(
    loader *in, const cy_global_tensor *tensors, const cy_tensor_shard *pieces, int64_t piece_count)
{
    CY_TRY(agree(in, open_loader(in, tensors, pieces, piece_count)));
    cy_status status = assign_checkers(in);
    if (status == CY_OK) status = list_tasks(in);
    if (status == CY_OK) status = fetch_all(in);
    return agree(in, status);
}

cy_status cy_checkpoint_load(cy_checkpoint *checkpoint, const cy_global_tensor *tensors,
    const cy_tensor_shard *pieces, int64_t piece_count, cy_checkpoint_traffic *traffic)
{
    loader in = {
        .checkpoint = checkpoint,
        .ranks = cy_group_self(),
        .size = 1,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const cy_status status = load(&in, tensors, pieces, piece_count);
    close_loader(&in, traffic);
    return status;
}

cy_status cy_checkpoint_load_checked(cy_checkpoint *checkpoint, const cy_global_tensor *tensors,
    const cy_tensor_shard *pieces, int64_t piece_count, cy_tensor_kind kinds, cy_group *ranks,
    cy_queue *queue, cy_checkpoint_traffic *traffic)
{
    loader in = {
        .checkpoint = checkpoint,
        .ranks = ranks,
        .queue = queue,
        .rank = cy_group_rank(ranks),
        .size = cy_group_size(ranks),
        .checks = true,
        .bids = cy_group_size(ranks) > 1,
        .kinds = kinds,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const cy_status status = load(&in, tensors, pieces, piece_count);
    close_loader(&in, traffic);
    return status;
}

cy_status cy_checkpoint_verify(cy_checkpoint *checkpoint, cy_tensor_kind kinds, cy_group *ranks,
    cy_checkpoint_traffic *traffic)
{
    loader in = {
        .checkpoint = checkpoint,
        .ranks = ranks,
        .rank = cy_group_rank(ranks),
        .size = cy_group_size(ranks),
        .checks = true,
        .kinds = kinds,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const cy_status status = load(&in, NULL, NULL, 0);
    close_loader(&in, traffic);
    return status;
}
