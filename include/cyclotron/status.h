// cyclotron/status.h: how a call reports that it failed.
//
// A function that touches the world (files, memory, network, device) returns a cy_status, which
// must be looked at. The text that goes with the last failure is kept per thread: read it before
// the next failing call on the same thread. Functions that return no status cannot fail.

#ifndef CYCLOTRON_STATUS_H
#define CYCLOTRON_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#define CY_API        __attribute__((visibility("default"))) // the shared library shows it
#define CY_MUST_CHECK __attribute__((warn_unused_result))    // a result that must be looked at

// What became of a call; the text of the failure says more.
typedef enum cy_status {
    CY_OK = 0,          // it did what it was asked to
    CY_ERR_REQUEST,     // the request itself is wrong: a configuration, an argument
    CY_ERR_IO,          // a file or device refused: the text holds errno's words
    CY_ERR_CORRUPT,     // a file is not what it says it is
    CY_ERR_MEMORY,      // memory was refused
    CY_ERR_UNSUPPORTED, // this build or this machine has no such thing
    CY_ERR_TIMEOUT,     // nobody answered within the time limit
    CY_ERR_PEER,        // another rank failed, or does something else than this one
    CY_ERR_NOT_FINITE,  // a loss or a tensor is not a finite number
    CY_ERR_STOPPED,     // somebody asked to stop
} cy_status;

// The text of this thread's last failure ("" when there was none). Borrowed: valid until the next
// failure on this thread.
CY_API const char *cy_error_text(void);

// What to do about it, or "" where there is nothing to advise. Same lifetime as the text.
CY_API const char *cy_error_hint(void);

// A name for the kind of failure, such as "corrupt". Static storage.
CY_API const char *cy_status_name(cy_status status);

#ifdef __cplusplus
}
#endif

#endif
