#include "support/ranks.h"

#include <pthread.h>
#include <stdlib.h>

typedef struct meeting {
    pthread_mutex_t mutex;
    pthread_cond_t all_here;
    int size;
    int here;
    int round;
    cy_status worst; // of the round that is gathering
    cy_status told;  // of the last complete round
} meeting;

typedef struct thread_rank {
    meeting *meeting;
    int rank;
    void (*body)(void *context, cy_checkpoint_ranks ranks);
    void *context;
} thread_rank;

static cy_status agree(void *context, cy_status *worst, cy_status mine)
{
    meeting *m = context;
    pthread_mutex_lock(&m->mutex);
    const int round = m->round;
    if (mine > m->worst) m->worst = mine;
    if (++m->here == m->size) {
        m->told = m->worst;
        m->worst = CY_OK;
        m->here = 0;
        m->round++;
        pthread_cond_broadcast(&m->all_here);
    }
    while (m->round == round)
        pthread_cond_wait(&m->all_here, &m->mutex);
    *worst = m->told;
    pthread_mutex_unlock(&m->mutex);
    return CY_OK;
}

static void *run_rank(void *argument)
{
    const thread_rank *me = argument;
    const cy_checkpoint_ranks ranks = {
        .rank = me->rank, .size = me->meeting->size, .agree = agree, .context = me->meeting};
    me->body(me->context, ranks);
    return NULL;
}

void cy_test_ranks(int size, void (*body)(void *context, cy_checkpoint_ranks ranks), void *context)
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
