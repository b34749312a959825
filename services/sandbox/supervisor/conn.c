/* Controllers: over stdin and stdout, or one connection of a listening socket. One at a time has a say. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor.h"

#define MAX_CONNS 8
#define OUT_MOST (4u << 20) /* answers that are not taken: then no more requests are read */
#define PROGRAM "longhaul-supervisor 1"

struct conn {
    struct watch in, out;
    struct buffer read, write;
    bool used, greeted, ending;
};

static struct conn conns[MAX_CONNS];
static struct conn *controller;
static struct watch listener;
static uint64_t epoch, heard_us;
static uint8_t instance[INSTANCE_BYTES];

bool controller_here(void) { return controller != NULL; }
struct buffer *controller_out(void) { return &controller->write; }
size_t controller_waiting(void) { return buffer_size(&controller->write); }
uint64_t controller_deadline(void) { return options.linger_s ? heard_us + options.linger_s * 1000000ull : NEVER; }

const uint8_t *controller_instance(void) { return instance; }

void controller_excused(uint64_t frozen) { heard_us += frozen; }

static void controller_gone(void) {
    controller = NULL;
    unsubscribe_all();
    uploads_drop();
    net_drop();
}

static void drop(struct conn *c) {
    if (options.listen_fd < 0) supervisor_end(0); /* nobody can ever speak to us again */
    if (c == controller) controller_gone();
    watch_close(&c->in);
    watch_close(&c->out);
    buffer_free(&c->read);
    buffer_free(&c->write);
    c->used = false;
}

static void put_error(struct conn *c, uint32_t tag, enum fault fault, const char *text) {
    size_t begun = frame_begin(&c->write, MSG_ERROR, 0, tag, 0);
    put_u16(&c->write, (uint16_t)fault);
    put_u32(&c->write, 0);
    put_text(&c->write, text, strlen(text));
    frame_end(&c->write, begun);
}

static void put_hello(struct conn *c, uint32_t tag, const uint8_t *nonce) {
    struct buffer *b = &c->write;
    size_t begun = frame_begin(b, MSG_HELLO_OK, 0, tag, 0);
    put_u32(b, PROTOCOL_VERSION);
    buffer_add(b, nonce, NONCE_BYTES);
    buffer_add(b, instance, sizeof instance);
    put_u32(b, MAX_PAYLOAD);
    put_u32(b, options.linger_s);
    put_u32(b, options.drop ? options.uid : geteuid());
    put_u32(b, (options.drop ? 1 : 0) | (oom_known() ? 2 : 0) | (net_listens() ? 4 : 0));
    put_text(b, PROGRAM, strlen(PROGRAM));
    frame_end(b, begun);
}

static void hello(struct conn *c, const struct frame *f) {
    struct cursor at = {f->payload, f->payload + f->size, false};
    uint32_t version = get_u32(&at);
    uint64_t asked = get_u64(&at);
    const uint8_t *nonce = get_bytes(&at, NONCE_BYTES);
    if (at.bad || version != PROTOCOL_VERSION || asked < epoch) {
        enum fault fault = at.bad ? FAULT_BAD_REQUEST : asked < epoch ? FAULT_STALE : FAULT_VERSION;
        put_error(c, f->tag, fault, "this controller is not taken");
        if (fault == FAULT_STALE) c->ending = options.listen_fd >= 0;
        return;
    }
    epoch = asked;
    if (controller && controller != c) drop(controller);
    else if (controller) controller_gone();
    controller = c;
    c->greeted = true;
    put_hello(c, f->tag, nonce);
}

static void take(struct conn *c, const struct frame *f) {
    if (f->message == MSG_HELLO) hello(c, f);
    else if (!c->greeted) put_error(c, f->tag, FAULT_HELLO_FIRST, "HELLO comes first");
    else request(f);
    if (c == controller) heard_us = now_us();
}

static void parse(struct conn *c) {
    struct frame f;
    size_t used;
    bool told = false;
    while (c->used && !c->ending && buffer_size(&c->read)) {
        enum parsed found = frame_parse(c->read.data + c->read.start, buffer_size(&c->read), &f, &used);
        if (found == PARSED_FRAME) take(c, &f);
        else if (found != PARSED_MORE && !told) {
            told = true;
            put_error(c, 0, found == PARSED_VERSION ? FAULT_VERSION : FAULT_BAD_FRAME, "these bytes are no frame");
            c->ending = options.listen_fd >= 0;
        }
        if (!c->used) return;
        buffer_drop(&c->read, used);
        if (found == PARSED_MORE) return;
    }
}

static void readable(struct watch *w, uint32_t events) {
    (void)events;
    struct conn *c = w->owner;
    buffer_need(&c->read, 65536);
    ssize_t got = read(w->fd, c->read.data + c->read.end, c->read.room - c->read.end);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        drop(c);
        return;
    }
    c->read.end += (size_t)got;
    parse(c);
    if (c->used && (buffer_size(&c->write) > OUT_MOST || c->ending)) watch_want(&c->in, 0);
}

static void flush(struct conn *c) {
    while (buffer_size(&c->write)) {
        ssize_t sent = write(c->out.fd, c->write.data + c->write.start, buffer_size(&c->write));
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) {
            watch_want(&c->out, EPOLLOUT);
            return;
        }
        if (sent < 0) {
            if (options.listen_fd >= 0) drop(c);
            else buffer_free(&c->write); /* stdin tells when it is over */
            return;
        }
        buffer_drop(&c->write, (size_t)sent);
    }
    watch_want(&c->out, 0);
    if (c->ending) drop(c);
    else watch_want(&c->in, EPOLLIN);
}

static void writable(struct watch *w, uint32_t events) {
    (void)w, (void)events; /* all are flushed after each round */
}

void conns_flush(void) {
    for (int i = 0; i < MAX_CONNS; i++)
        if (conns[i].used) flush(&conns[i]);
}

static void conn_open(int in, int out) {
    for (int i = 0; i < MAX_CONNS; i++) {
        struct conn *c = &conns[i];
        if (c->used || c->in.events || c->out.events) continue;
        memset(c, 0, sizeof *c);
        c->used = true;
        fcntl(in, F_SETFL, O_NONBLOCK);
        fcntl(out, F_SETFL, O_NONBLOCK);
        watch_open(&c->in, in, readable, c);
        watch_open(&c->out, out, writable, c);
        watch_want(&c->in, EPOLLIN);
        if (!c->in.events) supervisor_end(96); /* stdin is a file: it cannot be waited for */
        return;
    }
    close(in);
    close(out);
}

static void accept_one(struct watch *w, uint32_t events) {
    (void)events;
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return;
    int other = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (other < 0) close(fd);
    else conn_open(fd, other);
}

void conns_init(void) {
    heard_us = now_us();
    if (getrandom(instance, sizeof instance, GRND_NONBLOCK) < 0) memset(instance, 0, sizeof instance);
    if (options.listen_fd < 0) {
        conn_open(0, 1);
        return;
    }
    /* again, by us: from now on the other end's SO_PEERCRED names process 1, and no longer who made the socket */
    if (listen(options.listen_fd, MAX_CONNS) < 0) supervisor_end(96);
    fcntl(options.listen_fd, F_SETFD, FD_CLOEXEC);
    fcntl(options.listen_fd, F_SETFL, O_NONBLOCK);
    watch_open(&listener, options.listen_fd, accept_one, NULL);
    watch_want(&listener, EPOLLIN);
}
