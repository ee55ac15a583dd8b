// Computes the mesh of ranks from a configuration: coordinates, the members of each group, and an
// overview for people.

#include "comm/mesh.h"

#include "base/status.h"

#include <stdint.h>
#include <string.h>

#define AXIS(axis) (1u << (axis))

static const char *const axis_names[CY_AXES] = {
    [CY_AXIS_TP] = "tp",
    [CY_AXIS_CP] = "cp",
    [CY_AXIS_PP] = "pp",
    [CY_AXIS_DP] = "dp",
};

// `axes` are those in which the members differ; groups of experts and embedding ends are cut
// otherwise.
static const struct {
    const char *name;
    const char *dimension;
    unsigned axes;
} kinds[CY_MESH_KINDS] = {
    [CY_MESH_TP] = {"tp", "tp", AXIS(CY_AXIS_TP)},
    [CY_MESH_CP] = {"cp", "cp", AXIS(CY_AXIS_CP)},
    [CY_MESH_PP] = {"pp", "pp", AXIS(CY_AXIS_PP)},
    [CY_MESH_DP] = {"dp", "dp", AXIS(CY_AXIS_DP)},
    [CY_MESH_CP_DP] = {"cp_dp", "dp", AXIS(CY_AXIS_CP) | AXIS(CY_AXIS_DP)},
    [CY_MESH_PP_DP] = {"pp_dp", "dp", AXIS(CY_AXIS_PP) | AXIS(CY_AXIS_DP)},
    [CY_MESH_MODEL] = {"model", "tp", AXIS(CY_AXIS_TP) | AXIS(CY_AXIS_PP)},
    [CY_MESH_STAGE] = {"stage", "dp", AXIS(CY_AXIS_TP) | AXIS(CY_AXIS_CP) | AXIS(CY_AXIS_DP)},
    [CY_MESH_EMBEDDING] = {"embedding", "pp", 0},
    [CY_MESH_EP] = {"ep", "ep", 0},
    [CY_MESH_ETP] = {"etp", "ep", 0},
    [CY_MESH_EDP] = {"edp", "dp", 0},
    [CY_MESH_WORLD] = {"world", "world",
        AXIS(CY_AXIS_TP) | AXIS(CY_AXIS_CP) | AXIS(CY_AXIS_PP) | AXIS(CY_AXIS_DP)},
};

const char *cy_mesh_kind_name(cy_mesh_kind kind)
{
    return kinds[kind].name;
}

const char *cy_mesh_kind_dimension(cy_mesh_kind kind)
{
    return kinds[kind].dimension;
}

// ---- from a configuration

static cy_status read_order(cy_axis *order, const char *text)
{
    unsigned seen = 0;
    const char *at = text;
    for (int i = 0; i < CY_AXES; i++) {
        const size_t length = strcspn(at, ",");
        int axis = 0;
        while (axis < CY_AXES &&
            (strlen(axis_names[axis]) != length || strncmp(at, axis_names[axis], length) != 0)) {
            axis++;
        }
        if (axis == CY_AXES) break;
        seen |= AXIS(axis);
        order[i] = (cy_axis)axis;
        at += length;
        if (*at == ',' && i < CY_AXES - 1) at++;
    }
    if (seen == AXIS(CY_AXES) - 1 && *at == '\0') return CY_OK;
    const cy_status status = CY_FAIL(
        CY_ERR_REQUEST, "rank_order \"%s\" does not name each of tp, cp, pp, dp once", text);
    cy_error_set_hint("fastest first, such as \"tp,cp,pp,dp\"");
    return status;
}

static cy_status check_sizes(const cy_mesh_spec *request)
{
    const struct {
        const char *name;
        int size;
    } sizes[] = {{"tp_size", request->tp}, {"cp_size", request->cp}, {"pp_size", request->pp},
        {"dp_size", request->dp}, {"ep_size", request->ep}, {"etp_size", request->etp}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i].size < 1) {
            return CY_FAIL(
                CY_ERR_REQUEST, "%s is %d: sizes start at 1", sizes[i].name, sizes[i].size);
        }
    }
    return CY_OK;
}

cy_status cy_mesh_make(cy_mesh *mesh, const cy_mesh_spec *request)
{
    CY_TRY(check_sizes(request));
    cy_mesh made = {
        .size = {request->tp, request->cp, request->pp, request->dp},
        .ep = request->ep,
        .etp = request->etp,
    };
    CY_TRY(read_order(made.order, request->rank_order));

    int64_t world = 1;
    for (int i = 0; i < CY_AXES; i++) {
        world *= made.size[i];
        if (world > INT32_MAX) {
            return CY_FAIL(CY_ERR_REQUEST, "tp %d x cp %d x pp %d x dp %d are too many ranks",
                request->tp, request->cp, request->pp, request->dp);
        }
    }
    if (request->world > 0 && world != request->world) {
        return CY_FAIL(CY_ERR_REQUEST, "tp %d x cp %d x pp %d x dp %d = %d ranks, but there are %d",
            request->tp, request->cp, request->pp, request->dp, (int)world, request->world);
    }
    made.world = (int)world;

    const int64_t stage = world / request->pp;
    const int64_t expert = (int64_t)request->ep * request->etp;
    if (stage % expert != 0) {
        return CY_FAIL(CY_ERR_REQUEST,
            "ep %d x etp %d = %lld does not divide the %lld ranks of a stage (tp %d x cp %d x dp "
            "%d)",
            request->ep, request->etp, (long long)expert, (long long)stage, request->tp,
            request->cp, request->dp);
    }
    made.edp = (int)(stage / expert);
    *mesh = made;
    return CY_OK;
}

// ---- coordinates

static int stride_of(const cy_mesh *mesh, cy_axis axis)
{
    int stride = 1;
    for (int i = 0; mesh->order[i] != axis; i++)
        stride *= mesh->size[mesh->order[i]];
    return stride;
}

// The number of a rank among those of its stage, which is what the expert mesh cuts.
static int place_in_stage(const cy_mesh *mesh, const int *at)
{
    int place = 0;
    int stride = 1;
    for (int i = 0; i < CY_AXES; i++) {
        const cy_axis axis = mesh->order[i];
        if (axis == CY_AXIS_PP) continue;
        place += at[axis] * stride;
        stride *= mesh->size[axis];
    }
    return place;
}

static int rank_in_stage(const cy_mesh *mesh, int pp, int place)
{
    int rank = pp * stride_of(mesh, CY_AXIS_PP);
    for (int i = 0; i < CY_AXES; i++) {
        const cy_axis axis = mesh->order[i];
        if (axis == CY_AXIS_PP) continue;
        rank += place % mesh->size[axis] * stride_of(mesh, axis);
        place /= mesh->size[axis];
    }
    return rank;
}

cy_coordinates cy_mesh_coordinates(const cy_mesh *mesh, int rank)
{
    CY_ASSERT(0 <= rank && rank < mesh->world);
    cy_coordinates coordinates = {0};
    int rest = rank;
    for (int i = 0; i < CY_AXES; i++) {
        const cy_axis axis = mesh->order[i];
        coordinates.at[axis] = rest % mesh->size[axis];
        rest /= mesh->size[axis];
    }
    const int place = place_in_stage(mesh, coordinates.at);
    coordinates.etp = place % mesh->etp;
    coordinates.ep = place / mesh->etp % mesh->ep;
    coordinates.edp = place / mesh->etp / mesh->ep;
    return coordinates;
}

int cy_mesh_rank(const cy_mesh *mesh, int tp, int cp, int pp, int dp)
{
    const int at[CY_AXES] = {tp, cp, pp, dp};
    int rank = 0;
    int stride = 1;
    for (int i = 0; i < CY_AXES; i++) {
        const cy_axis axis = mesh->order[i];
        CY_ASSERT(0 <= at[axis] && at[axis] < mesh->size[axis]);
        rank += at[axis] * stride;
        stride *= mesh->size[axis];
    }
    return rank;
}

int cy_mesh_expert_rank(const cy_mesh *mesh, int pp, int etp, int ep, int edp)
{
    CY_ASSERT(0 <= pp && pp < mesh->size[CY_AXIS_PP] && 0 <= etp && etp < mesh->etp);
    CY_ASSERT(0 <= ep && ep < mesh->ep && 0 <= edp && edp < mesh->edp);
    return rank_in_stage(mesh, pp, etp + mesh->etp * (ep + mesh->ep * edp));
}

// ---- groups

int cy_mesh_group_size(const cy_mesh *mesh, cy_mesh_kind kind)
{
    if (kind == CY_MESH_EMBEDDING) return mesh->size[CY_AXIS_PP] > 1 ? 2 : 1;
    if (kind == CY_MESH_EP) return mesh->ep;
    if (kind == CY_MESH_ETP) return mesh->etp;
    if (kind == CY_MESH_EDP) return mesh->edp;
    int size = 1;
    for (int axis = 0; axis < CY_AXES; axis++) {
        if ((kinds[kind].axes & AXIS(axis)) != 0) size *= mesh->size[axis];
    }
    return size;
}

// Member i of the group around `rank`, walking its axes from the fastest.
static int member_of_axes(const cy_mesh *mesh, unsigned axes, const int *at, int i)
{
    int rank = 0;
    int stride = 1;
    for (int o = 0; o < CY_AXES; o++) {
        const cy_axis axis = mesh->order[o];
        int coordinate = at[axis];
        if ((axes & AXIS(axis)) != 0) {
            coordinate = i % mesh->size[axis];
            i /= mesh->size[axis];
        }
        rank += coordinate * stride;
        stride *= mesh->size[axis];
    }
    return rank;
}

static int member(const cy_mesh *mesh, cy_mesh_kind kind, const cy_coordinates *me, int i)
{
    const int pp = me->at[CY_AXIS_PP];
    if (kind == CY_MESH_EMBEDDING) {
        return member_of_axes(
            mesh, AXIS(CY_AXIS_PP), me->at, i == 0 ? 0 : mesh->size[CY_AXIS_PP] - 1);
    }
    if (kind == CY_MESH_EP) return cy_mesh_expert_rank(mesh, pp, me->etp, i, me->edp);
    if (kind == CY_MESH_ETP) return cy_mesh_expert_rank(mesh, pp, i, me->ep, me->edp);
    if (kind == CY_MESH_EDP) return cy_mesh_expert_rank(mesh, pp, me->etp, me->ep, i);
    return member_of_axes(mesh, kinds[kind].axes, me->at, i);
}

int cy_mesh_group_rank(const cy_mesh *mesh, cy_mesh_kind kind, int rank)
{
    const cy_coordinates me = cy_mesh_coordinates(mesh, rank);
    const int pp = mesh->size[CY_AXIS_PP];
    if (kind == CY_MESH_EMBEDDING) {
        if (me.at[CY_AXIS_PP] == 0) return 0;
        return me.at[CY_AXIS_PP] == pp - 1 ? 1 : -1;
    }
    if (kind == CY_MESH_EP) return me.ep;
    if (kind == CY_MESH_ETP) return me.etp;
    if (kind == CY_MESH_EDP) return me.edp;
    int place = 0;
    int stride = 1;
    for (int i = 0; i < CY_AXES; i++) {
        const cy_axis axis = mesh->order[i];
        if ((kinds[kind].axes & AXIS(axis)) == 0) continue;
        place += me.at[axis] * stride;
        stride *= mesh->size[axis];
    }
    return place;
}

int cy_mesh_ranks(const cy_mesh *mesh, cy_mesh_kind kind, int rank, int *ranks)
{
    const cy_coordinates me = cy_mesh_coordinates(mesh, rank);
    const int size = cy_mesh_group_size(mesh, kind);
    for (int i = 0; i < size; i++)
        ranks[i] = member(mesh, kind, &me, i);
    return cy_mesh_group_rank(mesh, kind, rank);
}

// ---- overview

#define SHOWN_GROUPS 8
#define SHOWN_RUNS   3

// Runs of neighbours: "0-3,12-15"; a long list keeps its beginning and its end: "0,8,16..56".
static cy_status describe_ranks(cy_text *text, const cy_mesh *mesh, cy_mesh_kind kind, int rank)
{
    const cy_coordinates me = cy_mesh_coordinates(mesh, rank);
    const int size = cy_mesh_group_size(mesh, kind);
    int first = member(mesh, kind, &me, 0);
    int runs = 0;
    for (int i = 1; i <= size; i++) {
        const int last = member(mesh, kind, &me, i - 1);
        if (i < size && member(mesh, kind, &me, i) == last + 1) continue;
        const bool shown = runs < SHOWN_RUNS || i == size;
        const char *before = runs == 0 ? " " : runs <= SHOWN_RUNS ? "," : "..";
        if (shown) CY_TRY(cy_text_add(text, "%s%d", before, first));
        if (shown && last > first) CY_TRY(cy_text_add(text, "-%d", last));
        if (i < size) first = member(mesh, kind, &me, i);
        runs++;
    }
    return CY_OK;
}

static cy_status describe_kind(cy_text *text, const cy_mesh *mesh, cy_mesh_kind kind)
{
    const int size = cy_mesh_group_size(mesh, kind);
    if (size == 1) return CY_OK;
    // Embedding groups are the only ones with ranks outside: one group for each pipeline.
    const int count =
        kind == CY_MESH_EMBEDDING ? mesh->world / mesh->size[CY_AXIS_PP] : mesh->world / size;
    CY_TRY(cy_text_add(text, "  %-10s%3d x %-4d", cy_mesh_kind_name(kind), count, size));
    int shown = 0;
    for (int rank = 0; rank < mesh->world && shown < SHOWN_GROUPS; rank++) {
        const cy_coordinates me = cy_mesh_coordinates(mesh, rank);
        if (member(mesh, kind, &me, 0) != rank) continue; // each group once: by its first rank
        if (shown > 0) CY_TRY(cy_text_add(text, " |"));
        CY_TRY(describe_ranks(text, mesh, kind, rank));
        shown++;
    }
    if (count > shown) CY_TRY(cy_text_add(text, " | %d more", count - shown));
    return cy_text_add(text, "\n");
}

cy_status cy_mesh_describe(const cy_mesh *mesh, cy_text *text)
{
    CY_TRY(cy_text_add(text, "mesh: %d rank%s = tp %d x cp %d x pp %d x dp %d", mesh->world,
        mesh->world == 1 ? "" : "s", mesh->size[CY_AXIS_TP], mesh->size[CY_AXIS_CP],
        mesh->size[CY_AXIS_PP], mesh->size[CY_AXIS_DP]));
    CY_TRY(
        cy_text_add(text, ", ranks count %s first, then %s, %s, %s\n", axis_names[mesh->order[0]],
            axis_names[mesh->order[1]], axis_names[mesh->order[2]], axis_names[mesh->order[3]]));
    if (mesh->ep > 1 || mesh->etp > 1) {
        CY_TRY(cy_text_add(text, "experts: the %d ranks of a stage = etp %d x ep %d x edp %d\n",
            mesh->world / mesh->size[CY_AXIS_PP], mesh->etp, mesh->ep, mesh->edp));
    }
    if (mesh->world == 1) return CY_OK;
    CY_TRY(cy_text_add(text, "groups (how many x size: ranks)\n"));
    const bool experts = mesh->ep > 1 || mesh->etp > 1;
    for (int kind = 0; kind < CY_MESH_WORLD; kind++) {
        if (kind == CY_MESH_EDP && !experts) continue;
        CY_TRY(describe_kind(text, mesh, (cy_mesh_kind)kind));
    }
    return CY_OK;
}
