/* What the parts know of each other. */
#ifndef LONGHAUL_SUPERVISOR_H
#define LONGHAUL_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "kept.h"
#include "loop.h"
#include "wire.h"

#define MAX_ROOTS 8
#define MAX_RECORDS 4096
#define MAX_RUNNING 512
#define KEPT_MOST (8u << 20)      /* of one stream's head, or tail */
#define KEPT_ENDED (64u << 20)    /* of all ended commands together */
#define RING_LEAST 65536u
#define WAITING_MOST (256u << 10) /* of output, or of the network, in the controller's buffer: more waits where it is */
#define INSTANCE_BYTES 16
#define DRAIN_US 100000u

struct options {
    uint64_t outside_ns;
    int listen_fd, leash_fd, last_fd;
    uint32_t linger_s;
    const char *roots[MAX_ROOTS];
    int root_count;
    bool drop; /* commands have a uid of their own */
    uid_t uid;
    gid_t gid;
    const char *oom_path;
    uint32_t nproc, nofile;
    uint16_t proxy_port; /* 0: no way out */
};
extern struct options options; /* set once, in main */

/* main.c */
extern struct rlimit files_before; /* RLIMIT_NOFILE as it was: ours is raised, commands get this one */
void supervisor_end(int code) __attribute__((noreturn)); /* with us everything in the namespace ends */
void supervisor_shut(uint32_t grace_ms);
bool supervisor_shutting(void);

/* conn.c: the controller's end */
void conns_init(void);
void conns_flush(void);
bool controller_here(void);
struct buffer *controller_out(void); /* where frames for the controller go; only where there is one */
size_t controller_waiting(void);     /* bytes that it has not taken yet */
const uint8_t *controller_instance(void); /* how we name ourselves to controllers */
uint64_t controller_deadline(void);  /* when it has been silent for too long */
void controller_excused(uint64_t frozen);

/* request.c */
void request(const struct frame *f); /* answers go to the controller */
void answer_ok(uint32_t tag, uint32_t exec, uint64_t value, bool with_value);
void answer_error(uint32_t tag, uint32_t exec, enum fault fault, int number, const char *text);

/* exec.c, life.c, stream.c: commands */
struct exec;

struct stream {
    struct watch watch;
    struct exec *exec;
    struct kept kept;
    uint64_t sent;
    uint8_t number;
    bool over, end_sent;
};

struct order { /* what EXEC asked for */
    char *id, *folder, **argv, **env, *input;
    uint32_t flags, timeout_ms, grace_ms, keep_head, keep_tail, window, input_size;
    uint64_t output_limit, digest;
    uint16_t rows, columns;
};

struct exec {
    struct exec *next; /* of the forgotten, until they can be freed */
    char id[MAX_ID + 1];
    uint64_t digest;
    uint32_t handle, flags, grace_ms;
    struct watch report, input;
    struct stream out[2];
    pid_t keeper, main;
    enum exec_state state;
    enum exit_reason reason, ending; /* `ending`: why we end it */
    uint8_t bits;
    int code, signal_number, error;
    uint32_t left_behind;
    bool main_ended, tree_ended, kill_begun, all_killed, exit_told;
    uint64_t started_ns, ended_ns, begun_us, duration_us, user_us, system_us, max_rss_kb;
    uint64_t deadline, kill_at, kill_since, give_up_at, close_at;
    uint64_t oom_before, output_limit;
    uint32_t kill_pause;
    bool subscribed;
    uint32_t credit;
    struct buffer input_data;
    uint64_t input_taken;
    bool input_end;
    uint32_t input_tag;
    bool input_asked;
};

extern struct exec *execs[MAX_RECORDS];
extern uint32_t exec_count;

struct exec *exec_find(uint32_t handle);
struct exec *exec_named(const char *id);
/* A new record with its command started, or NULL and `fault` and `number`. */
struct exec *exec_start(const struct order *o, enum fault *fault, int *number);
void exec_forget(struct exec *e);
void execs_free_forgotten(void);
uint64_t execs_tick(void); /* do what is due; when to come again */
void execs_excused(uint64_t frozen);
void exec_end(struct exec *e, enum exit_reason why, uint32_t grace_ms);
void exec_input(struct exec *e, uint32_t tag, uint64_t offset, const uint8_t *data, size_t size, bool end);
void input_close(struct exec *e);
void exec_resize(struct exec *e, uint16_t rows, uint16_t columns);
bool exec_signal(struct exec *e, int number, bool all);
void exec_entry(struct buffer *b, const struct exec *e);
void exec_settle(struct exec *e); /* look whether EXIT or CLOSED can be told */
void exec_put_event(const struct exec *e, uint8_t message);
void exec_report(struct watch *w, uint32_t events);
void child_ended(pid_t pid, int status);
bool is_keeper(pid_t pid);

void stream_open(struct stream *s, struct exec *e, int fd, uint8_t number, const struct order *o);
void stream_drain(struct stream *s); /* take what is there */
void stream_end(struct stream *s);
void stream_send(struct stream *s); /* as much as credit and the controller's buffer allow */
bool streams_starved(void); /* DATA waits, and the controller has room */
void streams_refill(void);
void stream_resume(struct stream *s); /* send, and read on where there is room */
void subscribe(struct exec *e, uint64_t from_out, uint64_t from_err, uint32_t window);
void unsubscribe_all(void);

/* spawn.c */
struct pipes {
    int report_read, report_write, input_read, input_write, out_read, out_write, err_read, err_write;
};
enum report_kind { REPORT_MAIN = 1, REPORT_FAILED = 2, REPORT_ENDED = 3 };
struct report {
    int32_t kind, value, left;
    uint32_t pad;
    uint64_t user_us, system_us, max_rss_kb;
};
int pipes_open(struct pipes *p, const struct order *o); /* 0 or an errno */
void pipes_close_ours(struct pipes *p);
void pipes_close_theirs(struct pipes *p);
pid_t spawn(const struct order *o, const struct pipes *p); /* the keeper, or -1 */

/* net.c: the way out */
void net_init(void);
bool net_listens(void);
void net_request(const struct frame *f);
void net_drop(void); /* the controller is gone, and every connection with it */
bool net_starved(void); /* as of the streams */
void net_refill(void);
uint64_t net_tick(void); /* as of the commands */

/* last.c */
void last_words(void);

/* oom.c */
void oom_init(void);
bool oom_known(void);
uint64_t oom_count(void);

/* files.c, upload.c */
void files_init(void);
void file_request(const struct frame *f);
int file_open(int root, const char *path, int flags);
int file_parent(int root, const char *path, bool make, char *name); /* a descriptor; `name` takes 256 bytes */
void answer_file(uint32_t tag, int bad); /* OK, or ERROR FILE where `bad` is an errno */
void file_write(uint32_t tag, struct cursor *c, uint8_t flags);
void file_abort(uint32_t tag, struct cursor *c);
void uploads_drop(void);
void as_job_begin(void);
void as_job_end(void);

#endif
