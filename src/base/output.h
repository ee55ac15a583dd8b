// base/output.h: files that a command writes for its user.
//
// A file is written beside its place under a name that nothing else has, forced to the disk and
// renamed. What stands at its place is replaced only where it is a regular file that begins and
// ends as the outputs of its kind do: never a folder, a device, a pipe, a symbolic link, an input,
// or a file of another program.

#ifndef CY_BASE_OUTPUT_H
#define CY_BASE_OUTPUT_H

#include "base/status.h"

#include <stddef.h>

// How a file of a kind is recognised. NULL: it may be anything.
typedef struct cy_output_signature {
    const char *begins; // its first bytes
    const char *holds;  // stands somewhere in its first CY_OUTPUT_HEAD bytes
    const char *ends;   // its last bytes
} cy_output_signature;

#define CY_OUTPUT_HEAD       4096
#define CY_OUTPUT_SIGNATURES 2

// Text of a fixed form: every file that the program writes of a kind has one of its marks.
typedef struct cy_output_kind {
    const char *name;                                // "a table of runs", for messages
    cy_output_signature marks[CY_OUTPUT_SIGNATURES]; // all NULL: none
} cy_output_kind;

// Pictures. Whoever draws one puts the comment on a line of its own behind the opening tag.
#define CY_OUTPUT_SVG_COMMENT "<!-- drawn by cyclotron -->"
extern const cy_output_kind cy_output_svg;

// Whether a file of that kind may be put at `path`, which need not be there. CY_ERR_REQUEST names
// what stands there and is not replaced. To be asked before long work as well.
CY_MUST_CHECK cy_status cy_output_check(const char *path, const cy_output_kind *kind);

// Writes bytes [count], which have a mark of the kind, whole or not at all. A place that is taken
// is refused as cy_output_check refuses it.
CY_MUST_CHECK cy_status cy_output_write(
    const char *path, const cy_output_kind *kind, const void *bytes, size_t count);

#endif
