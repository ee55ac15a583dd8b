// What a training run needs beyond its sizes, and what this build cannot do.

#include "base/file.h"
#include "build_info.h"
#include "data/shard.h"
#include "config/check.h"

#include <stdio.h>
#include <string.h>

void cy_config_check_build(
    const cy_config *config, cy_config_errors *errors, const cy_config_machine *machine)
{
    const cy_config_distributed *d = &config->distributed;
    if (!d->use_cpu) {
        cy_config_add_error(
            errors, "distributed.use_cpu = false: this build trains on the processor");
        cy_config_add_hint(errors, "use_cpu true");
    }
    if (d->backend == CY_CONFIG_BACKEND_NCCL) {
        cy_config_add_error(errors, "distributed.backend = \"nccl\": this build has no GPUs");
        cy_config_add_hint(errors, "backend auto");
    }
    if (d->backend == CY_CONFIG_BACKEND_MPI && !CY_HAVE_MPI) {
        cy_config_add_error(
            errors, "distributed.backend = \"mpi\": this build was made without MPI");
        cy_config_add_hint(errors, "backend threads, or build where an MPI is installed");
    } else if (d->backend == CY_CONFIG_BACKEND_AUTO && machine->world > 1 && !CY_HAVE_MPI) {
        cy_config_add_error(errors,
            "distributed.backend = \"auto\": %d processes were started, but this "
            "build was made without MPI",
            machine->world);
        cy_config_add_hint(errors, "start one process: its ranks are threads");
    } else if (d->backend == CY_CONFIG_BACKEND_MPI && !machine->under_mpi &&
        cy_config_world(config) > 1) {
        cy_config_add_error(errors, "distributed.backend = \"mpi\": not started by mpirun or srun");
        cy_config_add_hint(errors, "mpirun -n %lld cyclotron train ..., or backend threads",
            (long long)cy_config_world(config));
    }
    if (config->shape.experts > 0) {
        cy_config_add_error(errors,
            "model.num_local_experts = %d: this build trains dense models only",
            config->shape.experts);
    }
    if (config->logging.use_wandb) {
        cy_config_add_error(errors, "logging.use_wandb = true: nothing is sent anywhere");
        cy_config_add_hint(errors,
            "logging.tensorboard true writes event files; logging.run_dir has metrics.jsonl");
    }
}

static void check_rate(const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose)
{
    const cy_config_training *t = &config->training;
    const int64_t last = cy_config_last_step(config);
    const bool was_misread = errors->lines.bytes != NULL &&
        (strstr(errors->lines.bytes, "training.total_train_steps = ") != NULL ||
            strstr(errors->lines.bytes, "training.max_tokens = ") != NULL);
    if (last == 0 && !was_misread && purpose == CY_CONFIG_FOR_TRAIN) {
        cy_config_add_error(errors, "training: total_train_steps and max_tokens are both absent");
        cy_config_add_hint(errors, "give the step or the number of tokens at which training ends");
    }
    if (t->min_learning_rate > t->learning_rate) {
        cy_config_add_error(errors, "training.min_learning_rate = %g: above learning_rate %g",
            t->min_learning_rate, t->learning_rate);
    }
    if (t->learning_rate * t->weight_decay >= 2) {
        cy_config_add_error(errors,
            "training.weight_decay = %g: with learning_rate %g each step multiplies a matrix by "
            "%g, so "
            "it grows without end",
            t->weight_decay, t->learning_rate, 1 - t->learning_rate * t->weight_decay);
    }
    if (t->lr_decay_steps == 0) return;
    if (t->lr_schedule == CY_LR_CONSTANT) {
        cy_config_add_error(errors,
            "training.lr_decay_steps = %lld: lr_schedule constant has no decay",
            (long long)t->lr_decay_steps);
    } else if (t->lr_schedule == CY_LR_WSD) {
        if (last > 0 && t->warmup_steps > last - t->lr_decay_steps) { // a sum might overflow
            cy_config_add_error(errors,
                "training.lr_decay_steps = %lld: with warmup_steps %lld more than the %lld steps "
                "of "
                "the run",
                (long long)t->lr_decay_steps, (long long)t->warmup_steps, (long long)last);
        }
    } else if (t->lr_decay_steps <= t->warmup_steps) {
        cy_config_add_error(errors, "training.lr_decay_steps = %lld: not after warmup_steps %lld",
            (long long)t->lr_decay_steps, (long long)t->warmup_steps);
    }
}

static bool looks_like_hub_id(const char *name)
{
    const char *slash = strchr(name, '/');
    return slash != NULL && slash != name && slash[1] != '\0' && strchr(slash + 1, '/') == NULL &&
        name[0] != '.' && strchr(slash, '.') == NULL;
}

static void check_sources(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_dataset *data = &config->dataset;
    bool has_text = false;
    if (data->source_count == 0) {
        cy_config_add_error(errors, "dataset.name: absent");
        cy_config_add_hint(
            errors, "give a folder that 'cyclotron data prepare' made, or a text file");
    }
    for (int i = 0; i < data->source_count; i++) {
        const char *path = data->sources[i].path;
        if (cy_path_is_folder(path)) continue;
        if (cy_path_exists(path)) {
            const size_t length = strlen(path);
            const char *ending = length < 4 ? "" : path + length - 4;
            const bool of_tokens = strcmp(ending, ".bin") == 0 || strcmp(ending, ".idx") == 0;
            bool shard = false;
            const cy_status status = of_tokens ? CY_OK : cy_shard_is_file(&shard, path);
            if (status != CY_OK) cy_config_add_error_of(errors, status, "%s", cy_error_text());
            has_text = has_text || (!of_tokens && !shard);
            continue;
        }
        cy_config_add_error(errors, "dataset.name = \"%s\": no such file or folder", path);
        if (looks_like_hub_id(path)) {
            cy_config_add_hint(errors,
                "nothing is downloaded while training: save the text as .txt or .jsonl, then "
                "'cyclotron data prepare --tokenizer=tokenizer.json --out=DIR FILE...', and give "
                "DIR");
        } else {
            cy_config_add_hint(
                errors, "give a folder that 'cyclotron data prepare' made, or a text file");
        }
    }
    if (data->tokenizer[0] != '\0') {
        if (!cy_path_exists(data->tokenizer)) {
            cy_config_add_error(
                errors, "dataset.tokenizer = \"%s\": no such file", data->tokenizer);
        }
    } else if (has_text) {
        cy_config_add_error(errors, "dataset.tokenizer: absent, and dataset.name is text");
        cy_config_add_hint(errors,
            "'cyclotron tokenizer train --vocab-size=N --out=tokenizer.json FILE' makes one");
    }
}

static void check_dataset(
    const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose)
{
    const cy_config_dataset *data = &config->dataset;
    if (purpose == CY_CONFIG_FOR_TRAIN) check_sources(config, errors);
    if (data->split[0] != '\0' && strcmp(data->split, "train") != 0) {
        cy_config_add_error(
            errors, "dataset.split = \"%s\": local data has no splits", data->split);
        cy_config_add_hint(errors, "validation_fraction keeps the last part for evaluation");
    }
    if (data->subset_name[0] != '\0') {
        cy_config_add_error(
            errors, "dataset.subset_name = \"%s\": local data has no subsets", data->subset_name);
        cy_config_add_hint(errors, "give the subset's files or shards as dataset.name");
    }
    if (data->num_proc > 1 && data->num_proc != 4) {
        cy_config_add_error(errors,
            "dataset.num_proc = %d: text is cut into tokens once, beforehand", data->num_proc);
        cy_config_add_hint(errors, "'cyclotron data prepare --threads=N' does that; leave it out");
    }
    if (data->num_workers > 0 && data->num_workers != 4) {
        cy_config_add_error(errors, "dataset.num_workers = %d: one thread of its own reads ahead",
            data->num_workers);
        cy_config_add_hint(errors, "leave it out");
    }
}

// What must be there, and be what it is taken for.
static void check_folders(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_checkpoint *c = &config->checkpoint;
    const char *run_dir = config->logging.run_dir;
    if (cy_path_exists(c->save_dir) && !cy_path_is_folder(c->save_dir)) {
        cy_config_add_error(
            errors, "checkpoint.save_dir = \"%s\": is there and is not a folder", c->save_dir);
    }
    if (c->load_path[0] != '\0' && !cy_path_exists(c->load_path)) {
        cy_config_add_error(errors, "checkpoint.load_path = \"%s\": no such folder", c->load_path);
    } else if (c->load_path[0] != '\0' && !cy_path_is_folder(c->load_path)) {
        cy_config_add_error(
            errors, "checkpoint.load_path = \"%s\": is a file, not a folder", c->load_path);
        cy_config_add_hint(errors, "give a step's folder, or the save_dir that holds them");
    }
    if (config->model.init == CY_CONFIG_INIT_PRETRAINED && !cy_path_is_folder(config->model.name)) {
        cy_config_add_error(errors,
            "model.init = \"pretrained\": model.name = \"%s\" is no folder with weights",
            config->model.name);
        cy_config_add_hint(errors, "give a folder with config.json and model*.safetensors");
    }
    if (cy_path_exists(run_dir) && !cy_path_is_folder(run_dir)) {
        cy_config_add_error(
            errors, "logging.run_dir = \"%s\": is there and is not a folder", run_dir);
    }
}

static void check_checkpoint(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_checkpoint *c = &config->checkpoint;
    if (c->save_dir[0] == '\0' && c->save_frequency > 0) {
        cy_config_add_error(errors, "checkpoint.save_frequency = %lld: save_dir names no folder",
            (long long)c->save_frequency);
    }
    if (c->save_dir[0] == '\0' && c->resume == CY_CONFIG_RESUME_AUTO) {
        cy_config_add_error(errors, "checkpoint.resume = \"auto\": save_dir names no folder");
    }
    if (c->load == CY_CONFIG_LOAD_WEIGHTS && c->load_path[0] == '\0') {
        cy_config_add_error(errors, "checkpoint.load = \"weights\": load_path names no checkpoint");
    }
    if (config->model.init == CY_CONFIG_INIT_PRETRAINED && c->load_path[0] != '\0') {
        cy_config_add_error(
            errors, "model.init = \"pretrained\": checkpoint.load_path loads others");
        cy_config_add_hint(errors, "give one of the two");
    }
}

static void check_logging(const cy_config *config, cy_config_errors *errors)
{
    const cy_config_logging *l = &config->logging;
    if (l->tensorboard && l->run_dir[0] == '\0') {
        cy_config_add_error(errors, "logging.tensorboard = true: run_dir names no folder");
    }
    if (l->eval_frequency > 0 && config->dataset.validation_fraction == 0) {
        cy_config_add_error(errors, "logging.eval_frequency = %lld: no data is kept for evaluation",
            (long long)l->eval_frequency);
        cy_config_add_hint(errors, "dataset.validation_fraction 0.05 keeps a twentieth");
    }
}

void cy_config_check_run(
    const cy_config *config, cy_config_errors *errors, cy_config_purpose purpose)
{
    check_rate(config, errors, purpose);
    check_dataset(config, errors, purpose);
    if (purpose == CY_CONFIG_FOR_TRAIN) check_folders(config, errors);
    check_checkpoint(config, errors);
    check_logging(config, errors);
}
