// A metrics.jsonl of any content can be read, and gone on with.

#include "fuzz.h"

#include "observe/metrics.h"

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
    cy_metrics_file metrics;
    cy_async_writer *writer = NULL;
    if (cy_async_writer_open(&writer) != CY_OK) abort();
    if (cy_metrics_file_open(&metrics, writer, own, 3, NULL) != CY_OK) abort();
    if (cy_metrics_file_validation(&metrics, 4, 1.5, 10) != CY_OK) abort();
    cy_async_writer_finish(writer, 60);
    cy_metrics_file_close(&metrics);
    cy_async_writer_close(writer);
    if (cy_history_open(&history, own) != CY_OK) abort();
    if (history.unreadable != 0 || history.val_loss.count < 1) abort();
    cy_history_close(&history);
    unlink(own);
    return 0;
}
