/* Last words: what no controller has taken yet, into a file of the host, so that an end that we bring about ourselves
 * is known for what it was. */
#include <unistd.h>

#include "supervisor.h"

static bool put_out(struct buffer *b) { /* false where there is no more space: what was written before stands */
    while (buffer_size(b)) {
        ssize_t done = write(options.last_fd, b->data + b->start, buffer_size(b));
        if (done <= 0) return false;
        buffer_drop(b, (size_t)done);
    }
    return true;
}

static bool tell_stream(struct buffer *b, const struct stream *s) {
    const uint8_t *data;
    uint64_t at = 0;
    for (size_t size; (size = kept_at(&s->kept, &at, &data)); at += size) {
        if (size > MAX_PAYLOAD / 2) size = MAX_PAYLOAD / 2;
        size_t begun = frame_begin(b, MSG_DATA, 0, 0, s->exec->handle);
        put_u8(b, s->number);
        put_u64(b, at);
        buffer_add(b, data, size);
        frame_end(b, begun);
        if (!put_out(b)) return false;
    }
    return true;
}

void last_words(void) {
    struct buffer b = {0};
    if (options.last_fd < 0 || !exec_count) return;
    size_t begun = frame_begin(&b, MSG_HELLO_OK, 0, 0, 0);
    buffer_add(&b, controller_instance(), INSTANCE_BYTES);
    frame_end(&b, begun);
    for (uint32_t i = 0; i < exec_count; i++) {
        const struct exec *e = execs[i];
        if (!tell_stream(&b, &e->out[0]) || !tell_stream(&b, &e->out[1])) return;
        begun = frame_begin(&b, MSG_ENTRY, 0, 0, e->handle); /* after its output: what is there of it is whole */
        exec_entry(&b, e);
        frame_end(&b, begun);
        if (!put_out(&b)) return;
    }
}
