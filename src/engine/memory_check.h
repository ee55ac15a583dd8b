// engine/memory_check.h: whether the memory that the ranks of a machine have planned is free there.
//
// The system maps more than it has and ends the process when the pages are touched, without a word.
// So ranks tell each other what they have planned before any of them touches a page. What the
// system does not tell of its memory refuses nothing.
//
// Part of the engine: its thread. Collective over the ranks of the run.

#ifndef CY_ENGINE_MEMORY_CHECK_H
#define CY_ENGINE_MEMORY_CHECK_H

#include "engine/engine.h"

// After the engine has planned. CY_ERR_MEMORY on every rank of a machine that has less free.
CY_MUST_CHECK cy_status cy_engine_check_memory(cy_engine *engine);

#endif
