#include "observe/history.h"

#include "base/file.h"
#include "base/memory.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct cy_room {
    size_t steps, values;
} cy_room;

static cy_status append(cy_series *series, cy_room *room, double step, const json_t *value)
{
    const size_t wanted = (size_t)series->count + 1;
    void *block = series->step;
    CY_TRY(cy_memory_grow(&block, &room->steps, wanted, sizeof(double)));
    series->step = block;
    block = series->value;
    CY_TRY(cy_memory_grow(&block, &room->values, wanted, sizeof(double)));
    series->value = block;
    series->step[series->count] = step;
    series->value[series->count] = json_is_number(value) ? json_number_value(value) : (double)NAN;
    series->count++;
    return CY_OK;
}

static cy_status read_line(cy_history *history, cy_room *rooms, const char *line, size_t length)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const json_t *step = json_object_get(object, "step");
    const json_t *loss = json_object_get(object, "loss");
    const json_t *val_loss = json_object_get(object, "val_loss");
    cy_status status = CY_OK;
    if (!json_is_number(step)) {
        history->unreadable++;
    } else {
        const double at = json_number_value(step);
        if (loss != NULL) status = append(&history->loss, &rooms[0], at, loss);
        if (status == CY_OK && val_loss != NULL) {
            status = append(&history->val_loss, &rooms[1], at, val_loss);
        }
    }
    json_decref(object);
    return status;
}

cy_status cy_history_open(cy_history *history, const char *path)
{
    cy_mapping file = {0};
    CY_TRY(cy_mapping_open(&file, path));
    const char *bytes = (const char *)file.bytes;
    cy_history made = {0};
    cy_room rooms[2] = {{0, 0}, {0, 0}};
    cy_status status = CY_OK;
    for (size_t first = 0; first < file.count && status == CY_OK;) {
        const char *end = memchr(bytes + first, '\n', file.count - first);
        const size_t length = end != NULL ? (size_t)(end - bytes) - first : file.count - first;
        status = read_line(&made, rooms, bytes + first, length);
        first += length + 1;
    }
    cy_mapping_close(&file);
    if (status != CY_OK) {
        cy_history_close(&made);
        return status;
    }
    *history = made;
    return CY_OK;
}

void cy_history_close(cy_history *history)
{
    cy_memory_free(history->loss.step);
    cy_memory_free(history->loss.value);
    cy_memory_free(history->val_loss.step);
    cy_memory_free(history->val_loss.value);
    *history = (cy_history){0};
}
