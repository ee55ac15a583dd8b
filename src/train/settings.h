// train/settings.h: which settings of a run differ from those of the run that saved its checkpoint.
//
// A resumed run may change what it trains with. Each change that makes other steps of the same
// samples is one line; the order of samples is compared by train/identity.h, the model by the
// checkpoint itself, and the mesh is shown as the run begins.

#ifndef CY_TRAIN_SETTINGS_H
#define CY_TRAIN_SETTINGS_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"

// Adds to *lines one line, with its line end, for each difference from the configuration that the
// checkpoint keeps, or one that says why nothing was compared. Nothing for one that keeps none.
CY_MUST_CHECK cy_status cy_settings_compare(
    cy_text *lines, const cy_config *config, const cy_checkpoint *checkpoint);

#endif
