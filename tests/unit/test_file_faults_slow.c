// Random faults and losses of power to everything that reads or writes files (tests/disk).
//
//   test_unit_file_faults_slow [--seed=S] [--cases=N] [--first=N] [--case=N] [--scenario=NAME]
//
// A case draws a scenario, one of its variants and a fault at one of the calls that the scenario
// makes when nothing happens. After an error what the program said must name the file and the
// error, what stood there must stand, and the same work must succeed when it is done again; after a
// loss of power the same holds for each of several images of what may have reached the disk.
// Interrupted, short and slow calls must change nothing.
//
// The seed is the date unless --seed gives one, so each day tries other cases; every random number
// is a function of the seed and the number of the case, so that --seed and --case repeat one. How
// far other threads are when a fault happens is the scheduler's. Prints a line a failed case, and
// how many faults of each kind there were; the status is 1 if a case failed.
#define _GNU_SOURCE
#include "disk/case.h"
#include "disk/model.h"
#include "support/support.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define VARIANTS_MOST 26
#define IMAGES        2 // of each loss of power
#define CASE_SECONDS  120

static const disk_scenario *const scenarios[] = {&disk_save, &disk_load, &disk_export, &disk_import,
    &disk_prepare, &disk_read, &disk_output, &disk_run_folder};
#define SCENARIOS ((int)(sizeof(scenarios) / sizeof(scenarios[0])))

// A scenario's variant when nothing happens.
typedef struct known {
    disk_image *before, *after;
    disk_place *places; // owned, [count]
    int count;
} known;

static known all_known[sizeof(scenarios) / sizeof(scenarios[0])][VARIANTS_MOST];

static struct {
    long long seed, first, cases;
    int scenario; // -1: all
    long long faults[DISK_FAULT_KINDS], by_scenario[sizeof(scenarios) / sizeof(scenarios[0])];
    long long calls, images, missed, failed;
    char now[256]; // the case, for what ends the process
} run;

// ---- for the scenarios

void disk_note_line(disk_case *c, const char *line)
{
    pthread_mutex_lock(&c->lock);
    const size_t length = strlen(c->notes);
    snprintf(c->notes + length, sizeof(c->notes) - length, "%s\n", line);
    pthread_mutex_unlock(&c->lock);
}

void disk_note(disk_case *c, cy_status status)
{
    if (status == CY_OK) return;
    c->failed = true;
    if (status != CY_ERR_PEER) disk_note_line(c, cy_error_text());
}

void disk_wrong(disk_case *c, const char *format, ...)
{
    va_list arguments;
    if (c->wrong[0] != '\0') return;
    va_start(arguments, format);
    vsnprintf(c->wrong, sizeof(c->wrong), format, arguments);
    va_end(arguments);
}

const char *disk_path(const char *below)
{
    static _Thread_local char paths[8][512];
    static _Thread_local int turn;
    turn = (turn + 1) % 8;
    snprintf(paths[turn], sizeof(paths[turn]), "%s/%s", disk_root(), below);
    return paths[turn];
}

void disk_must(cy_status status, const char *what)
{
    if (status == CY_OK) return;
    fprintf(stderr, "file_faults: error: %s: %s\n", what, cy_error_text());
    abort();
}

void disk_put_text(const char *below, const char *bytes, size_t count)
{
    FILE *file = fopen(disk_path(below), "wb");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) abort();
}

static bool is_lock(const char *path)
{
    return strcmp(path, ".making") == 0;
}

void disk_check_output(disk_case *c, const char *name, bool reported, const disk_image *old)
{
    char which[300];
    disk_image *now = disk_image_take();
    disk_image *there = disk_image_below(now, name), *wanted = disk_image_below(c->wanted, name);
    const int count = disk_image_count(there);
    const bool as_before = old != NULL ? disk_image_differences(there, old, NULL, which, 300) == 0
                                       : count == 0 || (count == 1 && c->torn);
    const int wrong = disk_image_differences(there, wanted, is_lock, which, sizeof(which));
    if (wrong > 0 && (reported || !as_before)) {
        disk_wrong(c, "%s: %s, and the work %s", name, which,
            reported ? "was reported as done" : "was not reported as done");
    }
    disk_image_free(now);
    disk_image_free(there);
    disk_image_free(wanted);
}

static void take_line(void *context, cy_log_level level, const char *line)
{
    (void)level;
    disk_note_line(context, line);
}

// ---- a variant when nothing happens

static void start_case(disk_case *c, int variant, const disk_image *wanted)
{
    memset(c, 0, sizeof(*c));
    c->variant = variant;
    c->wanted = wanted;
    c->log = (cy_log){.write = take_line, .context = c};
    pthread_mutex_init(&c->lock, NULL);
}

static const known *know(int scenario, int variant)
{
    known *k = &all_known[scenario][variant];
    const disk_scenario *s = scenarios[scenario];
    static const disk_image empty;
    disk_result result;
    disk_case c;
    if (k->before != NULL) return k;
    disk_image *nothing = disk_image_below(&empty, "");
    disk_image_put(nothing);
    disk_image_free(nothing);
    s->prepare(variant);
    k->before = disk_image_take();
    disk_image_put(k->before);
    start_case(&c, variant, NULL);
    disk_begin(NULL);
    s->work(&c);
    disk_end(&result);
    k->after = disk_image_take();
    const disk_place *places = disk_places(&k->count);
    k->places = disk_memory(NULL, (size_t)k->count * sizeof(disk_place));
    memcpy(k->places, places, (size_t)k->count * sizeof(disk_place));
    c.wanted = k->after;
    if (s->check != NULL) s->check(&c);
    if (c.failed || c.notes[0] != '\0' || c.wrong[0] != '\0') {
        printf("file_faults: %s, variant %d, with no fault: %s%s\n", s->name, variant, c.notes,
            c.wrong);
        exit(1);
    }
    return k;
}

// ---- drawing a fault

static bool may_meet(const disk_place *place, disk_fault_kind kind)
{
    const bool moves = place->call == DISK_READ || place->call == DISK_WRITE;
    switch (kind) {
    case DISK_EIO:
    case DISK_EIO_THEN_CRASH:
    case DISK_SLOW:
    case DISK_CRASH:
        return true;
    case DISK_FULL:
        return place->makes;
    case DISK_EINTR:
        return moves;
    case DISK_SHORT:
        return moves && place->splits;
    case DISK_DYING:
        return moves || place->call == DISK_SYNC;
    case DISK_FAULT_KINDS:
        break;
    }
    return false;
}

// Every fourth call that fails is an fsync: there are few, and much depends on them.
static bool draw_place(disk_place *place, const known *k, disk_fault_kind kind, uint64_t *random)
{
    const bool sync = kind == DISK_EIO && disk_draw_below(random, 4) == 0;
    for (int tries = 0; tries < 400; tries++) {
        *place = k->places[disk_draw_below(random, (uint64_t)k->count)];
        if (sync && tries < 200 && place->call != DISK_SYNC) continue;
        if (may_meet(place, kind)) return true;
    }
    return false;
}

static disk_plan draw_plan(const disk_scenario *s, const known *k, uint64_t *random)
{
    static const disk_fault_kind of_writers[] = {DISK_EIO, DISK_EIO, DISK_EIO, DISK_FULL, DISK_FULL,
        DISK_EINTR, DISK_SHORT, DISK_SHORT, DISK_SLOW, DISK_DYING, DISK_CRASH, DISK_CRASH,
        DISK_CRASH, DISK_CRASH, DISK_EIO_THEN_CRASH};
    static const disk_fault_kind of_readers[] = {
        DISK_EIO, DISK_EIO, DISK_EIO, DISK_EINTR, DISK_SHORT, DISK_SHORT, DISK_SLOW, DISK_DYING};
    const uint64_t writers = sizeof(of_writers) / sizeof(of_writers[0]);
    const uint64_t readers = sizeof(of_readers) / sizeof(of_readers[0]);
    disk_plan plan = {0};
    do {
        plan.kind = s->writes ? of_writers[disk_draw_below(random, writers)]
                              : of_readers[disk_draw_below(random, readers)];
    } while (!draw_place(&plan.at, k, plan.kind, random));
    plan.crash_at = k->places[disk_draw_below(random, (uint64_t)k->count)];
    plan.stays = disk_draw_below(random, 2) == 0;
    plan.after = disk_draw_below(random, 2) == 0;
    plan.part = (uint32_t)disk_draw(random);
    return plan;
}

// ---- judging

static bool says(const char *notes, const char *word)
{
    return strstr(notes, word) != NULL;
}

// What needs no word: the program loses nothing by it. Owners' names in locks are for people only.
static bool is_harmless(const disk_result *result)
{
    const char *slash = strrchr(result->path, '/');
    const char *name = slash != NULL ? slash + 1 : result->path;
    if (result->call == DISK_HINT || result->call == DISK_CLOSE) return true;
    return says(name, "lock") || strcmp(name, ".making") == 0;
}

// After an error: its words, and the file's name or that of what it was to become.
static void check_named(disk_case *c, const disk_scenario *s, const disk_result *result)
{
    const char *slash = strrchr(result->path, '/');
    const char *name = slash != NULL ? slash + 1 : result->path;
    bool named = says(c->notes, name);
    for (int i = 0; i < 4 && s->names[i] != NULL; i++)
        named = named || says(c->notes, s->names[i]);
    // A message about a temporary file names the file that it was to become.
    const bool beside = says(name, ".cyclotron-");
    if (beside && c->notes[0] != '\0') named = true;
    // Where calls fail from one on, the first may be one that needs no word.
    if (result->faults > 1) named = true;
    if (!c->failed && c->notes[0] == '\0' && is_harmless(result)) return;
    if (c->notes[0] == '\0') {
        disk_wrong(c, "nothing was said");
    } else if (!says(c->notes, strerror(result->error))) {
        disk_wrong(c, "\"%s\" is not said", strerror(result->error));
    } else if (!named) {
        disk_wrong(c, "%s is not named", name);
    }
}

static void check_quiet(disk_case *c)
{
    if (c->failed || c->notes[0] != '\0')
        disk_wrong(c, "what changes nothing was taken for a fault");
}

static void redo(disk_case *c, const disk_scenario *s, const char *when)
{
    char said[200];
    disk_result result;
    c->round++;
    c->failed = c->torn = false;
    c->notes[0] = '\0';
    disk_begin(NULL);
    s->work(c);
    disk_end(&result);
    snprintf(said, sizeof(said), "%.150s", c->notes);
    if (c->failed) disk_wrong(c, "%s the same work fails: %s", when, said);
    if (s->check != NULL && c->wrong[0] == '\0') s->check(c);
}

static bool has_out(const disk_scenario *s)
{
    return s == &disk_import || s == &disk_export || s == &disk_prepare;
}

// Nothing is left of an attempt that failed, unless it says so.
static void check_nothing_left(disk_case *c, const disk_plan *plan)
{
    if (!c->failed || plan->kind == DISK_DYING || says(c->notes, "could not be removed")) return;
    size_t count = 0;
    disk_image *now = disk_image_take();
    if (disk_image_find(now, "", ".out.", 0, &count) != NULL)
        disk_wrong(c, "an attempt that failed has left its folder");
    disk_image_free(now);
}

// Images of what a loss of power leaves; the first or the second is worked on.
static void check_left(disk_case *c, const disk_scenario *s, uint64_t *random)
{
    const disk_case before = *c;
    disk_image *images[IMAGES];
    const char *modes[IMAGES];
    for (int i = 0; i < IMAGES; i++)
        images[i] = disk_image_left(disk_draw(random), &modes[i]);
    for (int i = 0; i < IMAGES && c->wrong[0] == '\0'; i++) {
        *c = before;
        disk_image_put(images[i]);
        c->torn = c->torn || c->failed;
        s->check(c);
        run.images++;
        if (c->wrong[0] == '\0' && disk_draw_below(random, 3) == 0 && (!has_out(s) || c->torn)) {
            disk_image *out = disk_image_take(), *below = disk_image_below(out, "out");
            const bool there = disk_image_count(below) > 0;
            disk_image_free(below);
            disk_image_free(out);
            if (!has_out(s) || !there) redo(c, s, "when power is back");
        }
        if (c->wrong[0] == '\0') continue;
        const size_t length = strlen(c->wrong);
        snprintf(c->wrong + length, sizeof(c->wrong) - length, " [left: %s]", modes[i]);
    }
    for (int i = 0; i < IMAGES; i++)
        disk_image_free(images[i]);
}

static void judge(disk_case *c, const disk_scenario *s, const disk_plan *plan,
    const disk_result *result, uint64_t *random)
{
    if (result->crashed) {
        check_left(c, s, random);
        return;
    }
    if (result->error != 0 && result->error != EINTR) {
        check_named(c, s, result);
    } else if (result->faults > 0) {
        check_quiet(c);
    }
    if (s->check != NULL) s->check(c);
    if (has_out(s)) check_nothing_left(c, plan);
    if (c->wrong[0] != '\0') return;
    const uint64_t then = disk_draw_below(random, 3);
    if (then == 0 && s->writes) {
        check_left(c, s, random);
    } else if (then == 1 && (!has_out(s) || (c->failed && !says(c->notes, "is there: ")))) {
        redo(c, s, "after it");
    }
}

// ---- a case

static void tell_case(
    char *text, size_t bytes, const disk_scenario *s, int variant, const disk_plan *plan)
{
    const int length = snprintf(text, bytes, "%s, variant %d: %s at %s %d of %s", s->name, variant,
        disk_fault_names[plan->kind], disk_call_name(plan->at.call), plan->at.ordinal,
        plan->at.name);
    if (length < 0 || (size_t)length >= bytes) return;
    if (plan->kind == DISK_EIO_THEN_CRASH) {
        snprintf(text + length, bytes - (size_t)length, ", power lost at %s %d of %s",
            disk_call_name(plan->crash_at.call), plan->crash_at.ordinal, plan->crash_at.name);
    }
}

static void run_case(long long number)
{
    uint64_t random = (uint64_t)run.seed * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)number;
    int shares = 0, scenario = 0;
    for (int i = 0; i < SCENARIOS; i++)
        shares += scenarios[i]->share;
    int drawn = (int)disk_draw_below(&random, (uint64_t)shares);
    while (drawn >= scenarios[scenario]->share)
        drawn -= scenarios[scenario++]->share;
    if (run.scenario >= 0) scenario = run.scenario;
    const disk_scenario *s = scenarios[scenario];
    int variant = (int)disk_draw_below(&random, (uint64_t)s->variants);
    // Those with files of some MiB take as long as twenty others.
    if ((s == &disk_save && variant >= 24) || (s == &disk_load && variant == 5)) {
        if (disk_draw_below(&random, 4) != 0) variant %= 4;
    }
    snprintf(run.now, sizeof(run.now), "%s, variant %d, with no fault", s->name, variant);
    const known *k = know(scenario, variant);
    const disk_plan plan = draw_plan(s, k, &random);
    disk_case c;
    disk_result result;
    start_case(&c, variant, k->after);
    tell_case(run.now, sizeof(run.now), s, variant, &plan);
    alarm(CASE_SECONDS);
    disk_image_put(k->before);
    disk_begin(&plan);
    s->work(&c);
    disk_end(&result);
    c.torn = result.crashed;
    int calls = 0;
    (void)disk_places(&calls);
    run.calls += calls;
    run.faults[plan.kind] += result.faults > 0;
    run.by_scenario[scenario] += result.faults > 0;
    run.missed += result.faults == 0;
    judge(&c, s, &plan, &result, &random);
    alarm(0);
    pthread_mutex_destroy(&c.lock);
    if (c.wrong[0] == '\0') return;
    run.failed++;
    for (char *at = c.notes; *at != '\0'; at++) {
        if (*at == '\n') *at = '|';
    }
    printf("FAIL: --seed=%lld --case=%lld: %s: %s; said: %.400s\n", run.seed, number, run.now,
        c.wrong, c.notes);
}

static void put_words(const char *words)
{
    const ssize_t put = write(STDERR_FILENO, words, strlen(words));
    (void)put;
}

// An assertion of the program, or a case that does not end.
static void end_badly(int number)
{
    put_words("FAIL: ");
    put_words(run.now);
    put_words(number == SIGALRM ? ": does not end\n" : ": the program aborts\n");
    signal(number, SIG_DFL);
    raise(number == SIGALRM ? SIGKILL : number);
}

static void read_options(int count, char **arguments)
{
    const time_t now = time(NULL);
    struct tm date;
    localtime_r(&now, &date);
    run.seed = (date.tm_year + 1900) * 10000LL + (date.tm_mon + 1) * 100 + date.tm_mday;
    run.cases = CY_TEST_SANITIZED ? 200 : 2000;
    run.scenario = -1;
    for (int i = 1; i < count; i++) {
        const char *equals = strchr(arguments[i], '=');
        const char *value = equals != NULL ? equals + 1 : "";
        bool known_option = true;
        if (strncmp(arguments[i], "--seed=", 7) == 0) {
            run.seed = strtoll(value, NULL, 10);
        } else if (strncmp(arguments[i], "--cases=", 8) == 0) {
            run.cases = strtoll(value, NULL, 10);
        } else if (strncmp(arguments[i], "--first=", 8) == 0) {
            run.first = strtoll(value, NULL, 10);
        } else if (strncmp(arguments[i], "--case=", 7) == 0) {
            run.first = strtoll(value, NULL, 10);
            run.cases = 1;
        } else if (strncmp(arguments[i], "--scenario=", 11) == 0) {
            for (int j = 0; j < SCENARIOS; j++)
                run.scenario = strcmp(scenarios[j]->name, value) == 0 ? j : run.scenario;
            known_option = run.scenario >= 0;
        } else {
            known_option = false;
        }
        if (known_option) continue;
        fprintf(stderr, "file_faults: error: what is %s\n", arguments[i]);
        exit(2);
    }
}

static void summarize(double seconds)
{
    long long faults = 0;
    for (int i = 0; i < DISK_FAULT_KINDS; i++) {
        faults += run.faults[i];
        printf("file_faults: %-14s %7lld\n", disk_fault_names[i], run.faults[i]);
    }
    for (int i = 0; i < SCENARIOS; i++)
        printf("file_faults: in %-11s %7lld\n", scenarios[i]->name, run.by_scenario[i]);
    printf("file_faults: seed %lld, %lld cases: %lld faults among %lld calls, %lld images of lost "
           "power, %lld cases whose call was not made, %lld failed, %.0f s\n",
        run.seed, run.cases, faults, run.calls, run.images, run.missed, run.failed, seconds);
    if (faults < run.cases * 9 / 10) {
        printf("FAIL: faults in %lld of %lld cases\n", faults, run.cases);
        run.failed++;
    }
}

int main(int count, char **arguments)
{
    const char *memory = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    struct timespec start, end;
    struct rlimit files;
    setvbuf(stdout, NULL, _IOLBF, 0);
    read_options(count, arguments);
    // Who keeps many files open does not open some of them again.
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > 1024) {
        files.rlim_cur = 1024;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    signal(SIGALRM, end_badly);
    signal(SIGABRT, end_badly);
    if (!CY_TEST_SANITIZED) signal(SIGSEGV, end_badly); // sanitizers say more
    disk_open(memory);
    atexit(disk_close);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (long long i = 0; i < run.cases && run.failed < 40; i++)
        run_case(run.first + i);
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (int i = 0; i < SCENARIOS; i++) {
        for (int j = 0; j < VARIANTS_MOST; j++) {
            disk_image_free(all_known[i][j].before);
            disk_image_free(all_known[i][j].after);
            free(all_known[i][j].places);
        }
    }
    summarize((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
    return run.failed > 0;
}
