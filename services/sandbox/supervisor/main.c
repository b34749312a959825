/* Process 1 of a sandbox. It may signal every process that it sees, so it runs nowhere but as the first process of a
 * namespace of its own. */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor.h"

#define FIRST_PID_NS 4026531836u /* the inode of the host's first, a constant of the kernel */
#define TERM_GRACE_MS 2000u

struct options options = {.listen_fd = -1, .leash_fd = -1, .last_fd = -1, .linger_s = 60};
struct rlimit files_before;
static struct watch signals, leash;
static bool shutting;
static uint64_t shut_at = NEVER;

void supervisor_end(int code) { _exit(code); }
bool supervisor_shutting(void) { return shutting; }

void supervisor_shut(uint32_t grace_ms) {
    uint64_t at = now_us() + grace_ms * 1000ull + 1000000u;
    shutting = true;
    if (at < shut_at) shut_at = at;
    for (uint32_t i = 0; i < exec_count; i++) exec_end(execs[i], REASON_KILLED, grace_ms);
}

static bool all_over(void) {
    for (uint32_t i = 0; i < exec_count; i++)
        if (execs[i]->state != STATE_CLOSED) return false;
    return true;
}

static void refuse_elsewhere(void) {
    struct stat own;
    if (getpid() == 1 && stat("/proc/self/ns/pid", &own) == 0 && own.st_ino != FIRST_PID_NS &&
        options.outside_ns && own.st_ino != options.outside_ns)
        return;
    fputs("supervisor: not process 1 of a PID namespace of its own\n", stderr);
    exit(97);
}

static void reap(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0) {
        if (WIFSTOPPED(status)) kill(pid, SIGCONT); /* a command stopped its keeper; orphans are not for stopping either */
        else child_ended(pid, status);
    }
}

static void on_signal(struct watch *w, uint32_t events) {
    (void)events;
    struct signalfd_siginfo info;
    while (read(w->fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGTERM && info.ssi_pid == 0) supervisor_shut(TERM_GRACE_MS); /* from outside only */
    reap();
}

static void on_leash(struct watch *w, uint32_t events) {
    if (!(events & (EPOLLHUP | EPOLLERR))) return;
    watch_want(w, 0);
    supervisor_shut(0);
}

static void signals_init(void) {
    sigset_t all, ours;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    sigemptyset(&ours);
    sigaddset(&ours, SIGCHLD);
    sigaddset(&ours, SIGTERM);
    watch_open(&signals, signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK), on_signal, NULL);
    watch_want(&signals, EPOLLIN);
}

static uint64_t number(const char *text, uint64_t most) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    if (*end || !*text || value > most) {
        fprintf(stderr, "supervisor: %s is not a number that can be used\n", text);
        exit(96);
    }
    return value;
}

static bool take_option(const char *name, const char *value) {
    if (!strcmp(name, "--outside-pid-ns")) options.outside_ns = number(value, UINT64_MAX);
    else if (!strcmp(name, "--listen")) options.listen_fd = (int)number(value, 1 << 20);
    else if (!strcmp(name, "--leash")) options.leash_fd = (int)number(value, 1 << 20);
    else if (!strcmp(name, "--last")) options.last_fd = (int)number(value, 1 << 20);
    else if (!strcmp(name, "--last-file")) options.last_fd = open(value, O_WRONLY | O_TRUNC | O_CLOEXEC);
    else if (!strcmp(name, "--linger")) options.linger_s = (uint32_t)number(value, 1u << 30);
    else if (!strcmp(name, "--root") && options.root_count < MAX_ROOTS) options.roots[options.root_count++] = value;
    else if (!strcmp(name, "--job-uid")) options.uid = (uid_t)number(value, UINT32_MAX - 1), options.drop = true;
    else if (!strcmp(name, "--job-gid")) options.gid = (gid_t)number(value, UINT32_MAX - 1);
    else if (!strcmp(name, "--oom")) options.oom_path = value;
    else if (!strcmp(name, "--proxy")) options.proxy_port = (uint16_t)number(value, UINT16_MAX);
    else if (!strcmp(name, "--nproc")) options.nproc = (uint32_t)number(value, UINT32_MAX);
    else if (!strcmp(name, "--nofile")) options.nofile = (uint32_t)number(value, UINT32_MAX);
    else return false;
    return true;
}

static void take_options(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--stdio")) continue;
        if (i + 1 == argc || !take_option(argv[i], argv[i + 1])) {
            fprintf(stderr, "supervisor: %s is not an argument\n", argv[i]);
            exit(96);
        }
        i++;
    }
    if (options.drop && (!options.uid || !options.gid || geteuid() != 0 || setgroups(0, NULL) < 0)) {
        fputs("supervisor: --job-uid and --job-gid are for uid 0 with SETUID and SETGID\n", stderr);
        exit(96);
    }
}

static void leash_init(void) {
    if (options.leash_fd < 0) return;
    watch_open(&leash, options.leash_fd, on_leash, NULL);
    watch_want(&leash, EPOLLRDHUP); /* its end only: what is in it is nobody's business here */
}

static void more_files(void) {
    getrlimit(RLIMIT_NOFILE, &files_before);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){files_before.rlim_max, files_before.rlim_max});
}

/* The sandbox was paused: that time was nobody's, so nothing is due for it. */
static void excuse(uint64_t frozen) {
    controller_excused(frozen);
    execs_excused(frozen);
    if (shut_at != NEVER) shut_at += frozen;
}

static bool starved(void) { return streams_starved() || net_starved(); }

static void refill(void) { /* output and network take turns at being first */
    static bool net_first;
    net_first = !net_first;
    if (net_first) net_refill();
    streams_refill();
    if (!net_first) net_refill();
    conns_flush();
}

static uint64_t round_of_work(void) {
    uint64_t next = execs_tick(), listen_at = net_tick();
    conns_flush();
    for (int turn = 0; turn < 4 && starved(); turn++) refill();
    execs_free_forgotten();
    if (!shutting && now_us() >= controller_deadline()) {
        supervisor_shut(0);
        return 0;
    }
    if (shutting && (all_over() || now_us() >= shut_at)) {
        last_words();
        supervisor_end(0);
    }
    if (starved()) return 0;
    if (listen_at < next) next = listen_at;
    if (!shutting && controller_deadline() < next) next = controller_deadline();
    return shut_at < next ? shut_at : next;
}

int main(int argc, char **argv) {
    take_options(argc, argv);
    refuse_elsewhere();
    umask(022);
    setsid(); /* where the caller's session goes on, its signals must not reach us as a group */
    more_files();
    files_init();
    oom_init();
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* commands of the same user may not look into us */
    prctl(PR_SET_NAME, "supervisor", 0, 0, 0);
    frames_init();
    loop_init();
    signals_init();
    leash_init();
    net_init();
    conns_init();
    for (;;) {
        uint64_t frozen = loop_once(round_of_work());
        if (frozen) excuse(frozen);
    }
}
