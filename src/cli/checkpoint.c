// cyclotron checkpoint: shows, verifies and compares checkpoints, imports and exports Hugging Face
// folders.

#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hf/hf.h"
#include "checkpoint/identity.h"
#include "checkpoint/manifest.h"
#include "cli/commands.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/report.h"
#include "model/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((double)(1 << 30))

static json_t *text_to_json(const char *text)
{
    return cy_json_string(text, strlen(text));
}

typedef struct totals {
    int64_t elements[CY_TENSOR_KINDS];
    int64_t bytes[CY_TENSOR_KINDS];
    int count[CY_TENSOR_KINDS];
    bool dtypes[CY_TENSOR_KINDS][CY_FX64 + 1];
    int64_t file_bytes;
} totals;

static totals count_up(const cy_checkpoint *checkpoint)
{
    totals sums = {0};
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        const cy_global_tensor *tensor = &checkpoint->tensors[i].tensor;
        sums.elements[tensor->kind] += tensor->rows * tensor->cols;
        sums.bytes[tensor->kind] +=
            tensor->rows * tensor->cols * (int64_t)cy_dtype_size(tensor->dtype);
        sums.count[tensor->kind]++;
        sums.dtypes[tensor->kind][tensor->dtype] = true;
    }
    for (int i = 0; i < checkpoint->file_count; i++) {
        sums.file_bytes += (int64_t)checkpoint->files[i].bytes;
    }
    return sums;
}

// ---- inspect

typedef struct inspect_values {
    bool json;
    bool tensors;
} inspect_values;

static const cy_option inspect_options[] = {
    {"tensors", CY_OPTION_FLAG, offsetof(inspect_values, tensors), .doc = "list every tensor"},
    {"json", CY_OPTION_FLAG, offsetof(inspect_values, json),
        .doc = "print JSON only, with every tensor and the configuration"},
};

static const cy_usage inspect_usage = {
    .name = "checkpoint inspect",
    .positional = "DIR",
    .least = 1,
    .most = 1,
    .doc = "Shows what a checkpoint, the newest of a folder, or a Hugging Face folder holds.",
    .options = inspect_options,
    .option_count = CY_COUNT(inspect_options),
};

static json_t *files_to_json(const cy_checkpoint *checkpoint)
{
    json_t *files = json_array();
    for (int i = 0; i < checkpoint->file_count; i++) {
        const cy_checkpoint_file *file = &checkpoint->files[i];
        cy_json_append(&files,
            json_pack(
                "{s:o, s:I}", "name", text_to_json(file->name), "bytes", (json_int_t)file->bytes));
    }
    return files;
}

static json_t *tensors_to_json(const cy_checkpoint *checkpoint)
{
    json_t *tensors = json_array();
    for (int i = 0; i < checkpoint->tensor_count; i++) {
        const cy_global_tensor *tensor = &checkpoint->tensors[i].tensor;
        json_t *shape = json_array();
        if (tensor->dimensions == 2) cy_json_append(&shape, json_integer(tensor->rows));
        cy_json_append(&shape, json_integer(tensor->cols));
        cy_json_append(&tensors,
            json_pack("{s:o, s:s, s:s, s:o}", "name", text_to_json(tensor->name), "kind",
                cy_tensor_kind_name(tensor->kind), "dtype", cy_dtype_name(tensor->dtype), "shape",
                shape));
    }
    return tensors;
}

// Sets a field to what a JSON text holds, if there is one.
static void set_text(json_t **object, const char *key, const char *json)
{
    if (json != NULL) cy_json_set(object, key, json_loads(json, 0, NULL));
}

static cy_status print_json(const cy_checkpoint *checkpoint)
{
    const totals sums = count_up(checkpoint);
    cy_text model = {0};
    if (checkpoint->has_model) {
        const cy_status status = cy_model_shape_to_json(&model, &checkpoint->model);
        if (status != CY_OK) {
            cy_text_free(&model);
            return status;
        }
    }
    json_t *object =
        json_pack("{s:o, s:s, s:I, s:I, s:I, s:I}", "path", text_to_json(checkpoint->path),
            "format", checkpoint->is_hf ? "huggingface" : "cyclotron", "step",
            (json_int_t)checkpoint->step, "tokens", (json_int_t)checkpoint->tokens, "parameters",
            (json_int_t)sums.elements[CY_TENSOR_WEIGHT], "bytes", (json_int_t)sums.file_bytes);
    if (!checkpoint->is_hf) {
        cy_json_set(&object, "format_version", json_integer(CY_CHECKPOINT_FORMAT));
    }
    set_text(&object, "model", model.bytes);
    cy_text_free(&model);
    set_text(&object, "config", checkpoint->config_json);
    set_text(&object, "state", checkpoint->state_json);
    set_text(&object, "identity", checkpoint->identity_json);
    cy_json_set(&object, "files", files_to_json(checkpoint));
    cy_json_set(&object, "tensors", tensors_to_json(checkpoint));
    return cy_report_json(object, JSON_COMPACT);
}

static void print_model(const cy_model_shape *model)
{
    printf("model       %s: %d layers, hidden %" PRId64 ", ffn %" PRId64 ", %d heads of %" PRId64
           ", %d kv heads, vocabulary %" PRId64 "%s\n",
        model->architecture, model->layers, model->hidden, model->ffn, model->heads,
        model->head_dim, model->kv_heads, model->vocab, model->tied ? ", tied" : "");
}

// Prints the identity of the run's tokenizer and data.
static cy_status print_identity(const cy_checkpoint *checkpoint)
{
    if (checkpoint->is_hf || checkpoint->step == 0) return CY_OK;
    if (checkpoint->identity_json == NULL) {
        printf("data        no fingerprints: an earlier program wrote it\n");
        return CY_OK;
    }
    cy_identity identity;
    CY_TRY(cy_identity_read(&identity, checkpoint));
    if (identity.tokenizer != 0) printf("tokenizer   %016" PRIx64 "\n", identity.tokenizer);
    for (int i = 0; i < identity.source_count; i++) {
        const cy_source_identity *source = &identity.sources[i];
        printf("data        %016" PRIx64 ", %" PRId64 " tokens of %s\n",
            source->whole.sample ^ source->whole.checks, source->whole.tokens, source->path);
    }
    printf("order       seed %" PRId64 ", %" PRId64 " samples of %" PRId64
           " tokens a step, validation fraction %s\n",
        identity.seed, identity.batch_samples, identity.seq_length,
        cy_json_number_shortest(identity.validation_fraction).bytes);
    cy_identity_free(&identity);
    return CY_OK;
}

static cy_status print_human(const cy_checkpoint *checkpoint, bool tensors)
{
    const totals sums = count_up(checkpoint);
    printf("checkpoint  %s\n", checkpoint->path);
    if (checkpoint->is_hf) {
        printf("format      Hugging Face folder: weights only, no checksums\n");
    } else {
        printf("format      version %d, a checksum for each MiB\n", CY_CHECKPOINT_FORMAT);
        printf(
            "step        %" PRId64 ", %" PRId64 " tokens\n", checkpoint->step, checkpoint->tokens);
    }
    CY_TRY(print_identity(checkpoint));
    if (checkpoint->has_model) print_model(&checkpoint->model);
    printf("parameters  %" PRId64 "\n", sums.elements[CY_TENSOR_WEIGHT]);
    for (int kind = 0; kind < CY_TENSOR_KINDS; kind++) {
        if (sums.count[kind] == 0) continue;
        printf("%-10s  %d tensors, %.3f GB,", cy_tensor_kind_name((cy_tensor_kind)kind),
            sums.count[kind], (double)sums.bytes[kind] / GIB);
        for (int dtype = 0; dtype <= CY_FX64; dtype++) {
            if (sums.dtypes[kind][dtype]) printf(" %s", cy_dtype_name((cy_dtype)dtype));
        }
        printf("\n");
    }
    printf("files       %d, %.3f GB\n", checkpoint->file_count, (double)sums.file_bytes / GIB);
    for (int i = 0; tensors && i < checkpoint->tensor_count; i++) {
        const cy_stored_tensor *stored = &checkpoint->tensors[i];
        char label[256], shape[64];
        cy_tensor_full_name(label, sizeof(label), &stored->tensor);
        if (stored->tensor.dimensions == 2) {
            snprintf(shape, sizeof(shape), "%" PRId64 " x %" PRId64, stored->tensor.rows,
                stored->tensor.cols);
        } else {
            snprintf(shape, sizeof(shape), "%" PRId64, stored->tensor.cols);
        }
        printf("  %-60s %16s %s, %" PRId64 " pieces\n", label, shape,
            cy_dtype_name(stored->tensor.dtype), stored->piece_count);
    }
    return CY_OK;
}

static int inspect(int argc, char **argv)
{
    inspect_values v;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &v, &inspect_usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND) {
        cy_checkpoint checkpoint = {0};
        cy_status status = cy_checkpoint_open_located(&checkpoint, arguments.positional[0]);
        if (status == CY_OK && v.json) status = print_json(&checkpoint);
        if (status == CY_OK && !v.json) status = print_human(&checkpoint, v.tensors);
        exit_status = cy_report_output(cy_report_status(status));
        cy_checkpoint_close(&checkpoint);
    }
    cy_arguments_free(&arguments);
    return exit_status;
}

// ---- verify

typedef struct verify_values {
    bool json;
} verify_values;

static const cy_option verify_options[] = {
    {"json", CY_OPTION_FLAG, offsetof(verify_values, json),
        .doc = "print {\"path\",\"ok\",\"bytes\",\"seconds\"} only"},
};

static const cy_usage verify_usage = {
    .name = "checkpoint verify",
    .positional = "DIR",
    .least = 1,
    .most = 1,
    .doc = "Checks that every file of a checkpoint is there and every byte is what was written.",
    .more = "Of a Hugging Face folder, which has no checksums, the headers and sizes are checked.",
    .options = verify_options,
    .option_count = CY_COUNT(verify_options),
};

static cy_status verify_located(const char *given, bool json)
{
    cy_checkpoint checkpoint = {0};
    cy_checkpoint_traffic traffic = {0};
    const double start = cy_clock_s();
    CY_TRY(cy_checkpoint_open_located(&checkpoint, given));
    cy_status status = cy_thread_pool_open(&checkpoint.pool, cy_machine_found().cores, -1, false);
    if (status == CY_OK) {
        status = cy_checkpoint_verify(&checkpoint, CY_TENSOR_KINDS, cy_group_self(), &traffic);
        cy_thread_pool_close(checkpoint.pool);
        checkpoint.pool = NULL;
    }
    const double seconds = cy_clock_s() - start;
    if (status == CY_OK && json) {
        status = cy_report_json(
            json_pack("{s:o, s:b, s:I, s:o}", "path", text_to_json(checkpoint.path), "ok", true,
                "bytes", (json_int_t)traffic.verify_bytes, "seconds", cy_json_real(seconds)),
            JSON_COMPACT | JSON_REAL_PRECISION(6));
    } else if (status == CY_OK && checkpoint.is_hf) {
        printf("%s: %d tensors in %d files, headers and sizes agree; there are no checksums\n",
            checkpoint.path, checkpoint.tensor_count, checkpoint.file_count);
    } else if (status == CY_OK) {
        printf("%s: whole: %d tensors in %d files, %.3f GB verified in %.2f s\n", checkpoint.path,
            checkpoint.tensor_count, checkpoint.file_count, (double)traffic.verify_bytes / GIB,
            seconds);
    }
    cy_checkpoint_close(&checkpoint);
    return status;
}

static int verify(int argc, char **argv)
{
    verify_values v;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &v, &verify_usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND) {
        const cy_status status = verify_located(arguments.positional[0], v.json);
        exit_status = cy_report_status(status);
        if (status != CY_OK && v.json) {
            (void)cy_report_status(cy_report_json(json_pack("{s:b}", "ok", false), JSON_COMPACT));
        }
        exit_status = cy_report_output(exit_status);
    }
    cy_arguments_free(&arguments);
    return exit_status;
}

// ---- import and export

typedef struct move_values {
    const char *out;
    const char *dtype;
    const char *shard_size;
    bool link;
} move_values;

static const cy_option import_options[] = {
    {"out", CY_OPTION_TEXT, offsetof(move_values, out), .word = "DIR", .required = true,
        .doc = "the new checkpoint"},
    {"link", CY_OPTION_FLAG, offsetof(move_values, link),
        .doc = "give the folder's files a second name instead of copying them"},
};

static const cy_usage import_usage = {
    .name = "checkpoint import",
    .positional = "HF_DIR",
    .least = 1,
    .most = 1,
    .doc = "Turns a Hugging Face folder into a checkpoint.",
    .more = "Training and generation also take such a folder as it is. With --link the checkpoint "
            "takes\n"
            "no room and is made as fast as its files are read; who writes into the folder's files "
            "then\n"
            "changes the checkpoint, which is found when it is next loaded.",
    .options = import_options,
    .option_count = CY_COUNT(import_options),
};

static int import_folder(int argc, char **argv)
{
    move_values v;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &v, &import_usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND) {
        const cy_status status = cy_checkpoint_import(arguments.positional[0], v.out, v.link);
        if (status == CY_OK) printf("%s: made from %s\n", v.out, arguments.positional[0]);
        exit_status = cy_report_output(cy_report_status(status));
    }
    cy_arguments_free(&arguments);
    return exit_status;
}

static const cy_option export_options[] = {
    {"out", CY_OPTION_TEXT, offsetof(move_values, out), .word = "HF_DIR", .required = true,
        .doc = "the new folder"},
    {"dtype", CY_OPTION_CHOICE, offsetof(move_values, dtype), .initial = "stored",
        .values = "stored|bf16|fp16|fp32|fp64", .doc = "of the weights in the files"},
    {"shard-size", CY_OPTION_TEXT, offsetof(move_values, shard_size), .initial = "5GB",
        .word = "SIZE", .doc = "above it the weights become several files: 500MB, 5GB, or bytes"},
};

static const cy_usage export_usage = {
    .name = "checkpoint export",
    .positional = "DIR",
    .least = 1,
    .most = 1,
    .doc = "Turns a checkpoint into a folder that transformers loads.",
    .options = export_options,
    .option_count = CY_COUNT(export_options),
};

// The bytes of a size such as "5GB", "500MB" or "12345"; 0 where it is none.
static uint64_t read_size(const char *text)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } units[] = {{"", 1}, {"B", 1}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000}};
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') return 0;
    const uint64_t number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(end, units[i].unit) != 0) continue;
        return number <= UINT64_MAX / units[i].bytes ? number * units[i].bytes : 0;
    }
    return 0;
}

typedef struct exporting {
    const char *out;
    const cy_export_options *options;
} exporting;

static cy_status export_from(void *context, const char *path)
{
    const exporting *run = context;
    CY_TRY(cy_checkpoint_export(path, run->out, run->options));
    printf("%s: made from %s\n", run->out, path);
    return CY_OK;
}

static int export_folder(const move_values *v, const char *given)
{
    cy_export_options options = {.keep_dtype = strcmp(v->dtype, "stored") == 0};
    options.shard_bytes = read_size(v->shard_size);
    if (options.shard_bytes == 0) {
        return cy_usage_error(
            &export_usage, "--shard-size=%s is not a size such as 500MB or 5GB", v->shard_size);
    }
    cy_dtype_from_name(&options.dtype, v->dtype);
    exporting run = {.out = v->out, .options = &options};
    return cy_report_output(cy_report_status(cy_checkpoint_read_newest(given, export_from, &run)));
}

static int export_command(int argc, char **argv)
{
    move_values v;
    cy_arguments arguments;
    int exit_status = cy_options_parse(&arguments, &v, &export_usage, argc, argv);
    if (exit_status == CY_RUN_COMMAND) exit_status = export_folder(&v, arguments.positional[0]);
    cy_arguments_free(&arguments);
    return exit_status;
}

// ---- compare

typedef struct compare_values {
    bool json;
    bool tensors;
    double within;
} compare_values;

static const cy_option compare_options[] = {
    {"within", CY_OPTION_NUMBER, offsetof(compare_values, within), .low = 0, .high = 1e300,
        .initial = "1e300", .doc = "fail where a weight is further apart", .word = "BOUND"},
    {"tensors", CY_OPTION_FLAG, offsetof(compare_values, tensors), .doc = "list every tensor"},
    {"json", CY_OPTION_FLAG, offsetof(compare_values, json),
        .doc = "print JSON only, with every tensor"},
};

static const cy_usage compare_usage = {
    .name = "checkpoint compare",
    .positional = "DIR OTHER",
    .least = 2,
    .most = 2,
    .doc = "Tells how far the tensors of two checkpoints of one model lie apart, in the 2-norm of\n"
           "each, as a share of the first one's.",
    .more = "Whatever the meshes that wrote them; Hugging Face folders will do. In JSON, "
            "difference is\n"
            "that of the weights, and equal is true where all tensors have the same bits.",
    .options = compare_options,
    .option_count = CY_COUNT(compare_options),
};

// The differences of the tensors of one kind.
typedef struct summary {
    int count;
    int equal;
    double worst;
    const char *name; // borrowed: of the tensor that is furthest apart
} summary;

typedef struct comparison {
    const compare_values *given;
    cy_checkpoint one, other;
    summary kinds[CY_TENSOR_KINDS];
    bool left_out[CY_TENSOR_KINDS]; // `one` has them, `other` none
    json_t *list;                   // owned: an object for each tensor, for --json
    cy_text lines;                  // a line for each tensor, for --tensors
} comparison;

static cy_status add_tensor(
    comparison *all, const cy_global_tensor *tensor, const cy_tensor_difference *difference)
{
    char label[256];
    const double relative = cy_tensor_difference_relative(difference);
    summary *kind = &all->kinds[tensor->kind];
    kind->count++;
    kind->equal += difference->equal;
    // A NaN counts as the largest difference.
    if (kind->name == NULL || !(relative <= kind->worst || isnan(kind->worst))) {
        kind->worst = relative;
        kind->name = tensor->name;
    }
    if (all->given->json) {
        cy_json_append(&all->list,
            json_pack("{s:s, s:o, s:o, s:b}", "kind", cy_tensor_kind_name(tensor->kind), "name",
                cy_json_string(tensor->name, strlen(tensor->name)), "difference",
                cy_json_real(relative), "equal", difference->equal));
        return CY_OK;
    }
    if (!all->given->tensors) return CY_OK;
    cy_tensor_full_name(label, sizeof(label), tensor);
    return cy_text_add(
        &all->lines, "  %-60s %9.2e%s\n", label, relative, difference->equal ? " equal" : "");
}

static cy_status compare_tensors(comparison *all)
{
    cy_global_tensor *tensors = NULL;
    CY_TRY(CY_ALLOC(&tensors, (size_t)all->one.tensor_count));
    // A checkpoint of weights alone, such as a Hugging Face folder, has no moments to compare.
    bool has[CY_TENSOR_KINDS] = {[CY_TENSOR_WEIGHT] = true};
    for (int i = 0; i < all->other.tensor_count; i++)
        has[all->other.tensors[i].tensor.kind] = true;
    int count = 0;
    for (int i = 0; i < all->one.tensor_count; i++) {
        const cy_global_tensor *tensor = &all->one.tensors[i].tensor;
        all->left_out[tensor->kind] = !has[tensor->kind];
        if (has[tensor->kind]) tensors[count++] = *tensor;
    }
    cy_status status = cy_checkpoint_check_tensors(&all->other, tensors, count);
    for (int i = 0; status == CY_OK && i < count; i++) {
        cy_tensor_difference difference;
        status = cy_checkpoint_compare(&difference, &all->one, &all->other, &tensors[i]);
        if (status == CY_OK) status = add_tensor(all, &tensors[i], &difference);
    }
    cy_memory_free(tensors);
    return status;
}

static cy_status print_comparison_json(comparison *all)
{
    const summary *weights = &all->kinds[CY_TENSOR_WEIGHT];
    int count = 0, equal = 0;
    for (int i = 0; i < CY_TENSOR_KINDS; i++) {
        count += all->kinds[i].count;
        equal += all->kinds[i].equal;
    }
    json_t *list = all->list;
    all->list = NULL;
    return cy_report_json(json_pack("{s:o, s:b, s:o}", "difference", cy_json_real(weights->worst),
                              "equal", equal == count, "tensors", list),
        JSON_COMPACT);
}

static void print_comparison(const comparison *all)
{
    for (int i = 0; i < CY_TENSOR_KINDS; i++) {
        const summary *kind = &all->kinds[i];
        const char *name = cy_tensor_kind_name((cy_tensor_kind)i);
        if (all->left_out[i]) printf("%-10s  none in %s\n", name, all->other.path);
        if (kind->count == 0) continue;
        printf("%-10s  %d of %d tensors equal; furthest %.2e, %s\n", name, kind->equal, kind->count,
            kind->worst, kind->name);
    }
    if (all->lines.bytes != NULL) fputs(all->lines.bytes, stdout);
}

static cy_status compare_folders(comparison *all, const char *const *paths)
{
    CY_TRY(cy_checkpoint_open_located(&all->one, paths[0]));
    CY_TRY(cy_checkpoint_open_located(&all->other, paths[1]));
    CY_TRY(compare_tensors(all));
    if (all->given->json) CY_TRY(print_comparison_json(all));
    if (!all->given->json) print_comparison(all);
    const summary *weights = &all->kinds[CY_TENSOR_WEIGHT];
    if (weights->count > 0 && !(weights->worst <= all->given->within)) {
        return CY_FAIL(CY_ERR_CORRUPT, "%s of %s and of %s are %.2e apart, allowed are %.2e",
            weights->name, all->one.path, all->other.path, weights->worst, all->given->within);
    }
    return CY_OK;
}

static int compare(int argc, char **argv)
{
    compare_values given;
    cy_arguments arguments;
    int status = cy_options_parse(&arguments, &given, &compare_usage, argc, argv);
    if (status == CY_RUN_COMMAND) {
        comparison all = {.given = &given, .list = json_array()};
        status = cy_report_output(cy_report_status(compare_folders(&all, arguments.positional)));
        json_decref(all.list);
        cy_text_free(&all.lines);
        cy_checkpoint_close(&all.one);
        cy_checkpoint_close(&all.other);
    }
    cy_arguments_free(&arguments);
    return status;
}

// ---- the group

int cy_command_checkpoint(int argc, char **argv)
{
    static const cy_command commands[] = {
        {"inspect", inspect, "what a checkpoint holds"},
        {"verify", verify, "whether it is whole"},
        {"compare", compare, "how far two checkpoints lie apart"},
        {"import", import_folder, "a Hugging Face folder becomes a checkpoint"},
        {"export", export_command, "a checkpoint becomes a Hugging Face folder"},
    };
    return cy_commands_run(commands, CY_COUNT(commands), "checkpoint", argc, argv);
}
