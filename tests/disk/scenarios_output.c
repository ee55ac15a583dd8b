// Single files, and what a run writes into its folder, while the disk fails.
#include "disk/case.h"

#include <cyclotron/tokenizer.h>

#include "base/file.h"
#include "base/output.h"
#include "observe/tensorboard.h"
#include "support/engines.h"
#include "train/measure.h"
#include "train/run_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- one file

#define OLD_PICTURE                                                                                \
    "<svg xmlns=\"http://www.w3.org/2000/svg\">\n" CY_OUTPUT_SVG_COMMENT "\nold</svg>\n"

typedef struct one_file {
    char *bytes; // owned, [count]
    size_t count;
} one_file;

// Of some pages in every third variant.
static one_file new_picture(int variant)
{
    static const char head[] =
        "<svg xmlns=\"http://www.w3.org/2000/svg\">\n" CY_OUTPUT_SVG_COMMENT "\n";
    static const char tail[] = "</svg>\n";
    const size_t middle = variant % 3 == 2 ? 30000 : 100;
    one_file file = {.count = sizeof(head) - 1 + middle + sizeof(tail) - 1};
    file.bytes = malloc(file.count + 1);
    if (file.bytes == NULL) abort();
    memcpy(file.bytes, head, sizeof(head) - 1);
    for (size_t i = 0; i < middle; i++)
        file.bytes[sizeof(head) - 1 + i] = (char)(i % 61 == 60 ? '\n' : 'a' + i % 26);
    memcpy(file.bytes + file.count - (sizeof(tail) - 1), tail, sizeof(tail));
    return file;
}

static bool output_is_tokenizer(int variant)
{
    return variant >= 6;
}

static void output_prepare(int variant)
{
    if (variant % 2 == 0) disk_put_text("out", OLD_PICTURE, sizeof(OLD_PICTURE) - 1);
}

static void output_work(disk_case *c)
{
    one_file file = new_picture(c->variant);
    cy_tokenizer *tokenizer = NULL;
    static const char text[] = "aa bb aa bb cc dd aa\n";
    const cy_tokenizer_text one = {.text = text, .bytes = sizeof(text) - 1};
    const cy_tokenizer_train_options options = {.vocab_size = 260};
    if (output_is_tokenizer(c->variant)) {
        disk_must(cy_tokenizer_train(&tokenizer, &one, 1, &options), "train a tokenizer");
        disk_note(c, cy_tokenizer_save(tokenizer, disk_path("out")));
    } else {
        disk_note(c, cy_output_write(disk_path("out"), &cy_output_svg, file.bytes, file.count));
    }
    cy_tokenizer_close(tokenizer);
    free(file.bytes);
}

static void output_check(disk_case *c)
{
    size_t count = 0;
    disk_image *now = disk_image_take();
    const char *wanted = disk_image_bytes(c->wanted, "out", &count);
    size_t found_count = 0;
    const char *found = disk_image_bytes(now, "out", &found_count);
    const bool is_new = found != NULL && found_count == count && memcmp(found, wanted, count) == 0;
    const bool had = c->variant % 2 == 0;
    const bool is_old = had ? found != NULL && found_count == sizeof(OLD_PICTURE) - 1 &&
            memcmp(found, OLD_PICTURE, found_count) == 0
                            : found == NULL;
    const bool reported = !c->failed && !c->torn;
    if (!is_new && !(is_old && !reported)) {
        disk_wrong(c, "out is %s, and the write %s",
            is_old              ? "as it was"
                : found == NULL ? "gone"
                                : "neither old nor new",
            reported ? "was reported as done" : "was not reported as done");
    }
    disk_image_free(now);
}

const disk_scenario disk_output = {
    .name = "output",
    .share = 5,
    .variants = 8,
    .writes = true,
    .names = {"out"},
    .prepare = output_prepare,
    .work = output_work,
    .check = output_check,
};

// ---- the folder of a run

#define OLD_STEPS 5 // in the metrics that are there, of which the run continues LAST_STEP
#define LAST_STEP 3
#define NEW_STEPS 10

static void add_line(char *text, size_t *count, int step)
{
    *count += (size_t)sprintf(
        text + *count, "{\"step\":%d,\"val_loss\":%d,\"val_tokens\":64}\n", step, step);
}

static void run_config(cy_config *config, int variant)
{
    cy_test_config(config, CY_F32);
    config->logging.tensorboard = variant % 2 == 1;
    config->training.seed = variant >= 2 ? 7 : 42;
    snprintf(config->logging.run_dir, sizeof(config->logging.run_dir), "%s",
        disk_path(variant == 0 ? "runs/one" : "run"));
}

// Variants 2 and 3 continue an earlier run, whose last line is torn.
static void run_prepare(int variant)
{
    static cy_config config;
    char text[2048];
    size_t count = 0;
    if (variant < 2) return;
    cy_run_folder folder = {0};
    cy_sinks sinks = {0};
    cy_text lost = {0};
    run_config(&config, variant);
    config.training.seed = 42;
    config.logging.tensorboard = false;
    disk_must(cy_run_folder_open(&folder, &sinks, &config, 0), "open a run's folder");
    cy_sinks_close(&sinks);
    cy_run_folder_close(&folder, 60, &lost);
    for (int step = 1; step <= OLD_STEPS; step++)
        add_line(text, &count, step);
    disk_put_text("run/metrics.jsonl", text, count - 7);
}

static void run_work(disk_case *c)
{
    static cy_config config;
    cy_run_folder folder = {0};
    cy_sinks sinks = {0};
    cy_text lost = {0}, report = {0};
    const int last = c->variant >= 2 ? LAST_STEP : 0;
    run_config(&config, c->variant);
    const cy_status status = cy_run_folder_open(&folder, &sinks, &config, last);
    disk_note(c, status);
    if (status != CY_OK) return;
    for (int step = last + 1; step <= last + NEW_STEPS; step++) {
        cy_metrics metrics;
        cy_measure_evaluation(&metrics, &(cy_run_position){.step = step}, step, 64);
        cy_sinks_write(&sinks, &metrics);
        if (step % 4 == 0) (void)cy_async_flush(folder.writer, 20);
        while (cy_async_take_report(folder.writer, &report)) {
            disk_note_line(c, report.bytes);
            report.length = 0;
        }
    }
    while (cy_sinks_take_report(&sinks, &report)) {
        disk_wrong(c, "%s", report.bytes);
        report.length = 0;
    }
    cy_sinks_close(&sinks);
    cy_run_folder_close(&folder, 20, &lost);
    if (lost.length > 0) {
        c->failed = strstr(lost.bytes, "lost") != NULL && strstr(lost.bytes, "no line") == NULL;
        disk_note_line(c, lost.bytes);
    }
    cy_text_free(&lost);
    cy_text_free(&report);
}

// The lines that are there are whole lines of this run or of the one before, in their order. After
// a crash some may be missing, and those that are no lines are dropped by the next run.
static void check_metrics(disk_case *c, const char *name, int last, bool reported)
{
    cy_text text = {0};
    char line[128];
    if (!cy_path_exists(disk_path(name))) {
        if (last > 0 || reported) disk_wrong(c, "%s is gone", name);
        return;
    }
    disk_must(cy_file_read(&text, disk_path(name), 1 << 20), "read the metrics");
    int before = 0, old = 0, seen = 0;
    for (char *at = text.bytes, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        const char *number = strstr(at, "\"step\":");
        const int step = number != NULL && number < end ? atoi(number + 7) : 0;
        size_t count = 0;
        add_line(line, &count, step);
        const bool whole = count == (size_t)(end + 1 - at) && memcmp(line, at, count) == 0;
        if (!whole && !c->torn) disk_wrong(c, "%s holds a line that nobody wrote", name);
        if (!whole) continue;
        if (step <= before) disk_wrong(c, "%s has step %d behind step %d", name, step, before);
        before = step;
        old += step <= last;
        seen++;
    }
    if (old < last) disk_wrong(c, "%s has lost a line of the run before", name);
    if (reported && (seen != last + NEW_STEPS || before != last + NEW_STEPS))
        disk_wrong(c, "%s has %d lines, the last of step %d", name, seen, before);
    cy_text_free(&text);
}

static void check_events(disk_case *c, const disk_image *now, const char *folder)
{
    int records = 0;
    for (int i = 0; i < 3; i++) { // its name has the time in it
        size_t count = 0;
        const char *bytes = disk_image_find(now, folder, "events.out", i, &count);
        if (bytes == NULL) break;
        for (size_t at = 0; at < count;) {
            uint64_t length = 0;
            uint32_t crc = 0;
            if (count - at < 16) break;
            memcpy(&length, bytes + at, 8);
            if (length > count - at - 16) break;
            memcpy(&crc, bytes + at + 12 + length, 4);
            const uint32_t right = cy_crc32c(bytes + at + 12, length);
            if (crc != ((right >> 15) | (right << 17)) + 0xa282ead8u) break;
            at += 16 + length;
            records++;
        }
    }
    if (records != NEW_STEPS + 1)
        disk_wrong(c, "%d whole records of %d in the event file", records, NEW_STEPS + 1);
}

// config.json is one that a run wrote, whole.
static void check_config(disk_case *c, const char *folder, bool reported)
{
    static cy_config config;
    char name[64];
    cy_text text = {0}, wanted[2] = {{0}, {0}};
    snprintf(name, sizeof(name), "%s/config.json", folder);
    if (!cy_path_exists(disk_path(name))) {
        if (reported || c->variant >= 2) disk_wrong(c, "%s is gone", name);
        return;
    }
    disk_must(cy_file_read(&text, disk_path(name), 1 << 20), "read the configuration");
    run_config(&config, c->variant);
    disk_must(cy_config_to_json(&wanted[0], &config), "write a configuration");
    config.training.seed = 42;
    config.logging.tensorboard = false;
    disk_must(cy_config_to_json(&wanted[1], &config), "write a configuration");
    const bool is_new = strcmp(text.bytes, wanted[0].bytes) == 0;
    const bool is_old = c->variant >= 2 && strcmp(text.bytes, wanted[1].bytes) == 0;
    if (!is_new && !(is_old && !reported)) {
        disk_wrong(c, "%s is %s", name, is_old ? "as it was" : "neither old nor new");
    }
    for (int i = 0; i < 2; i++)
        cy_text_free(&wanted[i]);
    cy_text_free(&text);
}

static void run_check(disk_case *c)
{
    const char *folder = c->variant == 0 ? "runs/one" : "run";
    char name[64];
    const int last = c->variant >= 2 ? LAST_STEP : 0;
    const bool reported = !c->failed && !c->torn && c->round == 0;
    disk_image *now = disk_image_take();
    snprintf(name, sizeof(name), "%s/metrics.jsonl", folder);
    if (c->round == 0) check_metrics(c, name, last, reported);
    if (reported && c->variant % 2 == 1) check_events(c, now, folder);
    check_config(c, folder, !c->failed && !c->torn);
    disk_image_free(now);
}

const disk_scenario disk_run_folder = {
    .name = "run_folder",
    .share = 7,
    .variants = 4,
    .writes = true,
    .names = {"metrics.jsonl", "config.json", "run", "one"},
    .prepare = run_prepare,
    .work = run_work,
    .check = run_check,
};
