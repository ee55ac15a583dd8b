#include "config/mesh.h"

cy_status cy_config_mesh(cy_mesh *mesh, const cy_config *config)
{
    const cy_config_distributed *distributed = &config->distributed;
    const cy_mesh_spec request = {
        .tp = distributed->tp_size,
        .cp = distributed->cp_size,
        .pp = distributed->pp_size,
        .dp = distributed->dp_size,
        .ep = distributed->ep_size,
        .etp = distributed->etp_size,
        .rank_order = distributed->rank_order,
    };
    return cy_mesh_make(mesh, &request);
}
