// Saves the state of a run, loads it, and checks that it is finite.
#include "train/state.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "checkpoint/convert.h"
#include "checkpoint/state_dict.h"
#include "train/replicas.h"

#include <stdio.h>
#include <string.h>

cy_status cy_state_await_reason(const cy_engine *engine, cy_status status)
{
    if (status == CY_ERR_PEER) CY_TRY(cy_group_barrier(engine->options.groups.world));
    return status;
}

// *found: the folder contains a checkpoint, or is one.
static cy_status try_locate(char **path, const char *folder, bool *found)
{
    *found = false;
    bool there = false;
    CY_TRY(cy_path_find(&there, folder));
    if (!there) return CY_OK;
    const cy_status status = cy_checkpoint_locate(path, folder);
    if (status == CY_ERR_REQUEST) return CY_OK;
    *found = status == CY_OK;
    return status;
}

cy_status cy_state_locate(char **path, bool *weights_only, const cy_config *config)
{
    *path = NULL;
    *weights_only = false;
    const cy_config_checkpoint *checkpoint = &config->checkpoint;
    if (checkpoint->resume == CY_CONFIG_RESUME_AUTO) {
        bool found;
        CY_TRY(try_locate(path, checkpoint->save_dir, &found));
        if (found) return CY_OK;
    }
    if (checkpoint->load_path[0] == '\0') return CY_OK;
    *weights_only = checkpoint->load == CY_CONFIG_LOAD_WEIGHTS;
    return cy_checkpoint_locate(path, checkpoint->load_path);
}

// ---- the small state beside the tensors

// The exponents of strict mode's sums, which the bits of the next step depend on.
static json_t *strict_json(const cy_sums *sums)
{
    json_t *exponents = json_array();
    for (int64_t i = 0; i < sums->count; i++) {
        cy_json_append(&exponents, json_integer(sums->table[i].exponent));
    }
    return json_pack("{s:o}", "exponents", exponents);
}

static cy_status write_state(cy_text *json, const cy_engine *engine)
{
    const cy_loss_scaler *scaler = &engine->scaler;
    json_t *state = json_pack("{s:{s:o, s:I, s:I, s:I}, s:{s:I}}", "scaler", "scale",
        cy_json_real(scaler->scale), "clean_steps", (json_int_t)scaler->clean_steps,
        "skipped_steps", (json_int_t)scaler->skipped_steps, "stuck_steps",
        (json_int_t)scaler->stuck_steps, "random", "seed",
        (json_int_t)engine->options.config->training.seed);
    if (engine->context.sums != NULL) cy_json_set(&state, "strict", strict_json(&engine->sums));
    return cy_json_add(json, state, JSON_COMPACT);
}

// The checkpoint of a run without strict mode has no exponents. A strict run that continues from it
// starts with the constants.
static cy_status read_exponents(cy_engine *engine, const json_t *root, const char *path)
{
    const json_t *strict = json_object_get(root, "strict");
    if (engine->context.sums == NULL || strict == NULL) return CY_OK;
    const json_t *exponents = json_object_get(strict, "exponents");
    const cy_sums *sums = &engine->sums;
    if (!json_is_array(exponents) || (int64_t)json_array_size(exponents) != sums->count) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s/manifest.json: %lld exponents of strict sums, this model has %lld", path,
            (long long)json_array_size(exponents), (long long)sums->count);
    }
    for (int64_t i = 0; i < sums->count; i++) {
        const json_t *exponent = json_array_get(exponents, (size_t)i);
        const json_int_t value = json_integer_value(exponent);
        if (!json_is_integer(exponent) || value < -CY_SUM_EXPONENT_MOST ||
            value > CY_SUM_EXPONENT_MOST) {
            return CY_FAIL(CY_ERR_CORRUPT,
                "%s/manifest.json: exponent %lld of strict sums is no integer of at most %d", path,
                (long long)i, CY_SUM_EXPONENT_MOST);
        }
        sums->table[i].exponent = (int)value;
    }
    return CY_OK;
}

// Only a run in fp16 has adapted its loss scale; others save 1, which is not to be used.
static bool was_in_fp16(const cy_checkpoint *checkpoint)
{
    const char *config = checkpoint->config_json;
    json_t *root = config != NULL ? json_loads(config, 0, NULL) : NULL;
    const char *dtype = json_string_value(json_object_get(json_object_get(root, "model"), "dtype"));
    const bool was = dtype != NULL && strcmp(dtype, cy_dtype_name(CY_F16)) == 0;
    json_decref(root);
    return was;
}

static cy_status read_state(cy_engine *engine, const cy_checkpoint *checkpoint)
{
    if (checkpoint->state_json == NULL) return CY_OK;
    json_error_t error;
    json_t *root = json_loads(checkpoint->state_json, 0, &error);
    double scale = 0;
    json_int_t clean = 0, skipped = 0, stuck = 0;
    const int failed = root == NULL ||
        json_unpack(root, "{s:{s:F, s:I, s:I, s:I}}", "scaler", "scale", &scale, "clean_steps",
            &clean, "skipped_steps", &skipped, "stuck_steps", &stuck) != 0;
    const cy_status status = failed
        ? CY_FAIL(
              CY_ERR_CORRUPT, "%s/manifest.json: no scaler in the saved state", checkpoint->path)
        : read_exponents(engine, root, checkpoint->path);
    json_decref(root);
    CY_TRY(status);
    const cy_loss_scaler scaler = {
        .scale = scale, .clean_steps = clean, .skipped_steps = skipped, .stuck_steps = stuck};
    const cy_loss_scaler_spec spec = cy_loss_scaler_defaults();
    if (!cy_loss_scaler_is_valid(&scaler, &spec)) {
        return CY_FAIL(CY_ERR_CORRUPT,
            "%s/manifest.json: the saved state has a scaler that no run has: scale %g",
            checkpoint->path, scale);
    }
    if (engine->options.config->model.dtype == CY_F16 && was_in_fp16(checkpoint)) {
        engine->scaler = scaler;
    }
    return CY_OK;
}

// ---- the residual of top-k compression

#define RESIDUAL_PREFIX "kept_back."

// The residual of a rank.
typedef struct vector_of {
    int64_t count; // elements
    int64_t order; // a hash of the positions of the parameters
} vector_of;

static int64_t hash_order(const cy_storage *storage)
{
    uint64_t hash = 0;
    for (int i = 0; i < storage->tensor_count; i++) {
        const cy_tensor *tensor = &storage->tensors[i];
        const int64_t first = cy_storage_part_of(storage, tensor)->first + tensor->offset;
        char line[160];
        const int length = snprintf(line, sizeof(line), "%016llx %s %lld", (unsigned long long)hash,
            tensor->param->name, (long long)first);
        hash = cy_hash_bytes((const unsigned char *)line, (size_t)length);
    }
    return (int64_t)hash;
}

static void name_vector(char *name, const cy_mesh *mesh, int number, int64_t order)
{
    const cy_coordinates at = cy_mesh_coordinates(mesh, number);
    snprintf(name, CY_RESIDUAL_NAME_BYTES,
        RESIDUAL_PREFIX "tp%dof%d.cp%dof%d.pp%dof%d.dp%dof%d.%016llx", at.at[CY_AXIS_TP],
        mesh->size[CY_AXIS_TP], at.at[CY_AXIS_CP], mesh->size[CY_AXIS_CP], at.at[CY_AXIS_PP],
        mesh->size[CY_AXIS_PP], at.at[CY_AXIS_DP], mesh->size[CY_AXIS_DP],
        (unsigned long long)order);
}

static cy_status take_lists(cy_residual_state *list, int world)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, CY_RESIDUAL_NAME_BYTES));
    list->names = block;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, sizeof(cy_global_tensor)));
    list->tensors = block;
    list->count = world;
    return CY_OK;
}

static cy_status fill_lists(
    cy_residual_state *list, const vector_of *all, const cy_rank *rank, cy_view residual)
{
    CY_TRY(take_lists(list, rank->mesh.world));
    for (int i = 0; i < list->count; i++) {
        name_vector(list->names[i], &rank->mesh, i, all[i].order);
        list->tensors[i] = (cy_global_tensor){
            .name = list->names[i],
            .kind = CY_TENSOR_OTHER,
            .dtype = residual.dtype,
            .dimensions = 1,
            .rows = 1,
            .cols = all[i].count,
        };
    }
    const cy_rectangle whole = {.rows = 1, .cols = residual.cols};
    list->piece = cy_tensor_shard_of_range(
        rank->rank, whole, 0, residual.cols, residual.data, residual.dtype);
    return CY_OK;
}

cy_status cy_residual_state_list(cy_residual_state *list, cy_engine *engine, const cy_rank *rank)
{
    if (engine->compressed == NULL) return CY_OK;
    const cy_view residual = cy_reducer_residual(engine->compressed);
    if (cy_view_is_none(residual)) return CY_OK;
    void *block = NULL;
    const int world = rank->mesh.world;
    CY_TRY(cy_memory_alloc(&block, (size_t)world, sizeof(vector_of)));
    vector_of mine = {.count = residual.cols, .order = hash_order(&engine->storage)};
    cy_status status = cy_group_all_gather(engine->options.groups.world, NULL,
        cy_view_of(block, CY_I64, world, 2), cy_view_of(&mine, CY_I64, 1, 2));
    if (status == CY_OK) status = fill_lists(list, block, rank, residual);
    cy_memory_free(block);
    return status;
}

void cy_residual_state_close(cy_residual_state *list)
{
    cy_memory_free(list->names);
    cy_memory_free(list->tensors);
    *list = (cy_residual_state){0};
}

static bool has_any(const cy_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        const cy_global_tensor *tensor = &checkpoint->tensors[i].tensor;
        if (tensor->kind == CY_TENSOR_OTHER &&
            strncmp(tensor->name, RESIDUAL_PREFIX, sizeof(RESIDUAL_PREFIX) - 1) == 0) {
            return true;
        }
    }
    return false;
}

// The result is the same on every rank, because each looks for the residuals of all ranks.
static bool has_all(const cy_checkpoint *checkpoint, const cy_residual_state *list)
{
    for (int i = 0; i < list->count; i++) {
        const cy_stored_tensor *stored =
            cy_checkpoint_find(checkpoint, CY_TENSOR_OTHER, list->names[i]);
        if (stored == NULL || stored->tensor.cols != list->tensors[i].cols) return false;
    }
    return list->count > 0;
}

bool cy_residual_state_is_complete(
    const cy_residual_state *list, const cy_checkpoint *checkpoint, bool *residual_dropped)
{
    const bool there = has_all(checkpoint, list);
    *residual_dropped = !there && has_any(checkpoint);
    return there;
}

// ---- loading and saving

// The tensors of a load. Start from a zeroed struct.
typedef struct loaded_parts {
    cy_state_dict parameters;
    cy_residual_state residual;
    bool residual_dropped;
} loaded_parts;

// Lists the tensors that this rank loads. Collective.
static cy_status list_wanted(loaded_parts *parts, cy_engine *engine, const cy_rank *rank,
    const cy_checkpoint *checkpoint, bool weights_only)
{
    cy_state_dict *parameters = &parts->parameters;
    cy_residual_state *residual = &parts->residual;
    if (engine->options.train) {
        CY_TRY(cy_state_dict_of_training(parameters, &engine->storage, !weights_only, false));
    } else {
        CY_TRY(cy_state_dict_of_weights(parameters, &engine->storage));
    }
    CY_TRY(cy_checkpoint_check_tensors(checkpoint, parameters->tensors, parameters->tensor_count));
    if (weights_only) return CY_OK;
    CY_TRY(cy_residual_state_list(residual, engine, rank));
    if (!cy_residual_state_is_complete(residual, checkpoint, &parts->residual_dropped))
        return CY_OK;
    return cy_state_dict_add(parameters, residual->tensors, residual->count, &residual->piece);
}

static cy_status load_tensors(cy_engine *engine, const cy_rank *rank, cy_checkpoint *checkpoint,
    bool weights_only, bool *residual_dropped, cy_checkpoint_traffic *traffic)
{
    loaded_parts parts = {0};
    if (checkpoint->has_model) {
        CY_TRY(cy_checkpoint_check_model(checkpoint, &engine->options.config->shape));
    }
    checkpoint->pool = engine->pool;
    checkpoint->read_once = engine->options.train;
    cy_status status = list_wanted(&parts, engine, rank, checkpoint, weights_only);
    if (status == CY_OK) {
        status = cy_checkpoint_load_checked(checkpoint, parts.parameters.tensors,
            parts.parameters.pieces, (int64_t)parts.parameters.piece_count,
            weights_only ? CY_TENSOR_ADAM_M : CY_TENSOR_KINDS, engine->options.groups.world,
            &engine->queue, traffic);
        status = cy_state_await_reason(engine, status);
    }
    *residual_dropped = parts.residual_dropped;
    cy_state_dict_close(&parts.parameters);
    cy_residual_state_close(&parts.residual);
    if (status == CY_OK && engine->options.train) status = cy_engine_sync_weights(engine);
    return status;
}

static bool has_moments(const cy_checkpoint *checkpoint)
{
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        if (checkpoint->tensors[i].tensor.kind == CY_TENSOR_ADAM_M) return true;
    }
    return false;
}

cy_status cy_state_load_weights(cy_engine *engine, const cy_rank *rank, cy_checkpoint *checkpoint,
    cy_checkpoint_traffic *traffic)
{
    bool residual_dropped = false;
    return load_tensors(engine, rank, checkpoint, true, &residual_dropped, traffic);
}

// Counting on from the position must not overflow.
static cy_status check_position(const cy_checkpoint *checkpoint)
{
    const int64_t most = (int64_t)1 << 60;
    if (checkpoint->step <= (int64_t)1 << 48 && checkpoint->tokens <= most) return CY_OK;
    return CY_FAIL(CY_ERR_CORRUPT, "%s/manifest.json: step %lld, %lld tokens: more than a run has",
        checkpoint->path, (long long)checkpoint->step, (long long)checkpoint->tokens);
}

cy_status cy_state_load(cy_engine *engine, const cy_rank *rank, const char *path, bool weights_only,
    cy_run_position *position, cy_checkpoint_traffic *traffic)
{
    cy_checkpoint checkpoint;
    bool residual_dropped = false;
    CY_TRY(cy_checkpoint_open(&checkpoint, path));
    // An imported model has only weights, too.
    const bool weights =
        weights_only || checkpoint.is_hf || (checkpoint.step == 0 && !has_moments(&checkpoint));
    cy_status status = check_position(&checkpoint);
    if (status == CY_OK) {
        status = load_tensors(engine, rank, &checkpoint, weights, &residual_dropped, traffic);
    }
    if (status == CY_OK && !weights) {
        status = read_state(engine, &checkpoint);
        *position = (cy_run_position){.step = checkpoint.step,
            .tokens = checkpoint.tokens,
            .residual_dropped = residual_dropped};
    }
    cy_checkpoint_close(&checkpoint);
    return status;
}

// The parts of a save. Start from a zeroed struct.
typedef struct saved_parts {
    cy_text config_json, state_json, identity_json;
    cy_state_dict parameters;
    cy_residual_state residual;
    cy_save_report report;
} saved_parts;

// Lists the tensors that this rank saves.
static cy_status list_saved(saved_parts *parts, cy_engine *engine, const cy_rank *rank)
{
    cy_state_dict *parameters = &parts->parameters;
    const cy_residual_state *residual = &parts->residual;
    CY_TRY(cy_state_dict_of_training(parameters, &engine->storage, true, true));
    CY_TRY(cy_residual_state_list(&parts->residual, engine, rank));
    if (residual->count == 0) return CY_OK;
    return cy_state_dict_add(parameters, residual->tensors, residual->count, &residual->piece);
}

static void close_parts(saved_parts *parts)
{
    cy_state_dict_close(&parts->parameters);
    cy_residual_state_close(&parts->residual);
    cy_text_free(&parts->config_json);
    cy_text_free(&parts->state_json);
    cy_text_free(&parts->identity_json);
}

static cy_status save_parts(cy_engine *engine, const cy_rank *rank, cy_saver *saver,
    cy_run_position position, const cy_state_data *data, saved_parts *parts)
{
    const cy_config *config = engine->options.config;
    const cy_state_dict *parameters = &parts->parameters;
    CY_TRY(cy_config_to_json(&parts->config_json, config));
    CY_TRY(write_state(&parts->state_json, engine));
    if (data != NULL && data->identity != NULL) {
        CY_TRY(cy_identity_to_json(&parts->identity_json, data->identity));
    }
    CY_TRY(list_saved(parts, engine, rank));
    const cy_tokenizer *tokenizer = data != NULL ? data->tokenizer : NULL;
    cy_extra_file file = {.name = "tokenizer.json"};
    if (tokenizer != NULL) file.bytes = cy_tokenizer_json(tokenizer, &file.byte_count);
    const cy_save save = {
        .step = position.step,
        .tokens = position.tokens,
        .config_json = parts->config_json.bytes,
        .state_json = parts->state_json.bytes,
        .identity_json = parts->identity_json.bytes,
        .model = &config->shape,
        .files = &file,
        .file_count = tokenizer != NULL ? 1 : 0,
        .tensors = parameters->tensors,
        .tensor_count = parameters->tensor_count,
        .pieces = parameters->pieces,
        .piece_count = (int64_t)parameters->piece_count,
    };
    const cy_status status = cy_saver_save(saver, &save, &parts->report);
    if (status != CY_ERR_MEMORY) return status;
    // A step allocates nothing, so the run goes on without this save, as on a full disk.
    return CY_FAIL(CY_ERR_IO, "%s", cy_error_text());
}

// ---- values that are not finite

#define SCAN_ELEMENTS   ((int64_t)1 << 18) // of a task
#define BUFFER_ELEMENTS ((int64_t)1 << 20)

typedef struct scan {
    const char *data; // on the host, [count]
    int64_t count;
    cy_dtype dtype, as;
    _Atomic int64_t found;
} scan;

static void scan_task(void *context, int64_t task, int worker)
{
    (void)worker;
    scan *s = context;
    const int64_t first = task * SCAN_ELEMENTS, left = s->count - first;
    s->found += cy_convert_not_finite(s->as, s->data + first * (int64_t)cy_dtype_size(s->dtype),
        s->dtype, left < SCAN_ELEMENTS ? left : SCAN_ELEMENTS);
}

// Weights are checked in the dtype of compute, in which generation reads them.
static cy_dtype dtype_in_use(
    const cy_engine *engine, int64_t tensor, cy_tensor_kind kind, cy_dtype stored)
{
    return kind == CY_TENSOR_WEIGHT ? engine->storage.manifest.params[tensor].dtype : stored;
}

// `buffer` has room for BUFFER_ELEMENTS of any type.
static cy_status count_in(int64_t *found, cy_engine *engine, const cy_tensor_shard *piece,
    cy_tensor_kind kind, char *buffer)
{
    scan s = {.dtype = piece->dtype, .as = dtype_in_use(engine, piece->tensor, kind, piece->dtype)};
    // What the host has access to is scanned where it lies, all at once.
    const int64_t most = cy_queue_host_access(&engine->queue) ? piece->count : BUFFER_ELEMENTS;
    for (int64_t done = 0; done < piece->count; done += s.count) {
        const int64_t left = piece->count - done;
        s.count = left < most ? left : most;
        CY_TRY(cy_tensor_shard_read(
            &s.data, buffer, &engine->queue, piece, piece->first + done, s.count));
        cy_thread_pool_run(
            engine->pool, scan_task, &s, (s.count + SCAN_ELEMENTS - 1) / SCAN_ELEMENTS);
    }
    *found = s.found;
    return CY_OK;
}

static cy_status check_parts(
    cy_engine *engine, const cy_state_dict *parameters, int64_t step, char *buffer)
{
    int64_t place = parameters->tensor_count, found = 0;
    for (size_t i = 0; i < parameters->piece_count; i++) {
        const cy_tensor_shard *piece = &parameters->pieces[i];
        if (piece->tensor > place) continue;
        int64_t more = 0;
        CY_TRY(count_in(&more, engine, piece, parameters->tensors[piece->tensor].kind, buffer));
        if (more == 0) continue;
        found = piece->tensor == place ? found + more : more;
        place = piece->tensor;
    }
    const int64_t mine = place;
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(&place, CY_I64, 1, 1), CY_MIN));
    if (place == parameters->tensor_count) return CY_OK;
    if (mine != place) found = 0;
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, NULL, cy_view_of(&found, CY_I64, 1, 1), CY_SUM));
    const cy_global_tensor *tensor = &parameters->tensors[place];
    const cy_status status =
        CY_FAIL(CY_ERR_NOT_FINITE, "step %lld: %s %s: %lld of its %lld values are not finite in %s",
            (long long)step, cy_tensor_kind_name(tensor->kind), tensor->name, (long long)found,
            (long long)(tensor->rows * tensor->cols),
            cy_dtype_name(dtype_in_use(engine, place, tensor->kind, tensor->dtype)));
    cy_error_set_hint("this state is not saved; a lower training.learning_rate, or a "
                      "training.grad_clip, keeps it finite");
    return status;
}

cy_status cy_state_check_finite(cy_engine *engine, const cy_rank *rank, int64_t step)
{
    saved_parts parts = {0};
    char *buffer = NULL;
    cy_status status = list_saved(&parts, engine, rank);
    if (status == CY_OK && !cy_queue_host_access(&engine->queue)) {
        status = CY_ALLOC(&buffer, BUFFER_ELEMENTS * sizeof(double));
    }
    if (status == CY_OK) status = check_parts(engine, &parts.parameters, step, buffer);
    cy_memory_free(buffer);
    close_parts(&parts);
    return status;
}

cy_status cy_state_save(cy_engine *engine, const cy_rank *rank, cy_saver *saver,
    cy_run_position position, const cy_state_data *data, cy_save_report *report)
{
    saved_parts parts = {0};
    CY_TRY(cy_replicas_check(engine, rank, position.step));
    CY_TRY(cy_state_check_finite(engine, rank, position.step));
    const cy_status status = save_parts(engine, rank, saver, position, data, &parts);
    close_parts(&parts);
    if (status == CY_OK && report != NULL) *report = parts.report;
    return status;
}
