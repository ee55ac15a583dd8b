// Runs a training: the loop over steps with evaluation, saves and metrics around each.
#include "train/trainer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "engine/engine_parts.h"
#include "observe/memory.h"
#include "observe/profile.h"
#include "optim/lr_schedule.h"
#include "train/algorithms.h"
#include "train/check_outputs.h"
#include "train/data_iterator.h"
#include "train/identity.h"
#include "train/replicas.h"
#include "train/run_folder.h"
#include "train/state.h"
#include "train/traffic.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define PADDING_MAX 1024 // rows of a vocabulary that round it up

// How long a save waits for lines of steps that are on their way to metrics.jsonl, so that a
// checkpoint seldom outlives the lines before it. The end of a run waits checkpoint.timeout_s.
#define LINES_BEFORE_SAVE_S 1

// What all ranks of a run share.
typedef struct trainer_run {
    const cy_config *config;
    const cy_config_machine *machine;
    const cy_trainer_callbacks *events;
    cy_run_data data;
    cy_identity identity;      // owned: of the data
    char *start_path;          // owned: the checkpoint to start from, or NULL
    bool weights_only;         // take nothing but weights from there
    cy_start_point start;      // what is there
    cy_train_summary *summary; // written by rank zero
} trainer_run;

// One rank of it.
typedef struct rank_run {
    const trainer_run *run;
    const cy_rank *rank;
    cy_engine engine;
    cy_data_iterator iterator;
    cy_saver *saver;
    cy_log log;           // of the saver
    cy_run_folder folder; // rank zero's, where asked for
    cy_run_position position;
    cy_lr_schedule rate;
    int64_t last_step;
    cy_rank_traffic sent;     // of this rank in the last step
    cy_loader_counters asked; // of the microbatches of the step that is read or trained
    double read_s;            // that reading them took
    cy_status failure;        // of reading data, on this rank
    char failure_text[1024];
    bool read_failed;   // on some rank
    char unsaved[1200]; // why the last save failed, the same on all ranks; empty: it did not
    double peak_flop_s; // of the cores of all ranks together; 0: not measured
    int stopped;        // what should_stop of some process returned
    bool save_wanted;   // should_save of some process did
} rank_run;

static bool is_zero(const rank_run *trainer)
{
    return trainer->rank->rank == 0;
}

static void note(const rank_run *trainer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void note(const rank_run *trainer, const char *format, ...)
{
    if (!is_zero(trainer)) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    trainer->run->events->note(trainer->run->events->context, line);
}

// What a saver says that is neither result nor error.
static void write_log(void *context, cy_log_level level, const char *line)
{
    note(context, "%s%s", level == CY_LOG_WARNING ? "warning: " : "", line);
}

// ---- small agreements

// The largest of all ranks' values.
static cy_status agree_max(rank_run *trainer, double *value)
{
    return cy_group_all_reduce(trainer->engine.options.groups.world, &trainer->engine.queue,
        cy_view_of(value, CY_F64, 1, 1), CY_MAX);
}

// Whether this rank's thread asks what its process was told by signals: the first rank of each.
static bool asks(const rank_run *trainer)
{
    const trainer_run *run = trainer->run;
    return trainer->rank->rank % cy_config_ranks_of_process(run->config, run->machine) == 0;
}

static cy_loader_counters counters_between(cy_loader_counters before, cy_loader_counters after)
{
    return (cy_loader_counters){
        .batches = after.batches - before.batches,
        .ready = after.ready - before.ready,
        .wait_ns = after.wait_ns - before.wait_ns,
        .fill_ns = after.fill_ns - before.fill_ns,
    };
}

// A failure to read data: the run goes on until all ranks know, and has saved what it has.
static void record_failure(rank_run *trainer, cy_status status)
{
    if (status == CY_OK || trainer->failure != CY_OK) return;
    trainer->failure = status;
    snprintf(trainer->failure_text, sizeof(trainer->failure_text), "%s", cy_error_text());
}

// Reads the microbatches of the step after this one.
static void read_ahead(rank_run *trainer)
{
    const double start = cy_clock_s();
    const cy_batch_source source = cy_data_iterator_source(&trainer->iterator);
    const cy_loader_counters before = cy_data_iterator_count(&trainer->iterator);
    record_failure(trainer, cy_engine_read(&trainer->engine, &source));
    trainer->asked = counters_between(before, cy_data_iterator_count(&trainer->iterator));
    trainer->read_s = cy_clock_s() - start;
}

// A signal may reach any process of the run, and what it asks for happens in all of them. A rank
// that cannot read its data ends the run, and no rank may begin a step that it is not in.
// `listens`: signals are looked at; the others come later.
static cy_status agree(rank_run *trainer, bool listens)
{
    const cy_trainer_callbacks *events = trainer->run->events;
    double wanted[3] = {0, 0, trainer->failure != CY_OK}; // stop, save, data failed
    if (listens && asks(trainer)) {
        wanted[0] = events->should_stop(events->context);
        wanted[1] = events->should_save(events->context);
    }
    CY_TRY(cy_group_all_reduce(trainer->engine.options.groups.world, &trainer->engine.queue,
        cy_view_of(wanted, CY_F64, 1, 3), CY_MAX));
    trainer->stopped = (int)wanted[0];
    trainer->save_wanted = wanted[1] > 0;
    trainer->read_failed = wanted[2] > 0;
    if (trainer->save_wanted && asks(trainer)) events->saving(events->context);
    return CY_OK;
}

// ---- metrics

// The traffic of the step: bytes and messages of all ranks, seconds of the slowest. A dimension
// that nothing was sent in is not told.
static cy_status add_traffic(rank_run *trainer, cy_step_metrics *metrics)
{
    cy_group *world = trainer->engine.options.groups.world;
    cy_queue *queue = &trainer->engine.queue;
    double sums[CY_TRAFFIC_DIMENSIONS][3], most[CY_TRAFFIC_DIMENSIONS][2];
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        const cy_traffic *sent = &trainer->sent.of[i];
        sums[i][0] = sent->bytes;
        sums[i][1] = (double)sent->messages;
        sums[i][2] = sent->bytes_between_nodes;
        most[i][0] = sent->seconds;
        most[i][1] = sent->exposed_s;
    }
    CY_TRY(cy_group_all_reduce(
        world, queue, cy_view_of(sums, CY_F64, CY_TRAFFIC_DIMENSIONS, 3), CY_SUM));
    CY_TRY(cy_group_all_reduce(
        world, queue, cy_view_of(most, CY_F64, CY_TRAFFIC_DIMENSIONS, 2), CY_MAX));
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        if (sums[i][1] == 0) continue;
        metrics->comm[metrics->comm_count++] = (cy_comm_metrics){
            .dimension = cy_traffic_dimension(i),
            .bytes = (int64_t)sums[i][0],
            .messages = (int64_t)sums[i][1],
            .seconds = most[i][0],
            .exposed_seconds = most[i][1],
            .bytes_between_nodes = (int64_t)sums[i][2],
        };
    }
    return CY_OK;
}

// What top-k compression sent of the gradients of all ranks.
static cy_status add_topk(rank_run *trainer, cy_step_metrics *metrics)
{
    cy_engine *engine = &trainer->engine;
    if (engine->compressed == NULL) return CY_OK;
    const cy_topk_sent sent = cy_reducer_topk_sent(engine->compressed);
    if (sent.ratio == 0) return CY_OK; // on all ranks alike
    int64_t counts[] = {sent.sent, sent.elements};
    CY_TRY(cy_group_all_reduce(
        engine->options.groups.world, &engine->queue, cy_view_of(counts, CY_I64, 1, 2), CY_SUM));
    metrics->topk_ratio = sent.ratio;
    metrics->topk_sent = counts[0];
    metrics->topk_elements = counts[1];
    return CY_OK;
}

// How long the slowest rank waited for its microbatches, and how many of all ranks' it found
// ready.
static cy_status add_waiting(rank_run *trainer, cy_step_metrics *metrics)
{
    const cy_loader_counters *asked = &trainer->asked;
    double counts[] = {(double)asked->ready, (double)asked->batches};
    metrics->data_s = (double)asked->wait_ns * 1e-9;
    CY_TRY(agree_max(trainer, &metrics->data_s));
    CY_TRY(cy_group_all_reduce(trainer->engine.options.groups.world, &trainer->engine.queue,
        cy_view_of(counts, CY_F64, 1, 2), CY_SUM));
    metrics->data_ready = counts[0] / counts[1];
    return CY_OK;
}

// After the first step, which should not wait for it.
static cy_status measure_peak(rank_run *trainer)
{
    if (trainer->peak_flop_s > 0 || !trainer->run->config->logging.measure_peak) return CY_OK;
    cy_engine *engine = &trainer->engine;
    CY_TRY(cy_engine_peak(engine, &trainer->peak_flop_s));
    return cy_group_all_reduce(engine->options.groups.world, &engine->queue,
        cy_view_of(&trainer->peak_flop_s, CY_F64, 1, 1), CY_SUM);
}

static cy_status measure(rank_run *trainer, const cy_step_result *result, double learning_rate,
    double seconds, cy_step_metrics *metrics)
{
    const cy_config *config = trainer->run->config;
    const double batch_tokens = (double)cy_config_batch_tokens(config);
    cy_rss resident;
    CY_TRY(cy_rss_read(&resident));
    double memory = (double)resident.peak_bytes;
    CY_TRY(agree_max(trainer, &memory));
    *metrics = (cy_step_metrics){
        .step = trainer->position.step,
        .tokens = trainer->position.tokens,
        .max_tokens = config->training.max_tokens,
        .batch_tokens = (int64_t)batch_tokens,
        .loss = result->loss,
        .grad_norm = result->grad_norm,
        .learning_rate = learning_rate,
        .step_s = seconds,
        .tok_s = batch_tokens / seconds,
        .tok_s_rank = batch_tokens / seconds / trainer->rank->mesh.world,
        .memory_bytes = memory,
        .skipped = result->skipped,
        .repeats = result->repeats,
    };
    CY_TRY(measure_peak(trainer));
    const int64_t length = config->training.seq_length;
    metrics->mfu = cy_flops_utilization(
        metrics->tok_s, cy_flops_per_token(&config->shape, length), trainer->peak_flop_s);
    metrics->mfu_causal = cy_flops_utilization(
        metrics->tok_s, cy_flops_per_token_causal(&config->shape, length), trainer->peak_flop_s);
    CY_TRY(add_traffic(trainer, metrics));
    CY_TRY(add_topk(trainer, metrics));
    CY_TRY(add_waiting(trainer, metrics));
    const int64_t every = config->logging.hash_frequency;
    if (every > 0 && trainer->position.step % every == 0) {
        CY_TRY(cy_replicas_check(&trainer->engine, trainer->rank, trainer->position.step));
        metrics->has_params_hash = true;
        CY_TRY(cy_engine_params_hash(&trainer->engine, &metrics->params_hash));
    }
    return CY_OK;
}

static cy_status write_events(rank_run *trainer, const cy_step_metrics *metrics)
{
    const struct {
        const char *tag;
        double value;
    } scalars[] = {
        {"train/loss", metrics->loss},
        {"train/grad_norm", metrics->grad_norm},
        {"train/learning_rate", metrics->learning_rate},
        {"speed/tokens_per_second", metrics->tok_s},
        {"speed/mfu", metrics->mfu},
        {"memory/gb", metrics->memory_bytes * 0x1p-30},
    };
    cy_event_file *events = &trainer->folder.events;
    if (events->writer == NULL) return CY_OK;
    for (size_t i = 0; i < sizeof(scalars) / sizeof(scalars[0]); i++) {
        CY_TRY(cy_event_file_scalar(
            events, (double)time(NULL), metrics->step, scalars[i].tag, (float)scalars[i].value));
    }
    return CY_OK;
}

// What befell the files of the run folder since the last step: it ends no run.
static void note_writer(rank_run *trainer)
{
    cy_text line = {0};
    if (cy_run_folder_was_remade(&trainer->folder)) {
        note(trainer, "warning: %s was deleted or moved away: it is made again",
            trainer->run->config->logging.run_dir);
    }
    while (trainer->folder.open && cy_async_take_report(trainer->folder.writer, &line)) {
        note(trainer, "warning: %s", line.bytes);
        line.length = 0;
    }
    cy_text_free(&line);
}

static cy_status report(rank_run *trainer, const cy_step_metrics *metrics)
{
    if (!is_zero(trainer)) return CY_OK;
    const cy_train_summary *before = trainer->run->summary;
    *trainer->run->summary = (cy_train_summary){
        .step = metrics->step,
        .tokens = metrics->tokens,
        .loss = metrics->loss,
        .val_loss = before->val_loss,
    };
    if (trainer->folder.open) {
        CY_TRY(cy_metrics_file_step(&trainer->folder.metrics, metrics));
    }
    CY_TRY(write_events(trainer, metrics));
    note_writer(trainer);
    const int64_t every = trainer->run->config->logging.log_frequency;
    const cy_trainer_callbacks *events = trainer->run->events;
    const bool shown = metrics->step % every == 0 || metrics->step == trainer->last_step;
    events->step(events->context, metrics, shown);
    return CY_OK;
}

// ---- what happens between steps

static cy_status evaluate(rank_run *trainer)
{
    double loss = 0;
    int64_t tokens = 0;
    bool unread = false;
    const cy_status status = cy_evaluate_split(&trainer->engine, &trainer->run->data,
        &trainer->rank->at, CY_DATASET_VALIDATION, trainer->run->config->logging.eval_tokens, &loss,
        &tokens, &unread);
    if (unread) { // agree() tells the ranks that only heard of it
        if (status != CY_ERR_PEER) record_failure(trainer, status);
        return CY_OK;
    }
    CY_TRY(status);
    if (!is_zero(trainer)) return CY_OK;
    trainer->run->summary->val_loss = loss;
    if (trainer->folder.open) {
        CY_TRY(cy_metrics_file_validation(
            &trainer->folder.metrics, trainer->position.step, loss, tokens));
    }
    if (trainer->folder.events.writer != NULL) {
        CY_TRY(cy_event_file_scalar(&trainer->folder.events, (double)time(NULL),
            trainer->position.step, "validation/loss", (float)loss));
    }
    note(trainer, "step %lld: validation loss %.4f over %lld tokens",
        (long long)trainer->position.step, loss, (long long)tokens);
    return CY_OK;
}

#define REASON_BYTES 1024

// Notes why a save failed, in the words of the first rank whose files did; CY_ERR_PEER where no
// rank's did.
static cy_status find_why_unsaved(rank_run *trainer, cy_status status)
{
    cy_group *world = trainer->engine.options.groups.world;
    cy_queue *queue = &trainer->engine.queue;
    char reason[REASON_BYTES];
    char who[32] = "";
    int64_t first = status == CY_ERR_IO ? trainer->rank->rank : trainer->rank->mesh.world;
    snprintf(reason, sizeof(reason), "%s", cy_error_text());
    CY_TRY(cy_group_all_reduce(world, queue, cy_view_of(&first, CY_I64, 1, 1), CY_MIN));
    if (first == trainer->rank->mesh.world) return cy_state_await_reason(&trainer->engine, status);
    CY_TRY(
        cy_group_broadcast(world, queue, cy_view_of(reason, CY_U8, 1, REASON_BYTES), (int)first));
    if (first > 0) snprintf(who, sizeof(who), "rank %d: ", (int)first);
    snprintf(trainer->unsaved, sizeof(trainer->unsaved), "step %lld was not saved: %s%s",
        (long long)trainer->position.step, who, reason);
    return CY_OK;
}

// A save that a file system fails, as for lack of room, is told, and the run goes on: the earlier
// ones stand.
static cy_status save(rank_run *trainer)
{
    if (trainer->folder.open) {
        const bool all = cy_async_flush(trainer->folder.writer, LINES_BEFORE_SAVE_S);
        (void)all; // what is late is still on its way
    }
    const cy_state_data data = {
        .tokenizer = trainer->run->data.tokenizer, .identity = &trainer->run->identity};
    const cy_status status = cy_state_save(
        &trainer->engine, trainer->rank, trainer->saver, trainer->position, &data, NULL);
    trainer->unsaved[0] = '\0';
    if (status == CY_OK) {
        note(trainer, "saved step %lld in %s", (long long)trainer->position.step,
            trainer->run->config->checkpoint.save_dir);
        return CY_OK;
    }
    if (status != CY_ERR_IO && status != CY_ERR_PEER) return status;
    CY_TRY(find_why_unsaved(trainer, status));
    note(trainer, "%s", trainer->unsaved);
    return CY_OK;
}

// What a run that could not save its last step leaves. *path is owned by the caller; NULL: nothing.
static cy_status find_newest(char **path, const char *folder)
{
    int64_t *steps = NULL;
    int count = 0;
    CY_TRY(cy_folder_steps(&steps, &count, folder));
    cy_status status = CY_OK;
    if (count > 0) status = cy_folder_step_path(path, folder, "", steps[count - 1], "");
    cy_memory_free(steps);
    return status;
}

// The run is at its end and its last step is in no checkpoint.
static cy_status fail_unsaved(const rank_run *trainer)
{
    const char *folder = trainer->run->config->checkpoint.save_dir;
    if (!is_zero(trainer)) {
        return cy_state_await_reason(
            &trainer->engine, CY_FAIL(CY_ERR_PEER, "the last step was not saved"));
    }
    char *newest = NULL;
    if (find_newest(&newest, folder) != CY_OK) {
        return CY_FAIL(CY_ERR_IO, "the run has ended and %s; its other checkpoints: %s",
            trainer->unsaved, cy_error_text());
    }
    if (newest == NULL) {
        return CY_FAIL(CY_ERR_IO, "the run has ended and %s; no complete checkpoint is in %s",
            trainer->unsaved, folder);
    }
    const cy_status status = CY_FAIL(CY_ERR_IO,
        "the run has ended and %s; the newest complete checkpoint is %s", trainer->unsaved, newest);
    cy_error_set_hint("checkpoint.resume = \"auto\" goes on from there");
    cy_memory_free(newest);
    return status;
}

static bool due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

static cy_status after_step(rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    const int64_t step = trainer->position.step;
    if (due(step, config->logging.eval_frequency)) CY_TRY(evaluate(trainer));
    if (step < trainer->last_step) read_ahead(trainer);
    CY_TRY(agree(trainer, true));
    const bool ends = trainer->stopped > 0 || trainer->read_failed || step == trainer->last_step;
    if (trainer->saver == NULL) {
        if (ends) CY_TRY(cy_state_check_finite(&trainer->engine, trainer->rank, step));
        if (trainer->save_wanted) note(trainer, "nothing is saved: checkpoint.save_dir is not set");
        return CY_OK;
    }
    const bool wanted = trainer->save_wanted || due(step, config->checkpoint.save_frequency);
    return ends || wanted ? save(trainer) : CY_OK;
}

// ---- the loop

static cy_status train_step(rank_run *trainer)
{
    const cy_config_training *training = &trainer->run->config->training;
    const double start = cy_clock_s();
    const int64_t step = trainer->position.step + 1;
    const cy_adamw_spec adamw = {
        .learning_rate = cy_lr_at(&trainer->rate, step),
        .beta1 = training->adam_beta1,
        .beta2 = training->adam_beta2,
        .eps = training->adam_eps,
        .weight_decay = training->weight_decay,
        .step = step,
    };
    const cy_engine_groups *groups = &trainer->engine.options.groups;
    const cy_rank_traffic before = cy_traffic_now(groups);
    cy_step_result result;
    CY_TRY(cy_engine_train_step(&trainer->engine, NULL, &adamw, &result));
    const cy_rank_traffic after = cy_traffic_now(groups);
    trainer->sent = cy_traffic_between(&before, &after);
    trainer->position.step = step;
    trainer->position.tokens += cy_config_batch_tokens(trainer->run->config);

    cy_step_metrics metrics;
    const double seconds = trainer->read_s + cy_clock_s() - start;
    CY_TRY(measure(trainer, &result, adamw.learning_rate, seconds, &metrics));
    CY_TRY(report(trainer, &metrics));
    return after_step(trainer);
}

// Who reads a folder of checkpoints takes the newest step: an earlier run's, if it went further.
static cy_status note_later_steps(const rank_run *trainer, const char *folder)
{
    int64_t *steps = NULL;
    int count = 0;
    CY_TRY(cy_folder_steps(&steps, &count, folder));
    if (count > 0 && steps[count - 1] > trainer->position.step) {
        note(trainer,
            "%s holds step %lld of an earlier run, which is what its readers take until this one "
            "has passed it",
            folder, (long long)steps[count - 1]);
    }
    cy_memory_free(steps);
    return CY_OK;
}

static cy_status open_outputs(rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    const char *save_dir = config->checkpoint.save_dir;
    if (save_dir[0] != '\0') {
        trainer->log = (cy_log){.write = write_log, .context = trainer};
        const cy_status status =
            cy_saver_open(&trainer->saver, save_dir, (int)config->checkpoint.keep_last,
                trainer->engine.options.groups.world, &trainer->engine.queue, &trainer->log);
        CY_TRY(cy_state_await_reason(
            &trainer->engine, cy_output_status(status, "checkpoint.save_dir", save_dir)));
        if (is_zero(trainer)) CY_TRY(note_later_steps(trainer, save_dir));
    }
    if (!is_zero(trainer) || config->logging.run_dir[0] == '\0') return CY_OK;
    CY_TRY(cy_run_folder_open(&trainer->folder, trainer->rank->config, trainer->position.step));
    if (trainer->folder.rotated > 0) {
        note(trainer, "%s held metrics of an earlier run; they are in metrics.jsonl.%d now",
            config->logging.run_dir, trainer->folder.rotated);
    }
    return CY_OK;
}

// Goes on from a checkpoint and tells what that took to read: all ranks together.
static cy_status continue_from(rank_run *trainer, const char *path)
{
    cy_checkpoint_traffic traffic = {0};
    CY_TRY(cy_state_load(&trainer->engine, trainer->rank, path, trainer->run->weights_only,
        &trainer->position, &traffic));
    double bytes[] = {(double)traffic.read_bytes, (double)traffic.verify_bytes};
    CY_TRY(cy_group_all_reduce(trainer->engine.options.groups.world, &trainer->engine.queue,
        cy_view_of(bytes, CY_F64, 1, 2), CY_SUM));
    if (trainer->position.step > 0) {
        note(trainer, "continuing %s from step %lld: %.4f GB read, %.4f GB checked", path,
            (long long)trainer->position.step, bytes[0] * 0x1p-30, bytes[1] * 0x1p-30);
    } else {
        note(trainer, "starting with the weights of %s: %.4f GB read, %.4f GB checked", path,
            bytes[0] * 0x1p-30, bytes[1] * 0x1p-30);
    }
    if (trainer->position.residual_dropped) {
        note(trainer,
            "gradients that compression kept back there belong to another mesh and are left out");
    }
    return CY_OK;
}

static cy_status start(rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    const trainer_run *run = trainer->run;
    cy_engine_options options = cy_rank_engine_options(trainer->rank, trainer->rank->config);
    CY_TRY(cy_engine_open(&trainer->engine, &options));
    CY_TRY(cy_same_start_check(&trainer->engine, trainer->rank, &run->identity, &run->start));
    cy_engine_populate_memory(&trainer->engine);
    if (run->start_path != NULL) {
        const cy_status status = continue_from(trainer, run->start_path);
        if (status == CY_ERR_CORRUPT && cy_error_hint()[0] == '\0') {
            cy_error_set_hint("checkpoint.load_path = \"FOLDER/step-...\" takes another step");
        }
        CY_TRY(status);
    } else if (config->model.init == CY_CONFIG_INIT_PRETRAINED) {
        cy_checkpoint_traffic traffic = {0};
        CY_TRY(cy_state_load(&trainer->engine, trainer->rank, config->model.name, true,
            &trainer->position, &traffic));
    } else {
        CY_TRY(cy_engine_initialize(&trainer->engine));
    }
    CY_TRY(cy_replicas_check(&trainer->engine, trainer->rank, trainer->position.step));
    CY_TRY(open_outputs(trainer));
    return cy_data_iterator_open(
        &trainer->iterator, &run->data, config, &trainer->rank->at, trainer->position.step + 1);
}

// What a person should know of the mesh before it runs.
static cy_status describe(cy_text *overview, const rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    CY_TRY(cy_mesh_describe(&trainer->rank->mesh, overview));
    CY_TRY(cy_rank_describe_algorithms(trainer->rank, overview));
    if (config->distributed.cp_size == 1) return CY_OK;
    const cy_context_layout layout = cy_engine_layout(config);
    return cy_text_add(overview, "attention of the busiest rank of cp: %.2f times the mean\n",
        config->distributed.cp_style == CY_CONTEXT_ULYSSES ? 1.0 : cy_context_imbalance(&layout));
}

// A run that is where it was to end, or past it, ends well and would do so without a word.
static void note_no_steps(const rank_run *trainer)
{
    const cy_config_training *training = &trainer->run->config->training;
    const long long step = (long long)trainer->position.step;
    const bool out_of_tokens =
        training->max_tokens > 0 && trainer->position.tokens >= training->max_tokens;
    if (!out_of_tokens) {
        note(trainer,
            "step %lld is at or past training.total_train_steps %lld: nothing to do\n"
            "  hint: a larger training.total_train_steps goes on",
            step, (long long)training->total_train_steps);
    } else {
        note(trainer,
            "step %lld has trained on %lld tokens, training.max_tokens is %lld: nothing to do\n"
            "  hint: a larger training.max_tokens goes on%s",
            step, (long long)trainer->position.tokens, (long long)training->max_tokens,
            training->total_train_steps > 0 ? ", up to training.total_train_steps" : "");
    }
}

// Vocabularies are padded to round numbers; one that is larger by more than that is meant for
// another tokenizer: its other rows are trained to be never said, which takes time and memory.
static void note_unused_tokens(const rank_run *trainer)
{
    const int64_t data = cy_dataset_vocab_size(trainer->run->data.dataset);
    const int64_t model = trainer->run->config->shape.vocab;
    const int64_t padded = (data + 127) / 128 * 128;
    if (data <= 0 || model - data <= PADDING_MAX) return;
    note(trainer,
        "the data has %lld different tokens, the model %lld: the others are never met\n"
        "  hint: model.vocab_size=%lld",
        (long long)data, (long long)model, (long long)padded);
}

static cy_status run_steps(rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    CY_TRY(start(trainer));
    trainer->last_step =
        cy_config_last_step_from(config, trainer->position.step, trainer->position.tokens);
    trainer->rate = (cy_lr_schedule){
        .kind = config->training.lr_schedule,
        .learning_rate = config->training.learning_rate,
        .min_learning_rate = config->training.min_learning_rate,
        .warmup_steps = config->training.warmup_steps,
        .decay_steps = config->training.lr_decay_steps,
        .total_steps = trainer->last_step,
    };
    if (is_zero(trainer)) {
        cy_text overview = {0};
        cy_status status = describe(&overview, trainer);
        if (status == CY_OK) {
            trainer->run->events->begin(trainer->run->events->context, overview.bytes,
                trainer->position.step + 1, trainer->last_step);
        }
        cy_text_free(&overview);
        CY_TRY(status);
    }
    note_unused_tokens(trainer);
    if (trainer->position.step >= trainer->last_step) note_no_steps(trainer);
    if (trainer->position.step < trainer->last_step) {
        read_ahead(trainer);
        CY_TRY(agree(trainer, false));
    }
    while (trainer->position.step < trainer->last_step && trainer->stopped == 0 &&
        !trainer->read_failed) {
        CY_TRY(train_step(trainer));
    }
    if (trainer->failure != CY_OK) return CY_FAIL(trainer->failure, "%s", trainer->failure_text);
    if (trainer->read_failed) {
        return cy_state_await_reason(
            &trainer->engine, CY_FAIL(CY_ERR_PEER, "another rank could not read its data"));
    }
    if (trainer->unsaved[0] != '\0') return fail_unsaved(trainer);
    if (asks(trainer)) trainer->run->summary->stopped = trainer->stopped;
    return CY_OK;
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    void *block = NULL;
    CY_TRY(cy_memory_alloc(&block, 1, sizeof(rank_run)));
    rank_run *self = block;
    self->run = context;
    self->rank = rank;
    const cy_status status = run_steps(self);
    cy_data_iterator_close(&self->iterator);
    cy_text lost = {0};
    cy_run_folder_close(&self->folder, self->run->config->checkpoint.timeout_s, &lost);
    if (lost.length > 0) note(self, "warning: %s", lost.bytes);
    cy_text_free(&lost);
    if (self->saver != NULL) cy_saver_close(self->saver);
    cy_engine_close(&self->engine);
    cy_memory_free(self);
    return status;
}

// Finds where the run starts, and whether that was trained on the data of this run. Every process
// does, as its data may lie on another disk; the first one tells.
static cy_status find_start(trainer_run *run)
{
    const cy_config *config = run->config;
    CY_TRY(cy_state_locate(&run->start_path, &run->weights_only, config));
    CY_TRY(cy_identity_of_run(&run->identity, config, &run->data));
    const bool pretrained = config->model.init == CY_CONFIG_INIT_PRETRAINED;
    const char *path = run->start_path != NULL ? run->start_path
        : pretrained                           ? config->model.name
                                               : NULL;
    if (path == NULL) return CY_OK;
    cy_text lines = {0};
    const cy_status status = cy_identity_compare(&lines, &run->identity, config, &run->data, path,
        run->weights_only || run->start_path == NULL, &run->start);
    for (char *line = lines.bytes;
         status == CY_OK && run->machine->rank == 0 && line != NULL && *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        run->events->note(run->events->context, line);
        line = end + 1;
    }
    cy_text_free(&lines);
    return status;
}

cy_status cy_trainer_run(const cy_config *config, const cy_config_machine *machine,
    const cy_trainer_callbacks *events, cy_train_summary *summary)
{
    *summary = (cy_train_summary){.val_loss = (double)NAN};
    trainer_run run = {.config = config, .machine = machine, .events = events, .summary = summary};
    CY_TRY(cy_run_data_open_to_train(&run.data, config, machine->cores));
    cy_status status = find_start(&run);
    if (status == CY_OK) status = cy_ranks_run(config, machine, run_rank, &run);
    cy_identity_free(&run.identity);
    cy_memory_free(run.start_path);
    cy_run_data_close(&run.data);
    return status;
}
