// Runs a training. The sections follow the life of a run: its start, its steps, what happens
// between two steps, and its end.
#include "train/trainer.h"

#include "base/clock.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "engine/engine_parts.h"
#include "optim/lr_schedule.h"
#include "train/checks.h"
#include "train/data_iterator.h"
#include "train/evaluate.h"
#include "train/identity.h"
#include "train/measure.h"
#include "train/replicas.h"
#include "train/run_folder.h"
#include "train/state.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PADDING_MAX 1024 // tokens by which a vocabulary is rounded up

// How long a save waits for lines that are on their way to metrics.jsonl, so that a checkpoint
// seldom outlives the lines of its steps. The end of a run waits checkpoint.timeout_s.
#define LINES_BEFORE_SAVE_S 1

// What the ranks of a process share.
typedef struct trainer_run {
    const cy_config *config;
    const cy_config_machine *machine;
    const cy_trainer_callbacks *events;
    cy_run_data data;
    cy_identity identity;      // owned: of the data
    char *start_path;          // owned: the checkpoint to start from, or NULL
    bool weights_only;         // take only weights from it
    cy_start_point start;      // compared between ranks
    cy_train_summary *summary; // written by rank zero
} trainer_run;

// One rank of a run.
typedef struct rank_run {
    const trainer_run *run;
    const cy_rank *rank;
    cy_engine engine;
    cy_data_iterator iterator;
    cy_saver *saver;
    cy_log log;           // of the saver
    cy_run_folder folder; // of rank zero, where logging.run_dir is set
    cy_sinks sinks;       // of rank zero
    cy_run_position position;
    cy_lr_schedule rate;
    int64_t last_step;
    cy_loader_counters asked; // about the microbatches of the step that is read or trained
    double read_s;            // the time that reading them took
    double peak_flop_s;       // of the cores of all ranks together; 0: not measured
    // What ends the run early.
    int stopped;       // what should_stop of a process returned
    bool save_wanted;  // should_save of a process asked for a save
    cy_status failure; // of reading data, on this rank
    char failure_text[1024];
    bool read_failed;   // a rank could not read its data
    char unsaved[1200]; // why the last save failed, the same on all ranks; empty: it succeeded
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

// Passes on what a saver logs.
static void write_log(void *context, cy_log_level level, const char *line)
{
    note(context, "%s%s", level == CY_LOG_WARNING ? "warning: " : "", line);
}

// ---- the start of a process

// Finds the checkpoint to start from, and compares the data that it was trained on with the data of
// this run. Every process does so, because its files may lie on a disk of its machine; the first
// one notes the differences.
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

// ---- the start of a rank

// A folder of checkpoints may hold later steps of an earlier run: its readers take those.
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

static cy_status open_saver(rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    const char *save_dir = config->checkpoint.save_dir;
    if (save_dir[0] == '\0') return CY_OK;
    trainer->log = (cy_log){.write = write_log, .context = trainer};
    const cy_status status =
        cy_saver_open(&trainer->saver, save_dir, (int)config->checkpoint.keep_last,
            trainer->engine.options.groups.world, &trainer->engine.queue, &trainer->log);
    CY_TRY(cy_state_await_reason(
        &trainer->engine, cy_output_status(status, "checkpoint.save_dir", save_dir)));
    return is_zero(trainer) ? note_later_steps(trainer, save_dir) : CY_OK;
}

// Opens the sinks of rank zero: the files of the run folder, then the console.
static cy_status open_sinks(rank_run *trainer)
{
    const cy_config_logging *logging = &trainer->run->config->logging;
    const cy_trainer_callbacks *events = trainer->run->events;
    if (logging->run_dir[0] != '\0') {
        CY_TRY(cy_run_folder_open(
            &trainer->folder, &trainer->sinks, trainer->rank->config, trainer->position.step));
        if (trainer->folder.rotated > 0) {
            note(trainer, "%s held metrics of an earlier run; they are in metrics.jsonl.%d now",
                logging->run_dir, trainer->folder.rotated);
        }
    }
    const cy_console_sink_options options = {
        .write = events->line,
        .context = events->context,
        .every = logging->log_frequency,
        .last_step = trainer->last_step,
    };
    cy_sink *console = NULL;
    CY_TRY(cy_console_sink_open(&console, &options));
    cy_sinks_add(&trainer->sinks, console);
    return CY_OK;
}

// Continues from a checkpoint, and notes how much all ranks together have read.
static cy_status continue_from(rank_run *trainer, const char *path)
{
    cy_checkpoint_traffic traffic = {0};
    CY_TRY(cy_state_load(&trainer->engine, trainer->rank, path, trainer->run->weights_only,
        &trainer->position, &traffic));
    double bytes[] = {(double)traffic.read_bytes, (double)traffic.verify_bytes};
    CY_TRY(cy_group_all_reduce(
        trainer->engine.options.groups.world, NULL, cy_view_of(bytes, CY_F64, 1, 2), CY_SUM));
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

// Loads or initialises the weights.
static cy_status set_weights(rank_run *trainer)
{
    const cy_config *config = trainer->run->config;
    const trainer_run *run = trainer->run;
    if (run->start_path != NULL) {
        const cy_status status = continue_from(trainer, run->start_path);
        if (status == CY_ERR_CORRUPT && cy_error_hint()[0] == '\0') {
            cy_error_set_hint("checkpoint.load_path = \"FOLDER/step-...\" takes another step");
        }
        return status;
    }
    if (config->model.init == CY_CONFIG_INIT_PRETRAINED) {
        cy_checkpoint_traffic traffic = {0};
        return cy_state_load(&trainer->engine, trainer->rank, config->model.name, true,
            &trainer->position, &traffic);
    }
    return cy_engine_initialize(&trainer->engine);
}

static void set_schedule(rank_run *trainer)
{
    const cy_config_training *training = &trainer->run->config->training;
    trainer->last_step = cy_config_last_step_from(
        trainer->run->config, trainer->position.step, trainer->position.tokens);
    trainer->rate = (cy_lr_schedule){
        .kind = training->lr_schedule,
        .learning_rate = training->learning_rate,
        .min_learning_rate = training->min_learning_rate,
        .warmup_steps = training->warmup_steps,
        .decay_steps = training->lr_decay_steps,
        .total_steps = trainer->last_step,
    };
}

static cy_status start(rank_run *trainer)
{
    const trainer_run *run = trainer->run;
    const cy_config *config = run->config;
    cy_engine_options options = cy_rank_engine_options(trainer->rank, trainer->rank->config);
    CY_TRY(cy_engine_open(&trainer->engine, &options));
    CY_TRY(cy_same_start_check(&trainer->engine, trainer->rank, &run->identity, &run->start));
    cy_engine_populate_memory(&trainer->engine);
    CY_TRY(set_weights(trainer));
    CY_TRY(cy_replicas_check(&trainer->engine, trainer->rank, trainer->position.step));
    set_schedule(trainer);
    CY_TRY(open_saver(trainer));
    if (is_zero(trainer)) CY_TRY(open_sinks(trainer));
    return cy_data_iterator_open(
        &trainer->iterator, &run->data, config, &trainer->rank->at, trainer->position.step + 1);
}

// ---- what a run says before its first step

// Describes the mesh to the user.
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

// A run that has no step left to do ends successfully; without this note it would end silently.
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

// Vocabularies are padded to round numbers. One that is much larger was meant for another
// tokenizer: training its unused rows takes time and memory.
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

static cy_status announce(rank_run *trainer)
{
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
    return CY_OK;
}

// ---- reading ahead

static cy_loader_counters counters_between(cy_loader_counters before, cy_loader_counters after)
{
    return (cy_loader_counters){
        .batches = after.batches - before.batches,
        .ready = after.ready - before.ready,
        .wait_ns = after.wait_ns - before.wait_ns,
        .fill_ns = after.fill_ns - before.fill_ns,
    };
}

// Keeps a failure to read data. The run goes on until all ranks know of it, and saves its state.
static void record_failure(rank_run *trainer, cy_status status)
{
    if (status == CY_OK || trainer->failure != CY_OK) return;
    trainer->failure = status;
    snprintf(trainer->failure_text, sizeof(trainer->failure_text), "%s", cy_error_text());
}

// Reads the microbatches of the next step.
static void read_ahead(rank_run *trainer)
{
    const double start = cy_clock_s();
    const cy_batch_source source = cy_data_iterator_source(&trainer->iterator);
    const cy_loader_counters before = cy_data_iterator_count(&trainer->iterator);
    record_failure(trainer, cy_engine_read(&trainer->engine, &source));
    trainer->asked = counters_between(before, cy_data_iterator_count(&trainer->iterator));
    trainer->read_s = cy_clock_s() - start;
}

// ---- a step

// Notes what happened to the sinks and the run folder since the last step.
static void note_outputs(rank_run *trainer)
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
    while (cy_sinks_take_report(&trainer->sinks, &line)) {
        note(trainer, "warning: %s", line.bytes);
        line.length = 0;
    }
    cy_text_free(&line);
}

static void report_step(rank_run *trainer, const cy_metrics *metrics)
{
    if (!is_zero(trainer)) return;
    const cy_trainer_callbacks *events = trainer->run->events;
    cy_train_summary *summary = trainer->run->summary;
    summary->step = trainer->position.step;
    summary->tokens = trainer->position.tokens;
    summary->loss = cy_metrics_real(metrics, CY_METRIC_LOSS);
    cy_sinks_write(&trainer->sinks, metrics);
    note_outputs(trainer);
    events->step(events->context, metrics);
}

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
    trainer->position.step = step;
    trainer->position.tokens += cy_config_batch_tokens(trainer->run->config);

    const cy_measured_step measured = {
        .position = trainer->position,
        .result = result,
        .learning_rate = adamw.learning_rate,
        .seconds = trainer->read_s + cy_clock_s() - start,
        .sent = cy_traffic_between(&before, &after),
        .read = trainer->asked,
    };
    cy_metrics metrics;
    CY_TRY(cy_measure_step(
        &metrics, &measured, &trainer->engine, trainer->rank, &trainer->peak_flop_s));
    report_step(trainer, &metrics);
    return CY_OK;
}

// ---- between two steps: evaluation

static cy_status evaluate(rank_run *trainer)
{
    double loss = 0;
    int64_t tokens = 0;
    bool unread = false;
    const cy_status status = cy_evaluate_split(&trainer->engine, &trainer->run->data,
        &trainer->rank->at, CY_DATASET_VALIDATION, trainer->run->config->logging.eval_tokens, &loss,
        &tokens, &unread);
    if (unread) { // agree() tells the other ranks
        if (status != CY_ERR_PEER) record_failure(trainer, status);
        return CY_OK;
    }
    CY_TRY(status);
    if (!is_zero(trainer)) return CY_OK;
    cy_metrics metrics;
    trainer->run->summary->val_loss = loss;
    cy_measure_evaluation(&metrics, &trainer->position, loss, tokens);
    cy_sinks_write(&trainer->sinks, &metrics);
    note(trainer, "step %lld: validation loss %.4f over %lld tokens",
        (long long)trainer->position.step, loss, (long long)tokens);
    return CY_OK;
}

// ---- between two steps: agreement

// Whether this rank asks for the signals of its process: the first rank of each process does.
static bool asks(const rank_run *trainer)
{
    const trainer_run *run = trainer->run;
    return trainer->rank->rank % cy_config_ranks_of_process(run->config, run->machine) == 0;
}

// Makes all ranks know whether to stop, to save, or to end because a rank cannot read its data. A
// signal may reach any process of the run, and a rank that cannot take part in the next step must
// stop all of them before it. `listens`: signals count; before the first step they wait.
static cy_status agree(rank_run *trainer, bool listens)
{
    const cy_trainer_callbacks *events = trainer->run->events;
    double wanted[3] = {0, 0, trainer->failure != CY_OK}; // stop, save, data failed
    if (listens && asks(trainer)) {
        wanted[0] = events->should_stop(events->context);
        wanted[1] = events->should_save(events->context);
    }
    CY_TRY(cy_group_all_reduce(
        trainer->engine.options.groups.world, NULL, cy_view_of(wanted, CY_F64, 1, 3), CY_MAX));
    trainer->stopped = (int)wanted[0];
    trainer->save_wanted = wanted[1] > 0;
    trainer->read_failed = wanted[2] > 0;
    if (trainer->save_wanted && asks(trainer)) events->saving(events->context);
    return CY_OK;
}

// ---- between two steps: a save

#define REASON_BYTES 1024

// Sets trainer->unsaved to the reason why a save failed, as given by the first rank whose files
// failed. Where no rank's files did, it waits for the rank that ends the run.
static cy_status find_why_unsaved(rank_run *trainer, cy_status status)
{
    cy_group *world = trainer->engine.options.groups.world;
    char reason[REASON_BYTES];
    char who[32] = "";
    int64_t first = status == CY_ERR_IO ? trainer->rank->rank : trainer->rank->mesh.world;
    snprintf(reason, sizeof(reason), "%s", cy_error_text());
    CY_TRY(cy_group_all_reduce(world, NULL, cy_view_of(&first, CY_I64, 1, 1), CY_MIN));
    if (first == trainer->rank->mesh.world) return cy_state_await_reason(&trainer->engine, status);
    CY_TRY(cy_group_broadcast(world, NULL, cy_view_of(reason, CY_U8, 1, REASON_BYTES), (int)first));
    if (first > 0) snprintf(who, sizeof(who), "rank %d: ", (int)first);
    snprintf(trainer->unsaved, sizeof(trainer->unsaved), "step %lld was not saved: %s%s",
        (long long)trainer->position.step, who, reason);
    return CY_OK;
}

// Saves. Where a file system fails, as for lack of space, the run notes it and goes on: the earlier
// checkpoints stay.
static cy_status save(rank_run *trainer)
{
    if (trainer->folder.open) {
        const bool all = cy_async_flush(trainer->folder.writer, LINES_BEFORE_SAVE_S);
        (void)all; // a late line is not lost
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

// ---- the end

// Fails, because the run is at its end and its last step is in no checkpoint.
static cy_status fail_unsaved(const rank_run *trainer)
{
    const char *folder = trainer->run->config->checkpoint.save_dir;
    if (!is_zero(trainer)) {
        return cy_state_await_reason(
            &trainer->engine, CY_FAIL(CY_ERR_PEER, "the last step was not saved"));
    }
    char *newest = NULL;
    const cy_status located = cy_checkpoint_locate(&newest, folder);
    if (located == CY_ERR_REQUEST) {
        return CY_FAIL(CY_ERR_IO, "the run has ended and %s; no complete checkpoint is in %s",
            trainer->unsaved, folder);
    }
    if (located != CY_OK) {
        return CY_FAIL(CY_ERR_IO, "the run has ended and %s; its other checkpoints: %s",
            trainer->unsaved, cy_error_text());
    }
    const cy_status status = CY_FAIL(CY_ERR_IO,
        "the run has ended and %s; the newest complete checkpoint is %s", trainer->unsaved, newest);
    cy_error_set_hint("checkpoint.resume = \"auto\" goes on from there");
    cy_memory_free(newest);
    return status;
}

static cy_status end(const rank_run *trainer)
{
    if (trainer->failure != CY_OK) return CY_FAIL(trainer->failure, "%s", trainer->failure_text);
    if (trainer->read_failed) {
        return cy_state_await_reason(
            &trainer->engine, CY_FAIL(CY_ERR_PEER, "another rank could not read its data"));
    }
    if (trainer->unsaved[0] != '\0') return fail_unsaved(trainer);
    if (asks(trainer)) trainer->run->summary->stopped = trainer->stopped;
    return CY_OK;
}

static void close_rank(rank_run *trainer)
{
    cy_data_iterator_close(&trainer->iterator);
    cy_sinks_close(&trainer->sinks);
    cy_text lost = {0};
    cy_run_folder_close(&trainer->folder, trainer->run->config->checkpoint.timeout_s, &lost);
    if (lost.length > 0) note(trainer, "warning: %s", lost.bytes);
    cy_text_free(&lost);
    if (trainer->saver != NULL) cy_saver_close(trainer->saver);
    cy_engine_close(&trainer->engine);
}

// ---- the run

static cy_status run_steps(rank_run *trainer)
{
    CY_TRY(start(trainer));
    CY_TRY(announce(trainer));
    if (trainer->position.step < trainer->last_step) {
        read_ahead(trainer);
        CY_TRY(agree(trainer, false));
    }
    while (trainer->position.step < trainer->last_step && trainer->stopped == 0 &&
        !trainer->read_failed) {
        CY_TRY(train_step(trainer));
        CY_TRY(after_step(trainer));
    }
    return end(trainer);
}

static cy_status run_rank(const cy_rank *rank, void *context)
{
    rank_run *self;
    CY_TRY(CY_ALLOC(&self, 1));
    self->run = context;
    self->rank = rank;
    const cy_status status = run_steps(self);
    cy_rank_fail(rank, status);
    close_rank(self);
    cy_memory_free(self);
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
