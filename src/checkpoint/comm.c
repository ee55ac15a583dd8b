#include "checkpoint/comm.h"

static cy_status agree_self(void *context, cy_status *worst, cy_status mine)
{
    (void)context;
    *worst = mine;
    return CY_OK;
}

static cy_status min_self(void *context, int64_t *values, int64_t count)
{
    (void)context;
    (void)values;
    (void)count;
    return CY_OK;
}

cy_checkpoint_comm cy_checkpoint_comm_self(void)
{
    return (cy_checkpoint_comm){.rank = 0, .size = 1, .agree = agree_self, .least = min_self};
}

cy_status cy_checkpoint_agree(
    const cy_checkpoint_comm *ranks, cy_status mine, const char *did, const char *folder)
{
    cy_status worst = mine;
    const cy_status talked = ranks->agree(ranks->context, &worst, mine);
    if (mine != CY_OK) return mine;
    CY_TRY(talked);
    if (worst == CY_OK) return CY_OK;
    return CY_FAIL(CY_ERR_PEER, "another rank %s %s", did, folder);
}
