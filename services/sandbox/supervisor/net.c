/* The way out: connections to a port of the sandbox's loopback become channels to the controller, which decides on
 * each. Nobody is connected to anything here. Without a controller a connection is reset. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "supervisor.h"

#define MAX_CHANNELS 128
#define CHUNK 32768u
#define TURN 4          /* chunks of one channel before the others get their turn */
#define BURST 64        /* new ones in PAUSE_US: each is work for the controller, which has other sandboxes too */
#define PAUSE_US 100000u

struct channel {
    struct watch watch;
    struct buffer out;       /* for the sandbox, not in its socket yet; at most NET_WINDOW */
    uint32_t number;         /* 0: free */
    uint32_t credit, taken;  /* bytes that may go to the controller; of its bytes, those it has no credit back for */
    bool starved;            /* it has bytes, and the controller's buffer has no room */
    bool in_over, out_over;  /* the sandbox, the controller sends no more */
    bool shut, ending;       /* the sandbox has been told so; close as soon as all is in the socket */
};

static struct channel channels[MAX_CHANNELS];
static struct watch listener;
static uint32_t last_number, many;
static uint64_t listen_at = NEVER; /* too many came at once, or no descriptor was free: look again then */
static bool starved;

static void reset_on_close(int fd) {
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
}

static void put(const struct channel *c, uint8_t message, uint8_t flags, const void *data, size_t size) {
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, message, flags, 0, c->number);
    buffer_add(b, data, size);
    frame_end(b, begun);
}

static void drop(struct channel *c, bool reset) {
    if (reset) reset_on_close(c->watch.fd);
    watch_close(&c->watch);
    buffer_free(&c->out);
    c->number = 0;
    many--;
    if (listen_at == NEVER) watch_want(&listener, EPOLLIN);
}

static void over(struct channel *c, bool reset) {
    put(c, MSG_NET_OVER, reset ? 0 : FLAG_END, NULL, 0);
    drop(c, reset);
}

static void give_credit(struct channel *c) {
    if (c->taken < NET_WINDOW / 2) return;
    struct buffer *b = controller_out();
    size_t begun = frame_begin(b, MSG_NET_TAKEN, 0, 0, c->number);
    put_u32(b, c->taken);
    frame_end(b, begun);
    c->taken = 0;
}

/* What is in the buffer goes to the sandbox; false where the channel is gone after it. */
static bool feed(struct channel *c) {
    struct buffer *b = &c->out;
    while (buffer_size(b)) {
        ssize_t sent = send(c->watch.fd, b->data + b->start, buffer_size(b), MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (sent < 0) {
            over(c, true);
            return false;
        }
        c->taken += (uint32_t)sent;
        buffer_drop(b, (size_t)sent);
    }
    if (c->ending) {
        drop(c, false);
        return false;
    }
    give_credit(c);
    if (c->out_over && !c->shut) {
        c->shut = true;
        shutdown(c->watch.fd, SHUT_WR);
    }
    return true;
}

static bool may_take(const struct channel *c) { return c->credit && !c->in_over && !c->ending; }

/* What the sandbox sends goes to the controller; false as above. */
static bool take(struct channel *c) {
    static uint8_t chunk[CHUNK];
    c->starved = false;
    for (int n = 0; n < TURN && may_take(c); n++) {
        if (controller_waiting() >= WAITING_MOST) {
            starved = c->starved = true;
            return true;
        }
        ssize_t got = recv(c->watch.fd, chunk, c->credit < CHUNK ? c->credit : CHUNK, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
        if (got < 0) {
            over(c, true);
            return false;
        }
        c->in_over = got == 0;
        c->credit -= (uint32_t)got;
        put(c, MSG_NET_BYTES, got ? 0 : FLAG_END, chunk, (size_t)got);
    }
    return true;
}

static void go_on(struct channel *c) {
    if (!feed(c) || !take(c)) return;
    if (c->in_over && c->shut) {
        over(c, false);
        return;
    }
    watch_want(&c->watch, (may_take(c) && !c->starved ? EPOLLIN : 0u) | (buffer_size(&c->out) ? EPOLLOUT : 0u));
}

static void ready(struct watch *w, uint32_t events) {
    (void)events;
    go_on(w->owner);
}

static void open_channel(int fd) {
    struct channel *c = channels;
    while (c->number) c++;
    *c = (struct channel){.number = ++last_number, .credit = NET_WINDOW};
    many++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    watch_open(&c->watch, fd, ready, c);
    put(c, MSG_NET_OPEN, 0, NULL, 0);
    go_on(c);
}

static void pause_listening(void) {
    listen_at = now_us() + PAUSE_US;
    watch_want(&listener, 0);
}

static uint32_t *came_lately(void) {
    static uint64_t since;
    static uint32_t came;
    uint64_t now = now_us();
    if (now - since >= PAUSE_US) {
        since = now;
        came = 0;
    }
    return &came;
}

static bool accept_one(void) {
    int fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) pause_listening();
        return false;
    }
    if (controller_here()) {
        open_channel(fd);
    } else {
        reset_on_close(fd);
        close(fd);
    }
    return true;
}

static void accept_some(struct watch *w, uint32_t events) {
    (void)events;
    uint32_t *came = came_lately();
    while (many < MAX_CHANNELS && *came < BURST && accept_one()) ++*came;
    if (*came == BURST) pause_listening();
    else if (many == MAX_CHANNELS) watch_want(w, 0); /* the others wait until one of these is over */
}

static void send_on(struct channel *c, const struct frame *f) {
    if (c->out_over || buffer_size(&c->out) + c->taken + f->size > NET_WINDOW) { /* more than it had credit for */
        over(c, true);
        return;
    }
    buffer_add(&c->out, f->payload, f->size);
    c->out_over = f->flags & FLAG_END;
    go_on(c);
}

static void add_credit(struct channel *c, const struct frame *f) {
    struct cursor at = {f->payload, f->payload + f->size, false};
    uint32_t more = get_u32(&at);
    c->credit = more > NET_WINDOW - c->credit ? NET_WINDOW : c->credit + more;
    go_on(c);
}

static void close_channel(struct channel *c, const struct frame *f) {
    if (!(f->flags & FLAG_END)) {
        drop(c, true);
        return;
    }
    c->ending = true;
    go_on(c);
}

void net_request(const struct frame *f) {
    struct channel *c = channels, *end = channels + MAX_CHANNELS;
    while (c < end && (!c->number || c->number != f->exec)) c++;
    if (c == end) return; /* it is over, and the controller does not know it yet */
    if (f->message == MSG_NET_SEND) send_on(c, f);
    else if (f->message == MSG_NET_CREDIT) add_credit(c, f);
    else close_channel(c, f);
}

bool net_listens(void) { return listener.act != NULL; }

bool net_starved(void) { return starved && controller_here() && controller_waiting() < WAITING_MOST / 4; }

void net_refill(void) {
    static uint32_t first; /* another begins each time */
    starved = false;
    for (uint32_t i = 0; i < MAX_CHANNELS; i++) {
        struct channel *c = &channels[(first + i) % MAX_CHANNELS];
        if (c->number && c->starved) go_on(c);
    }
    first++;
}

uint64_t net_tick(void) {
    if (listen_at == NEVER || now_us() < listen_at) return listen_at;
    if (many < MAX_CHANNELS) watch_want(&listener, EPOLLIN);
    return listen_at = NEVER;
}

void net_drop(void) {
    for (struct channel *c = channels; c < channels + MAX_CHANNELS; c++)
        if (c->number) drop(c, true);
    starved = false;
}

static void bounded(int fd) { /* connections inherit it; the kernel would grow their buffers to megabytes */
    int size = NET_WINDOW / 2; /* the kernel doubles it */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

void net_init(void) {
    if (!options.proxy_port) return;
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(options.proxy_port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bounded(fd);
    if (fd < 0 || bind(fd, (struct sockaddr *)&here, sizeof here) < 0 || listen(fd, MAX_CHANNELS) < 0) {
        fprintf(stderr, "supervisor: 127.0.0.1:%u cannot be listened at: %s\n", options.proxy_port, strerror(errno));
        supervisor_end(98);
    }
    watch_open(&listener, fd, accept_some, NULL);
    watch_want(&listener, EPOLLIN);
}
