// A metrics.jsonl of any content can be read, and gone on with.

#include "fuzz.h"

#include "observe/sinks.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cy_history history;
    const char *path = fuzz_file(data, size);
    if (cy_history_open(&history, path) == CY_OK) cy_history_close(&history);

    // Going on replaces the file, so it gets one of its own, in memory where there is a place for
    // it: it is forced to the disk.
    char own[64];
    snprintf(own, sizeof(own), "%s/cyclotron-fuzz-%ld.jsonl",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    FILE *file = fopen(own, "wb");
    if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) abort();
    cy_sink *sink = NULL;
    cy_async_writer *writer = NULL;
    cy_metrics metrics = {0};
    cy_metrics_set_count(&metrics, CY_METRIC_STEP, 4);
    cy_metrics_set(&metrics, CY_METRIC_VAL_LOSS, 1.5);
    if (cy_async_writer_open(&writer) != CY_OK) abort();
    if (cy_jsonl_sink_open(&sink, writer, own, 3, NULL) != CY_OK) abort();
    if (sink->ops->write(sink, &metrics) != CY_OK) abort();
    sink->ops->close(sink);
    cy_async_writer_finish(writer, 60);
    cy_async_writer_close(writer);
    if (cy_history_open(&history, own) != CY_OK) abort();
    if (history.unreadable != 0 || history.of[CY_METRIC_VAL_LOSS].count < 1) abort();
    cy_history_close(&history);
    unlink(own);
    return 0;
}
