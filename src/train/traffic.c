#include "train/traffic.h"

enum { TP, CP, PP, DP, WORLD = CY_TRAFFIC_WORLD };

static const char *const names[CY_TRAFFIC_DIMENSIONS] = {"tp", "cp", "pp", "dp", "world"};

const char *cy_traffic_dimension(int index)
{
    return names[index];
}

cy_rank_traffic cy_traffic_now(const cy_engine_groups *groups)
{
    const struct {
        int dimension;
        const cy_group *group;
    } all[] = {
        {TP, groups->tp},
        {TP, groups->kv},
        {CP, groups->cp},
        {PP, groups->pp},
        {PP, groups->embedding},
        {DP, groups->gradient},
        {WORLD, groups->norm},
        {WORLD, groups->world},
    };
    cy_rank_traffic now = {0};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        bool counted = cy_group_size(all[i].group) == 1;
        for (size_t j = 0; j < i; j++)
            counted = counted || all[j].group == all[i].group;
        if (counted) continue;
        const cy_traffic sent = cy_group_counters(all[i].group);
        cy_traffic *sum = &now.of[all[i].dimension];
        sum->bytes += sent.bytes;
        sum->messages += sent.messages;
        sum->seconds += sent.seconds;
        sum->exposed_s += sent.exposed_s;
        sum->bytes_between_nodes += sent.bytes_between_nodes;
    }
    return now;
}

cy_rank_traffic cy_traffic_between(const cy_rank_traffic *before, const cy_rank_traffic *after)
{
    cy_rank_traffic since;
    for (int i = 0; i < CY_TRAFFIC_DIMENSIONS; i++) {
        since.of[i] = (cy_traffic){
            .bytes = after->of[i].bytes - before->of[i].bytes,
            .messages = after->of[i].messages - before->of[i].messages,
            .seconds = after->of[i].seconds - before->of[i].seconds,
            .exposed_s = after->of[i].exposed_s - before->of[i].exposed_s,
            .bytes_between_nodes =
                after->of[i].bytes_between_nodes - before->of[i].bytes_between_nodes,
        };
    }
    return since;
}
