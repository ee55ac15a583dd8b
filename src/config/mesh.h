// config/mesh.h: the mesh that a configuration asks for.
//
// A pure function of the configuration; any thread may call it.

#ifndef CY_CONFIG_MESH_H
#define CY_CONFIG_MESH_H

#include "comm/mesh.h"
#include "config/config.h"

// Fails with CY_ERR_REQUEST as cy_mesh_make does.
CY_MUST_CHECK cy_status cy_config_mesh(cy_mesh *mesh, const cy_config *config);

#endif
