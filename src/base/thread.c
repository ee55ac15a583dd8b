#include "base/thread.h"

int cy_thread_start(pthread_t *thread, void *(*run)(void *), void *context)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    error = pthread_attr_setstacksize(&attributes, CY_THREAD_STACK_BYTES);
    if (error == 0) error = pthread_create(thread, &attributes, run, context);
    pthread_attr_destroy(&attributes);
    return error;
}
