/* Requests of the controller about commands. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor.h"

void answer_ok(uint32_t tag, uint32_t exec, uint64_t value, bool with_value) {
    if (!tag || !controller_here()) return;
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, MSG_OK, 0, tag, exec);
    if (with_value) put_u64(b, value);
    frame_end(b, begun);
}

void answer_error(uint32_t tag, uint32_t exec, enum fault fault, int number, const char *text) {
    if (!tag || !controller_here()) return;
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, MSG_ERROR, 0, tag, exec);
    put_u16(b, (uint16_t)fault);
    put_u32(b, (uint32_t)number);
    put_text(b, text, strlen(text));
    frame_end(b, begun);
}

static void put_entry(uint8_t message, uint32_t tag, const struct exec *e, int started) {
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, message, 0, tag, e->handle);
    if (started >= 0) put_u8(b, (uint8_t)started);
    exec_entry(b, e);
    frame_end(b, begun);
}

static uint64_t digest(const uint8_t *data, size_t size) { /* FNV-1a: tells another command, guards against nobody */
    uint64_t v = 14695981039346656037u;
    for (size_t i = 0; i < size; i++) v = (v ^ data[i]) * 1099511628211u;
    return v;
}

static char **get_list(struct cursor *c) {
    size_t count = get_u16(c);
    char **list = calloc(count + 1, sizeof *list);
    if (!list) c->bad = true;
    for (size_t i = 0; !c->bad && i < count; i++) list[i] = get_blob(c);
    return list;
}

static void free_list(char **list) {
    for (size_t i = 0; list && list[i]; i++) free(list[i]);
    free(list);
}

static void free_order(struct order *o) {
    free(o->id);
    free(o->folder);
    free_list(o->argv);
    free_list(o->env);
}

static void by_shell(struct order *o) { /* the one argument becomes sh -c argument */
    char **argv = calloc(4, sizeof *argv);
    if (!argv) return;
    argv[0] = strdup("/bin/sh");
    argv[1] = strdup("-c");
    argv[2] = o->argv[0];
    free(o->argv);
    o->argv = argv;
}

static bool parse_order(struct cursor *c, struct order *o) {
    o->id = get_text(c, MAX_ID);
    o->flags = get_u32(c);
    o->timeout_ms = get_u32(c);
    o->grace_ms = get_u32(c);
    o->keep_head = get_u32(c);
    o->keep_tail = get_u32(c);
    o->output_limit = get_u64(c);
    o->window = get_u32(c);
    o->rows = get_u16(c);
    o->columns = get_u16(c);
    o->digest = digest(c->at, left_in(c));
    o->folder = get_text(c, 4096);
    o->argv = get_list(c);
    o->env = get_list(c);
    o->input_size = get_u32(c);
    o->input = (char *)(uintptr_t)get_bytes(c, o->input_size);
    bool sound = !c->bad && !left_in(c) && o->id[0] && o->argv[0] && o->flags < 32;
    sound = sound && o->keep_head <= KEPT_MOST && o->keep_tail <= KEPT_MOST;
    if (sound && o->flags & EXEC_SHELL) {
        sound = !o->argv[1];
        if (sound) by_shell(o);
    }
    return sound;
}

static void start(uint32_t tag, const struct order *o) {
    enum fault fault;
    int number;
    struct exec *e = exec_named(o->id);
    if (e && e->digest != o->digest) {
        answer_error(tag, e->handle, FAULT_MISMATCH, 0, "the id was used for another command");
        return;
    }
    bool fresh = !e;
    if (fresh && supervisor_shutting()) answer_error(tag, 0, FAULT_BUSY, 0, "the supervisor is ending");
    else if (fresh && !(e = exec_start(o, &fault, &number)))
        answer_error(tag, 0, fault, number, fault == FAULT_LIMIT ? "too many commands" : "no process could be made");
    if (!e) return;
    put_entry(MSG_EXEC_OK, tag, e, fresh);
    subscribe(e, 0, 0, o->window);
}

static void on_exec(const struct frame *f, struct cursor *c) {
    struct order o = {0};
    if (parse_order(c, &o)) start(f->tag, &o);
    else answer_error(f->tag, 0, FAULT_BAD_REQUEST, 0, "EXEC cannot be read");
    free_order(&o);
}

static void on_attach(const struct frame *f, struct cursor *c) {
    char *id = get_text(c, MAX_ID);
    uint64_t from_out = get_u64(c), from_err = get_u64(c);
    uint32_t window = get_u32(c);
    struct exec *e = c->bad ? NULL : exec_named(id);
    free(id);
    if (!e) {
        answer_error(f->tag, 0, c->bad ? FAULT_BAD_REQUEST : FAULT_NO_EXEC, 0, "there is no such command");
        return;
    }
    put_entry(MSG_EXEC_OK, f->tag, e, 0);
    subscribe(e, from_out, from_err, window);
}

static void on_signal(const struct frame *f, struct cursor *c, struct exec *e) {
    uint32_t number = get_u32(c);
    uint8_t all = get_u8(c);
    if (c->bad || number >= NSIG) answer_error(f->tag, f->exec, FAULT_BAD_REQUEST, 0, "SIGNAL cannot be read");
    else if (exec_signal(e, (int)number, all)) answer_ok(f->tag, f->exec, 0, false);
    else answer_error(f->tag, f->exec, FAULT_NOT_RUNNING, 0, "it does not run any more");
}

static void on_resize(const struct frame *f, struct cursor *c, struct exec *e) {
    uint16_t rows = get_u16(c), columns = get_u16(c);
    if (c->bad || !(e->flags & EXEC_PTY)) {
        answer_error(f->tag, f->exec, FAULT_BAD_REQUEST, 0, "it has no terminal");
        return;
    }
    exec_resize(e, rows, columns);
    answer_ok(f->tag, f->exec, 0, false);
}

static void on_credit(struct cursor *c, struct exec *e) {
    uint32_t more = get_u32(c);
    if (!e->subscribed) return;
    e->credit = e->credit > UINT32_MAX - more ? UINT32_MAX : e->credit + more;
    for (int n = 0; n < 2; n++) stream_resume(&e->out[n]);
}

static void on_kill(const struct frame *f, struct cursor *c, struct exec *e) {
    uint32_t grace = get_u32(c);
    answer_ok(f->tag, f->exec, 0, false);
    exec_end(e, REASON_KILLED, c->bad ? 0 : grace);
}

static void on_forget(const struct frame *f, struct exec *e) {
    if (e->state != STATE_CLOSED) {
        answer_error(f->tag, f->exec, FAULT_STILL_RUNNING, 0, "it is not over");
        return;
    }
    exec_forget(e);
    answer_ok(f->tag, f->exec, 0, false);
}

static void on_one(const struct frame *f, struct cursor *c) {
    struct exec *e = exec_find(f->exec);
    if (!e) {
        answer_error(f->tag, f->exec, FAULT_NO_EXEC, 0, "there is no such command");
        return;
    }
    switch (f->message) {
        case MSG_CREDIT: on_credit(c, e); break;
        case MSG_SIGNAL: on_signal(f, c, e); break;
        case MSG_RESIZE: on_resize(f, c, e); break;
        case MSG_KILL: on_kill(f, c, e); break;
        case MSG_FORGET: on_forget(f, e); break;
        default: {
            uint64_t offset = get_u64(c);
            if (c->bad) answer_error(f->tag, f->exec, FAULT_BAD_REQUEST, 0, "STDIN cannot be read");
            else exec_input(e, f->tag, offset, c->at, left_in(c), f->flags & FLAG_END);
        }
    }
}

static void on_ping(const struct frame *f) {
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, MSG_PONG, 0, f->tag, 0);
    buffer_add(b, f->payload, f->size);
    frame_end(b, begun);
}

static void on_list(const struct frame *f) {
    for (uint32_t i = 0; i < exec_count; i++) put_entry(MSG_ENTRY, f->tag, execs[i], -1);
    answer_ok(f->tag, 0, exec_count, true);
}

void request(const struct frame *f) {
    struct cursor c = {f->payload, f->payload + f->size, false};
    if (f->message >= MSG_FILE_STAT && f->message <= MSG_FILE_REMOVE) {
        file_request(f);
        return;
    }
    switch (f->message) {
        case MSG_PING: on_ping(f); break;
        case MSG_EXEC: on_exec(f, &c); break;
        case MSG_ATTACH: on_attach(f, &c); break;
        case MSG_LIST: on_list(f); break;
        case MSG_CREDIT:
        case MSG_STDIN:
        case MSG_SIGNAL:
        case MSG_RESIZE:
        case MSG_KILL:
        case MSG_FORGET: on_one(f, &c); break;
        case MSG_NET_SEND:
        case MSG_NET_CREDIT:
        case MSG_NET_CLOSE: net_request(f); break;
        case MSG_SHUTDOWN:
            answer_ok(f->tag, 0, 0, false);
            supervisor_shut(get_u32(&c));
            break;
        default: answer_error(f->tag, 0, FAULT_BAD_REQUEST, 0, "this message is not known");
    }
}
