/* Output: taken from the pipe, kept, sent as far as the controller gives credit. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "supervisor.h"

#define CHUNK 65536u
#define TURN (1u << 20)         /* bytes of one stream before the others get their turn */

static bool starved; /* DATA waits for room in the controller's buffer */

static void stream_readable(struct watch *w, uint32_t events) {
    (void)events;
    struct stream *s = w->owner;
    stream_drain(s);
    exec_settle(s->exec);
}

void stream_open(struct stream *s, struct exec *e, int fd, uint8_t number, const struct order *o) {
    watch_open(&s->watch, fd, stream_readable, s);
    s->exec = e;
    s->number = number;
    s->over = fd < 0;
    kept_init(&s->kept, o->keep_head, o->keep_tail > RING_LEAST ? o->keep_tail : RING_LEAST);
    watch_want(&s->watch, EPOLLIN);
}

void stream_end(struct stream *s) {
    watch_close(&s->watch);
    s->over = true;
    stream_send(s);
}

static size_t room(const struct stream *s) {
    return s->exec->subscribed ? kept_room(&s->kept, s->sent) : SIZE_MAX;
}

static void over_limit(struct exec *e) {
    if (e->output_limit && e->out[0].kept.total + e->out[1].kept.total > e->output_limit)
        exec_end(e, REASON_OUTPUT_LIMIT, 0);
}

void stream_drain(struct stream *s) {
    static uint8_t chunk[CHUNK];
    for (size_t taken = 0; s->watch.fd >= 0 && taken < TURN;) {
        size_t most = room(s);
        watch_want(&s->watch, most ? EPOLLIN : 0);
        if (!most) return; /* the command waits at its pipe until the controller has taken more */
        ssize_t got = read(s->watch.fd, chunk, most < CHUNK ? most : CHUNK);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) { /* a terminal ends with EIO */
            stream_end(s);
            return;
        }
        taken += (size_t)got;
        kept_add(&s->kept, chunk, (size_t)got);
        over_limit(s->exec);
        stream_send(s);
    }
}

static void put_data(struct stream *s, const uint8_t *data, size_t size, uint8_t flags) {
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, MSG_DATA, flags, 0, s->exec->handle);
    put_u8(b, s->number);
    put_u64(b, s->sent);
    buffer_add(b, data, size);
    frame_end(b, begun);
}

void stream_send(struct stream *s) {
    struct exec *e = s->exec;
    if (!e->subscribed || !controller_here()) return;
    while (e->credit) {
        const uint8_t *data;
        size_t size = kept_at(&s->kept, &s->sent, &data);
        if (!size) break;
        if (controller_waiting() >= WAITING_MOST) {
            starved = true;
            return;
        }
        if (size > CHUNK) size = CHUNK;
        if (size > e->credit) size = e->credit;
        put_data(s, data, size, 0);
        s->sent += size;
        e->credit -= (uint32_t)size;
    }
    if (s->over && !s->end_sent && s->sent >= s->kept.total) {
        s->end_sent = true;
        put_data(s, NULL, 0, FLAG_END);
    }
}

void stream_resume(struct stream *s) {
    stream_send(s);
    if (s->watch.fd >= 0 && !s->watch.events && room(s)) watch_want(&s->watch, EPOLLIN);
}

bool streams_starved(void) { return starved && controller_here() && controller_waiting() < WAITING_MOST / 4; }

void streams_refill(void) {
    static uint32_t first; /* another begins each time, so that a flood does not keep the others waiting */
    uint32_t many = exec_count;
    starved = false;
    for (uint32_t i = 0; i < many; i++) {
        struct exec *e = execs[(first + i) % many];
        for (int n = 0; e->subscribed && n < 2; n++) stream_resume(&e->out[n]);
    }
    first++;
}

void subscribe(struct exec *e, uint64_t from_out, uint64_t from_err, uint32_t window) {
    uint64_t from[2] = {from_out, from_err};
    e->subscribed = window > 0;
    e->credit = window;
    for (int n = 0; n < 2; n++) {
        struct stream *s = &e->out[n];
        s->sent = from[n] < s->kept.total ? from[n] : s->kept.total;
        s->end_sent = false;
        if (e->subscribed) stream_resume(s);
    }
}

void unsubscribe_all(void) {
    for (uint32_t i = 0; i < exec_count; i++) {
        struct exec *e = execs[i];
        e->subscribed = e->input_asked = false;
        for (int n = 0; n < 2; n++) watch_want(&e->out[n].watch, EPOLLIN);
    }
}
