/*
 * ask is the `everdict` on the PATH of a container's commands. The runner's own
 * is a dynamic program for another system, perhaps for another machine; this one
 * is static and knows the one thing that a job may want of Everdict: a person.
 *
 *	everdict ask QUESTION   as cmd/ask: a line of JSON to the unix
 *	                        socket EVERDICT_ASK_SOCKET, a line back, an exit code
 *	everdict carry          the other end of that socket, started by the runner
 *
 * A socket of the host cannot be had in a container on every engine: where the
 * engine runs in a virtual machine, a bind mount shows the socket's file and
 * nobody behind it. So the runner starts carry as a command of the sandbox: it
 * listens on a socket of the container's own, says where, and carries a question
 * to its stdout and the answer from its stdin, one after the other. While a
 * person is asked the container stands still, so that no other question could
 * come from it anyway.
 *
 * What a job does to carry, which runs as the same user, it does to its own
 * questions. Built by build.sh, without a library, as init.c is.
 */
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/poll.h>
#include <linux/prctl.h>
#include <linux/signal.h>
#include <linux/socket.h>
#include <linux/un.h>

#include "system.h"

enum {
	LINE = 16 << 10,  /* a question's; protocol.MaxAskLine */
	ANSWER = 1 << 20, /* an answer's; maxAnswer of cmd/ask */
	SLICE = 200,      /* ms; how much of a wait a freeze can use up */
	SLICES = 50,
};

/* ---- small things ---- */

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* after returns what follows a prefix, or nothing. */
static const char *after(const char *s, const char *prefix)
{
	while (*prefix)
		if (*s++ != *prefix++)
			return 0;
	return s;
}

/* ready waits for a descriptor, but not for ever. */
static int ready(int fd, short what)
{
	for (int i = 0; i < SLICES; i++) {
		struct pollfd p = { fd, what, 0 };
		struct { long s, ns; } slice = { 0, SLICE * 1000000L };
		if (SYS(ppoll, &p, 1, &slice, 0) > 0)
			return 1;
	}
	return 0;
}

/* put writes everything; where that would not wait by itself, within a time. */
static int put(int fd, const char *p, ulong n)
{
	while (n) {
		long k = SYS(write, fd, p, n, 0);
		if (k == -EINTR || (k == -EAGAIN && ready(fd, POLLOUT)))
			continue;
		if (k <= 0)
			return 0;
		p += k;
		n -= (ulong)k;
	}
	return 1;
}

/* ---- text ---- */

/* text is built up to its room; full says that it did not fit. */
struct text {
	char *at;
	ulong n, room;
	int full;
};

static void byte(struct text *t, char c)
{
	if (t->n < t->room)
		t->at[t->n++] = c;
	else
		t->full = 1;
}

static void add(struct text *t, const char *s)
{
	while (*s)
		byte(t, *s++);
}

/* quote adds a string of JSON. */
static void quote(struct text *t, const char *s)
{
	static const char hex[] = "0123456789abcdef";
	byte(t, '"');
	for (; *s; s++) {
		u8 c = (u8)*s;
		if (c == '"' || c == '\\') {
			byte(t, '\\');
			byte(t, *s);
		} else if (c == '\n') {
			add(t, "\\n");
		} else if (c == '\t') {
			add(t, "\\t");
		} else if (c < ' ') {
			add(t, "\\u00");
			byte(t, hex[c >> 4]);
			byte(t, hex[c & 15]);
		} else {
			byte(t, *s);
		}
	}
	byte(t, '"');
}

static char said[ANSWER * 2];
static const char *output = "table";

static int for_programs(void) { return !same(output, "table"); }

/* fail says what went wrong and what to do next, as the CLI does. */
__attribute__((noreturn)) static void fail(const char *what, const char *detail, const char *next)
{
	static char message[ANSWER];
	struct text m = { message, 0, sizeof message - 1, 0 }, t = { said, 0, sizeof said, 0 };
	add(&m, what);
	add(&m, detail);
	if (for_programs()) {
		add(&t, "{\"code\":\"BAD_REQUEST\",\"message\":");
		quote(&t, message);
		add(&t, ",\"hint\":");
		quote(&t, next);
		add(&t, "}\n");
	} else {
		/* a terminal does not obey what somebody else wrote */
		for (ulong i = 0; i < m.n; i++)
			if ((u8)message[i] < ' ' || message[i] == 127)
				message[i] = '?';
		add(&t, "everdict: ");
		add(&t, message);
		add(&t, "\n  next: ");
		add(&t, next);
		add(&t, "\n");
	}
	put(2, said, t.n);
	die(2);
}

static const char ask_help[] = "see everdict ask --help";

/* ---- the answer ---- */

/* json is what is left of a document; it ends with a NUL. */
static char *json;

__attribute__((noreturn)) static void garbled(void)
{
	fail("ask: the runner's answer does not decode", "", "is the runner of this job still there? the question can be asked again");
}

static char next_token(void)
{
	while (*json == ' ' || *json == '\t' || *json == '\r' || *json == '\n')
		json++;
	return *json;
}

static u32 hex4(void)
{
	u32 v = 0;
	for (int i = 0; i < 4; i++, json++) {
		char c = (char)(*json | ' '), digit = *json >= '0' && *json <= '9';
		if (!digit && (c < 'a' || c > 'f'))
			garbled();
		v = v << 4 | (u32)(digit ? *json - '0' : c - 'a' + 10);
	}
	return v;
}

/* string decodes a string in its own place: no escape is shorter than what it means. */
static char *string(void)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	char *begin, *w;
	if (next_token() != '"')
		garbled();
	begin = w = ++json;
	while (*json != '"') {
		char c = *json++;
		if ((u8)c < ' ')
			garbled();
		if (c != '\\') {
			*w++ = c;
			continue;
		}
		c = *json++;
		if (c != 'u') {
			int i = 0;
			while (from[i] && from[i] != c)
				i++;
			if (!from[i])
				garbled();
			*w++ = to[i];
			continue;
		}
		u32 v = hex4();
		if (v >= 0xd800 && v < 0xdc00 && json[0] == '\\' && json[1] == 'u') {
			json += 2;
			u32 low = hex4();
			v = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00) : 0xfffd;
		}
		if (v == 0 || (v >= 0xd800 && v < 0xe000))
			v = 0xfffd; /* half a character; and a NUL would end the text */
		static const u8 lead[] = { 0, 0xc0, 0xe0, 0xf0 };
		u32 more = v < 0x80 ? 0 : v < 0x800 ? 1 : v < 0x10000 ? 2 : 3;
		*w++ = (char)(lead[more] | v >> 6 * more);
		while (more--)
			*w++ = (char)(0x80 | (v >> 6 * more & 63));
	}
	json++;
	*w = 0;
	return begin;
}

static int word(const char *w)
{
	const char *rest = after(json, w);
	if (rest)
		json += length(w);
	return rest != 0;
}

/* decode reads protocol.AskReply: one object of booleans and strings. */
static void decode(int *approved, char **comment, char **error)
{
	if (next_token() != '{')
		garbled();
	json++;
	if (next_token() == '}') {
		json++;
	} else {
		for (;;) {
			char *name = string();
			if (next_token() != ':')
				garbled();
			json++;
			if (next_token() == '"') {
				char *value = string();
				if (same(name, "comment"))
					*comment = value;
				else if (same(name, "error"))
					*error = value;
			} else if (word("true") || word("false")) {
				if (same(name, "approved"))
					*approved = json[-2] == 'u'; /* tr(u)e, fal(s)e */
			} else if (!word("null")) {
				garbled();
			}
			char c = next_token();
			json++;
			if (c == '}')
				break;
			if (c != ',')
				garbled();
		}
	}
	if (next_token())
		garbled();
}

/* ---- everdict ask ---- */

static int reach(const char *path)
{
	struct sockaddr_un to = { .sun_family = 1 /* AF_UNIX */ };
	ulong n = length(path);
	if (n >= sizeof to.sun_path)
		return -1;
	memcpy(to.sun_path, path, n);
	int fd = (int)SYS(socket, 1, 1 /* SOCK_STREAM */ | O_CLOEXEC, 0, 0);
	if (fd < 0)
		return -1;
	long r;
	while ((r = SYS(connect, fd, &to, sizeof to, 0)) == -EINTR)
		;
	return r < 0 ? -1 : fd;
}

__attribute__((noreturn)) static void ask(const char *path, const char *question)
{
	static char line[LINE], answer[ANSWER + 1];
	static const char again[] = "is the runner of this job still there? the question can be asked again";
	struct text t = { line, 0, sizeof line, 0 };
	if (!*path)
		fail("there is nobody to ask: EVERDICT_ASK_SOCKET is not set", "", "everdict ask works inside a run only; a runner sets the variable");
	add(&t, "{\"question\":");
	quote(&t, question);
	add(&t, "}\n");
	if (t.full)
		fail("ask: the question is longer than 16 KiB", "", "ask for the decision, and leave the details in a file");
	int fd = reach(path);
	if (fd < 0)
		fail("ask: nobody listens at ", path, again);
	/* Who refuses a question may answer before it was read. */
	put(fd, line, t.n);
	ulong n = 0;
	while (n < ANSWER) {
		long k = SYS(read, fd, answer + n, ANSWER - n, 0);
		if (k == -EINTR)
			continue;
		if (k <= 0)
			fail("ask: the runner closed the connection without an answer", "", again);
		n += (ulong)k;
		if (answer[n - 1] == '\n')
			break;
	}
	int approved = -1;
	char *comment = "", *error = "";
	json = answer;
	decode(&approved, &comment, &error);
	if (*error)
		fail("ask: ", error, again);
	if (approved < 0)
		fail("ask: the runner's answer says neither yes nor no", "", again);
	struct text out = { said, 0, sizeof said, 0 };
	if (!for_programs()) {
		add(&out, comment);
		if (*comment)
			byte(&out, '\n');
	} else {
		const char *line1 = same(output, "json") ? "\n  " : "", *space = *line1 ? " " : "";
		add(&out, "{");
		add(&out, line1);
		add(&out, "\"approved\":");
		add(&out, space);
		add(&out, approved ? "true" : "false");
		if (*comment) {
			add(&out, ",");
			add(&out, line1);
			add(&out, "\"comment\":");
			add(&out, space);
			quote(&out, comment);
		}
		add(&out, *line1 ? "\n}\n" : "}\n");
	}
	if (!put(1, said, out.n))
		fail("the answer could not be written", "", "is stdout still open?");
	die(approved ? 0 : 1);
}

/* ---- everdict carry ---- */

/* serve takes one question and brings its answer. */
static void serve(int peer)
{
	static char line[LINE];
	static const char long_one[] = "{\"error\":\"the question is longer than 16 KiB\"}\n";
	ulong n = 0, end = 0;
	while (!end) {
		if (n == LINE) {
			put(peer, long_one, sizeof long_one - 1);
			return;
		}
		if (!ready(peer, POLLIN))
			return;
		long k = SYS(read, peer, line + n, LINE - n, 0);
		if (k == -EAGAIN || k == -EINTR)
			continue;
		if (k <= 0)
			return;
		for (; k && !end; k--)
			if (line[n++] == '\n')
				end = n;
	}
	if (!put(1, line, end))
		die(0);
	for (int taken = 1;;) {
		long k = SYS(read, 0, line, LINE, 0);
		if (k == -EINTR)
			continue;
		if (k <= 0)
			die(0); /* the runner takes no more questions */
		/* a peer that has left misses its answer; the rest of that is read all the same */
		taken = taken && put(peer, line, (ulong)k);
		if (line[k - 1] == '\n')
			return;
	}
}

/* listen makes a socket that every user of the container can reach. The engine gives each container a /dev/shm. */
static int listen(struct sockaddr_un *at)
{
	static const char *const dirs[] = { "/dev/shm", "/tmp", "/" };
	static const char hex[] = "0123456789abcdef";
	for (u32 i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
		u8 random[8];
		struct text t = { at->sun_path, 0, sizeof at->sun_path - 1, 0 };
		memset(at, 0, sizeof *at);
		at->sun_family = 1;
		if (SYS(getrandom, random, sizeof random, 0, 0) != sizeof random)
			return -1;
		add(&t, dirs[i]);
		add(&t, "/.everdict-ask-");
		for (u32 k = 0; k < sizeof random; k++) {
			byte(&t, hex[random[k] >> 4]);
			byte(&t, hex[random[k] & 15]);
		}
		int fd = (int)SYS(socket, 1, 1 | O_CLOEXEC | O_NONBLOCK, 0, 0);
		if (fd < 0)
			return -1;
		if (SYS(bind, fd, at, sizeof *at, 0) == 0 && SYS(fchmodat, AT_FDCWD, at->sun_path, 0666, 0) == 0 &&
		    SYS(listen, fd, 128, 0, 0) == 0)
			return fd;
		SYS(close, fd, 0, 0, 0);
	}
	return -1;
}

__attribute__((noreturn)) static void carry(void)
{
	struct sockaddr_un at;
	/* What the job may say to the runner it says through the socket, not through /proc. */
	SYS(prctl, PR_SET_DUMPABLE, 0, 0, 0);
	int fd = listen(&at);
	if (fd < 0)
		fail("carry: no place for a socket: neither /dev/shm nor /tmp can be written", "", "give the image a /tmp");
	put(1, at.sun_path, length(at.sun_path));
	put(1, "\n", 1);
	for (;;) {
		struct pollfd p[2] = { { fd, POLLIN, 0 }, { 0, 0, 0 } };
		if (SYS(ppoll, p, 2, 0, 0) < 0)
			continue;
		if (p[1].revents) /* stdin was closed */
			die(0);
		int peer = (int)SYS(accept4, fd, 0, 0, O_CLOEXEC | O_NONBLOCK);
		if (peer < 0)
			continue;
		serve(peer);
		SYS(close, peer, 0, 0, 0);
	}
}

/* ---- the command line ---- */

static const char usage[] =
	"Ask a person, from inside a run, and wait for the answer. The run is suspended meanwhile, and its clock stands\n"
	"still. A comment to the answer goes to stdout.\n\n"
	"Usage:\n  everdict ask QUESTION [-o table|json|jsonl]\n\n"
	"Exit codes: 0 approved, 1 rejected, 2 nobody could be asked.\n\n"
	"This is all that everdict does inside a container.\n";

__attribute__((noreturn, used)) void start(long *stack)
{
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **envv = argv + argc + 1;
	const char *command = 0, *question = 0, *extra = 0, *socket = "", *bad = 0, *bad_output = 0;
	int help = 0, words = 0;
	ulong pipe = 1UL << (SIGPIPE - 1);
	SYS(rt_sigprocmask, SIG_BLOCK, &pipe, 0, 8); /* a peer that has left is an error of the write */

	for (; *envv; envv++) {
		const char *v = after(*envv, "EVERDICT_ASK_SOCKET=");
		socket = v ? v : socket;
	}
	for (long i = 1; i < argc; i++) {
		const char *a = argv[i], *v = 0;
		if (words || a[0] != '-' || !a[1]) {
			if (!command)
				command = a;
			else if (!question)
				question = a;
			else if (!extra)
				extra = a;
		} else if (same(a, "--")) {
			words = 1;
		} else if (same(a, "-h") || same(a, "--help")) {
			help = 1;
		} else if (same(a, "-o") || same(a, "--output")) {
			v = i + 1 < argc ? argv[++i] : "";
		} else if ((v = after(a, "--output=")) || (v = after(a, "-o=")) || (v = after(a, "-o"))) {
			/* its value is in v */
		} else if (!bad && !same(a, "-q") && !same(a, "--quiet")) {
			bad = a;
		}
		if (v && (same(v, "table") || same(v, "json") || same(v, "jsonl")))
			output = v;
		else if (v)
			bad_output = v;
	}
	if (help || !command || same(command, "help")) {
		put(1, usage, sizeof usage - 1);
		die(0);
	}
	if (same(command, "carry"))
		carry();
	if (!same(command, "ask"))
		fail("inside a container everdict can only ask, there is no command everdict ", command, "see everdict --help, or run it outside of the container");
	if (bad)
		fail("unknown flag: ", bad, ask_help);
	if (bad_output)
		fail("-o is table, json or jsonl, not ", bad_output, ask_help);
	if (!question)
		fail("the question is missing", "", ask_help);
	if (extra)
		fail("one argument too many: ", extra, ask_help);
	if (!*question)
		fail("argument 1 is empty", "", ask_help);
	ask(socket, question);
}
