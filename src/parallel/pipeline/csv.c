// Reads a schedule that a user wrote as a CSV file: one line a rank, one cell an action
// (docs/formats/schedule-csv.md).

#include "parallel/pipeline/build.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX (size_t)(256 << 20)
#define NUMBER_MAX     99999999
#define QUOTED_MAX     24 // of a cell in a message

typedef struct reader {
    cy_schedule *schedule; // borrowed
    const char *path;      // borrowed
    int line;              // from 1
    int rank;              // of the next line of cells
    bool transfers;
} reader;

static cy_status fail_cell(const reader *r, const char *cell, size_t length, const char *words)
{
    const int shown = length < QUOTED_MAX ? (int)length : QUOTED_MAX;
    return CY_FAIL(CY_ERR_REQUEST, "%s:%d: \"%.*s\" %s", r->path, r->line, shown, cell, words);
}

// Reads digits at *at; false when there are none or too many.
static bool read_number(int *number, const char *cell, size_t length, size_t *at)
{
    const size_t start = *at;
    int value = 0;
    while (*at < length && '0' <= cell[*at] && cell[*at] <= '9') {
        value = value * 10 + (cell[*at] - '0');
        if (value > NUMBER_MAX) return false;
        (*at)++;
    }
    *number = value;
    return *at > start;
}

static bool read_kind(cy_action_kind *kind, const char *cell, size_t letters)
{
    for (int i = 0; i < CY_ACTION_KINDS; i++) {
        const char *code = cy_action_code((cy_action_kind)i);
        if (strlen(code) == letters && memcmp(code, cell, letters) == 0) {
            *kind = (cy_action_kind)i;
            return true;
        }
    }
    return false;
}

// Whether a cell has the code of work that training does by itself between the actions.
static bool is_of_training(const char *cell, size_t letters)
{
    static const char *const codes[] = {"GA", "RE", "RC", "OF", "FE", "OP"};
    for (size_t i = 0; letters == 2 && i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (memcmp(codes[i], cell, letters) == 0) return true;
    }
    return false;
}

// The other rank of a transfer follows from the segments.
static int peer_of(const cy_schedule *schedule, int rank, cy_action action)
{
    const int segment = cy_schedule_segment(schedule, rank, action.chunk);
    const bool next =
        action.kind == CY_ACTION_SEND_ACTIVATION || action.kind == CY_ACTION_RECV_GRADIENT;
    const int other = next ? segment + 1 : segment - 1;
    if (other < 0 || other >= cy_schedule_segments(schedule)) return -1;
    return cy_schedule_segment_rank(schedule, other);
}

static cy_status read_cell(reader *r, const char *cell, size_t length)
{
    size_t at = 0;
    while (at < length && 'A' <= cell[at] && cell[at] <= 'Z')
        at++;
    cy_action action = {.chunk = 0, .peer = -1};
    if (is_of_training(cell, at)) {
        return fail_cell(r, cell, length,
            "is not an action of a schedule: leave it out, zero_stage, recompute and the step see "
            "to it");
    }
    if (!read_kind(&action.kind, cell, at)) {
        return fail_cell(r, cell, length, "is no action: F, B, I or W and a microbatch, as in F3");
    }
    if (!read_number(&action.microbatch, cell, length, &at)) {
        return fail_cell(r, cell, length, "has no microbatch, as in F3");
    }
    if (at < length && cell[at] == '.') {
        at++;
        if (!read_number(&action.chunk, cell, length, &at)) {
            return fail_cell(r, cell, length, "has no chunk after its point, as in F3.1");
        }
    }
    if (at < length) return fail_cell(r, cell, length, "goes on after the action");
    if (action.microbatch >= r->schedule->microbatches) {
        return fail_cell(r, cell, length, "is of a microbatch that there is not");
    }
    if (action.chunk >= r->schedule->chunks) {
        return fail_cell(r, cell, length, "is of a chunk that there is not");
    }
    if (cy_action_is_transfer(action.kind)) {
        action.peer = peer_of(r->schedule, r->rank, action);
        r->transfers = true;
    }
    return cy_schedule_add(r->schedule, r->rank, action);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static cy_status read_placement(reader *r, const char *line, size_t length)
{
    const size_t word = strlen("placement");
    if (r->rank > 0) {
        return CY_FAIL(
            CY_ERR_REQUEST, "%s:%d: the placement stands before the first rank", r->path, r->line);
    }
    const char *value = line + word;
    size_t left = length - word;
    while (left > 0 && (is_blank(*value) || *value == ',')) {
        value++;
        left--;
    }
    while (left > 0 && (is_blank(value[left - 1]) || value[left - 1] == ','))
        left--;
    if (left == 1 && value[0] == 'v') {
        r->schedule->placement = CY_PLACEMENT_V;
    } else if (left == 4 && memcmp(value, "loop", 4) == 0) {
        r->schedule->placement = CY_PLACEMENT_LOOP;
    } else {
        return fail_cell(r, value, left, "is no placement: loop or v");
    }
    return CY_OK;
}

static cy_status read_line(reader *r, const char *line, size_t length)
{
    while (length > 0 && is_blank(line[0])) {
        line++;
        length--;
    }
    if (length == 0 || line[0] == '#') return CY_OK;
    if (length >= 9 && memcmp(line, "placement", 9) == 0) return read_placement(r, line, length);
    if (r->rank == r->schedule->stages) {
        return CY_FAIL(CY_ERR_REQUEST, "%s:%d: a line for rank %d, there are %d stages", r->path,
            r->line, r->rank, r->schedule->stages);
    }
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && line[end] != ',')
            end++;
        size_t first = at, last = end;
        while (first < last && is_blank(line[first]))
            first++;
        while (last > first && is_blank(line[last - 1]))
            last--;
        if (last > first) CY_TRY(read_cell(r, line + first, last - first));
        at = end + 1;
    }
    r->rank++;
    return CY_OK;
}

static cy_status read_lines(reader *r, const cy_text *text)
{
    for (size_t at = 0; at < text->length;) {
        const char *line = text->bytes + at;
        const char *stop = memchr(line, '\n', text->length - at);
        const size_t length = stop != NULL ? (size_t)(stop - line) : text->length - at;
        r->line++;
        CY_TRY(read_line(r, line, length));
        at += length + 1;
    }
    if (r->rank == r->schedule->stages) return CY_OK;
    return CY_FAIL(CY_ERR_REQUEST, "%s: %d lines of actions for %d stages", r->path, r->rank,
        r->schedule->stages);
}

cy_status cy_schedule_read_csv(cy_schedule *schedule, bool *transfers, const char *path)
{
    cy_text text = {0};
    CY_TRY(cy_file_read(&text, path, FILE_BYTES_MAX));
    reader r = {.schedule = schedule, .path = path};
    const cy_status status = read_lines(&r, &text);
    cy_text_free(&text);
    if (status == CY_OK) *transfers = r.transfers;
    return status;
}
