/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * glue_events.h - what UCP's callbacks do: note what happened, nothing else.
 *
 * A callback runs inside UCX, without the GIL, possibly on another thread than the
 * one that will care.  So it fills in an event and puts it on its worker's list;
 * after progress, with the GIL and outside of UCX, Python code takes the list and
 * acts.  Then handlers may post, progress and close whatever they like, and what
 * they raise has somewhere to go.
 */
#ifndef GLUE_EVENTS_H
#define GLUE_EVENTS_H

#include <ucp/api/ucp.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Up to here a message is copied at once, so that its UCX buffer is free again. */
#define GLUE_AM_COPY_MAX 1024

enum { GLUE_OP, GLUE_AM, GLUE_CONNECTION, GLUE_FAILURE };

typedef struct glue_event {
    struct glue_event *next;
    int kind;
    int status;
    void *owner; /* the Python object, or NULL */
} glue_event_t;

/* Newest first; many threads push, one (with the GIL) takes all. */
typedef struct glue_list {
    glue_event_t *head;
} glue_list_t;

static inline void glue_push(glue_list_t *list, glue_event_t *event)
{
    glue_event_t *head = __atomic_load_n(&list->head, __ATOMIC_RELAXED);

    do {
        event->next = head;
    } while (!__atomic_compare_exchange_n(&list->head, &head, event, 1,
                                          __ATOMIC_RELEASE, __ATOMIC_RELAXED));
}

static inline int glue_any(glue_list_t *list)
{
    return __atomic_load_n(&list->head, __ATOMIC_RELAXED) != NULL;
}

/* All events, oldest first. */
static inline glue_event_t *glue_take(glue_list_t *list)
{
    glue_event_t *event, *next, *first = NULL;

    if (!glue_any(list)) {
        return NULL;
    }
    event = __atomic_exchange_n(&list->head, NULL, __ATOMIC_ACQUIRE);
    while (event != NULL) {
        next        = event->next;
        event->next = first;
        first       = event;
        event       = next;
    }
    return first;
}

/* ------------------------------------------------------------- operations */
typedef struct glue_op {
    glue_event_t event;
    glue_list_t *list;
    void *request;            /* UCP's, freed with the GIL when it is over */
    size_t length;            /* received bytes */
    ucp_tag_recv_info_t info; /* of a tag receive */
} glue_op_t;

static inline void glue_op_done(glue_op_t *op, void *request, ucs_status_t status)
{
    op->request      = request;
    op->event.status = status;
    glue_push(op->list, &op->event);
}

static void glue_send_cb(void *request, ucs_status_t status, void *user_data)
{
    glue_op_done(user_data, request, status);
}

static void glue_tag_recv_cb(void *request, ucs_status_t status,
                             const ucp_tag_recv_info_t *info, void *user_data)
{
    glue_op_t *op = user_data;

    op->info   = *info;
    op->length = info->length;
    glue_op_done(op, request, status);
}

/* Streams and data of active messages. */
static void glue_length_recv_cb(void *request, ucs_status_t status, size_t length,
                                void *user_data)
{
    glue_op_t *op = user_data;

    op->length = length;
    glue_op_done(op, request, status);
}

/* What every operation starts from. */
static inline void glue_param(ucp_request_param_t *param, glue_op_t *op)
{
    param->op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param->cb.send      = glue_send_cb;
    param->user_data    = op;
}

static inline void glue_param_tag_recv(ucp_request_param_t *param, glue_op_t *op)
{
    param->op_attr_mask       = UCP_OP_ATTR_FIELD_CALLBACK |
                                UCP_OP_ATTR_FIELD_USER_DATA |
                                UCP_OP_ATTR_FIELD_RECV_INFO;
    param->cb.recv            = glue_tag_recv_cb;
    param->user_data          = op;
    param->recv_info.tag_info = &op->info;
}

static inline void glue_param_am_recv(ucp_request_param_t *param, glue_op_t *op)
{
    param->op_attr_mask     = UCP_OP_ATTR_FIELD_CALLBACK |
                              UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_RECV_INFO;
    param->cb.recv_am       = glue_length_recv_cb;
    param->user_data        = op;
    param->recv_info.length = &op->length;
}

static inline void glue_param_stream_recv(ucp_request_param_t *param, glue_op_t *op)
{
    param->op_attr_mask   = UCP_OP_ATTR_FIELD_CALLBACK |
                            UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    param->flags          = UCP_STREAM_RECV_FLAG_WAITALL;
    param->cb.recv_stream = glue_length_recv_cb;
    param->user_data      = op;
}

static inline void glue_param_flags(ucp_request_param_t *param, uint32_t flags)
{
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param->flags         = flags;
}

static inline void glue_param_atomic(ucp_request_param_t *param, size_t size,
                                     void *reply)
{
    param->op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    param->datatype      = ucp_dt_make_contig(size);
    if (reply != NULL) {
        param->op_attr_mask |= UCP_OP_ATTR_FIELD_REPLY_BUFFER;
        param->reply_buffer  = reply;
    }
}

/* -------------------------------------------------------- active messages */
typedef struct glue_am_source {
    glue_list_t *list;
    unsigned id;
} glue_am_source_t;

typedef struct glue_am {
    glue_event_t event;
    unsigned id;
    int is_rndv;
    void *held;       /* UCP's data or descriptor, to be released; or NULL */
    ucp_ep_h reply_ep;
    size_t header_length, length;
    char bytes[];     /* header, then the data unless it is held */
} glue_am_t;

static ucs_status_t glue_am_cb(void *arg, const void *header, size_t header_length,
                               void *data, size_t length,
                               const ucp_am_recv_param_t *param)
{
    glue_am_source_t *source = arg;
    int is_rndv              = !!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV);
    int is_held              = is_rndv ||
                               ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) &&
                                (length > GLUE_AM_COPY_MAX));
    size_t copied            = is_held ? 0 : length;
    glue_am_t *am            = malloc(sizeof(*am) + header_length + copied);

    if (am == NULL) {
        return UCS_ERR_NO_MEMORY; /* UCX logs it; there is nothing else to do */
    }
    am->event.kind    = GLUE_AM;
    am->event.status  = UCS_OK;
    am->event.owner   = NULL;
    am->id            = source->id;
    am->is_rndv       = is_rndv;
    am->held          = is_held ? data : NULL;
    am->reply_ep      = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) ?
                        param->reply_ep : NULL;
    am->header_length = header_length;
    am->length        = length;
    if (header_length > 0) {
        memcpy(am->bytes, header, header_length);
    }
    if (copied > 0) {
        memcpy(am->bytes + header_length, data, copied);
    }
    glue_push(source->list, &am->event);
    return is_held ? UCS_INPROGRESS : UCS_OK;
}

static inline ucs_status_t glue_am_handler(ucp_worker_h worker,
                                           glue_am_source_t *source, int on)
{
    ucp_am_handler_param_t param;

    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id         = source->id;
    param.flags      = UCP_AM_FLAG_WHOLE_MSG | UCP_AM_FLAG_PERSISTENT_DATA;
    param.cb         = on ? glue_am_cb : NULL;
    param.arg        = source;
    return ucp_worker_set_am_recv_handler(worker, &param);
}

/* ----------------------------------------- connections and failed endpoints */
typedef struct glue_connection {
    glue_event_t event;
    ucp_conn_request_h request;
} glue_connection_t;

typedef struct glue_source {
    glue_list_t *list;
    void *owner;
    int inside;            /* threads that are in the callback */
    ucp_listener_h closed; /* the listener, while it is closed: refuse; or NULL */
} glue_source_t;

static void glue_connection_cb(ucp_conn_request_h request, void *arg)
{
    glue_source_t *source         = arg;
    glue_connection_t *connection = malloc(sizeof(*connection));
    ucp_listener_h closed;

    if (connection == NULL) {
        return; /* the client runs into its time limit */
    }
    connection->event.kind   = GLUE_CONNECTION;
    connection->event.status = UCS_OK;
    connection->event.owner  = source->owner;
    connection->request      = request;
    __atomic_add_fetch(&source->inside, 1, __ATOMIC_SEQ_CST);
    closed = __atomic_load_n(&source->closed, __ATOMIC_SEQ_CST);
    if (closed == NULL) {
        glue_push(source->list, &connection->event);
    }
    __atomic_sub_fetch(&source->inside, 1, __ATOMIC_SEQ_CST);
    if (closed != NULL) {
        free(connection);
        ucp_listener_reject(closed, request);
    }
}

/* From now on connections are refused; those that came before are on the list. */
static inline void glue_refuse_connections(glue_source_t *source,
                                           ucp_listener_h listener)
{
    __atomic_store_n(&source->closed, listener, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&source->inside, __ATOMIC_SEQ_CST) > 0) {
        sched_yield();
    }
}

typedef struct glue_failure {
    glue_event_t event;
    glue_list_t *list;
    int is_queued;
} glue_failure_t;

/* UCP calls it once for an endpoint. */
static void glue_failure_cb(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    glue_failure_t *failure = arg;

    (void)ep;
    failure->event.status = status;
    failure->is_queued    = 1;
    glue_push(failure->list, &failure->event);
}

static inline void glue_ep_failure(ucp_ep_params_t *params, glue_failure_t *failure)
{
    params->field_mask      |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                               UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params->err_mode         = UCP_ERR_HANDLING_MODE_PEER;
    params->err_handler.cb   = glue_failure_cb;
    params->err_handler.arg  = failure;
}

/* ---------------------------------------------------------------- progress */
/* Progress until an event is there or for so many rounds; 1 when there is. */
static inline int glue_spin(ucp_worker_h worker, glue_list_t *list, unsigned rounds)
{
    unsigned i;

    for (i = 0; i < rounds; ++i) {
        ucp_worker_progress(worker);
        if (glue_any(list)) {
            return 1;
        }
        if (i > 100) {
            sched_yield(); /* processes may outnumber the cores */
        }
    }
    return 0;
}

/* The context's resources as UCX prints them; free() it. */
static inline char *glue_context_info(ucp_context_h context)
{
    char *text  = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    if (stream != NULL) {
        ucp_context_print_info(context, stream);
        fclose(stream);
    }
    return text;
}

#endif /* GLUE_EVENTS_H */
