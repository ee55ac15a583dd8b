// Collectives over MPI. For a small sum every rank sends all its data to every other, and each adds
// them. A large sum has two phases: parts go to the rank that adds them, results go to all ranks.

#include "base/memory.h"
#include "comm/mpi/ranks.h"
#include "comm/reduce.h"

#include <stdio.h>
#include <string.h>

// What an exchange of messages of n bytes between all pairs takes, in nanoseconds: a start, longer
// for messages above EAGER_BYTES because of their handshake, and the bytes of each message. Rough,
// and the same everywhere: both ways of a sum have the same bits, so the choice affects time alone.
#define EAGER_BYTES 4032
#define EAGER_NS    400.0
#define AGREE_NS    2600.0
#define BYTES_A_NS  20.0
#define SUM_A_NS    30.0

// Up to so many members data go directly between all pairs. MPI's collectives that do not block
// walk through a schedule for the same messages, which takes longer than small ones.
#define PAIRS_MOST 8

// Messages of the two phases, on the communicator that has no other messages.
#define TAG_FIRST  0
#define TAG_SECOND 1

static MPI_Datatype element_of(cy_dtype dtype)
{
    switch (cy_dtype_size(dtype)) {
    case 1:
        return MPI_UINT8_T;
    case 2:
        return MPI_UINT16_T;
    case 4:
        return MPI_UINT32_T;
    default:
        return MPI_UINT64_T;
    }
}

// Where member `m` sends to, in the staging memory.
static char *staging_of(const mpi_transfer *record, int m)
{
    return record->staging.data + record->skew + record->stride * (size_t)m;
}

// The first element of the part of member `part`. Parts of an all_reduce begin with a cache line,
// counted from the first element; those of a reduce_scatter are equal.
static int64_t part_first(const mpi_group *group, const cy_operation *o, int part)
{
    const int64_t count = cy_view_count(o->in);
    const int64_t width = (int64_t)cy_dtype_size(o->in.dtype);
    const int64_t line = o->kind == CY_OP_ALL_REDUCE ? CY_LINE_BYTES / width : 1;
    const int64_t lines = (count + line - 1) / line;
    const int64_t size = group->base.size;
    const int64_t longer = part < lines % size ? part : lines % size;
    const int64_t first = (lines / size * part + longer) * line;
    return first < count ? first : count;
}

static int64_t part_count(const mpi_group *group, const cy_operation *o, int part)
{
    return part_first(group, o, part + 1) - part_first(group, o, part);
}

static double exchange_ns(double bytes, double others)
{
    return (bytes > EAGER_BYTES ? AGREE_NS : EAGER_NS) + others * bytes / BYTES_A_NS;
}

// Whether every rank gets all data and reduces them itself: one exchange of more bytes, not two.
static bool gathers_all(const mpi_group *group, const cy_operation *o)
{
    const double bytes = (double)cy_view_bytes(o->in);
    const double size = group->base.size;
    const double part = bytes / size;
    const double one = exchange_ns(bytes, size - 1) + bytes * size / SUM_A_NS;
    const double two = 2.0 * exchange_ns(part, size - 1) + bytes / SUM_A_NS;
    return one <= two;
}

static bool in_pairs(const mpi_group *group)
{
    return group->contexts != NULL || group->base.size <= PAIRS_MOST;
}

bool mpi_self_describing(const mpi_group *group, const cy_operation *operation)
{
    return operation->kind == CY_OP_ALL_REDUCE && in_pairs(group) &&
        cy_view_bytes(operation->in) <= EAGER_BYTES && gathers_all(group, operation);
}

// Bytes before the data in a message that contains the call.
static size_t head_bytes(const mpi_group *group, const cy_operation *o)
{
    return mpi_self_describing(group, o) ? sizeof(uint64_t) : 0;
}

// One message of a pair; empty ones are not sent.
static int post_pair(mpi_group *group, mpi_transfer *record, bool send, char *data, size_t bytes,
    int member, int tag)
{
    if (bytes == 0) return MPI_SUCCESS;
    MPI_Request *request = &record->pairs[record->pair_count++];
    if (!send) record->pair_receives++;
    const mpi_route to = mpi_route_collective(group, member, send, tag);
    const int count = (int)bytes;
    return send ? MPI_Isend(data, count, MPI_BYTE, to.process, to.tag, to.communicator, request)
                : MPI_Irecv(data, count, MPI_BYTE, to.process, to.tag, to.communicator, request);
}

// Sends all data of every rank to every other, in order of rank in the staging memory. The rank's
// own are sent from there, too, when the call precedes them.
static int post_all_pairs(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const size_t head = head_bytes(group, o);
    const size_t bytes = head + cy_view_bytes(o->in);
    char *mine = o->in.data;
    int code = MPI_SUCCESS;
    if (head > 0) {
        mine = staging_of(record, group->base.rank);
        memcpy(mine, &record->call, head);
        if (bytes > head) memcpy(mine + head, o->in.data, bytes - head);
    }
    for (int send = 0; send < 2; send++) {
        for (int m = 0; m < group->base.size && code == MPI_SUCCESS; m++) {
            if (m == group->base.rank) continue;
            char *data = send ? mine : staging_of(record, m);
            code = post_pair(group, record, send, data, bytes, m, TAG_FIRST);
        }
    }
    return code;
}

// Every part to the member that reduces it; the own part stays where it is.
static int post_scatter_pairs(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const int size = group->base.size;
    const size_t width = cy_dtype_size(o->in.dtype);
    const size_t own = (size_t)part_count(group, o, group->base.rank) * width;
    int code = MPI_SUCCESS;
    for (int m = 0; m < size && code == MPI_SUCCESS; m++) {
        if (m == group->base.rank) continue;
        code = post_pair(group, record, false, staging_of(record, m), own, m, TAG_FIRST);
    }
    for (int m = 0; m < size && code == MPI_SUCCESS; m++) {
        if (m == group->base.rank) continue;
        char *part = (char *)o->in.data + (size_t)part_first(group, o, m) * width;
        const size_t bytes = (size_t)part_count(group, o, m) * width;
        code = post_pair(group, record, true, part, bytes, m, TAG_FIRST);
    }
    return code;
}

// Sends the reduced parts to all ranks.
static int post_result_pairs(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const int size = group->base.size;
    const size_t width = cy_dtype_size(o->in.dtype);
    int code = MPI_SUCCESS;
    record->pair_receives = 0;
    record->pair_count = 0;
    for (int send = 0; send < 2; send++) {
        for (int m = 0; m < size && code == MPI_SUCCESS; m++) {
            if (m == group->base.rank) continue;
            const int part = send ? group->base.rank : m;
            char *data = (char *)o->out.data + (size_t)part_first(group, o, part) * width;
            const size_t bytes = (size_t)part_count(group, o, part) * width;
            code = post_pair(group, record, send, data, bytes, m, TAG_SECOND);
        }
    }
    return code;
}

typedef struct mpi_part {
    char *data;
    size_t bytes;
} mpi_part;

// What goes to a member, or comes from it, in a collective that adds nothing.
static mpi_part part_of(
    const mpi_group *group, mpi_transfer *record, const cy_operation *o, int member, bool send)
{
    const cy_view view = send ? o->in : o->out;
    const size_t share = cy_view_bytes(view) / (size_t)group->base.size;
    mpi_part whole = {view.data, cy_view_bytes(view)};
    switch (o->kind) {
    case CY_OP_ALL_GATHER:
        return send ? whole : (mpi_part){whole.data + share * (size_t)member, share};
    case CY_OP_ALL_TO_ALL:
        return (mpi_part){whole.data + share * (size_t)member, share};
    case CY_OP_ALL_TO_ALLV: {
        const int64_t *rows = send ? o->in_rows : o->out_rows;
        const size_t row = (size_t)view.cols * cy_dtype_size(view.dtype);
        for (int m = 0; m < member; m++)
            whole.data += (size_t)rows[m] * row;
        return (mpi_part){whole.data, (size_t)rows[member] * row};
    }
    case CY_OP_BROADCAST: {
        const bool mine = o->peer == (send ? group->base.rank : member);
        return (mpi_part){whole.data, mine ? whole.bytes : 0};
    }
    case CY_OP_BARRIER: // that somebody has come is all that there is to say
        return send ? (mpi_part){(char *)&record->call, sizeof(record->call)}
                    : (mpi_part){staging_of(record, member), sizeof(record->call)};
    case CY_OP_ALL_REDUCE:
    case CY_OP_REDUCE_SCATTER:
    case CY_OP_SEND:
    case CY_OP_RECV:
        break;
    }
    return (mpi_part){0};
}

// Collectives that add nothing, as messages between all pairs.
static int post_parts(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    int code = MPI_SUCCESS;
    for (int send = 0; send < 2; send++) {
        for (int m = 0; m < group->base.size && code == MPI_SUCCESS; m++) {
            const mpi_part at = part_of(group, record, o, m, send != 0);
            if (m != group->base.rank)
                code = post_pair(group, record, send != 0, at.data, at.bytes, m, TAG_FIRST);
        }
    }
    const mpi_part from = part_of(group, record, o, group->base.rank, true);
    const mpi_part to = part_of(group, record, o, group->base.rank, false);
    if (from.data != to.data && from.bytes > 0) memcpy(to.data, from.data, from.bytes);
    return code;
}

// Every part goes to the member that reduces it. The own part stays where it is.
static int post_scatter(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    if (in_pairs(group)) return post_scatter_pairs(group, record, o);
    const int size = group->base.size;
    int *send_counts = record->numbers;
    int *send_places = send_counts + size;
    int *recv_counts = send_places + size;
    int *recv_places = recv_counts + size;
    const int own = (int)part_count(group, o, group->base.rank);
    for (int m = 0; m < size; m++) {
        const bool self = m == group->base.rank;
        send_counts[m] = self ? 0 : (int)part_count(group, o, m);
        send_places[m] = (int)part_first(group, o, m);
        recv_counts[m] = self ? 0 : own;
        recv_places[m] = own * m;
    }
    MPI_Datatype element = element_of(o->in.dtype);
    return MPI_Ialltoallv(o->in.data, send_counts, send_places, element, record->staging.data,
        recv_counts, recv_places, element, group->first, &record->request);
}

static int post_uneven(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const int size = group->base.size;
    int *send_counts = record->numbers;
    int *send_places = send_counts + size;
    int *recv_counts = send_places + size;
    int *recv_places = recv_counts + size;
    int64_t in_first = 0;
    int64_t out_first = 0;
    for (int m = 0; m < size; m++) {
        send_counts[m] = (int)(o->in_rows[m] * o->in.cols);
        recv_counts[m] = (int)(o->out_rows[m] * o->in.cols);
        send_places[m] = (int)in_first;
        recv_places[m] = (int)out_first;
        in_first += send_counts[m];
        out_first += recv_counts[m];
    }
    MPI_Datatype element = element_of(o->in.dtype);
    return MPI_Ialltoallv(o->in.data, send_counts, send_places, element, o->out.data, recv_counts,
        recv_places, element, group->first, &record->request);
}

static int post_gather(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    MPI_Datatype element = element_of(o->in.dtype);
    const int count = (int)cy_view_count(o->in);
    const char *own = (char *)o->out.data + cy_view_bytes(o->in) * (size_t)group->base.rank;
    const void *in = own == o->in.data ? MPI_IN_PLACE : o->in.data;
    return MPI_Iallgather(
        in, count, element, o->out.data, count, element, group->first, &record->request);
}

static int post(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const bool adds = o->kind == CY_OP_ALL_REDUCE || o->kind == CY_OP_REDUCE_SCATTER;
    if (group->contexts != NULL && !adds) return post_parts(group, record, o);
    MPI_Datatype element = element_of(o->in.dtype);
    const int count = (int)cy_view_count(o->in);
    switch (o->kind) {
    case CY_OP_ALL_REDUCE:
        if (!gathers_all(group, o)) return post_scatter(group, record, o);
        if (in_pairs(group)) return post_all_pairs(group, record, o);
        return MPI_Iallgather(o->in.data, count, element, record->staging.data, count, element,
            group->first, &record->request);
    case CY_OP_REDUCE_SCATTER:
        return post_scatter(group, record, o);
    case CY_OP_ALL_GATHER:
        return post_gather(group, record, o);
    case CY_OP_ALL_TO_ALL:
        return MPI_Ialltoall(o->in.data, count / group->base.size, element, o->out.data,
            count / group->base.size, element, group->first, &record->request);
    case CY_OP_ALL_TO_ALLV:
        return post_uneven(group, record, o);
    case CY_OP_BROADCAST:
        return MPI_Ibcast(o->out.data, count, element, o->peer, group->first, &record->request);
    case CY_OP_BARRIER:
        return MPI_Ibarrier(group->first, &record->request);
    case CY_OP_SEND:
    case CY_OP_RECV:
        break;
    }
    return MPI_ERR_OTHER;
}

// The longest message of a collective that adds nothing; an upper bound where parts are uneven.
static size_t largest_message(const cy_operation *o)
{
    const size_t in = cy_view_bytes(o->in), out = cy_view_bytes(o->out);
    return o->kind == CY_OP_ALL_TO_ALLV && out > in ? out : in;
}

// MPI counts the bytes of a message by an int.
static cy_status check_message(const cy_operation *o, size_t bytes)
{
    if (bytes <= INT32_MAX) return CY_OK;
    return CY_FAIL(CY_ERR_UNSUPPORTED, "%s in messages of %zu bytes: mpi takes %d",
        cy_operation_name(o->kind), bytes, INT32_MAX);
}

// Takes the memory for what the members send in a reduction. MPI's own collectives leave no room
// between it.
static cy_status take_staging(mpi_group *group, mpi_transfer *record, const cy_operation *o)
{
    const size_t width = cy_dtype_size(o->in.dtype);
    const bool whole = o->kind == CY_OP_ALL_REDUCE && gathers_all(group, o);
    const size_t head = head_bytes(group, o);
    const size_t message = whole ? head + cy_view_bytes(o->in)
                                 : (size_t)part_count(group, o, group->base.rank) * width;
    record->skew = 0;
    record->stride = message;
    if (in_pairs(group)) {
        // The first part is the longest.
        CY_TRY(check_message(o, whole ? message : (size_t)part_count(group, o, 0) * width));
        const int64_t first = whole ? 0 : part_first(group, o, group->base.rank);
        const char *source = (const char *)o->in.data + (size_t)first * width;
        record->stride = cy_line_stride(message);
        if (head == 0) record->skew = cy_line_offset(source); // otherwise it comes from here, too
    }
    return cy_buffer_reserve(&record->staging, record->stride * (size_t)group->base.size);
}

cy_status mpi_collective_start(
    mpi_group *group, mpi_transfer *record, const cy_operation *operation)
{
    const int64_t largest = cy_view_count(operation->in) > cy_view_count(operation->out)
        ? cy_view_count(operation->in)
        : cy_view_count(operation->out);
    if (largest > INT32_MAX) {
        return CY_FAIL(CY_ERR_UNSUPPORTED, "%s of %lld elements: mpi takes %d",
            cy_operation_name(operation->kind), (long long)largest, INT32_MAX);
    }
    if (operation->kind == CY_OP_ALL_REDUCE || operation->kind == CY_OP_REDUCE_SCATTER) {
        CY_TRY(take_staging(group, record, operation));
    } else if (group->contexts != NULL) {
        CY_TRY(check_message(operation, largest_message(operation)));
        record->skew = 0;
        record->stride = sizeof(record->call);
        CY_TRY(cy_buffer_reserve(&record->staging, record->stride * (size_t)group->base.size));
    }
    // NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker): waited for in mpi_wait
    const int code = post(group, record, operation);
    if (code != MPI_SUCCESS) return mpi_failed(code, cy_operation_name(operation->kind));
    if (group->tail != NULL) group->tail->next = record;
    if (group->head == NULL) group->head = record;
    group->tail = record;
    return CY_OK;
    // NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker)
}

// ---- what happens when the first phase is over

static cy_status report_call(mpi_group *group, const mpi_transfer *record, int member)
{
    CY_TRY(mpi_check_calls(group, record->sequence)); // knows what they call, on one machine
    char text[256];
    snprintf(text, sizeof(text), "collective %llu of %s: rank %d (%s) calls something else",
        (unsigned long long)record->sequence, group->base.label, group->ranks[member],
        group->world->process->hosts[group->ranks[member]]);
    return mpi_break_group(group, CY_ERR_PEER, text);
}

static cy_status reduce_whole(mpi_group *group, mpi_transfer *record)
{
    const cy_operation *o = &record->operation;
    const size_t head = head_bytes(group, o);
    const void *ins[4096];
    if (group->base.size > 4096) return CY_FAIL(CY_ERR_UNSUPPORTED, "more than 4096 ranks");
    for (int m = 0; m < group->base.size; m++) {
        const char *said = staging_of(record, m);
        if (head > 0 && memcmp(said, &record->call, head) != 0)
            return report_call(group, record, m);
        ins[m] = said + head;
    }
    ins[group->base.rank] = o->in.data;
    void *out = o->out.data;
    const bool overflow = cy_reduce_many(
        &out, 1, ins, group->base.size, cy_view_count(o->in), o->in.dtype, o->reduce);
    record->overflow = record->overflow || overflow;
    return CY_OK;
}

static cy_status reduce_part(mpi_group *group, mpi_transfer *record)
{
    const cy_operation *o = &record->operation;
    const int size = group->base.size;
    const int rank = group->base.rank;
    const int64_t own = part_count(group, o, rank);
    const size_t width = cy_dtype_size(o->in.dtype);
    const void *ins[4096];
    if (size > 4096) return CY_FAIL(CY_ERR_UNSUPPORTED, "more than 4096 ranks");
    char *mine = (char *)o->in.data + (size_t)part_first(group, o, rank) * width;
    for (int m = 0; m < size; m++)
        ins[m] = staging_of(record, m);
    ins[rank] = mine;
    void *out = o->kind == CY_OP_ALL_REDUCE ? mine : o->out.data;
    const bool overflow = cy_reduce_many(&out, 1, ins, size, own, o->in.dtype, o->reduce);
    record->overflow = record->overflow || overflow;
    return CY_OK;
}

static cy_status begin_second(mpi_group *group, mpi_transfer *record)
{
    const cy_operation *o = &record->operation;
    const int size = group->base.size;
    if (in_pairs(group)) {
        const int paired = post_result_pairs(group, record, o);
        if (paired != MPI_SUCCESS) return mpi_failed(paired, "all_reduce");
        record->phase = MPI_PHASE_SECOND;
        return CY_OK;
    }
    int *counts = record->numbers;
    int *places = counts + size;
    for (int m = 0; m < size; m++) {
        counts[m] = (int)part_count(group, o, m);
        places[m] = (int)part_first(group, o, m);
    }
    MPI_Datatype element = element_of(o->in.dtype);
    const int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, element, o->out.data, counts, places, element,
        group->second, &record->request);
    if (code != MPI_SUCCESS) return mpi_failed(code, "all_reduce");
    record->phase = MPI_PHASE_SECOND;
    return CY_OK;
}

static cy_status end_first(mpi_group *group, mpi_transfer *record)
{
    const cy_operation *o = &record->operation;
    if (o->kind == CY_OP_ALL_REDUCE && !gathers_all(group, o)) {
        CY_TRY(reduce_part(group, record));
        return begin_second(group, record);
    }
    if (o->kind == CY_OP_ALL_REDUCE) CY_TRY(reduce_whole(group, record));
    if (o->kind == CY_OP_REDUCE_SCATTER) CY_TRY(reduce_part(group, record));
    record->phase = MPI_PHASE_DONE; // the rank may look at once, without the lock
    return CY_OK;
}

static cy_status test(mpi_transfer *record, bool *done)
{
    int flag = 0;
    const int code = record->pair_count > 0
        ? MPI_Testall(record->pair_count, record->pairs, &flag, MPI_STATUSES_IGNORE)
        : MPI_Test(&record->request, &flag, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS) return mpi_failed(code, cy_operation_name(record->base.kind));
    *done = flag != 0;
    return CY_OK;
}

// First phases end in the order in which they began, because second phases are collectives too,
// which all members must begin in one order.
static cy_status advance_group(mpi_group *group)
{
    while (group->head != NULL && !group->broken) {
        mpi_transfer *head = group->head;
        bool done = false;
        const cy_status status = test(head, &done);
        // A message that is too long is of another call.
        if (status != CY_OK) CY_TRY(mpi_check_calls(group, head->sequence));
        CY_TRY(status);
        if (!done) break;
        group->head = head->next;
        if (group->head == NULL) group->tail = NULL;
        head->next = NULL;
        CY_TRY(end_first(group, head));
    }
    return CY_OK;
}

cy_status mpi_advance(mpi_group *group, mpi_transfer *record)
{
    // The rank that this one waits for may itself wait for a second phase that this rank has to
    // begin.
    for (mpi_group *each = group->world->process->groups; each != NULL; each = each->next) {
        const cy_status status = advance_group(each);
        if (status == CY_OK) continue;
        if (each->world == group->world) return status;
        // Another rank's: it finds its group broken when it looks.
        if (!each->broken) (void)mpi_break_group(each, status, cy_error_text());
    }
    bool done = false;
    const bool message = record->base.kind == CY_OP_SEND || record->base.kind == CY_OP_RECV;
    if (!message && record->phase != MPI_PHASE_SECOND) return CY_OK;
    CY_TRY(test(record, &done));
    if (done) record->phase = MPI_PHASE_DONE;
    return CY_OK;
}
