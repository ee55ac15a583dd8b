// comm/mesh.h: world ranks as coordinates of the parallel dimensions, and the ranks of each group.
//
// Attention layers cut the ranks of one pipeline stage into (dp, cp, tp); expert layers cut the
// same ranks into (edp, ep, etp), so ep need not divide dp. A mesh is a value without pointers and
// these functions are pure, except for the one that reads what a user wrote.

#ifndef CY_COMM_MESH_H
#define CY_COMM_MESH_H

#include "base/text.h"

#include <stdbool.h>

typedef enum cy_axis {
    CY_AXIS_TP,
    CY_AXIS_CP,
    CY_AXIS_PP,
    CY_AXIS_DP,
} cy_axis;

#define CY_AXES 4

typedef struct cy_mesh {
    int size[CY_AXES];      // by cy_axis
    cy_axis order[CY_AXES]; // from the axis whose neighbours have adjacent ranks to the slowest
    int ep;
    int etp;
    int edp; // the rest: ranks of a stage / (ep etp)
    int world;
} cy_mesh;

typedef struct cy_coordinates {
    int at[CY_AXES]; // by cy_axis
    int ep;
    int etp;
    int edp;
} cy_coordinates;

// Kinds of groups: all ranks that differ from this one in the named axes and in no other.
typedef enum cy_mesh_kind {
    CY_MESH_TP,
    CY_MESH_CP,
    CY_MESH_PP,
    CY_MESH_DP,
    CY_MESH_CP_DP,     // gradients of everything but experts: the same parameters, other tokens
    CY_MESH_PP_DP,     // the same tensor shard in all stages and replicas
    CY_MESH_MODEL,     // tp x pp: what holds the model once
    CY_MESH_STAGE,     // tp x cp x dp: all ranks of a pipeline stage
    CY_MESH_EMBEDDING, // first and last stage of a pipeline, where the embedding may be tied
    CY_MESH_EP,
    CY_MESH_ETP,
    CY_MESH_EDP, // gradients of experts
    CY_MESH_WORLD,
} cy_mesh_kind;

#define CY_MESH_KINDS 13

// The sizes that a configuration asks for. `rank_order` lists the axes, fastest first:
// "tp,cp,pp,dp".
typedef struct cy_mesh_spec {
    int tp, cp, pp, dp;
    int ep, etp;
    const char *rank_order; // borrowed
    int world;              // ranks that were started; 0 when that is not known yet
} cy_mesh_spec;

// Fails with CY_ERR_REQUEST and the numbers that do not go together. *mesh is set on success.
CY_MUST_CHECK cy_status cy_mesh_make(cy_mesh *mesh, const cy_mesh_spec *request);

cy_coordinates cy_mesh_coordinates(const cy_mesh *mesh, int rank);

// The rank with these attention coordinates, and the rank of stage `pp` with expert coordinates.
int cy_mesh_rank(const cy_mesh *mesh, int tp, int cp, int pp, int dp);
int cy_mesh_expert_rank(const cy_mesh *mesh, int pp, int etp, int ep, int edp);

// Number of ranks in a group of this kind. An embedding group has one member in a world with one
// stage, otherwise two.
int cy_mesh_group_size(const cy_mesh *mesh, cy_mesh_kind kind);

// ranks [cy_mesh_group_size]: the group of this kind that `rank` belongs to, ascending, which is
// also the order of the coordinate. Returns the place of `rank` in it, or -1 where it is in none
// (an embedding group has no middle stages; the list is then that of its pipeline).
int cy_mesh_ranks(const cy_mesh *mesh, cy_mesh_kind kind, int rank, int *ranks);

// The same place without the list, in constant time.
int cy_mesh_group_rank(const cy_mesh *mesh, cy_mesh_kind kind, int rank);

// "tp", "cp_dp", "embedding"... and the dimension under which its traffic is counted: "tp", "cp",
// "pp", "dp", "ep" or "world".
const char *cy_mesh_kind_name(cy_mesh_kind kind);
const char *cy_mesh_kind_dimension(cy_mesh_kind kind);

// Adds an overview that a person can read.
CY_MUST_CHECK cy_status cy_mesh_describe(const cy_mesh *mesh, cy_text *text);

#endif
