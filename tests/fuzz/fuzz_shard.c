// A token shard of any content is refused or readable from its first token to its last, and one
// that passes its check holds no token beyond its vocabulary.

#include "fuzz.h"

#include "data/shard.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = fuzz_file(data, size);
    cy_shard shard;
    if (cy_shard_open(&shard, path) != CY_OK) return 0;
    const int64_t count = (int64_t)shard.header.token_count;
    const int whole = cy_shard_verify(&shard) == CY_OK;
    for (int64_t i = 0; i < count; i++) {
        int32_t token;
        if (cy_shard_read(&shard, &token, i, 1) != CY_OK) abort();
        if (whole && (uint32_t)token >= shard.header.vocab_size) abort();
    }
    cy_shard_close(&shard);
    return 0;
}
