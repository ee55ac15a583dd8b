#define _GNU_SOURCE
#include "checkpoint/place.h"

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"

#include <stdio.h>
#include <string.h>

static void free_place(cy_place *place)
{
    cy_memory_free(place->place);
    cy_memory_free(place->parent);
    cy_memory_free(place->making);
    *place = (cy_place){0};
}

static cy_status split(cy_place *place, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (length == 0 || (length == 1 && path[0] == '/')) {
        return CY_FAIL(CY_ERR_REQUEST, "\"%s\" is not a place for a folder", path);
    }
    cy_text text = {0};
    CY_TRY(cy_text_add(&text, "%.*s", (int)length, path));
    place->place = text.bytes;
    const char *slash = strrchr(place->place, '/');
    const char *name = slash != NULL ? slash + 1 : place->place;
    const int head = slash == NULL ? 0 : slash == place->place ? 1 : (int)(slash - place->place);
    cy_text parent = {0};
    CY_TRY(cy_text_add(&parent, "%.*s", head, place->place));
    if (head == 0) CY_TRY(cy_text_add(&parent, "."));
    place->parent = parent.bytes;
    cy_text making = {0};
    CY_TRY(cy_text_add(&making, "%s/.%s.tmp", place->parent, name));
    place->making = making.bytes;
    return CY_OK;
}

cy_status cy_place_open(cy_place *out, const char *path)
{
    cy_place place = {0};
    cy_status status = split(&place, path);
    if (status == CY_OK && cy_path_exists(place.place) && !cy_path_is_empty_folder(place.place)) {
        status =
            CY_FAIL(CY_ERR_REQUEST, "%s is there already: it is not written over", place.place);
        cy_error_set_hint("name a new folder, or remove that one");
    }
    if (status == CY_OK) {
        *out = place;
    } else {
        free_place(&place);
    }
    return status;
}

cy_status cy_place_make(const cy_place *place)
{
    CY_TRY(cy_folder_make(place->parent));
    return cy_folder_remove(place->making);
}

cy_status cy_place_close(cy_place *place, cy_status status)
{
    if (status == CY_OK) {
        if (rename(place->making, place->place) != 0) {
            status = CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", place->making, place->place);
        } else {
            status = cy_folder_sync(place->parent);
        }
    } else {
        char text[4096], hint[1024];
        snprintf(text, sizeof(text), "%s", cy_error_text());
        snprintf(hint, sizeof(hint), "%s", cy_error_hint());
        const cy_status removed = cy_folder_remove(place->making);
        const char *stays = removed != CY_OK ? " (and what was written could not be removed)" : "";
        status = CY_FAIL(status, "%s%s", text, stays);
        if (hint[0] != '\0') cy_error_set_hint("%s", hint);
    }
    free_place(place);
    return status;
}
