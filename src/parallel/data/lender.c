#include "parallel/data/lender.h"

#include "base/assert.h"
#include "base/memory.h"

cy_status cy_lender_open(cy_lender *lender, cy_dtype dtype, int most)
{
    void *block = NULL;
    CY_TRY(cy_memory_take(&block, (size_t)most, sizeof(cy_room)));
    *lender = (cy_lender){.dtype = dtype, .rooms = block, .most = most};
    return CY_OK;
}

void cy_lender_close(cy_lender *lender)
{
    cy_memory_free(lender->rooms);
    *lender = (cy_lender){0};
}

void cy_lender_take(cy_lender *lender, cy_arena *run)
{
    for (int i = 0; i < lender->room_count; i++)
        CY_ASSERT(!lender->rooms[i].lent);
    if (run->measuring) {
        lender->measuring = run;
        lender->room_count = 0;
        return;
    }
    lender->measuring = NULL;
    for (int i = 0; i < lender->room_count; i++) {
        cy_view *data = &lender->rooms[i].data;
        *data = cy_view_take(run, lender->dtype, 1, data->cols);
    }
}

static int digits(int64_t count)
{
    int digit_count = 0;
    for (; count > 0; count >>= 1)
        digit_count++;
    return digit_count;
}

static int first_free(const cy_lender *lender, int64_t count)
{
    for (int i = 0; i < lender->room_count; i++) {
        const cy_room *room = &lender->rooms[i];
        if (!room->lent && digits(room->data.cols) == digits(count)) return i;
    }
    return -1;
}

int cy_lender_lend(cy_lender *lender, int64_t count)
{
    int index = first_free(lender, count);
    if (index < 0) {
        CY_ASSERT(lender->measuring != NULL && lender->room_count < lender->most);
        index = lender->room_count++;
        lender->rooms[index] =
            (cy_room){.data = cy_view_take(lender->measuring, lender->dtype, 1, count)};
    }
    cy_room *room = &lender->rooms[index];
    if (room->data.cols < count) {
        CY_ASSERT(lender->measuring != NULL);
        cy_view_take(lender->measuring, lender->dtype, 1, count - room->data.cols);
        room->data.cols = count;
    }
    room->lent = true;
    return index;
}

cy_view cy_lender_room(const cy_lender *lender, int room, int64_t count)
{
    CY_ASSERT(lender->rooms[room].lent);
    return cy_view_cols(lender->rooms[room].data, 0, count);
}

void cy_lender_return(cy_lender *lender, int room)
{
    CY_ASSERT(lender->rooms[room].lent);
    lender->rooms[room].lent = false;
}

size_t cy_lender_bytes(const cy_lender *lender)
{
    size_t bytes = 0;
    for (int i = 0; i < lender->room_count; i++)
        bytes += cy_view_bytes(lender->rooms[i].data);
    return bytes;
}
