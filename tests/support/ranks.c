#include "support/ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    int size;
    int here;
    int round;
    cy_status worst; // of the round that is gathering
    cy_status told;  // of the last complete round
    int64_t *values; // of the rank that came first; all find the least there
    int64_t count;
} meeting;

typedef struct thread_rank {
    meeting *meeting;
    int rank;
    void (*body)(void *context, cy_checkpoint_comm ranks);
    void *context;
} thread_rank;

// Waits for all ranks; the lock is held.
static void wait_for_all(meeting *m)
{
    const int round = m->round;
    if (++m->here == m->size) {
        m->here = 0;
        m->round++;
        pthread_cond_broadcast(&m->all_here);
    }
    while (m->round == round)
        pthread_cond_wait(&m->all_here, &m->mutex);
}

static cy_status agree(void *context, cy_status *worst, cy_status mine)
{
    meeting *m = context;
    pthread_mutex_lock(&m->mutex);
    if (mine > m->worst) m->worst = mine;
    if (m->here + 1 == m->size) {
        m->told = m->worst;
        m->worst = CY_OK;
    }
    wait_for_all(m);
    *worst = m->told;
    pthread_mutex_unlock(&m->mutex);
    return CY_OK;
}

static cy_status least(void *context, int64_t *values, int64_t count)
{
    meeting *m = context;
    pthread_mutex_lock(&m->mutex);
    if (m->here == 0) {
        m->values = values;
        m->count = count;
    }
    if (count != m->count) abort();
    for (int64_t i = 0; i < count; i++) {
        if (values[i] < m->values[i]) m->values[i] = values[i];
    }
    wait_for_all(m);
    memcpy(values, m->values, values == m->values ? 0 : (size_t)count * sizeof(*values));
    wait_for_all(m); // until all have read them
    pthread_mutex_unlock(&m->mutex);
    return CY_OK;
}

static void *run_rank(void *argument)
{
    const thread_rank *me = argument;
    const cy_checkpoint_comm ranks = {
        .rank = me->rank,
        .size = me->meeting->size,
        .agree = agree,
        .least = least,
        .context = me->meeting,
    };
    me->body(me->context, ranks);
    return NULL;
}

void cy_test_ranks(int size, void (*body)(void *context, cy_checkpoint_comm ranks), void *context)
{
    meeting m = {.size = size};
    pthread_t threads[64];
    thread_rank ranks[64];
    if (size > 64) abort();
    pthread_mutex_init(&m.mutex, NULL);
    pthread_cond_init(&m.all_here, NULL);
    for (int i = 0; i < size; i++) {
        ranks[i] = (thread_rank){.meeting = &m, .rank = i, .body = body, .context = context};
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) abort();
    }
    for (int i = 0; i < size; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&m.all_here);
    pthread_mutex_destroy(&m.mutex);
}
