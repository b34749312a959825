/* The table of commands: found by handle or by the controller's id, started once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "supervisor.h"

struct exec *execs[MAX_RECORDS];
uint32_t exec_count;
static uint32_t last_handle;
static struct exec *forgotten;

struct exec *exec_find(uint32_t handle) {
    for (uint32_t i = exec_count; i-- > 0;) /* the latest are asked for most */
        if (execs[i]->handle == handle) return execs[i];
    return NULL;
}

struct exec *exec_named(const char *id) {
    for (uint32_t i = exec_count; i-- > 0;)
        if (strcmp(execs[i]->id, id) == 0) return execs[i];
    return NULL;
}

bool is_keeper(pid_t pid) {
    for (uint32_t i = exec_count; i-- > 0;)
        if (execs[i]->keeper == pid) return true;
    return false;
}

static uint32_t running(void) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < exec_count; i++) found += execs[i]->state != STATE_CLOSED;
    return found;
}

static struct exec *record(const struct order *o) {
    struct exec *e = calloc(1, sizeof *e);
    if (!e) _exit(98);
    strncpy(e->id, o->id, MAX_ID);
    e->digest = o->digest;
    e->handle = ++last_handle;
    e->flags = o->flags;
    e->grace_ms = o->grace_ms;
    e->output_limit = o->output_limit;
    e->state = STATE_RUNNING;
    e->code = -1;
    e->started_ns = wall_ns();
    e->begun_us = now_us();
    e->deadline = o->timeout_ms ? e->begun_us + (uint64_t)o->timeout_ms * 1000 : NEVER;
    e->kill_at = e->give_up_at = e->close_at = NEVER;
    e->report.fd = e->input.fd = -1;
    e->oom_before = oom_count();
    return e;
}

static void connect_pipes(struct exec *e, struct pipes *p, const struct order *o) {
    pipes_close_theirs(p);
    watch_open(&e->report, p->report_read, exec_report, e);
    watch_want(&e->report, EPOLLIN);
    stream_open(&e->out[0], e, p->out_read, STREAM_STDOUT, o);
    stream_open(&e->out[1], e, p->err_read, STREAM_STDERR, o);
    if (p->input_write < 0) return;
    e->input.fd = p->input_write;
    exec_input(e, 0, 0, (const uint8_t *)o->input, o->input_size, !(o->flags & EXEC_STDIN));
}

struct exec *exec_start(const struct order *o, enum fault *fault, int *number) {
    struct pipes p;
    *number = 0;
    *fault = FAULT_LIMIT;
    if (exec_count == MAX_RECORDS || running() >= MAX_RUNNING) return NULL;
    *fault = FAULT_SPAWN;
    struct exec *e = record(o);
    if ((*number = pipes_open(&p, o)) == 0) {
        e->keeper = spawn(o, &p);
        if (e->keeper < 0) *number = errno;
    }
    if (*number) {
        pipes_close_ours(&p);
        pipes_close_theirs(&p);
        free(e);
        return NULL;
    }
    execs[exec_count++] = e;
    connect_pipes(e, &p, o);
    return e;
}

void exec_forget(struct exec *e) {
    for (uint32_t i = 0; i < exec_count; i++) {
        if (execs[i] != e) continue;
        memmove(&execs[i], &execs[i + 1], (--exec_count - i) * sizeof *execs);
        break;
    }
    e->next = forgotten;
    forgotten = e;
}

void execs_free_forgotten(void) { /* after a batch of events: one of them may have been its */
    while (forgotten) {
        struct exec *e = forgotten;
        forgotten = e->next;
        for (int n = 0; n < 2; n++) kept_free(&e->out[n].kept);
        buffer_free(&e->input_data);
        free(e);
    }
}

void exec_entry(struct buffer *b, const struct exec *e) {
    put_text(b, e->id, strlen(e->id));
    put_u8(b, (uint8_t)e->state);
    put_u8(b, (uint8_t)e->reason);
    put_u8(b, e->bits);
    put_u8(b, 0);
    put_u32(b, (uint32_t)e->code);
    put_u32(b, (uint32_t)e->signal_number);
    put_u32(b, (uint32_t)e->error);
    put_u32(b, e->left_behind);
    put_u64(b, e->started_ns);
    put_u64(b, e->ended_ns);
    put_u64(b, e->duration_us);
    put_u64(b, e->user_us);
    put_u64(b, e->system_us);
    put_u64(b, e->max_rss_kb);
    put_u64(b, e->out[0].kept.total);
    put_u64(b, e->out[1].kept.total);
    put_u64(b, e->input_taken);
    uint64_t now = now_us(), left = e->deadline > now ? (e->deadline - now) / 1000 : 0;
    put_u32(b, e->deadline == NEVER || e->state == STATE_CLOSED ? UINT32_MAX : (uint32_t)left);
}

void exec_put_event(const struct exec *e, uint8_t message) {
    if (!controller_here()) return;
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, message, 0, 0, e->handle);
    exec_entry(b, e);
    frame_end(b, begun);
}
