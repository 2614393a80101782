/*
 * init is process 1 of every sandbox container. It starts the commands of an
 * attempt, carries their input and output, and ends what they leave behind. The
 * driver talks to it over the container's own stdin and stdout, which no command
 * can reach. That works with every engine that can attach to a container, starts
 * a command in a millisecond, and asks no shell of the image.
 *
 *	init (process 1)     frames <-> driver; pipes <-> commands; reaps
 *	  supervisor         one per command, a subreaper: what the command leaves
 *	    main process     behind stays below it and is known by that
 *
 * Process 1 cannot be killed from inside its container. A supervisor can, by a
 * command of the same user: then init says "lost", and the driver ends the whole
 * sandbox, because nobody knows any more what belonged to the command.
 *
 * It is one static program without a library (build.sh): it runs in any image,
 * needs 100 KiB, has no threads to fail under a process limit.
 *
 * Frames, both ways: type u8, flag u8, 2 bytes zero, id u32, length u32, payload;
 * numbers are little endian. link.go has the same table.
 *
 *	driver -> init                           init -> driver
 *	R run: flags, argc, envc, then the       h hello: version, clock
 *	  strings dir, args, environment         p main process: pid
 *	I stdin, at most what was granted        e could not start: where, errno
 *	C close stdin                            o output, flag 1 or 2; empty: its end
 *	W grant output, flag 1 or 2: bytes       w grant stdin: bytes; 0: nobody reads
 *	S signal, flag 1 for the tree: number    s signal sent: errno
 *	K kill the tree; z says when it is gone  x main process ended: wait status
 *	A kill everything                        z nothing is left; flag 1: lost
 *	T stop everything (SIGSTOP)              a everything is gone
 *	G let it go on (SIGCONT)                 f file; flag 1: errno
 *	F read a file: path                      g given away: errno of the first
 *	O give a tree away: uid, gid, path         file that could not be
 *	D deadline: flag 0 asks, 1 sets it to    d deadline, as an answer and when it
 *	  an instant (u64) of the clock, 2         passes: clock, since when it holds
 *	  takes it away                            everything (u64 each; 0: it does not)
 *
 * The clock is this machine's, in milliseconds, and goes on while the machine
 * sleeps. A deadline is an instant of it: it stays what it is, however long its
 * frame was on the way. From then on everything but init and the supervisors
 * stands still until the deadline is moved, whether the driver runs or not.
 *
 * Nothing is buffered for which the other side has not granted room, so a slow
 * reader slows its own command down and nobody else.
 *
 * Long because its parts share one state and one loop: none of them works alone.
 */
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/signal.h>
#include <linux/time.h>
#include <linux/wait.h>

#define VERSION 2

#include "system.h"

static long again(long n, long a, long b, long c, long d)
{
	long r;
	while ((r = sys(n, a, b, c, d, 0)) == -EINTR)
		;
	return r;
}

#define AGAIN(n, a, b, c, d) again(__NR_##n, (long)(a), (long)(b), (long)(c), (long)(d))

static u32 get32(const u8 *p) { return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24; }

static void put32(u8 *p, u32 v)
{
	p[0] = (u8)v;
	p[1] = (u8)(v >> 8);
	p[2] = (u8)(v >> 16);
	p[3] = (u8)(v >> 24);
}

static ulong get64(const u8 *p) { return get32(p) | (ulong)get32(p + 4) << 32; }

static void put64(u8 *p, ulong v)
{
	put32(p, (u32)v);
	put32(p + 4, (u32)(v >> 32));
}

/* now is the clock in milliseconds. */
static ulong now(void)
{
	struct { long s, ns; } t = { 0, 0 };
	if (SYS(clock_gettime, CLOCK_BOOTTIME, &t, 0, 0) < 0)
		SYS(clock_gettime, CLOCK_MONOTONIC, &t, 0, 0);
	return (ulong)t.s * 1000 + (ulong)t.ns / 1000000;
}

static void shut(int *fd)
{
	if (*fd >= 0)
		SYS(close, *fd, 0, 0, 0);
	*fd = -1;
}

static void nonblocking(int fd)
{
	long flags = SYS(fcntl, fd, F_GETFL, 0, 0);
	SYS(fcntl, fd, F_SETFL, flags | O_NONBLOCK, 0);
}

static const ulong all_signals = ~0UL;

static int child_signals(void)
{
	ulong set = 1UL << (SIGCHLD - 1);
	return (int)SYS(signalfd4, -1, &set, 8, O_NONBLOCK | O_CLOEXEC);
}

static void drain(int fd)
{
	u8 skip[1024];
	while (SYS(read, fd, skip, sizeof skip, 0) > 0)
		;
}

static struct rlimit64 files; /* what commands get; init itself takes the most */

/* ---- the main process of a command ---- */

enum { AT_SETUP = 1, AT_DIR, AT_EXEC, AT_DEADLINE };

struct request {
	u32 flags, argc, envc;
	char *dir;
	char **argv, **envv;
};

enum { WITH_STDIN = 1, MERGE = 2, NULL_STDOUT = 4, NULL_STDERR = 8 };

static void tell(int fd, u32 where, long err)
{
	u8 m[8];
	put32(m, where);
	put32(m + 4, (u32)-err);
	SYS(write, fd, m, sizeof m, 0);
	die(127);
}

static long run(const struct request *q)
{
	static char path[8192];
	const char *name = q->argv[0], *list = 0;
	long denied = 0;
	ulong n = length(name);
	for (ulong i = 0; i < n; i++)
		if (name[i] == '/')
			return SYS(execve, name, q->argv, q->envv, 0);
	for (u32 i = 0; i < q->envc; i++) {
		const char *kv = q->envv[i];
		if (kv[0] == 'P' && kv[1] == 'A' && kv[2] == 'T' && kv[3] == 'H' && kv[4] == '=')
			list = kv + 5;
	}
	while (list) {
		ulong k = 0;
		while (list[k] && list[k] != ':')
			k++;
		if (k + n + 2 <= sizeof path) {
			/* an empty entry is the working directory */
			ulong at = k;
			memcpy(path, list, k);
			if (k)
				path[at++] = '/';
			memcpy(path + at, name, n + 1);
			if (!k) {
				static char here[8192] = "./";
				memcpy(here + 2, name, n + 1);
				memcpy(path, here, n + 3);
			}
			long err = SYS(execve, path, q->argv, q->envv, 0);
			if (err == -EACCES)
				denied = err;
			else if (err != -ENOENT && err != -ENOTDIR)
				return err;
			else if (err == -ENOENT && SYS(faccessat, AT_FDCWD, path, 0, 0) == 0)
				return err; /* it is there: its interpreter is not */
		}
		list = list[k] ? list + k + 1 : 0;
	}
	return denied ? denied : -ENOENT;
}

static void become(const struct request *q, int in, int out, int err, int report)
{
	int fd[3] = { in, out, err };
	SYS(setsid, 0, 0, 0, 0);
	for (int i = 0; i < 3; i++) {
		/* all of them lie above 2: see hello */
		long r = SYS(dup3, fd[i], i, 0, 0);
		if (r < 0)
			tell(report, AT_SETUP, r);
	}
	sys(__NR_prlimit64, 0, RLIMIT_NOFILE, (long)&files, 0, 0);
	ulong none = 0;
	SYS(rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
	long r = SYS(chdir, q->dir, 0, 0, 0);
	if (r < 0)
		tell(report, AT_DIR, r);
	tell(report, AT_EXEC, run(q));
}

/* ---- supervisor ---- */

/* Messages between init and a supervisor: what, two numbers. */
struct message {
	u32 what, a, b;
};

static void say(int ctl, u32 what, u32 a, u32 b)
{
	struct message m = { what, a, b };
	AGAIN(write, ctl, &m, sizeof m, 0);
}

/* keep closes every descriptor above 2 but those that are named, which must be sorted. */
static void keep(const int *fd, int n)
{
	int from = 3;
	for (int i = 0; i <= n; i++) {
		int to = i < n ? fd[i] - 1 : 0x7fffffff;
		if (to >= from && SYS(close_range, from, to, 0, 0) < 0)
			for (int k = from; k <= to && k < (int)files.rlim_max && k < 65536; k++)
				SYS(close, k, 0, 0, 0);
		if (i < n)
			from = fd[i] + 1;
	}
}

static void supervise(const struct request *q, int in, int out, int err, int ctl)
{
	int fd[4] = { in, out, err, ctl };
	for (int i = 1; i < 4; i++)
		for (int k = i; k > 0 && fd[k - 1] > fd[k]; k--) {
			int t = fd[k];
			fd[k] = fd[k - 1];
			fd[k - 1] = t;
		}
	keep(fd, 4);
	/* Nothing of this process may be read or written through /proc by a command of the same user. */
	SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0);
	SYS(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0);
	int sig = child_signals(), report[2];
	if (sig < 0 || SYS(pipe2, report, O_CLOEXEC, 0, 0) < 0) {
		say(ctl, 'e', AT_SETUP, EMFILE);
		die(0);
	}
	long main = SYS(clone, SIGCHLD, 0, 0, 0);
	if (main == 0)
		become(q, in, out, err, report[1]);
	shut(&report[1]);
	shut(&in);
	if (err != out)
		shut(&err);
	shut(&out);
	if (main < 0) {
		say(ctl, 'e', AT_SETUP, (u32)-main);
		die(0);
	}
	u8 why[8];
	if (AGAIN(read, report[0], why, sizeof why, 0) == sizeof why) {
		AGAIN(wait4, main, 0, 0, 0);
		say(ctl, 'e', get32(why), get32(why + 4));
		die(0);
	}
	shut(&report[0]);
	say(ctl, 'p', (u32)main, 0);
	for (;;) {
		struct pollfd p[2] = { { ctl, POLLIN, 0 }, { sig, POLLIN, 0 } };
		SYS(ppoll, p, 2, 0, 0);
		if (p[1].revents) {
			int status;
			long pid;
			drain(sig);
			while ((pid = SYS(wait4, -1, &status, WNOHANG, 0)) > 0)
				if (pid == main) {
					main = 0;
					say(ctl, 'x', (u32)status, 0);
				}
			if (pid == -ECHILD)
				die(0);
		}
		if (p[0].revents) {
			struct message m;
			long n = SYS(read, ctl, &m, sizeof m, 0);
			if (n == 0)
				die(0);
			if (n == sizeof m && m.what == 'S') {
				/* the main process is ours to wait for: its number cannot be another's yet */
				long r = main ? SYS(kill, main, m.a, 0, 0) : -ESRCH;
				say(ctl, 's', (u32)-r, 0);
			}
		}
	}
}

/* ---- the process table ---- */

enum { PROCESSES = 1 << 15, SLOTS = PROCESSES * 2 };

static int pids[PROCESSES], parents[PROCESSES], slots[SLOTS], count;
static u8 states[PROCESSES];
static u8 below[PROCESSES]; /* 0 unknown, 1 below the root, 2 not, 3 being asked */

static int *slot(int pid)
{
	u32 at = (u32)pid * 2654435761U % SLOTS;
	while (slots[at] && pids[slots[at] - 1] != pid)
		at = (at + 1) % SLOTS;
	return &slots[at];
}

/* listing is a directory of /proc that is being read. */
struct listing {
	int dir;
	long n, at;
	u8 names[8192];
};

static void list(struct listing *l, const char *path)
{
	l->dir = (int)SYS(openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	l->n = l->at = 0;
}

/* next returns the next name that is a number, which must be positive; 0: there is none. */
static int next(struct listing *l)
{
	for (;;) {
		if (l->at >= l->n) {
			l->at = 0;
			l->n = SYS(getdents64, l->dir, l->names, sizeof l->names, 0);
			if (l->n <= 0) {
				shut(&l->dir);
				return 0;
			}
		}
		/* struct linux_dirent64: inode, offset, record length, type, name */
		const u8 *d = l->names + l->at;
		const char *name = (const char *)d + 19;
		l->at += d[16] | d[17] << 8;
		int v = 0;
		for (ulong i = 0; name[i] >= '0' && name[i] <= '9' && i < 9; i++)
			v = v * 10 + name[i] - '0';
		if (v)
			return v;
	}
}

static ulong spell(char *to, const char *text, int n)
{
	char digits[12];
	ulong k = length(text), d = 0;
	memcpy(to, text, k);
	for (; n; n /= 10)
		digits[d++] = (char)('0' + n % 10);
	while (d)
		to[k++] = digits[--d];
	to[k] = 0;
	return k;
}

/* hidden tells whether something of /proc cannot be read although it is there. */
static int hidden(long err) { return err < 0 && err != -ENOENT && err != -ESRCH; }

/* stat_of reads a file "stat" of /proc; it returns the state, 0 when there is none, 'R' when it cannot be seen. */
static u8 stat_of(const char *file, int *parent, ulong *flags)
{
	char stat[512];
	int fd = (int)SYS(openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0);
	*parent = 0;
	*flags = 0;
	if (fd < 0)
		return hidden(fd) ? 'R' : 0;
	long got = SYS(read, fd, stat, sizeof stat - 1, 0), end = -1;
	shut(&fd);
	/* the name of a program may hold anything; nothing behind it holds a bracket */
	for (long i = 0; i < got; i++)
		if (stat[i] == ')')
			end = i;
	if (end < 0 || end + 4 >= got)
		return 0;
	/* state, parent, group, session, terminal, its group, flags */
	ulong field[7] = { 0 };
	for (long i = end + 4, f = 1; i < got && f < 7; i++) {
		if (stat[i] == ' ')
			f++;
		else if (stat[i] >= '0' && stat[i] <= '9')
			field[f] = field[f] * 10 + (ulong)(stat[i] - '0');
	}
	*parent = (int)field[1];
	*flags = field[6];
	return (u8)stat[end + 2];
}

/* look reads the numbers, parents and states of all living processes but this one. */
static void look(void)
{
	static struct listing l;
	int pid, parent;
	ulong flags;
	memset(slots, 0, sizeof slots);
	count = 0;
	list(&l, "/proc");
	while ((pid = next(&l))) {
		char file[32];
		if (pid == 1 || count == PROCESSES)
			continue;
		memcpy(file + spell(file, "/proc/", pid), "/stat", 6);
		u8 state = stat_of(file, &parent, &flags);
		if (!state || state == 'Z' || state == 'X')
			continue;
		pids[count] = pid;
		parents[count] = parent;
		states[count] = state;
		*slot(pid) = ++count;
	}
}

/* send signals every process below root, and returns how many there are. */
static int send(int root, int signal)
{
	int hit = 0;
	look();
	memset(below, 0, sizeof below);
	for (int i = 0; i < count; i++) {
		int at = i, answer = 0;
		while (!answer) {
			below[at] = 3;
			if (parents[at] == root) {
				answer = 1;
				break;
			}
			int up = *slot(parents[at]);
			if (!up || below[up - 1] == 3)
				answer = 2; /* a zombie's child that has just been given away, or none of ours: next time */
			else if (below[up - 1])
				answer = below[up - 1];
			else
				at = up - 1;
		}
		for (at = i; below[at] == 3;) {
			below[at] = (u8)answer;
			int up = *slot(parents[at]);
			if (!up)
				break;
			at = up - 1;
		}
	}
	for (int i = 0; i < count; i++)
		if (below[i] == 1 && pids[i] != root && SYS(kill, pids[i], signal, 0, 0) == 0)
			hit++;
	return hit;
}

/* ---- init ---- */

enum {
	HEADER = 12,
	COMMANDS = 256,
	CHUNK = 32 << 10,     /* most data in one frame, both ways */
	STDIN_ROOM = 64 << 10, /* what the driver may send before a grant */
	BIGGEST = 16 << 20,   /* a run request */
	QUEUE = 256 << 10,    /* frames that are not written yet */
	RESERVE = 64 << 10,   /* of the queue, for all that is not output */
	GENTLE = 25,          /* rounds of killing a tree before everything is stopped for it */
};

struct command {
	u32 id;          /* 0: free */
	int supervisor;  /* its pid; 0 when it is gone */
	int ctl, in, out[2];
	u32 granted[2];
	u32 held, taken; /* stdin in the buffer, and of it written */
	u8 closing, killing, rounds, ended;
	u8 buffer[STDIN_ROOM];
};

static struct command commands[COMMANDS];
static u8 queue[QUEUE];
static u32 queued, written;
static u8 head[HEADER];
static u32 headed, bodied;
static u8 small[CHUNK], *body;
static int killing_all;
static ulong deadline; /* 0: none */
static ulong halted;   /* since when the deadline holds everything; 0: it does not */
static int stopped;    /* T holds everything */

static u8 *frame(u8 type, u8 flag, u32 id, u32 size)
{
	if (written && queued + HEADER + size > QUEUE) {
		for (u32 i = written; i < queued; i++)
			queue[i - written] = queue[i];
		queued -= written;
		written = 0;
	}
	/* The driver always reads. When it does not, there is nobody to talk to. */
	if (queued + HEADER + size > QUEUE)
		die(3);
	u8 *h = queue + queued;
	h[0] = type;
	h[1] = flag;
	h[2] = h[3] = 0;
	put32(h + 4, id);
	put32(h + 8, size);
	queued += HEADER + size;
	return h + HEADER;
}

static void number(u8 type, u8 flag, u32 id, u32 v) { put32(frame(type, flag, id, 4), v); }

static void could_not(u32 id, u32 where, u32 err)
{
	u8 *p = frame('e', 0, id, 8);
	put32(p, where);
	put32(p + 4, err);
}

static void flush(void)
{
	while (written < queued) {
		long n = SYS(write, 1, queue + written, queued - written, 0);
		if (n == -EAGAIN)
			return;
		if (n == -EINTR)
			continue;
		if (n < 0)
			die(2);
		written += (u32)n;
	}
	written = queued = 0;
}

static void report_deadline(u32 id)
{
	u8 *p = frame('d', 0, id, 16);
	put64(p, now());
	put64(p + 8, halted);
}

static u32 room(void) { return QUEUE - RESERVE - (queued - written); }

static struct command *find(u32 id)
{
	for (int i = 0; i < COMMANDS; i++)
		if (id && commands[i].id == id)
			return &commands[i];
	return 0;
}

static void close_stdin(struct command *c)
{
	shut(&c->in);
	c->held = c->taken = 0;
}

static void feed(struct command *c)
{
	if (c->in < 0)
		return;
	while (c->taken < c->held) {
		long n = SYS(write, c->in, c->buffer + c->taken, c->held - c->taken, 0);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return;
		if (n < 0) { /* nobody reads it, and nobody ever will */
			close_stdin(c);
			if (!c->closing)
				number('w', 0, c->id, 0);
			return;
		}
		c->taken += (u32)n;
	}
	if (c->held && !c->closing)
		number('w', 0, c->id, c->held);
	c->held = c->taken = 0;
	if (c->closing)
		close_stdin(c);
}

static void pump(struct command *c, int i)
{
	while (c->out[i] >= 0 && c->granted[i] > 0 && room() >= HEADER + CHUNK) {
		u32 want = c->granted[i] < CHUNK ? c->granted[i] : CHUNK;
		/* Read in place: the frame is made first and cut to what came. */
		u8 *p = frame('o', (u8)(i + 1), c->id, want);
		long n = SYS(read, c->out[i], p, want, 0);
		u32 got = n > 0 ? (u32)n : 0;
		queued -= want - got;
		put32(p - 4, got);
		if (n == -EINTR || n == -EAGAIN) {
			queued -= HEADER;
			return;
		}
		c->granted[i] -= got;
		if (n <= 0) {
			shut(&c->out[i]);
			return;
		}
		if (got < want)
			return;
	}
}

/* over forgets a command of which no process is left. */
static void over(struct command *c)
{
	/* What is still in the pipes has been granted or not: it stays until it is taken. */
	if (c->supervisor || c->out[0] >= 0 || c->out[1] >= 0)
		return;
	close_stdin(c);
	shut(&c->ctl);
	c->id = 0;
}

static void start_command(u32 id, u8 *p, u32 size)
{
	struct request q;
	struct command *c = 0;
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 }, ctl[2] = { -1, -1 };
	int null = -1;
	long failed = -EMFILE;
	if (find(id) || size < 12 || p[size - 1])
		die(4);
	for (int i = 0; i < COMMANDS && !c; i++)
		if (!commands[i].id)
			c = &commands[i];
	q.flags = get32(p);
	q.argc = get32(p + 4);
	q.envc = get32(p + 8);
	if (q.argc == 0 || q.argc > size || q.envc > size)
		die(4);
	ulong table = (q.argc + q.envc + 2) * sizeof(char *);
	char **strings = (char **)sys(__NR_mmap, 0, (long)table, 3, 0x22, -1);
	if (!c || (ulong)strings > -4096UL) {
		could_not(id, AT_SETUP, !c ? EMFILE : ENOMEM);
		return;
	}
	q.argv = strings;
	q.envv = strings + q.argc + 1;
	q.dir = (char *)p + 12;
	char *s = q.dir + length(q.dir) + 1, *end = (char *)p + size;
	for (u32 i = 0; i < q.argc + q.envc; i++) {
		if (s >= end)
			die(4);
		strings[i < q.argc ? i : i + 1] = s;
		s += length(s) + 1;
	}
	q.argv[q.argc] = q.envv[q.envc] = 0;

	null = (int)SYS(openat, AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC, 0);
	if (null < 0 || (q.flags & WITH_STDIN && (failed = SYS(pipe2, in, O_CLOEXEC, 0, 0)) < 0) ||
	    (!(q.flags & NULL_STDOUT) && (failed = SYS(pipe2, out, O_CLOEXEC, 0, 0)) < 0) ||
	    (!(q.flags & (NULL_STDERR | MERGE)) && (failed = SYS(pipe2, err, O_CLOEXEC, 0, 0)) < 0) ||
	    (failed = SYS(socketpair, 1 /* AF_UNIX */, 5 /* SOCK_SEQPACKET */ | O_CLOEXEC, 0, ctl)) < 0 ||
	    (failed = SYS(clone, SIGCHLD, 0, 0, 0)) < 0) {
		could_not(id, AT_SETUP, (u32)-failed);
		shut(&in[1]);
		shut(&out[0]);
		shut(&err[0]);
		shut(&ctl[0]);
	} else if (failed == 0) {
		int o = out[1] >= 0 ? out[1] : null;
		supervise(&q, in[0] >= 0 ? in[0] : null, o, q.flags & MERGE ? o : err[1] >= 0 ? err[1] : null, ctl[1]);
	} else {
		memset(c, 0, __builtin_offsetof(struct command, buffer));
		c->id = id;
		c->supervisor = (int)failed;
		c->ctl = ctl[0];
		c->in = in[1];
		c->out[0] = out[0];
		c->out[1] = err[0];
		for (int i = 0; i < 2; i++)
			if (c->out[i] >= 0)
				nonblocking(c->out[i]);
		if (c->in >= 0)
			nonblocking(c->in);
		nonblocking(c->ctl);
	}
	shut(&in[0]);
	shut(&out[1]);
	shut(&err[1]);
	shut(&ctl[1]);
	shut(&null);
	SYS(munmap, strings, table, 0, 0);
}

static void read_file(u32 id, u8 *path, u32 size)
{
	if (!size || path[size - 1])
		die(4);
	int fd = (int)SYS(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0) {
		number('f', 1, id, (u32)-fd);
		return;
	}
	u8 *p = frame('f', 0, id, 4096);
	long n = AGAIN(read, fd, p, 4096, 0);
	shut(&fd);
	if (n < 0)
		n = 0;
	queued -= 4096 - (u32)n;
	put32(p - 4, (u32)n);
}

enum { DEEPEST = 1000 };

/* give makes everything below a directory somebody's who can then remove it. Links are given, not followed. */
static long give(int dir, u32 uid, u32 gid, int depth)
{
	u8 names[2048];
	long n, first = 0;
	while ((n = SYS(getdents64, dir, names, sizeof names, 0)) > 0)
		for (long at = 0; at < n;) {
			const u8 *d = names + at;
			const char *name = (const char *)d + 19;
			at += d[16] | d[17] << 8;
			if (name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])))
				continue;
			long err = sys(__NR_fchownat, dir, (long)name, uid, gid, AT_SYMLINK_NOFOLLOW);
			int sub = (int)SYS(openat, dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
			if (sub >= 0) {
				SYS(fchmod, sub, 0700, 0, 0);
				if (depth < DEEPEST) {
					long below = give(sub, uid, gid, depth + 1);
					err = err ? err : below;
				} else {
					err = -ELOOP;
				}
				shut(&sub);
			} else if (sub != -ENOTDIR && sub != -ELOOP) {
				err = sub;
			}
			first = first ? first : err;
		}
	return first ? first : n;
}

static void give_away(u32 id, u8 *p, u32 size)
{
	if (size < 9 || p[size - 1])
		die(4);
	long err = SYS(openat, AT_FDCWD, p + 8, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (err >= 0) {
		int dir = (int)err;
		err = give(dir, get32(p), get32(p + 4), 0);
		shut(&dir);
	}
	number('g', 0, id, (u32)-err);
}

/* ---- holding everything still ---- */

enum {
	SETTLED = 500,   /* ms from a stop until everything that heeds it has heeded it, on a busy machine, too */
	SHORTEST = 20,   /* ms between two looks, about, when something was awake */
	LONGEST = 400,   /* and when nothing is */
	TOO_OFTEN = 3,   /* looks that found somebody awake */
	NAP = 500,       /* ms that a timer is trusted: it stands still while the machine sleeps */
	EXITING = 4,     /* a flag of the kernel's */
};

static int own[PROCESSES], owns; /* who had been stopped by the job itself */
static ulong held_from, next_look, between;
static int caught;

static int held(void) { return halted || stopped; }

/* halt stops everybody but the supervisors, in one step of the kernel's: what is being forked is stopped, too. */
static void halt(void)
{
	SYS(kill, -1, SIGSTOP, 0, 0);
	for (int i = 0; i < COMMANDS; i++)
		if (commands[i].id && commands[i].supervisor)
			SYS(kill, commands[i].supervisor, SIGCONT, 0, 0);
}

static void hold(void)
{
	look();
	owns = 0;
	for (int i = 0; i < count; i++)
		if (states[i] == 'T')
			own[owns++] = pids[i];
	halt();
	held_from = now();
	next_look = held_from + SHORTEST;
	between = SHORTEST;
	caught = 0;
}

static void go_on(void)
{
	if (!owns) {
		SYS(kill, -1, SIGCONT, 0, 0);
		return;
	}
	look();
	for (int i = 0; i < count; i++) {
		int k = 0;
		/* nobody forked meanwhile: a number is still the same process's */
		while (k < owns && own[k] != pids[i])
			k++;
		if (k == owns)
			SYS(kill, pids[i], SIGCONT, 0, 0);
	}
}

/* heed stops everything when the deadline has passed, and lets it go on when it was moved. */
static void heed(void)
{
	ulong t = now();
	if (!deadline || t < deadline) {
		if (halted && !stopped)
			go_on();
		halted = 0;
	} else if (!halted) {
		if (!stopped)
			hold();
		halted = t;
		report_deadline(0);
	}
}

/* awake tells whether a thread of the job runs, or waits to. */
static int awake(void)
{
	static struct listing processes, threads;
	int pid, tid, parent, found = 0;
	ulong flags;
	list(&processes, "/proc");
	found = hidden(processes.dir); /* what cannot be seen is not known to stand still */
	while ((pid = next(&processes))) {
		char file[64];
		int ours = pid == 1;
		for (int i = 0; i < COMMANDS && !ours; i++)
			ours = commands[i].id && commands[i].supervisor == pid;
		if (ours || found)
			continue;
		/* the state of a process is that of its first thread, which may have ended */
		ulong k = spell(file, "/proc/", pid);
		memcpy(file + k, "/task", 6);
		list(&threads, file);
		found |= hidden(threads.dir);
		memcpy(file + k, "/task/", 7);
		while ((tid = next(&threads))) {
			char stat[80];
			memcpy(stat + spell(stat, file, tid), "/stat", 6);
			u8 state = stat_of(stat, &parent, &flags);
			found |= (state == 'R' || state == 'S') && !(flags & EXITING);
		}
	}
	return found;
}

/*
 * insist stops everything again: a stopped process can be continued, by a timer
 * that it has set or by a signal that was on its way. One that keeps doing so
 * cannot be held, and must not run on: the container ends. The looks come at
 * random, so that nobody can stand still just for them.
 */
static void insist(int killing)
{
	static const char last[] = "what runs here did not stay stopped\n";
	ulong t = now(), random = t;
	if (t < next_look)
		return;
	if (t - held_from >= SETTLED && !killing) {
		if (!awake())
			between = between * 2 < LONGEST ? between * 2 : LONGEST;
		else if (between = SHORTEST, ++caught == TOO_OFTEN) {
			SYS(write, 2, last, sizeof last - 1, 0);
			die(8);
		}
	}
	halt();
	SYS(getrandom, &random, sizeof random, 1 /* do not wait */, 0);
	next_look = now() + between / 2 + random % between;
}

static void handle(u8 type, u8 flag, u32 id, u8 *p, u32 size)
{
	struct command *c = find(id);
	switch (type) {
	case 'R':
		if (held())
			could_not(id, AT_DEADLINE, EAGAIN);
		else
			start_command(id, p, size);
		return;
	case 'F':
		read_file(id, p, size);
		return;
	case 'O':
		give_away(id, p, size);
		return;
	case 'A':
		killing_all = 1;
		return;
	case 'T':
		if (!held())
			hold();
		stopped = 1;
		return;
	case 'G':
		if (stopped && !halted)
			go_on();
		stopped = 0;
		return;
	case 'D':
		if (flag > 2 || size != (flag == 1 ? 8 : 0))
			die(4);
		if (flag)
			deadline = flag == 1 ? get64(p) : 0;
		heed();
		report_deadline(id);
		return;
	}
	if (!c) { /* it ended while this was on its way */
		if (type == 'S')
			number('s', 0, id, ESRCH);
		return;
	}
	switch (type) {
	case 'I':
		if (c->in < 0)
			return;
		if (size > STDIN_ROOM - c->held)
			die(4);
		memcpy(c->buffer + c->held, p, size);
		c->held += size;
		feed(c);
		return;
	case 'C':
		c->closing = 1;
		feed(c);
		return;
	case 'W':
		if (size != 4 || flag < 1 || flag > 2)
			die(4);
		c->granted[flag - 1] += get32(p);
		return;
	case 'S':
		if (size != 4)
			die(4);
		if (held() && get32(p) == SIGCONT)
			number('s', 0, id, 0); /* it is continued with everybody else */
		else if (!flag && c->supervisor)
			say(c->ctl, 'S', get32(p), 0);
		else
			number('s', 0, id, c->supervisor && send(c->supervisor, (int)get32(p)) ? 0 : ESRCH);
		return;
	case 'K':
		c->killing = 1;
		return;
	}
	die(4);
}

/* receive reads frames of the driver as far as they have come. */
static void receive(void)
{
	if (headed < HEADER) {
		long n = SYS(read, 0, head + headed, HEADER - headed, 0);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0)
			die(0); /* the driver is gone: so is the sandbox */
		headed += (u32)n;
		if (headed < HEADER)
			return;
		u32 size = get32(head + 8);
		if (size > BIGGEST)
			die(4);
		body = small;
		if (size > sizeof small) {
			body = (u8 *)sys(__NR_mmap, 0, size, 3, 0x22, -1);
			if ((ulong)body > -4096UL)
				die(5);
		}
		bodied = 0;
	}
	u32 size = get32(head + 8);
	if (bodied < size) {
		long n = SYS(read, 0, body + bodied, size - bodied, 0);
		if (n == -EAGAIN || n == -EINTR)
			return;
		if (n <= 0)
			die(0);
		bodied += (u32)n;
		if (bodied < size)
			return;
	}
	headed = 0;
	handle(head[0], head[1], get32(head + 4), body, size);
	if (body != small)
		SYS(munmap, body, size, 0, 0);
}

/* hear takes what a supervisor says. */
static void hear(struct command *c)
{
	struct message m;
	while (c->ctl >= 0) {
		long n = SYS(read, c->ctl, &m, sizeof m, 0);
		if (n == -EINTR)
			continue;
		if (n == -EAGAIN)
			return;
		if (n != sizeof m) {
			shut(&c->ctl);
			return;
		}
		switch (m.what) {
		case 'e':
			could_not(c->id, m.a, m.b);
			c->ended = 1;
			break;
		case 'x':
			c->ended = 1;
			/* fallthrough */
		default:
			number((u8)m.what, 0, c->id, m.a);
		}
	}
}

static void reap(void)
{
	long pid;
	int status;
	while ((pid = SYS(wait4, -1, &status, WNOHANG, 0)) > 0)
		for (int i = 0; i < COMMANDS; i++) {
			struct command *c = &commands[i];
			if (!c->id || c->supervisor != pid)
				continue;
			hear(c); /* its last words, before the word of its death */
			/* One that ends by itself has waited for all that were below it. */
			frame('z', !(c->ended && status == 0), c->id, 0);
			c->supervisor = 0;
			for (int k = 0; k < 2; k++)
				pump(c, k);
			over(c);
		}
	if (killing_all && pid == -ECHILD) {
		killing_all = 0;
		frame('a', 0, 0, 0);
	}
}

/*
 * kill_tree ends what is below a supervisor. What forks faster than it is found
 * is caught by stopping everything first: the kernel does that in one step.
 */
static void kill_tree(struct command *c)
{
	if (c->rounds < GENTLE || held()) {
		c->rounds += c->rounds < GENTLE;
		send(c->supervisor, SIGKILL);
		return;
	}
	SYS(kill, -1, SIGSTOP, 0, 0);
	send(c->supervisor, SIGKILL);
	SYS(kill, -1, SIGCONT, 0, 0);
}

static struct pollfd polls[3 + COMMANDS * 4];

/* rest is how many milliseconds may pass until there is something to do; -1: any number. */
static long rest(int hurry)
{
	ulong t = now(), until = held() ? next_look : deadline;
	if (hurry)
		return 1;
	if (!until)
		return -1;
	return until <= t ? 0 : until - t < NAP ? (long)(until - t) : NAP;
}

__attribute__((noreturn)) static void serve(int sig)
{
	for (int late = 0;;) {
		int n = 0, hurry = 0;
		flush();
		polls[n++] = (struct pollfd){ 0, POLLIN, 0 };
		polls[n++] = (struct pollfd){ sig, POLLIN, 0 };
		polls[n++] = (struct pollfd){ written < queued ? 1 : -1, POLLOUT, 0 };
		int may = room() >= HEADER + CHUNK;
		for (int i = 0; i < COMMANDS; i++) {
			struct command *c = &commands[i];
			if (!c->id)
				continue;
			polls[n++] = (struct pollfd){ c->ctl, POLLIN, 0 };
			polls[n++] = (struct pollfd){ c->held ? c->in : -1, POLLOUT, 0 };
			for (int k = 0; k < 2; k++)
				polls[n++] = (struct pollfd){ may && c->granted[k] ? c->out[k] : -1, POLLIN, 0 };
			hurry |= c->killing && c->supervisor;
		}
		hurry |= killing_all;
		long ms = rest(hurry);
		struct { long s, ns; } tick = { 0, ms * 1000000 };
		SYS(ppoll, polls, n, ms >= 0 ? &tick : 0, 0);
		/* What the driver has sent may move the deadline; it cannot hold it up. */
		if (!polls[0].revents || ++late > 8) {
			late = 0;
			heed();
		}
		if (held())
			insist(hurry);
		n = 3;
		for (int i = 0; i < COMMANDS; i++) {
			struct command *c = &commands[i];
			if (!c->id)
				continue;
			if (polls[n].revents)
				hear(c);
			if (polls[n + 1].revents)
				feed(c);
			for (int k = 0; k < 2; k++)
				if (polls[n + 2 + k].revents)
					pump(c, k);
			n += 4;
			if (c->killing && c->supervisor)
				kill_tree(c);
			over(c);
		}
		if (killing_all)
			SYS(kill, -1, SIGKILL, 0, 0);
		if (polls[1].revents || hurry) {
			drain(sig);
			reap();
		}
		if (polls[0].revents)
			receive();
	}
}

__attribute__((noreturn, used)) void start(long *stack)
{
	(void)stack;
	/* It kills "everybody": outside of a container of its own that would be the machine. */
	if (SYS(getpid, 0, 0, 0, 0) != 1)
		die(7);
	SYS(rt_sigprocmask, SIG_SETMASK, &all_signals, 0, 8);
	SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0);
	/* Descriptors 0 to 2 stay taken, so that no pipe of a command can be one of them. */
	struct rlimit64 most = { 0, 0 };
	sys(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, (long)&files, 0);
	most.rlim_cur = most.rlim_max = files.rlim_max;
	sys(__NR_prlimit64, 0, RLIMIT_NOFILE, (long)&most, 0, 0);
	nonblocking(0);
	nonblocking(1);
	int sig = child_signals();
	if (sig < 0)
		die(6);
	u8 *hello = frame('h', 0, 0, 12);
	put32(hello, VERSION);
	put64(hello + 4, now());
	serve(sig);
}
