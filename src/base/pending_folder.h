// base/pending_folder.h: a folder that is made beside its place and renamed when it is whole.
//
// Each attempt has a name of its own, so several may make the same folder at once: the first that
// is whole gets the name, the others are refused then. A lock in the folder says that its maker
// lives. What dead ones left is removed by the next that makes a folder of that name.

#ifndef CY_BASE_PENDING_FOLDER_H
#define CY_BASE_PENDING_FOLDER_H

#include "base/status.h"

typedef struct cy_pending_folder {
    char *place;  // owned: where the folder will stand
    char *parent; // owned
    char *making; // owned: PARENT/.NAME.0123456789abcdef.tmp; not made yet
    int lock;     // -1: not made yet
} cy_pending_folder;

// A path that is taken, unless by an empty folder, is refused. Changes nothing there.
CY_MUST_CHECK cy_status cy_pending_folder_open(cy_pending_folder *place, const char *path);

// To be called before something is written: makes the folders above the place, removes what dead
// attempts left beside it, and makes the folder `making`.
CY_MUST_CHECK cy_status cy_pending_folder_make(cy_pending_folder *place);

// With CY_OK gives the folder `making` its name; otherwise removes it. Returns `status`, or what
// went wrong in naming it. Frees the place.
CY_MUST_CHECK cy_status cy_pending_folder_close(cy_pending_folder *place, cy_status status);

#endif
