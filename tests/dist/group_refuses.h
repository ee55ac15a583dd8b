// tests/dist/group_refuses.h: what a group whose wait has failed says to every later call.

#ifndef CY_TESTS_DIST_GROUP_REFUSES_H
#define CY_TESTS_DIST_GROUP_REFUSES_H

#include "dist/group_suite.h"

// `status` is that of a call `what` after the failure: not CY_OK, and the text names the peer.
static inline cy_status refuses_naming(cy_status status, const char *what, const char *peer)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    SUITE_EXPECT(status != CY_OK, "%s after the failure is served", what);
    SUITE_EXPECT(strstr(text, peer) != NULL, "%s after the failure: %s", what, text);
    return CY_OK;
}

// Each call of the group is refused as it starts, with the text of the failure, which names `peer`.
static inline cy_status refuses_all(cy_group *group, const char *peer)
{
    const int size = cy_group_size(group);
    const int64_t rows[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    float in[8] = {0}, out[8] = {0};
    const cy_view all_in = cy_view_of(in, CY_F32, size, 1), one_in = cy_view_rows(all_in, 0, 1);
    const cy_view all_out = cy_view_of(out, CY_F32, size, 1), one_out = cy_view_rows(all_out, 0, 1);
    const int next = (cy_group_rank(group) + 1) % size;
    cy_request request = {0};
    SUITE_EXPECT(size <= 8, "%d ranks", size);
#define REFUSES(name, ...)                                                                         \
    do {                                                                                           \
        CY_TRY(refuses_naming(                                                                     \
            cy_group_start_##name(group, NULL, &request, __VA_ARGS__), #name, peer));              \
        SUITE_EXPECT(request.handle == NULL, #name " after the failure is in flight");             \
    } while (0)
    for (int again = 0; again < 3; again++) {
        REFUSES(all_reduce, all_in, CY_SUM);
        REFUSES(reduce_scatter, one_out, all_in, CY_SUM);
        REFUSES(all_gather, all_out, one_in);
        REFUSES(all_to_all, all_out, all_in);
        REFUSES(all_to_allv, all_out, rows, all_in, rows);
        REFUSES(broadcast, all_in, 0);
        REFUSES(send, one_in, next, 3);
        REFUSES(recv, one_out, next, 3);
        CY_TRY(refuses_naming(cy_group_barrier(group), "barrier", peer));
    }
#undef REFUSES
    return CY_OK;
}

// A wait has failed with `status`: the group refuses whatever comes, and the failure stays the
// first.
static inline cy_status refuses_after(cy_group *group, cy_status status, const char *peer)
{
    char text[1024];
    snprintf(text, sizeof(text), "%s", cy_error_text());
    SUITE_EXPECT(strstr(text, peer) != NULL, "the wait does not name %s: %s", peer, text);
    CY_TRY(refuses_all(group, peer));
    return CY_FAIL(status, "%s", text);
}

#endif
