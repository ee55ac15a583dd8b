#define _GNU_SOURCE
#include "data/prepare.h"

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/shard.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHARD_TOKENS ((int64_t)1 << 28)

typedef struct preparation {
    const cy_prepare_options *options; // borrowed
    cy_text folder;                    // the temporary one
    cy_shard_writer writer;
    bool writing;
    cy_shard_header header; // what all shards have in common
    int64_t shard_tokens;
    cy_prepare_result result;
} preparation;

static cy_status start_shard(preparation *p)
{
    cy_text path = {0};
    cy_status status =
        cy_text_add(&path, "%s/shard-%05d.tokens", p->folder.bytes, p->result.shards);
    if (status == CY_OK) status = cy_shard_create(&p->writer, path.bytes, &p->header);
    cy_text_free(&path);
    CY_TRY(status);
    p->writing = true;
    p->result.shards++;
    return CY_OK;
}

static cy_status finish_shard(preparation *p)
{
    p->writing = false;
    return cy_shard_finish(&p->writer);
}

static cy_status take_tokens(
    void *context, const int32_t *tokens, size_t count, uint64_t text_bytes, uint64_t documents)
{
    preparation *p = context;
    if (!p->writing) CY_TRY(start_shard(p));
    CY_TRY(cy_shard_add(&p->writer, tokens, count, text_bytes));
    p->writer.header.document_count += documents;
    p->result.tokens += (int64_t)count;
    p->result.documents += (int64_t)documents;
    p->result.text_bytes += (int64_t)text_bytes;
    if ((int64_t)p->writer.header.token_count < p->shard_tokens) return CY_OK;
    return finish_shard(p);
}

// Removes a folder of ours: files only, no folders in it.
static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
    rmdir(path);
}

// The place of the folder in its parent: "a/b/" is "a" and "b".
static cy_status split_path(cy_text *parent, cy_text *name, const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/')
        length--;
    size_t slash = length;
    while (slash > 0 && path[slash - 1] != '/')
        slash--;
    CY_TRY(cy_text_add_bytes(parent, slash > 0 ? path : ".", slash > 0 ? slash : 1));
    return cy_text_add_bytes(name, path + slash, length - slash);
}

// Removes ".NAME.PID.tmp" of processes that are gone.
static cy_status sweep(const char *parent, const char *name)
{
    cy_text prefix = {0}, path = {0};
    CY_TRY(cy_text_add(&prefix, ".%s.", name));
    DIR *folder = opendir(parent);
    cy_status status = CY_OK;
    const struct dirent *entry;
    while (folder != NULL && status == CY_OK && (entry = readdir(folder)) != NULL) {
        if (strncmp(entry->d_name, prefix.bytes, prefix.length) != 0) continue;
        char *end = NULL;
        const long owner = strtol(entry->d_name + prefix.length, &end, 10);
        if (end == entry->d_name + prefix.length || strcmp(end, ".tmp") != 0) continue;
        if (owner != (long)getpid() && kill((pid_t)owner, 0) == 0) continue;
        if (owner != (long)getpid() && errno != ESRCH) continue;
        path.length = 0;
        status = cy_text_add(&path, "%s/%s", parent, entry->d_name);
        if (status == CY_OK) remove_folder(path.bytes);
    }
    if (folder != NULL) closedir(folder);
    cy_text_free(&prefix);
    cy_text_free(&path);
    return status;
}

static cy_status start(preparation *p)
{
    const char *out = p->options->out;
    cy_text parent = {0}, name = {0};
    cy_status status = split_path(&parent, &name, out);
    if (status == CY_OK) status = cy_folder_make(parent.bytes);
    if (status == CY_OK) status = sweep(parent.bytes, name.bytes);
    if (status == CY_OK) {
        status =
            cy_text_add(&p->folder, "%s/.%s.%ld.tmp", parent.bytes, name.bytes, (long)getpid());
    }
    if (status == CY_OK) status = cy_folder_make(p->folder.bytes);
    cy_text_free(&parent);
    cy_text_free(&name);
    return status;
}

static cy_status write_all(preparation *p)
{
    CY_TRY(cy_corpus_encode(&p->options->corpus, take_tokens, p));
    if (p->writing) CY_TRY(finish_shard(p));
    if (p->result.shards == 0) {
        return CY_FAIL(CY_ERR_REQUEST, "there is no document in what was given");
    }
    cy_text path = {0};
    cy_status status = cy_text_add(&path, "%s/tokenizer.json", p->folder.bytes);
    if (status == CY_OK) {
        status = cy_tokenizer_save(p->options->corpus.tokenizer, path.bytes);
    }
    cy_text_free(&path);
    CY_TRY(status);
    if (rename(p->folder.bytes, p->options->out) != 0) {
        return CY_FAIL_ERRNO(CY_ERR_IO, "rename %s to %s", p->folder.bytes, p->options->out);
    }
    return CY_OK;
}

cy_status cy_data_prepare(cy_prepare_result *result, const cy_prepare_options *options)
{
    const cy_corpus_options *corpus = &options->corpus;
    if (options->out[0] == '\0') {
        return CY_FAIL(CY_ERR_REQUEST, "\"\" is not a place for a folder");
    }
    if (cy_path_exists(options->out) && !cy_path_is_empty_folder(options->out)) {
        const cy_status status =
            CY_FAIL(CY_ERR_REQUEST, "%s is there already and is not an empty folder", options->out);
        cy_error_set_hint("choose another folder, or remove it");
        return status;
    }
    const int32_t vocab_size = cy_tokenizer_vocab_size(corpus->tokenizer);
    const int32_t end_token =
        corpus->end_token >= 0 ? corpus->end_token : cy_tokenizer_end_token(corpus->tokenizer);
    preparation p = {.options = options,
        .shard_tokens = options->shard_tokens > 0 ? options->shard_tokens : SHARD_TOKENS,
        .header = {.token_bytes = vocab_size <= 65536 ? 2 : 4,
            .vocab_size = (uint32_t)vocab_size,
            .tokenizer_hash = cy_tokenizer_hash(corpus->tokenizer),
            .end_token = end_token}};
    p.result.token_bytes = (int)p.header.token_bytes;
    cy_status status = start(&p);
    if (status == CY_OK) status = write_all(&p);
    if (status == CY_OK) {
        *result = p.result;
    } else {
        if (p.writing) cy_shard_abandon(&p.writer);
        if (p.folder.bytes != NULL) remove_folder(p.folder.bytes);
    }
    cy_text_free(&p.folder);
    return status;
}
