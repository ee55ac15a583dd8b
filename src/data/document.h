// data/document.h: reads documents from files: .txt (a file is a document) and .jsonl (a line is a
// document), each also compressed as .gz or .zst. Files with other endings are read as .txt, except
// for endings of formats that are not text, which are rejected.
//
// A line has at most 64 MiB; a .txt file that may not be cut at lines has at most 4 GiB. A longer
// one, compressed or not, is CY_ERR_CORRUPT before all of it is in memory.
//
// A reader belongs to one thread. A damaged file is CY_ERR_CORRUPT, and the message names the line;
// so is a file that was cut or written to since it was opened.

#ifndef CY_DATA_DOCUMENT_H
#define CY_DATA_DOCUMENT_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cy_document_options {
    const char *field; // borrowed; of .jsonl; NULL is "text"
    // Borrowed; where set, long texts are cut at lines (tokenizer/pretokenizer.h).
    const uint8_t *classes;
} cy_document_options;

typedef struct cy_document_reader cy_document_reader;

// *reader is owned by the caller.
CY_MUST_CHECK cy_status cy_document_open(
    cy_document_reader **reader, const char *path, const cy_document_options *options);
void cy_document_close(cy_document_reader *reader);

typedef enum cy_document_state {
    CY_DOCUMENT_GOES_ON, // the next chunk belongs to the same document
    CY_DOCUMENT_ENDS,
    CY_DOCUMENT_NONE, // nothing was added: the file has ended
} cy_document_state;

// Appends the next document, or a chunk of it, to *text.
CY_MUST_CHECK cy_status cy_document_next(
    cy_document_reader *reader, cy_text *text, cy_document_state *state);

// Bytes of the file that were read so far.
int64_t cy_document_position(const cy_document_reader *reader);

#endif
