// engine/memory_check.h: whether the memory that the ranks of a machine have planned is free there,
// and whether their processes may map it.
//
// The system maps more than it has and ends the process when the pages are touched, without a word.
// So ranks tell each other what they have planned before any of them touches a page. What the
// system does not tell of its memory refuses nothing.
//
// Part of the engine: its thread. What comes after the plan is collective over the ranks of the
// run.

#ifndef CY_ENGINE_MEMORY_CHECK_H
#define CY_ENGINE_MEMORY_CHECK_H

#include "engine/engine.h"

// After the engine has planned. CY_ERR_MEMORY on every rank of a machine that has less free, or of
// a process whose limits (ulimit -v, -d) leave less.
CY_MUST_CHECK cy_status cy_engine_check_memory(cy_engine *engine);

// Before anything is planned: CY_ERR_MEMORY where the limits do not even leave what `ranks` ranks
// of this process map beside any plan.
CY_MUST_CHECK cy_status cy_engine_check_room(int ranks);

#endif
