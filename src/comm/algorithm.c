// Names and tables of algorithms, and the choice by the formulas of their rounds and bytes.

#include "comm/algorithm.h"

#include <stdio.h>
#include <string.h>

static const char *const names[CY_ALGORITHMS] = {
    [CY_ALGORITHM_NATIVE] = "native",
    [CY_ALGORITHM_RING] = "ring",
    [CY_ALGORITHM_TREE] = "tree",
    [CY_ALGORITHM_DOUBLING] = "doubling",
    [CY_ALGORITHM_HIERARCHICAL] = "hierarchical",
    [CY_ALGORITHM_SERVER] = "server",
};

const char *cy_algorithm_name(cy_algorithm algorithm)
{
    return names[algorithm];
}

cy_status cy_algorithm_from_name(cy_algorithm *algorithm, const char *name)
{
    for (int i = 0; i < CY_ALGORITHMS; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *algorithm = (cy_algorithm)i;
        return CY_OK;
    }
    const cy_status status = CY_FAIL(CY_ERR_REQUEST, "algorithm \"%s\" is none", name);
    cy_error_set_hint("auto, native, ring, tree, doubling, hierarchical or server");
    return status;
}

cy_algorithm_table cy_algorithm_always(cy_algorithm algorithm)
{
    return (cy_algorithm_table){.count = 1, .rows = {{INT64_MAX, algorithm}}};
}

bool cy_algorithm_is_native(const cy_algorithm_table *table)
{
    for (int i = 0; i < table->count; i++) {
        if (table->rows[i].algorithm != CY_ALGORITHM_NATIVE) return false;
    }
    return true;
}

// ---- the choice by formulas

static double message_s(const cy_link *link, double bytes)
{
    return link->latency_s + (link->bytes_per_s > 0.0 ? bytes / link->bytes_per_s : 0.0);
}

static bool is_power(int ranks)
{
    return (ranks & (ranks - 1)) == 0;
}

// Ranks beyond a power of two hand their data to a neighbour first and get the sum at the end.
static double leaning_s(const cy_topology *links, const cy_link *slowest, double bytes)
{
    return is_power(links->ranks) ? 0.0 : 2.0 * message_s(slowest, bytes);
}

// The slowest message of a round in which partners are `distance` ranks apart. All numbers are
// powers of two, so partners that are less than a node apart stay in it.
static const cy_link *link_of(const cy_topology *links, int distance)
{
    return distance < links->node_ranks ? &links->inside : &links->between;
}

double cy_algorithm_seconds(cy_algorithm algorithm, const cy_topology *links, double bytes)
{
    const double ranks = links->ranks;
    const double node = links->node_ranks;
    const double nodes = ranks / node;
    const bool power = is_power(links->ranks);
    // A round ends with its slowest message.
    const cy_link *slowest = nodes > 1.0 ? &links->between : &links->inside;
    switch (algorithm) {
    case CY_ALGORITHM_NATIVE:
    case CY_ALGORITHM_RING:
        return 2.0 * (ranks - 1.0) * message_s(slowest, bytes / ranks);
    case CY_ALGORITHM_TREE: {
        double seconds = leaning_s(links, slowest, bytes);
        double part = bytes / 2.0; // halves to the neighbour, quarters to the one behind it, ...
        for (int distance = 1; 2 * distance <= links->ranks; distance *= 2) {
            seconds += 2.0 * message_s(power ? link_of(links, distance) : slowest, part);
            part /= 2.0;
        }
        return seconds;
    }
    case CY_ALGORITHM_DOUBLING: {
        double seconds = leaning_s(links, slowest, bytes);
        for (int distance = 1; 2 * distance <= links->ranks; distance *= 2)
            seconds += message_s(power ? link_of(links, distance) : slowest, bytes);
        return seconds;
    }
    case CY_ALGORITHM_HIERARCHICAL:
        return 2.0 * (node - 1.0) * message_s(&links->inside, bytes / node) +
            2.0 * (nodes - 1.0) * message_s(&links->between, bytes / ranks);
    case CY_ALGORITHM_SERVER:
        return 2.0 * message_s(slowest, bytes); // at the least: the server's messages take turns
    }
    return 0.0;
}

cy_algorithm_table cy_algorithm_for(const cy_topology *links)
{
    cy_algorithm_table made = {0};
    for (int64_t bytes = 8; made.count < CY_ALGORITHM_ROWS && bytes < INT64_C(1) << 36;
         bytes *= 2) {
        cy_algorithm best = CY_ALGORITHM_RING;
        for (int a = CY_ALGORITHM_RING; a < CY_ALGORITHM_SERVER; a++) {
            if (a == CY_ALGORITHM_HIERARCHICAL && links->node_ranks == links->ranks) continue;
            if (a == CY_ALGORITHM_HIERARCHICAL && links->node_ranks == 1) continue;
            if (cy_algorithm_seconds((cy_algorithm)a, links, (double)bytes) <
                cy_algorithm_seconds(best, links, (double)bytes)) {
                best = (cy_algorithm)a;
            }
        }
        if (made.count == 0 || made.rows[made.count - 1].algorithm != best) {
            made.rows[made.count++].algorithm = best;
        }
        made.rows[made.count - 1].bytes = bytes;
    }
    made.rows[made.count - 1].bytes = INT64_MAX;
    return made;
}

cy_algorithm cy_algorithm_choose(const cy_algorithm_table *table, size_t bytes)
{
    int row = 0;
    while (row < table->count - 1 && (int64_t)bytes > table->rows[row].bytes)
        row++;
    return table->rows[row].algorithm;
}

// ---- tables as text

cy_status cy_algorithm_table_write(cy_text *text, const cy_algorithm_table *table)
{
    for (int i = 0; i < table->count; i++) {
        if (i > 0) CY_TRY(cy_text_add(text, ","));
        CY_TRY(cy_text_add(text, "%s", cy_algorithm_name(table->rows[i].algorithm)));
        if (i == table->count - 1) break;
        CY_TRY(cy_text_add(text, "<=%lld", (long long)table->rows[i].bytes));
    }
    return CY_OK;
}

cy_status cy_algorithm_table_read(cy_algorithm_table *table, const char *text, size_t length)
{
    cy_algorithm_table made = {0};
    const char *end = text + length;
    for (const char *at = text; at <= end && made.count < CY_ALGORITHM_ROWS;) {
        const size_t word = strcspn(at, "<,; ");
        char name[24];
        if (at + word > end || word >= sizeof(name)) break;
        memcpy(name, at, word);
        name[word] = '\0';
        CY_TRY(cy_algorithm_from_name(&made.rows[made.count].algorithm, name));
        at += word;
        long long bytes = INT64_MAX;
        int read = 0;
        if (at < end && *at == '<' && sscanf(at, "<=%lld%n", &bytes, &read) != 1) break;
        at += read;
        const int64_t before = made.count == 0 ? 0 : made.rows[made.count - 1].bytes;
        if (bytes <= before) break;
        made.rows[made.count++].bytes = bytes;
        if (at == end && bytes == INT64_MAX) {
            *table = made;
            return CY_OK;
        }
        if (at >= end || *at != ',' || bytes == INT64_MAX) break;
        at++;
    }
    return CY_FAIL(CY_ERR_REQUEST, "\"%.*s\" is no table of algorithms", (int)length, text);
}

cy_status cy_algorithm_find(
    cy_algorithm_table *table, bool *tables, const char *text, const char *dimension)
{
    *tables = strchr(text, ':') != NULL;
    if (!*tables) {
        cy_algorithm algorithm;
        CY_TRY(cy_algorithm_from_name(&algorithm, text));
        *table = cy_algorithm_always(algorithm);
        return CY_OK;
    }
    cy_algorithm_table found = cy_algorithm_always(CY_ALGORITHM_NATIVE);
    for (const char *at = text; *at != '\0';) {
        const size_t name = strcspn(at, ":;");
        if (at[name] != ':')
            return CY_FAIL(CY_ERR_REQUEST, "\"%s\": no algorithm stands there", at);
        const char *value = at + name + 1;
        const size_t length = strcspn(value, ";");
        cy_algorithm_table read;
        CY_TRY(cy_algorithm_table_read(&read, value, length));
        if (strlen(dimension) == name && strncmp(at, dimension, name) == 0) found = read;
        at = value + length + (value[length] == ';');
    }
    *table = found;
    return CY_OK;
}
