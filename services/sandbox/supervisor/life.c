/* The life of a command after its start: its end, told or forced, and what it leaves. */
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor.h"
#include "tree.h"

#define POLITE_TO 100          /* more processes than that get no SIGTERM: it is a fork bomb */
#define GIVE_UP_US 2000000u    /* then everything in the sandbox is killed */
#define PAUSE_MS 10u
#define PAUSE_MOST_MS 100u

static bool orphans; /* children of a dead keeper may be ours now */
static uint64_t orphans_at;

static void kill_tree(struct exec *e, int number) {
    if (!e->main_ended && e->main > 1) kill(-e->main, number);
    tree_scan();
    size_t found = e->keeper > 0 ? tree_mark_below(e->keeper) : 0;
    if (found) tree_signal(number, number == SIGKILL);
}

static void begin_kill(struct exec *e, uint64_t now) {
    e->kill_begun = true;
    e->kill_since = now;
    e->kill_at = now;
    e->kill_pause = PAUSE_MS;
}

void exec_end(struct exec *e, enum exit_reason why, uint32_t grace_ms) {
    uint64_t now = now_us();
    if (e->tree_ended) { /* only its pipes are left, in other hands */
        if (e->state != STATE_CLOSED && e->close_at == NEVER) e->close_at = now;
        return;
    }
    if (e->ending == REASON_NONE) e->ending = why;
    if (e->kill_begun) return;
    tree_scan();
    size_t found = e->keeper > 0 ? tree_mark_below(e->keeper) : 0;
    if (grace_ms && found && found <= POLITE_TO) {
        tree_signal(SIGTERM, false);
        uint64_t at = now + (uint64_t)grace_ms * 1000;
        if (at < e->kill_at) e->kill_at = at;
        return;
    }
    begin_kill(e, now);
}

static void push(struct exec *e, uint64_t now) { /* the forced end, again and again until nothing is left */
    if (!e->kill_begun) begin_kill(e, now);
    if (!e->all_killed && now - e->kill_since >= GIVE_UP_US) {
        kill(-1, SIGKILL); /* everything in this namespace but us; keepers too, so nothing is in doubt */
        e->all_killed = true;
    }
    kill_tree(e, SIGKILL);
    e->kill_at = now + e->kill_pause * 1000u;
    if ((e->kill_pause *= 2) > PAUSE_MOST_MS) e->kill_pause = PAUSE_MOST_MS;
}

static void tree_over(struct exec *e) {
    if (e->tree_ended) return;
    e->tree_ended = true;
    e->kill_at = NEVER;
    watch_close(&e->report);
    input_close(e);
    e->close_at = now_us() + DRAIN_US;
}

static void main_over(struct exec *e, enum exit_reason why) {
    if (e->main_ended) return;
    uint64_t now = now_us();
    e->main_ended = true;
    e->ended_ns = wall_ns();
    e->duration_us = now - e->begun_us;
    e->give_up_at = now + DRAIN_US;
    if (oom_count() > e->oom_before) e->bits |= ENTRY_OOM_SEEN;
    bool by_kernel = e->bits & ENTRY_OOM_SEEN && (e->signal_number == SIGKILL || e->code == 128 + SIGKILL);
    e->reason = e->ending ? e->ending : by_kernel ? REASON_OOM : why;
}

static void take_end(struct exec *e, const struct report *r) {
    if (WIFSIGNALED(r->value)) e->signal_number = WTERMSIG(r->value);
    else e->code = WEXITSTATUS(r->value);
    e->user_us = r->user_us;
    e->system_us = r->system_us;
    e->max_rss_kb = r->max_rss_kb;
    main_over(e, REASON_EXITED);
    if (!r->left) {
        tree_over(e);
        return;
    }
    tree_scan();
    e->left_behind = (uint32_t)tree_mark_below(e->keeper);
    if (!(e->flags & EXEC_BACKGROUND) && !e->kill_begun) begin_kill(e, now_us());
}

static void take_failure(struct exec *e, int number) {
    e->error = number;
    e->code = -1;
    main_over(e, REASON_SPAWN_FAILED);
    e->reason = REASON_SPAWN_FAILED;
}

static void read_reports(struct exec *e) {
    struct report r;
    while (e->report.fd >= 0 && read(e->report.fd, &r, sizeof r) == (ssize_t)sizeof r) {
        if (r.kind == REPORT_MAIN) e->main = r.value;
        else if (r.kind == REPORT_FAILED) take_failure(e, r.value);
        else if (!e->main_ended) take_end(e, &r);
        else if (!r.left) tree_over(e);
    }
}

void exec_report(struct watch *w, uint32_t events) {
    struct exec *e = w->owner;
    read_reports(e);
    if (events & EPOLLHUP && e->report.fd >= 0) watch_want(w, 0); /* the keeper's end is told by its parent: us */
    exec_settle(e);
}

static void give_up_kept(void) { /* the oldest ended commands' output goes first */
    size_t held = 0;
    for (uint32_t i = exec_count; i-- > 0;) {
        struct exec *e = execs[i];
        if (e->state != STATE_CLOSED || e->bits & ENTRY_OUTPUT_DROPPED) continue;
        size_t own = kept_memory(&e->out[0].kept) + kept_memory(&e->out[1].kept);
        if (own && held + own > KEPT_ENDED) {
            for (int n = 0; n < 2; n++) kept_free(&e->out[n].kept);
            e->bits |= ENTRY_OUTPUT_DROPPED;
        } else held += own;
    }
}

static bool held_by_others(const struct stream *s) { return !s->over && s->watch.events; }

void exec_settle(struct exec *e) {
    if (e->state == STATE_CLOSED || !e->main_ended) return;
    uint64_t now = now_us();
    for (int n = 0; n < 2; n++)
        if (!e->out[n].over && now < e->give_up_at) stream_drain(&e->out[n]);
    bool over = e->out[0].over && e->out[1].over;
    if (!e->exit_told && (over || now >= e->give_up_at)) {
        e->exit_told = true;
        e->state = STATE_EXITED;
        if (held_by_others(&e->out[0]) || held_by_others(&e->out[1])) e->bits |= ENTRY_OUTPUT_OPEN;
        exec_put_event(e, MSG_EXIT);
    }
    if (!e->exit_told || !e->tree_ended || !over) return;
    e->state = STATE_CLOSED;
    e->deadline = e->close_at = e->give_up_at = NEVER;
    exec_put_event(e, MSG_CLOSED);
    give_up_kept();
}

static void keeper_ended(struct exec *e, int status) {
    read_reports(e); /* what it said before */
    e->keeper = 0;
    if (WIFEXITED(status) && e->main_ended) {
        tree_over(e);
    } else { /* killed from inside: nobody knows how the command ends; what it watched is ours now, and ended */
        if (!e->main_ended) main_over(e, REASON_LOST);
        orphans = true;
        orphans_at = now_us();
    }
    exec_settle(e);
}

void child_ended(pid_t pid, int status) {
    for (uint32_t i = 0; i < exec_count; i++)
        if (execs[i]->keeper == pid) {
            keeper_ended(execs[i], status);
            return;
        }
}

static void sweep(uint64_t now) {
    tree_scan();
    orphans = tree_mark_orphans(is_keeper) > 0;
    if (orphans) tree_signal(SIGKILL, true);
    orphans_at = now + PAUSE_MS * 1000;
    for (uint32_t i = 0; !orphans && i < exec_count; i++) {
        struct exec *e = execs[i];
        if (e->state == STATE_CLOSED || e->keeper || e->tree_ended) continue;
        tree_over(e);
        exec_settle(e);
    }
}

static void force_close(struct exec *e, uint64_t now) {
    e->close_at = now + DRAIN_US;
    for (int n = 0; n < 2; n++) {
        struct stream *s = &e->out[n];
        if (s->over) continue;
        stream_drain(s);
        if (s->watch.events || !e->subscribed) stream_end(s); /* not where it waits for the controller */
    }
    exec_settle(e);
}

static uint64_t tick(struct exec *e, uint64_t now) {
    if (now >= e->deadline && !e->tree_ended) {
        e->deadline = NEVER;
        exec_end(e, REASON_TIMEOUT, e->grace_ms);
    }
    if (now >= e->kill_at && !e->tree_ended) push(e, now);
    if (e->main_ended && !e->exit_told && now >= e->give_up_at) exec_settle(e);
    if (e->tree_ended && now >= e->close_at) force_close(e, now);
    uint64_t next = e->tree_ended ? e->close_at : e->kill_at < e->deadline ? e->kill_at : e->deadline;
    if (e->main_ended && !e->exit_told && e->give_up_at < next) next = e->give_up_at;
    return next;
}

uint64_t execs_tick(void) {
    uint64_t now = now_us(), next = NEVER;
    if (orphans && now >= orphans_at) sweep(now);
    for (uint32_t i = 0; i < exec_count; i++) {
        struct exec *e = execs[i];
        if (e->state == STATE_CLOSED) continue;
        uint64_t at = tick(e, now);
        if (e->state != STATE_CLOSED && at < next) next = at;
    }
    return orphans && orphans_at < next ? orphans_at : next;
}

void execs_excused(uint64_t frozen) {
    for (uint32_t i = 0; i < exec_count; i++) {
        uint64_t *due[] = {&execs[i]->deadline, &execs[i]->kill_at, &execs[i]->kill_since, &execs[i]->give_up_at, &execs[i]->close_at};
        for (size_t n = 0; n < sizeof due / sizeof *due; n++)
            if (*due[n] != NEVER) *due[n] += frozen;
    }
}

bool exec_signal(struct exec *e, int number, bool all) {
    if (e->tree_ended || (!all && (e->main_ended || e->main <= 1))) return false;
    if (!all) return kill(-e->main, number) == 0;
    tree_scan();
    if (!tree_mark_below(e->keeper)) return false;
    tree_signal(number, false);
    return true;
}

void exec_resize(struct exec *e, uint16_t rows, uint16_t columns) {
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    ioctl(e->out[0].watch.fd, TIOCSWINSZ, &size);
}
