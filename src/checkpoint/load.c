// Which rank reads and checks which chunk, and the threads that do it.

#include "base/assert.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/bytes.h"
#include "checkpoint/checksum.h"
#include "checkpoint/fetch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

// The disk is asked for this much ahead of what is read, on all ranks together.
#define AHEAD_BYTES     ((uint64_t)64 << 20)
#define AHEAD_BYTES_MIN ((uint64_t)4 << 20)

#define NOBODY INT64_MAX

typedef struct loader {
    cy_checkpoint *checkpoint;
    cy_checkpoint_ranks ranks;
    bool checks; // checksums are compared, of tensors of the kinds below `kinds`
    bool bids;   // ranks bid for the chunks that they want
    cy_tensor_kind kinds;
    cy_chunks chunks;
    cy_wishes wishes;
    uint64_t bytes;    // of all chunks
    int64_t *checkers; // owned, [chunks.count]: the rank that checks a chunk, or NOBODY
    int64_t *tasks;    // owned, [task_count]: the chunks that this rank reads, ascending
    int64_t task_count;
    cy_fetcher **fetchers; // owned, [workers]
    int workers;

    pthread_mutex_t lock; // guards what follows, but for the atomics
    int64_t asked;        // tasks that the system was asked for
    int64_t asked_bytes;
    atomic_llong begun_bytes; // of tasks that were begun
    atomic_bool failed;
    cy_status status; // of the first failure, with its text
    char text[1024];
} loader;

// ---- who checks what

// True for chunks whose checksums somebody compares: on all ranks alike.
static bool is_checked(const loader *in, const cy_chunk *chunk)
{
    const cy_chunk_range *range = chunk->range;
    if (!in->checks || range->checksums == NULL) return false;
    return range->tensor < 0 || in->checkpoint->tensors[range->tensor].tensor.kind < in->kinds;
}

// A bid for a chunk, the lowest of all ranks wins: whoever wants most of it, of those that want the
// same a random one, so that copies share the work; the rank stands in the lowest bits.
#define RANK_BITS   20
#define RANDOM_BITS 20
#define RANKS_MOST  (1 << RANK_BITS)

static int64_t bid_for(const loader *in, const cy_chunk *chunk)
{
    const uint64_t wanted = cy_wishes_bytes(&in->wishes, chunk);
    if (wanted == 0) return NOBODY;
    const uint64_t missing = wanted < chunk->bytes ? chunk->bytes - wanted : 0;
    const uint64_t random =
        cy_random_bits((uint64_t)chunk->number, (uint64_t)in->ranks.rank) >> (64 - RANDOM_BITS);
    const uint64_t rank = (uint64_t)in->ranks.rank;
    return (int64_t)((missing << RANDOM_BITS | random) << RANK_BITS | rank);
}

// Without bids each rank has an even part. With them it gets what it wants, and of what nobody
// wants its part.
static cy_status settle_checkers(loader *in)
{
    const int64_t count = in->chunks.count;
    for (int64_t i = 0; i < count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, i);
        in->bytes += chunk.bytes;
        in->checkers[i] = in->bids && is_checked(in, &chunk) ? bid_for(in, &chunk) : NOBODY;
    }
    if (in->bids) CY_TRY(in->ranks.least(in->ranks.context, in->checkers, count));
    const uint64_t share = in->bytes / (uint64_t)in->ranks.size + 1;
    uint64_t start = 0;
    for (int64_t i = 0; i < count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, i);
        const int64_t bid = in->checkers[i];
        if (is_checked(in, &chunk)) {
            in->checkers[i] = bid == NOBODY ? (int64_t)(start / share) : bid & (RANKS_MOST - 1);
        }
        start += chunk.bytes;
    }
    return CY_OK;
}

static cy_status list_tasks(loader *in)
{
    for (int64_t i = 0; i < in->chunks.count; i++) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, i);
        const bool wanted = cy_wishes_bytes(&in->wishes, &chunk) > 0;
        if (!wanted && in->checkers[i] != in->ranks.rank) continue;
        // Opened here, since the threads that read may not.
        int fd = -1;
        CY_TRY(cy_bytes_open(&fd, in->checkpoint, chunk.range->file));
        in->tasks[in->task_count++] = i;
    }
    return CY_OK;
}

// ---- the threads

// Asks the system for what comes, while it reads and checks what is here. One thread at a time; the
// others go on reading.
static void ask_ahead(loader *in)
{
    const uint64_t share = AHEAD_BYTES / (uint64_t)in->ranks.size;
    const int64_t ahead = (int64_t)(share > AHEAD_BYTES_MIN ? share : AHEAD_BYTES_MIN);
    if (pthread_mutex_trylock(&in->lock) != 0) return;
    while (in->asked < in->task_count && in->asked_bytes < atomic_load(&in->begun_bytes) + ahead) {
        const cy_chunk chunk = cy_chunks_at(&in->chunks, in->tasks[in->asked++]);
        in->asked_bytes += (int64_t)chunk.bytes;
        cy_bytes_expect(in->checkpoint, chunk.range->file, chunk.offset, chunk.bytes);
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

static void fetch_task(void *context, int64_t task, int worker)
{
    loader *in = context;
    if (atomic_load(&in->failed)) return;
    const int64_t number = in->tasks[task];
    const cy_chunk chunk = cy_chunks_at(&in->chunks, number);
    atomic_fetch_add(&in->begun_bytes, (long long)chunk.bytes);
    ask_ahead(in);
    const cy_status status =
        cy_fetch(in->fetchers[worker], &chunk, in->checkers[number] == in->ranks.rank);
    if (status != CY_OK) note_failure(in, status);
}

static cy_status open_fetchers(loader *in)
{
    void *memory = NULL;
    const int workers = in->checkpoint->pool != NULL ? cy_pool_size(in->checkpoint->pool) : 1;
    CY_TRY(cy_memory_take(&memory, (size_t)workers, sizeof(cy_fetcher *)));
    in->fetchers = memory;
    for (; in->workers < workers; in->workers++) {
        CY_TRY(cy_fetcher_open(&in->fetchers[in->workers], in->checkpoint, &in->wishes));
    }
    return CY_OK;
}

static cy_status fetch_all(loader *in)
{
    if (in->checkpoint->pool != NULL) {
        cy_pool_run(in->checkpoint->pool, fetch_task, in, in->task_count);
    } else {
        for (int64_t i = 0; i < in->task_count; i++)
            fetch_task(in, i, 0);
    }
    return in->status == CY_OK ? CY_OK : CY_FAIL(in->status, "%s", in->text);
}

// ---- all of it

static cy_status open_loader(
    loader *in, const cy_global_tensor *tensors, const cy_piece *pieces, int64_t piece_count)
{
    void *memory = NULL;
    CY_ASSERT(in->ranks.size > 0 && in->ranks.size <= RANKS_MOST);
    CY_TRY(cy_chunks_open(&in->chunks, in->checkpoint));
    CY_TRY(cy_wishes_open(&in->wishes, in->checkpoint, tensors, pieces, piece_count));
    CY_TRY(cy_memory_take(&memory, (size_t)in->chunks.count + 1, sizeof(int64_t)));
    in->checkers = memory;
    CY_TRY(cy_memory_take(&memory, (size_t)in->chunks.count + 1, sizeof(int64_t)));
    in->tasks = memory;
    return open_fetchers(in);
}

static void close_loader(loader *in, cy_checkpoint_traffic *traffic)
{
    for (int i = 0; i < in->workers; i++)
        cy_fetcher_close(in->fetchers[i], traffic);
    cy_memory_free(in->fetchers);
    cy_memory_free(in->tasks);
    cy_memory_free(in->checkers);
    cy_wishes_close(&in->wishes);
    cy_chunks_close(&in->chunks);
    pthread_mutex_destroy(&in->lock);
}

// All ranks learn whether all succeeded; who did not has its own text.
static cy_status agree(const loader *in, cy_status mine)
{
    cy_status worst = mine;
    const cy_status talked = in->ranks.agree(in->ranks.context, &worst, mine);
    if (mine != CY_OK) return mine;
    CY_TRY(talked);
    if (worst == CY_OK) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "another rank could not read %s", in->checkpoint->path);
}

static cy_status load(
    loader *in, const cy_global_tensor *tensors, const cy_piece *pieces, int64_t piece_count)
{
    CY_TRY(agree(in, open_loader(in, tensors, pieces, piece_count)));
    cy_status status = settle_checkers(in);
    if (status == CY_OK) status = list_tasks(in);
    if (status == CY_OK) status = fetch_all(in);
    return agree(in, status);
}

cy_status cy_checkpoint_load(cy_checkpoint *checkpoint, const cy_global_tensor *tensors,
    const cy_piece *pieces, int64_t piece_count, cy_checkpoint_traffic *traffic)
{
    loader in = {
        .checkpoint = checkpoint,
        .ranks = cy_checkpoint_alone(),
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const cy_status status = load(&in, tensors, pieces, piece_count);
    close_loader(&in, traffic);
    return status;
}

cy_status cy_checkpoint_load_checked(cy_checkpoint *checkpoint, const cy_global_tensor *tensors,
    const cy_piece *pieces, int64_t piece_count, cy_tensor_kind kinds, cy_checkpoint_ranks ranks,
    cy_checkpoint_traffic *traffic)
{
    loader in = {
        .checkpoint = checkpoint,
        .ranks = ranks,
        .checks = true,
        .bids = ranks.size > 1,
        .kinds = kinds,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const cy_status status = load(&in, tensors, pieces, piece_count);
    close_loader(&in, traffic);
    return status;
}

cy_status cy_checkpoint_verify(cy_checkpoint *checkpoint, cy_tensor_kind kinds,
    cy_checkpoint_ranks ranks, cy_checkpoint_traffic *traffic)
{
    loader in = {
        .checkpoint = checkpoint,
        .ranks = ranks,
        .checks = true,
        .kinds = kinds,
        .lock = PTHREAD_MUTEX_INITIALIZER,
    };
    const cy_status status = load(&in, NULL, NULL, 0);
    close_loader(&in, traffic);
    return status;
}
