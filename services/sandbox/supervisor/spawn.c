/* Starting a command: a keeper, which adopts whatever the command leaves, and the command below it. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

#include "supervisor.h"

#define NICE 5

static int pair(int *read_end, int *write_end, int read_flags, int write_flags) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0) return errno;
    *read_end = fds[0];
    *write_end = fds[1];
    if (read_flags) fcntl(fds[0], F_SETFL, read_flags);
    if (write_flags) fcntl(fds[1], F_SETFL, write_flags);
    return 0;
}

static int terminal(struct pipes *p, const struct order *o) {
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK), zero = 0;
    if (master < 0) return errno;
    p->out_read = master;
    if (ioctl(master, TIOCSPTLCK, &zero) < 0) return errno;
    p->out_write = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC); /* needs no path to /dev/pts */
    if (p->out_write < 0) return errno;
    struct winsize size = {.ws_row = o->rows ? o->rows : 24, .ws_col = o->columns ? o->columns : 80};
    ioctl(p->out_write, TIOCSWINSZ, &size);
    p->input_write = fcntl(master, F_DUPFD_CLOEXEC, 3);
    return p->input_write < 0 ? errno : 0;
}

int pipes_open(struct pipes *p, const struct order *o) {
    memset(p, -1, sizeof *p);
    int bad = pair(&p->report_read, &p->report_write, O_NONBLOCK, 0);
    if (bad) return bad;
    if (o->flags & EXEC_PTY) return terminal(p, o);
    if (o->flags & EXEC_STDIN || o->input_size) bad = pair(&p->input_read, &p->input_write, 0, O_NONBLOCK);
    else if ((p->input_read = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0) bad = errno;
    if (!bad) bad = pair(&p->out_read, &p->out_write, O_NONBLOCK, 0);
    if (!bad && !(o->flags & EXEC_MERGE)) bad = pair(&p->err_read, &p->err_write, O_NONBLOCK, 0);
    return bad;
}

static void close_one(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void pipes_close_ours(struct pipes *p) {
    close_one(&p->report_read);
    close_one(&p->input_write);
    close_one(&p->out_read);
    close_one(&p->err_read);
}

void pipes_close_theirs(struct pipes *p) {
    close_one(&p->report_write);
    close_one(&p->input_read);
    close_one(&p->out_write);
    close_one(&p->err_write);
}

static void close_from(unsigned first, unsigned last) {
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0) return;
    for (unsigned fd = first; fd <= last && fd < 65536; fd++) close((int)fd); /* Linux before 5.9 */
}

static void tell(int fd, int kind, int value) {
    struct report r = {.kind = kind, .value = value};
    if (write(fd, &r, sizeof r) < 0) _exit(127);
}

static void fail(int fd) {
    tell(fd, REPORT_FAILED, errno);
    _exit(127);
}

static void raise_oom_score(void) {
    /* /proc files of an undumpable process are root's; nothing secret is left in this one, and exec would undo it too */
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0) fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    if (write(fd, "500", 3) < 0) { /* the sandbox's manager may have set it higher */
    }
    close(fd);
}

static void limit(int what, uint32_t most) {
    struct rlimit now;
    if (!most || getrlimit(what, &now) < 0) return;
    rlim_t value = most < now.rlim_max ? most : now.rlim_max;
    setrlimit(what, &(struct rlimit){value, value});
}

static void become_job_user(int report) {
    if (!options.drop) return;
    if (setgroups(0, NULL) < 0 || setresgid(options.gid, options.gid, options.gid) < 0 ||
        setresuid(options.uid, options.uid, options.uid) < 0)
        fail(report);
}

static void default_signals(void) {
    struct sigaction plain = {.sa_handler = SIG_DFL};
    for (int n = 1; n < NSIG; n++) sigaction(n, &plain, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void __attribute__((noreturn)) run(const struct order *o, const struct pipes *p) {
    int in = p->input_read, out = p->out_write, err = p->err_write;
    int report = fcntl(p->report_write, F_DUPFD_CLOEXEC, 4);
    if (report < 0) _exit(127);
    if (o->flags & EXEC_PTY) in = err = out;
    if (o->flags & EXEC_MERGE) err = out;
    setsid();
    int high[3] = {fcntl(in, F_DUPFD, 4), fcntl(out, F_DUPFD, 4), fcntl(err, F_DUPFD, 4)};
    for (int n = 0; n < 3; n++)
        if (high[n] < 0 || dup2(high[n], n) < 0) fail(report);
    if (dup3(report, 3, O_CLOEXEC) < 0) fail(report);
    report = 3;
    close_from(4, ~0u); /* every other command's pipes: a reader of one would wait for ever for its end */
    if (o->flags & EXEC_PTY) ioctl(0, TIOCSCTTY, 0);
    umask(022);
    raise_oom_score();
    if (nice(NICE) < 0) { /* below us, so that we get our turn beside a fork bomb */
    }
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_NOFILE, &files_before);
    limit(RLIMIT_NOFILE, options.nofile);
    limit(RLIMIT_NPROC, options.nproc);
    become_job_user(report);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || chdir(o->folder) < 0) fail(report);
    default_signals();
    environ = o->env;
    execvp(o->argv[0], o->argv);
    fail(report);
    _exit(127);
}

static uint64_t us(struct timeval t) { return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_usec; }

static void report_end(int fd, int status, const struct rusage *used) {
    siginfo_t any;
    bool left = waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0;
    struct report r = {.kind = REPORT_ENDED, .value = status, .left = left, .user_us = us(used->ru_utime),
                       .system_us = us(used->ru_stime), .max_rss_kb = (uint64_t)used->ru_maxrss};
    if (write(fd, &r, sizeof r) < 0) _exit(0);
}

/* The keeper: waits, tells of the end of the main process, and is there until nothing below it is. All signals are
 * blocked; where it is killed all the same (a command of the same user), process 1 sees that. */
static void __attribute__((noreturn)) keep(const struct order *o, const struct pipes *p) {
    prctl(PR_SET_NAME, "keeper", 0, 0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    pid_t main = fork();
    if (main == 0) run(o, p);
    int report = p->report_write;
    if (main < 0) {
        tell(report, REPORT_FAILED, errno);
        _exit(0);
    }
    tell(report, REPORT_MAIN, main);
    if (report > 0) close_from(0, (unsigned)report - 1);
    close_from((unsigned)report + 1, ~0u);
    for (;;) {
        int status;
        struct rusage used;
        pid_t ended = wait4(-1, &status, 0, &used);
        if (ended < 0 && errno == ECHILD) _exit(0);
        if (ended == main) report_end(report, status, &used);
    }
}

pid_t spawn(const struct order *o, const struct pipes *p) {
    pid_t keeper = fork();
    if (keeper == 0) keep(o, p);
    return keeper;
}
