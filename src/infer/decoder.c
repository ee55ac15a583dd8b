// Runs a model token by token: plans its memory, keeps its cache of keys and values, reads prompts
// in chunks, and loads its weights from a folder.

#include "infer/decoder.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/state_dict.h"
#include "model/shape.h"

#include <jansson.h>
#include <string.h>

// ---- the decoder

#define PAGE_SIZE     64
#define DEFAULT_CHUNK 512

static int64_t page_count(const cy_decoder *decoder)
{
    return (decoder->options.capacity + PAGE_SIZE - 1) / PAGE_SIZE;
}

// The team of threads that computes a single token follows addresses of the device.
static bool has_team(const cy_decoder *decoder)
{
    return cy_queue_host_access(&decoder->queue);
}

// The weights of all parameter groups, one after another, as a range of the decoder's dtype.
static void take_weights(cy_decoder *decoder, cy_arena *run)
{
    const cy_dtype dtype = decoder->options.dtype;
    cy_storage *storage = &decoder->storage;
    size_t bytes = 0;
    for (int g = 0; g < storage->group_count; g++)
        bytes += cy_storage_weight_bytes(storage, g);
    decoder->weights = cy_view_alloc(run, dtype, 1, (int64_t)(bytes / cy_dtype_size(dtype)));
    char *at = decoder->weights.data;
    for (int g = 0; g < storage->group_count; g++) {
        cy_storage_bind(storage, g, at, NULL);
        at += cy_storage_weight_bytes(storage, g);
    }
}

static void take_run(cy_decoder *decoder, cy_arena *run)
{
    const cy_model_shape *shape = &decoder->options.shape;
    const cy_dtype dtype = decoder->options.dtype;
    const int64_t chunk = decoder->options.chunk;
    const int64_t rows = page_count(decoder) * PAGE_SIZE;
    const int64_t cols = shape->kv_heads * shape->head_dim;
    take_weights(decoder, run);
    cy_decoder_rows *to = &decoder->rows;
    to->page_table = cy_arena_alloc(run, (size_t)page_count(decoder) * sizeof(int32_t));
    for (int i = 0; i < shape->layers; i++) {
        decoder->pages[i] = (cy_kv_pages){
            .keys = cy_view_alloc(run, dtype, rows, cols),
            .values = cy_view_alloc(run, dtype, rows, cols),
            .page_table = to->page_table,
            .page_size = PAGE_SIZE,
            .pages_per_sequence = page_count(decoder),
        };
    }
    to->inputs = cy_arena_alloc(run, (size_t)chunk * sizeof(int32_t));
    to->positions = cy_arena_alloc(run, (size_t)chunk * sizeof(int32_t));
    to->sequences = cy_arena_alloc(run, (size_t)chunk * sizeof(int32_t));
    decoder->hidden = cy_view_alloc(run, dtype, chunk, shape->hidden);
    decoder->logits = cy_view_alloc(run, cy_sum_dtype(dtype), 1, shape->vocab);
    decoder->logits_f32 = decoder->logits;
    if (decoder->logits.dtype != CY_F32) {
        decoder->logits_f32 = cy_view_alloc(run, CY_F32, 1, shape->vocab);
    }
    decoder->context.rope =
        cy_view_alloc(run, cy_sum_dtype(dtype), decoder->options.capacity, shape->head_dim);
    if (has_team(decoder)) {
        cy_decode_token_alloc(&decoder->row, run, &decoder->head, decoder->pages);
    }
}

// Runs a pass over `count` tokens whose rows are filled: a chunk of a prompt operator by operator,
// a single token in one call of all threads.
static cy_status pass(cy_decoder *decoder, int64_t count)
{
    const cy_cache_batch cache = {
        .sequences = decoder->rows.sequences,
        .positions_host = decoder->host_rows.positions,
        .sequences_host = decoder->host_rows.sequences,
        .page_table_host = decoder->host_rows.page_table,
        .pages = decoder->pages,
    };
    const cy_microbatch batch = {
        .tokens = count,
        .inputs = decoder->rows.inputs,
        .positions = decoder->rows.positions,
        .cache = &cache,
    };
    if (count == 1 && !decoder->queue.dry && !decoder->one_by_one) {
        cy_decode_token_forward(&decoder->row, decoder->logits, &batch);
        return CY_OK;
    }
    const cy_view hidden = cy_view_rows(decoder->hidden, 0, count);
    CY_TRY(cy_decode_forward(&decoder->context, &decoder->storage, hidden, &batch));
    return cy_head_logits(&decoder->head, decoder->logits, cy_view_rows(hidden, count - 1, 1));
}

// Runs a dry pass over `count` tokens; scratch->peak is the scratch memory that it needs.
static cy_status rehearse(cy_decoder *decoder, cy_arena *scratch, int64_t count)
{
    cy_arena_measure(scratch, "scratch");
    decoder->queue.scratch = scratch;
    decoder->queue.dry = true;
    const cy_status status = pass(decoder, count);
    decoder->queue.dry = false;
    decoder->queue.scratch = &decoder->scratch;
    return status;
}

// The host's rows are real even while the arenas only measure: the dry pass walks them.
static cy_status place_host_rows(cy_decoder *decoder)
{
    const size_t chunk = (size_t)decoder->options.chunk, pages = (size_t)page_count(decoder);
    decoder->pinned_bytes = (3 * chunk + pages) * sizeof(int32_t);
    CY_TRY(cy_device_alloc_host(decoder->device, &decoder->pinned, decoder->pinned_bytes));
    int32_t *base = decoder->pinned;
    decoder->host_rows = (cy_decoder_rows){
        .inputs = base,
        .positions = base + chunk,
        .sequences = base + 2 * chunk,
        .page_table = base + 3 * chunk,
    };
    return CY_OK;
}

static cy_status plan(cy_decoder *decoder)
{
    cy_arena_measure(&decoder->run, "run");
    take_run(decoder, &decoder->run);
    const cy_status status = rehearse(decoder, &decoder->scratch, decoder->options.chunk);
    decoder->measured = decoder->options.chunk;
    return status;
}

static void place_arena(
    const cy_decoder *decoder, cy_arena *arena, const char *name, void *base, size_t bytes)
{
    if (cy_queue_host_access(&decoder->queue)) {
        cy_arena_init(arena, name, base, bytes);
    } else {
        cy_arena_init_remote(arena, name, base, bytes);
    }
}

static cy_status place_scratch(cy_decoder *decoder, size_t bytes)
{
    CY_TRY(cy_queue_synchronize(&decoder->queue)); // nothing uses what is freed here
    cy_device_free(decoder->device, decoder->scratch_mapped, decoder->scratch_bytes);
    decoder->scratch_mapped = NULL;
    decoder->scratch_bytes = 0;
    CY_TRY(cy_device_alloc(decoder->device, &decoder->scratch_mapped, bytes));
    decoder->scratch_bytes = bytes;
    place_arena(decoder, &decoder->scratch, "scratch", decoder->scratch_mapped, bytes);
    return CY_OK;
}

// Fewer rows do not always need less scratch memory: operators cut them differently.
static cy_status make_room(cy_decoder *decoder, int64_t count)
{
    if (count == decoder->measured) return CY_OK;
    cy_arena needed;
    CY_TRY(rehearse(decoder, &needed, count));
    decoder->measured = 0;
    if (needed.peak > decoder->scratch_bytes) CY_TRY(place_scratch(decoder, needed.peak));
    decoder->measured = count;
    return CY_OK;
}

static cy_status turn_positions(cy_decoder *decoder, int64_t reach)
{
    CY_TRY(cy_self_attention_fill_rope(&decoder->context, reach));
    decoder->reach = reach;
    return CY_OK;
}

static cy_status place(cy_decoder *decoder)
{
    const size_t run = decoder->run.peak;
    const size_t row = has_team(decoder) ? cy_decode_token_plan(&decoder->row) : 0;
    decoder->mapped_bytes = run + row;
    CY_TRY(cy_device_alloc(decoder->device, &decoder->mapped, decoder->mapped_bytes));
    char *base = decoder->mapped;
    place_arena(decoder, &decoder->run, "run", base, run);
    CY_TRY(place_scratch(decoder, decoder->scratch.peak));
    take_run(decoder, &decoder->run);
    if (has_team(decoder)) cy_decode_token_bind(&decoder->row, base + run);
    int32_t *page_table = decoder->host_rows.page_table;
    for (int64_t i = 0; i < page_count(decoder); i++)
        page_table[i] = (int32_t)i;
    cy_queue_upload(&decoder->queue, decoder->rows.page_table, page_table,
        (size_t)page_count(decoder) * sizeof(int32_t));
    return turn_positions(decoder, decoder->options.capacity);
}

static cy_status open_parts(cy_decoder *decoder)
{
    const cy_decoder_options *options = &decoder->options;
    const cy_model_shape *shape = &options->shape;
    void *block = NULL;
    CY_TRY(cy_device_open(&decoder->device, options->device != NULL ? options->device : "cpu", 0));
    CY_TRY(cy_thread_pool_open(&decoder->pool, options->threads, options->first_core, true));
    decoder->queue.pool = decoder->pool;
    decoder->queue.scratch = &decoder->scratch;
    CY_TRY(cy_queue_open(&decoder->queue, decoder->device));
    CY_TRY(cy_kernels_open(&decoder->queue, &decoder->kernels, options->isa));
    cy_kernels_defer(&decoder->queue);
    decoder->one_by_one = !has_team(decoder);
    CY_TRY(place_host_rows(decoder));
    const cy_segment whole = {.layer_count = shape->layers, .embedding = true, .head = true};
    const cy_model_shard part = {.segments = &whole, .segment_count = 1, .tp_size = 1};
    CY_TRY(cy_storage_open(&decoder->storage, shape, &part, cy_precision_of(options->dtype)));
    CY_TRY(cy_memory_alloc(&block, (size_t)shape->layers, sizeof(cy_kv_pages)));
    decoder->pages = block;

    decoder->context = (cy_model_context){
        .queue = &decoder->queue,
        .shape = *shape,
        .tp = {.group = cy_group_self()},
        .cp = {.group = cy_group_self()},
        .heads_local = shape->heads,
        .kv_heads_local = shape->kv_heads,
        .ffn_local = shape->ffn,
        .dtype = options->dtype,
        .sum_dtype = cy_sum_dtype(options->dtype),
    };
    decoder->head = (cy_head){
        .context = &decoder->context,
        .storage = &decoder->storage,
        .norm_unit = cy_storage_unit(&decoder->storage, shape->layers),
        .matrix_unit = cy_storage_unit(&decoder->storage, shape->tied ? -1 : shape->layers),
    };
    CY_TRY(cy_decode_token_open(&decoder->row, &decoder->context));
    CY_TRY(plan(decoder));
    return place(decoder);
}

cy_status cy_decoder_open(cy_decoder *decoder, const cy_decoder_options *options)
{
    CY_ASSERT(options->capacity > 0);
    *decoder = (cy_decoder){.options = *options};
    if (decoder->options.chunk == 0) decoder->options.chunk = DEFAULT_CHUNK;
    if (decoder->options.chunk > options->capacity) decoder->options.chunk = options->capacity;
    const cy_status status = open_parts(decoder);
    if (status != CY_OK) cy_decoder_close(decoder);
    return status;
}

void cy_decoder_close(cy_decoder *decoder)
{
    cy_queue_close(&decoder->queue); // nothing uses what is freed here
    cy_decode_token_close(&decoder->row);
    cy_storage_close(&decoder->storage);
    cy_memory_free(decoder->pages);
    if (decoder->queue.kernels != NULL) cy_kernels_close(&decoder->queue);
    cy_thread_pool_close(decoder->pool);
    cy_device_free(decoder->device, decoder->scratch_mapped, decoder->scratch_bytes);
    cy_device_free(decoder->device, decoder->mapped, decoder->mapped_bytes);
    cy_device_free_host(decoder->device, decoder->pinned, decoder->pinned_bytes);
    cy_device_close(decoder->device);
    *decoder = (cy_decoder){0};
}

cy_status cy_decoder_set_reach(cy_decoder *decoder, int64_t count, int64_t more)
{
    CY_ASSERT(decoder->length == 0);
    const int64_t capacity = decoder->options.capacity;
    const int64_t reach = more < capacity - count ? count + more : capacity;
    const bool dynamic = decoder->options.shape.rope.scaling == CY_ROPE_DYNAMIC;
    return dynamic && reach != decoder->reach ? turn_positions(decoder, reach) : CY_OK;
}

size_t cy_decoder_cache_bytes(const cy_decoder *decoder)
{
    return (size_t)decoder->options.shape.layers *
        (cy_view_bytes(decoder->pages[0].keys) + cy_view_bytes(decoder->pages[0].values));
}

void cy_decoder_rewind(cy_decoder *decoder, int64_t length)
{
    CY_ASSERT(0 <= length && length <= decoder->length);
    decoder->length = length;
}

// Writes the rows of `count` tokens that follow those in the cache.
static cy_status fill_rows(cy_decoder *decoder, const int32_t *tokens, int64_t count)
{
    const cy_decoder_rows *from = &decoder->host_rows, *to = &decoder->rows;
    cy_queue *queue = &decoder->queue;
    const size_t bytes = (size_t)count * sizeof(int32_t);
    CY_TRY(cy_event_wait(queue, &decoder->rows_copied));
    for (int64_t i = 0; i < count; i++) {
        from->inputs[i] = tokens[i];
        from->positions[i] = (int32_t)(decoder->length + i);
        from->sequences[i] = 0;
    }
    cy_queue_upload(queue, to->inputs, from->inputs, bytes);
    cy_queue_upload(queue, to->positions, from->positions, bytes);
    cy_queue_upload(queue, to->sequences, from->sequences, bytes);
    cy_queue_record(queue, &decoder->rows_copied);
    return CY_OK;
}

static cy_status read_logits(cy_decoder *decoder, float *logits)
{
    cy_queue *queue = &decoder->queue;
    const cy_view from = decoder->logits_f32;
    if (from.data != decoder->logits.data) cy_copy(queue, from, decoder->logits);
    cy_queue_download(queue, logits, from.data, cy_view_bytes(from));
    return cy_queue_synchronize(queue);
}

cy_status cy_decoder_read(cy_decoder *decoder, float *logits, const int32_t *tokens, int64_t count)
{
    const int64_t room = decoder->options.capacity - decoder->length;
    CY_ASSERT(count > 0);
    if (count > room) {
        return CY_FAIL(CY_ERR_REQUEST,
            "%lld tokens do not fit: the context of %lld has room for %lld", (long long)count,
            (long long)decoder->options.capacity, (long long)room);
    }
    for (int64_t done = 0; done < count;) {
        const int64_t left = count - done;
        const int64_t piece = left < decoder->options.chunk ? left : decoder->options.chunk;
        CY_TRY(fill_rows(decoder, tokens + done, piece));
        if (piece > 1 || decoder->one_by_one) CY_TRY(make_room(decoder, piece));
        CY_TRY(pass(decoder, piece));
        decoder->length += piece;
        done += piece;
    }
    return read_logits(decoder, logits);
}

// ---- opening a folder

// Reads the dtype that the run computed in from the configuration that was saved with it.
static bool dtype_of_run(cy_dtype *dtype, const char *config_json)
{
    json_error_t error;
    json_t *root = json_loads(config_json, 0, &error);
    const json_t *name = json_object_get(json_object_get(root, "model"), "dtype");
    const bool known =
        json_is_string(name) && cy_dtype_from_name(dtype, json_string_value(name)) != 0;
    json_decref(root);
    return known;
}

cy_status cy_model_find(cy_checkpoint *checkpoint, cy_dtype *dtype, const char *given)
{
    cy_status status = CY_OK;
    CY_TRY(cy_checkpoint_open_located(checkpoint, given));
    if (!checkpoint->has_model || checkpoint->tensor_count == 0) {
        status = CY_FAIL(CY_ERR_CORRUPT, "%s: does not say which model it holds", checkpoint->path);
        cy_checkpoint_close(checkpoint);
        return status;
    }
    *dtype = checkpoint->tensors[0].tensor.dtype;
    if (checkpoint->config_json != NULL) dtype_of_run(dtype, checkpoint->config_json);
    return CY_OK;
}

cy_status cy_model_dtype(cy_dtype *dtype, const char *name)
{
    cy_dtype found = CY_U8;
    const bool known = cy_dtype_from_name(&found, name) != 0;
    if (!known || (found != CY_BF16 && found != CY_F16 && found != CY_F32 && found != CY_F64)) {
        return CY_FAIL(CY_ERR_REQUEST, "dtype %s: bf16, fp16, fp32 and fp64 are known", name);
    }
    *dtype = found;
    return CY_OK;
}

cy_status cy_model_tokenizer(cy_tokenizer **tokenizer, const cy_checkpoint *checkpoint)
{
    return cy_tokenizer_open(tokenizer, checkpoint->path);
}

cy_status cy_model_load(cy_decoder *decoder, cy_checkpoint *checkpoint)
{
    cy_state_dict parameters = {0};
    cy_checkpoint_traffic traffic = {0};
    checkpoint->pool = decoder->pool;
    CY_TRY(cy_state_dict_of_weights(&parameters, &decoder->storage));
    cy_status status =
        cy_checkpoint_check_tensors(checkpoint, parameters.tensors, parameters.tensor_count);
    if (status == CY_OK) {
        status = cy_checkpoint_load_checked(checkpoint, parameters.tensors, parameters.pieces,
            (int64_t)parameters.piece_count, CY_TENSOR_ADAM_M, cy_group_self(), &decoder->queue,
            &traffic);
    }
    cy_state_dict_close(&parameters);
    return status;
}
