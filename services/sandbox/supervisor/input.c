/* stdin of commands. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "supervisor.h"

#define END_OF_TERMINAL "\4\4" /* the first ends a line that is begun, the second the input */

void input_close(struct exec *e) {
    bool whole = !buffer_size(&e->input_data);
    watch_close(&e->input);
    buffer_free(&e->input_data);
    if (!e->input_asked) return;
    e->input_asked = false;
    if (whole) answer_ok(e->input_tag, e->handle, e->input_taken, true);
    else answer_error(e->input_tag, e->handle, FAULT_NOT_RUNNING, EPIPE, "the command reads no more");
}

static void feed(struct exec *e) {
    struct buffer *b = &e->input_data;
    while (buffer_size(b)) {
        ssize_t sent = write(e->input.fd, b->data + b->start, buffer_size(b));
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            watch_want(&e->input, EPOLLOUT);
            return;
        }
        if (sent < 0) {
            input_close(e);
            return;
        }
        e->input_taken += (uint64_t)sent;
        buffer_drop(b, (size_t)sent);
    }
    watch_want(&e->input, 0);
    if (e->input_end) {
        if (e->flags & EXEC_PTY && write(e->input.fd, END_OF_TERMINAL, 2) < 0) { /* nobody reads there any more */
        }
        input_close(e);
    } else if (e->input_asked) {
        e->input_asked = false;
        answer_ok(e->input_tag, e->handle, e->input_taken, true);
    }
}

static void writable(struct watch *w, uint32_t events) {
    (void)events;
    feed(w->owner);
}

void exec_input(struct exec *e, uint32_t tag, uint64_t offset, const uint8_t *data, size_t size, bool end) {
    uint64_t have = e->input_taken + buffer_size(&e->input_data);
    if (tag && e->input_asked) {
        answer_error(tag, e->handle, FAULT_BUSY, 0, "bytes before these are not in the pipe yet");
        return;
    }
    if (offset > have) {
        answer_error(tag, e->handle, FAULT_BAD_REQUEST, 0, "bytes before these are missing");
        return;
    }
    uint64_t known = have - offset < size ? have - offset : size;
    if (e->input.fd < 0) {
        if (known == size) answer_ok(tag, e->handle, e->input_taken, true);
        else answer_error(tag, e->handle, FAULT_NOT_RUNNING, EPIPE, "stdin is closed");
        return;
    }
    e->input.act = writable;
    e->input.owner = e;
    e->input_asked = tag != 0;
    e->input_tag = tag;
    e->input_end |= end;
    buffer_add(&e->input_data, data + known, size - known);
    feed(e);
}
