// config/doc.h: the table of keys as a page to read.

#ifndef CY_CONFIG_DOC_H
#define CY_CONFIG_DOC_H

#include "config/config.h"

// Appends one line a key: name, what it takes, default, words. For a terminal.
CY_MUST_CHECK cy_status cy_config_doc_text(cy_text *page);

// Appends docs/configuration.md.
CY_MUST_CHECK cy_status cy_config_doc_markdown(cy_text *page);

// Appends the keys as words for a shell's completion: "--training.seed=".
CY_MUST_CHECK cy_status cy_config_doc_words(cy_text *page);

#endif
