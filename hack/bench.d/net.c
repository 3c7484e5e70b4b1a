/* The two ends of the network benchmark: a server that answers small requests and sends streams, and a client that counts.
 *
 *   net server PORT
 *   net relay PORT ADDRESS PORT            bytes both ways between PORT and that server: what a relay costs that decides nothing
 *   net stream HOST PORT PROXY BYTES       one answer of that many bytes: bytes a second
 *   net new HOST PORT PROXY SECONDS N      a small request on a new connection, N at a time: requests a second
 *   net kept HOST PORT PROXY SECONDS N     small requests on N connections that stay: requests a second
 *   net hold HOST PORT PROXY N             N connections that stay open, each used twice: how many failed
 *
 * PROXY is `-` for none, ADDRESS:PORT, which is asked by HTTP CONNECT, or http:ADDRESS:PORT, which is sent the request as it
 * forwards it (absolute-form). The first WARM_UP seconds of `new` and `kept` are not counted. Prints one line:
 * "net KIND VALUE ERRORS MEDIAN_US";
 * `hold` prints "net held" between its two rounds and waits for a line on standard input.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK (1 << 18)
#define MOST 4096
/* Seconds. The kernel still removes the namespaces of the container before this one, whichever way is measured now. */
#define WARM_UP 0.5

enum state { CONNECTING, ASKED, REQUESTED, IDLE };

struct connection {
	enum state state;
	char in[1024];
	size_t have;
	/* of the server: what is still to be sent */
	unsigned long long left;
	/* of the client: what it was answered */
	unsigned long answered;
	double since;
};

static struct connection connections[MOST * 2];
static char zeros[CHUNK];
static int poller;
static struct sockaddr_in target;
static char ask[512], request[1024];
static int by_tunnel, forwards;
static double latencies[1 << 20];
static unsigned long count, errors;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void watch(int fd, uint32_t events, int operation)
{
	struct epoll_event event = {.events = events, .data.fd = fd};
	if (epoll_ctl(poller, operation, fd, &event))
		die("epoll_ctl");
}

static void no_delay(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* --- server --- */

static void answer(int fd, struct connection *c)
{
	while (c->left) {
		ssize_t sent = send(fd, zeros, c->left < CHUNK ? c->left : CHUNK, MSG_NOSIGNAL);
		if (sent < 0) {
			if (errno == EAGAIN)
				watch(fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
			else
				close(fd);
			return;
		}
		c->left -= (unsigned long long)sent;
	}
}

static void serve_one(int fd)
{
	struct connection *c = &connections[fd];
	if (c->left) {
		answer(fd, c);
		return;
	}
	ssize_t got = recv(fd, c->in + c->have, sizeof c->in - 1 - c->have, 0);
	if (got <= 0) {
		if (got == 0 || errno != EAGAIN)
			close(fd);
		return;
	}
	c->have += (size_t)got;
	c->in[c->have] = 0;
	if (!strstr(c->in, "\r\n\r\n"))
		return;
	char head[128];
	unsigned long long bytes = 2;
	if (sscanf(c->in, "GET /%llu ", &bytes) != 1)
		bytes = 2;
	int last = strcasestr(c->in, "\r\nConnection: close") != NULL;
	int length = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n%s\r\n%s", bytes,
			      last ? "Connection: close\r\n" : "", bytes == 2 ? "ok" : "");
	c->have = 0;
	if (send(fd, head, (size_t)length, MSG_NOSIGNAL) != length) {
		close(fd);
		return;
	}
	if (bytes != 2) {
		c->left = bytes;
		answer(fd, c);
	} else if (last) {
		close(fd);
	}
}

static int listen_on(int port)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 4096))
		die("listen");
	watch(listener, EPOLLIN, EPOLL_CTL_ADD);
	return listener;
}

static _Noreturn void serve(int port)
{
	int listener = listen_on(port);
	for (;;) {
		struct epoll_event events[256];
		int n = epoll_wait(poller, events, 256, -1);
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd != listener) {
				serve_one(fd);
				continue;
			}
			while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
				if (fd >= MOST * 2) {
					close(fd);
					continue;
				}
				no_delay(fd);
				connections[fd] = (struct connection){0};
				watch(fd, EPOLLIN, EPOLL_CTL_ADD);
			}
		}
	}
}

/* --- relay --- */

/* the other end of each */
static int tunnels[MOST * 2];

static void hang_up(int fd)
{
	int other = tunnels[fd];
	tunnels[fd] = tunnels[other] = 0;
	close(fd);
	close(other);
}

/* Moves what has come; 0 at the end, -1 when there was nothing. The other side is a blocking socket. */
static ssize_t move(int from, int to)
{
	static char buffer[1 << 19];
	ssize_t got = recv(from, buffer, sizeof buffer, MSG_DONTWAIT), sent = 0;
	for (ssize_t done = 0; done < got; done += sent)
		if ((sent = send(to, buffer + done, (size_t)(got - done), MSG_NOSIGNAL)) < 0)
			return 0;
	return got;
}

static void join(int client)
{
	int server = socket(AF_INET, SOCK_STREAM, 0);
	if (server < 0 || client >= MOST * 2 || server >= MOST * 2 || connect(server, (struct sockaddr *)&target, sizeof target))
		die("connect");
	tunnels[client] = server;
	tunnels[server] = client;
	for (int fd = client, i = 0; i < 2; fd = server, i++) {
		no_delay(fd);
		watch(fd, EPOLLIN, EPOLL_CTL_ADD);
	}
}

static _Noreturn void relay(int port)
{
	int listener = listen_on(port);
	for (;;) {
		struct epoll_event events[256];
		int n = epoll_wait(poller, events, 256, -1), client;
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd;
			if (fd == listener)
				while ((client = accept4(listener, NULL, NULL, 0)) >= 0)
					join(client);
			else if (tunnels[fd] && move(fd, tunnels[fd]) == 0)
				hang_up(fd);
		}
	}
}

/* --- client --- */

static void open_connection(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (fd < 0 || fd >= MOST * 2)
		die("socket");
	no_delay(fd);
	connections[fd] = (struct connection){.state = CONNECTING, .since = now()};
	if (connect(fd, (struct sockaddr *)&target, sizeof target) && errno != EINPROGRESS)
		die("connect");
	watch(fd, EPOLLOUT, EPOLL_CTL_ADD);
}

static void say(int fd, const char *text, enum state next)
{
	connections[fd].state = next;
	connections[fd].have = 0;
	/* A refused one is noticed when it is read. */
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0 && errno == EAGAIN)
		die("a small request does not fit into an empty socket");
}

/* 1 when a whole answer is there, 0 when not yet, -1 when there will be none. */
static int read_answer(int fd, struct connection *c, const char *end)
{
	ssize_t got = recv(fd, c->in + c->have, sizeof c->in - 1 - c->have, 0);
	if (got < 0 && errno == EAGAIN)
		return 0;
	if (got <= 0)
		return -1;
	c->have += (size_t)got;
	c->in[c->have] = 0;
	if (!strncmp(c->in, "HTTP/1.", 7) && c->have > 12 && strncmp(c->in + 8, " 200", 4))
		return -1;
	return strstr(c->in, end) != NULL;
}

/* What happened to one connection: 1 when its request was answered, -1 when it failed. */
static int step(int fd)
{
	struct connection *c = &connections[fd];
	int error = 0, done;
	socklen_t size = sizeof error;
	switch (c->state) {
	case CONNECTING:
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) || error)
			return -1;
		watch(fd, EPOLLIN, EPOLL_CTL_MOD);
		if (by_tunnel)
			say(fd, ask, ASKED);
		else
			say(fd, request, REQUESTED);
		return 0;
	case ASKED:
		done = read_answer(fd, c, "\r\n\r\n");
		if (done > 0) {
			say(fd, request, REQUESTED);
			return 0;
		}
		return done;
	case REQUESTED:
		return read_answer(fd, c, "\r\n\r\nok");
	case IDLE:
		return 0;
	}
	return 0;
}

static void measured(struct connection *c)
{
	double t = now();
	if (count < sizeof latencies / sizeof *latencies)
		latencies[count] = (t - c->since) * 1e6;
	c->since = t;
	c->answered++;
	count++;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(void)
{
	unsigned long n = count < sizeof latencies / sizeof *latencies ? count : sizeof latencies / sizeof *latencies;
	qsort(latencies, n, sizeof *latencies, ascending);
	return n ? latencies[n / 2] : 0;
}

static void requests(const char *kind, int kept, double seconds, int at_once)
{
	double start = now() + WARM_UP, end = start + seconds;
	int warm = 0;
	for (int i = 0; i < at_once; i++)
		open_connection();
	while (now() < end) {
		struct epoll_event events[64];
		int n = epoll_wait(poller, events, 64, 100);
		if (!warm && now() >= start) {
			warm = 1;
			count = 0;
		}
		for (int i = 0; i < n; i++) {
			int fd = events[i].data.fd, done = step(fd);
			if (!done)
				continue;
			/* One that forwards and keeps no connection says so, or ends it before the next request is heard: that one is
			 * sent again. */
			if (done > 0)
				measured(&connections[fd]);
			else if (!forwards || !connections[fd].answered || connections[fd].have)
				errors++;
			if (done > 0 && kept && !strcasestr(connections[fd].in, "\r\nConnection: close")) {
				say(fd, request, REQUESTED);
				continue;
			}
			close(fd);
			open_connection();
		}
	}
	printf("net %s %.1f %lu %.1f\n", kind, (double)count / (now() - start), errors, median());
}

/* Until every connection has had its answer, or ten seconds. */
static void answers(int n)
{
	double end = now() + 10;
	unsigned long all = count + errors + (unsigned long)n;
	while (count + errors < all && now() < end) {
		struct epoll_event events[64];
		int found = epoll_wait(poller, events, 64, 100);
		for (int i = 0; i < found; i++) {
			int fd = events[i].data.fd, done = step(fd);
			if (done > 0) {
				measured(&connections[fd]);
				connections[fd].state = IDLE;
			} else if (done < 0) {
				errors++;
				watch(fd, 0, EPOLL_CTL_DEL);
				connections[fd].state = CONNECTING;
			}
		}
	}
	if (count + errors < all)
		errors += all - count - errors;
}

static void hold(int n)
{
	for (int i = 0; i < n; i++)
		open_connection();
	answers(n);
	printf("net held %lu %lu 0\n", count, errors);
	fflush(stdout);
	if (getchar() == EOF)
		exit(1);
	int again = 0;
	for (int fd = 0; fd < MOST * 2; fd++)
		if (connections[fd].state == IDLE && connections[fd].since > 0) {
			say(fd, request, REQUESTED);
			again++;
		}
	answers(again);
	printf("net hold %lu %lu %.1f\n", count, errors, median());
}

static void stream(unsigned long long bytes)
{
	static char buffer[CHUNK];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&target, sizeof target))
		die("connect");
	if (by_tunnel) {
		if (send(fd, ask, strlen(ask), 0) < 0 || recv(fd, buffer, sizeof buffer, 0) < 12 || strncmp(buffer + 8, " 200", 4))
			die("CONNECT");
	}
	unsigned long long have = 0;
	double start = now();
	if (send(fd, request, strlen(request), 0) < 0)
		die("send");
	while (have < bytes) {
		ssize_t got = recv(fd, buffer, sizeof buffer, 0);
		if (got <= 0)
			break;
		have += (unsigned long long)got;
	}
	printf("net stream %.0f %d 0\n", (double)have / (now() - start), have < bytes);
}

static void aim(const char *host, const char *port, const char *path, const char *proxy)
{
	forwards = !strncmp(proxy, "http:", 5);
	by_tunnel = !forwards && strcmp(proxy, "-");
	if (by_tunnel || forwards) {
		char address[64];
		snprintf(address, sizeof address, "%s", proxy + (forwards ? 5 : 0));
		char *colon = strchr(address, ':');
		if (!colon)
			die("PROXY must be ADDRESS:PORT");
		*colon = 0;
		target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
		inet_pton(AF_INET, address, &target.sin_addr);
		snprintf(ask, sizeof ask, "CONNECT %s:%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n", host, port, host, port);
	} else {
		struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
		if (getaddrinfo(host, port, &hints, &found))
			die("getaddrinfo");
		memcpy(&target, found->ai_addr, sizeof target);
	}
	char authority[300] = "";
	if (forwards)
		snprintf(authority, sizeof authority, "http://%s:%s", host, port);
	snprintf(request, sizeof request, "GET %s/%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n", authority, path, host, port);
}

int main(int argc, char **argv)
{
	struct rlimit files = {MOST * 2, MOST * 2};
	if (setrlimit(RLIMIT_NOFILE, &files))
		getrlimit(RLIMIT_NOFILE, &files);
	signal(SIGPIPE, SIG_IGN);
	poller = epoll_create1(EPOLL_CLOEXEC);
	if (argc == 3 && !strcmp(argv[1], "server"))
		serve(atoi(argv[2]));
	if (argc == 5 && !strcmp(argv[1], "relay")) {
		target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[4]))};
		inet_pton(AF_INET, argv[3], &target.sin_addr);
		relay(atoi(argv[2]));
	}
	if (argc < 6)
		return 2;
	int streams = !strcmp(argv[1], "stream");
	aim(argv[2], argv[3], streams ? argv[5] : "", argv[4]);
	if (streams) {
		stream(strtoull(argv[5], NULL, 10));
	} else if (!strcmp(argv[1], "hold")) {
		hold(atoi(argv[5]));
	} else if (argc == 7) {
		requests(argv[1], !strcmp(argv[1], "kept"), atof(argv[5]), atoi(argv[6]));
	} else {
		return 2;
	}
	return 0;
}
