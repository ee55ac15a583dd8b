// A manifest that is accepted describes pieces that cover every tensor and fill every file. The
// input is a manifest without its last lines: the checksum is put under it here, so that what lies
// behind it is reached.

#include "fuzz.h"

#include "base/text.h"
#include "checkpoint/manifest.h"

#include <inttypes.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_text text = {0};
    cy_checkpoint checkpoint;
    if (cy_text_add_bytes(&text, data, size) != CY_OK) return 0;
    const cy_status sealed =
        cy_text_add(&text, "\"checksum\": \"%016" PRIx64 "\"\n}\n", cy_checksum(data, size));
    if (sealed != CY_OK) return 0;
    if (cy_checkpoint_from_json(&checkpoint, text.bytes, text.length, "fuzz", false) == CY_OK) {
        uint64_t bytes = 0, files = 0;
        for (int i = 0; i < checkpoint.file_count; i++) {
            files += checkpoint.files[i].bytes - checkpoint.files[i].head_bytes;
        }
        for (int i = 0; i < checkpoint.tensor_count; i++) {
            const cy_stored_tensor *stored = &checkpoint.tensors[i];
            int64_t elements = 0;
            for (int64_t j = 0; j < stored->piece_count; j++) {
                elements += stored->pieces[j].piece.count;
                bytes += cy_stored_shard_bytes(&stored->pieces[j]);
            }
            if (elements != stored->tensor.rows * stored->tensor.cols) abort();
            if (cy_checkpoint_find(&checkpoint, stored->tensor.kind, stored->tensor.name) !=
                stored) {
                abort();
            }
        }
        if (bytes != files) abort();
        // What was read can be written and read again.
        cy_text again = {0};
        cy_checkpoint same;
        if (cy_checkpoint_to_json(&again, &checkpoint) != CY_OK) abort();
        if (cy_checkpoint_from_json(&same, again.bytes, again.length, "again", false) != CY_OK)
            abort();
        cy_checkpoint_close(&same);
        cy_text_free(&again);
        cy_checkpoint_close(&checkpoint);
    }
    cy_text_free(&text);
    return 0;
}
