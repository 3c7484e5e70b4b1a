// Steps for the network: which sockets can be made, what they reach, and which interfaces are visible.

#include "probe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define HIGH (1UL << 32)

static void try_socket(struct answer *answer, unsigned long family, unsigned long type, unsigned long protocol) {
    answer_result(answer, syscall(SYS_socket, family, type, protocol));
}

// S12, N13. The raw system call, because libc cuts the arguments to 32 bits.
#define SOCKET_STEP(name, family, type, protocol) \
    static void name(struct answer *answer) { try_socket(answer, family, type, protocol); }
enum { ALG = 38, PACKET = 17, VSOCK = 40, KEY = 15, BLUETOOTH = 31, XDP = 44, TIPC = 30, CAN = 29, SOCK_PACKET_OLD = 10 };
SOCKET_STEP(alg, ALG, SOCK_SEQPACKET, 0)
SOCKET_STEP(alg_high, ALG | HIGH, SOCK_SEQPACKET, 0)
SOCKET_STEP(alg_all_high, ALG | 0xffffffff00000000UL, SOCK_SEQPACKET, 0)
SOCKET_STEP(packet, PACKET, SOCK_RAW, 0)
SOCKET_STEP(packet_cloexec, PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)
SOCKET_STEP(packet_old, AF_INET, SOCK_PACKET_OLD, 0)
SOCKET_STEP(vsock, VSOCK, SOCK_STREAM, 0)
SOCKET_STEP(raw_inet, AF_INET, SOCK_RAW, IPPROTO_ICMP)
SOCKET_STEP(raw_inet_cloexec, AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP)
SOCKET_STEP(raw_inet_nonblock, AF_INET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_ICMP)
SOCKET_STEP(raw_inet_high, AF_INET, SOCK_RAW | HIGH, IPPROTO_ICMP)
SOCKET_STEP(raw_inet_protocol, AF_INET, SOCK_RAW, IPPROTO_RAW)
SOCKET_STEP(raw_inet6, AF_INET6, SOCK_RAW, IPPROTO_ICMPV6)
SOCKET_STEP(ping, AF_INET, SOCK_DGRAM, IPPROTO_ICMP)
SOCKET_STEP(ping6, AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6)
SOCKET_STEP(sctp, AF_INET, SOCK_STREAM, 132)
SOCKET_STEP(sctp_seqpacket, AF_INET, SOCK_SEQPACKET, 132)
SOCKET_STEP(dccp, AF_INET, 6, 33)
SOCKET_STEP(udplite, AF_INET, SOCK_DGRAM, 136)
SOCKET_STEP(mptcp, AF_INET, SOCK_STREAM, 262)
SOCKET_STEP(netlink_diag, AF_NETLINK, SOCK_RAW, 4)
SOCKET_STEP(netlink_audit, AF_NETLINK, SOCK_RAW, 9)
SOCKET_STEP(netlink_netfilter, AF_NETLINK, SOCK_RAW, 12)
SOCKET_STEP(netlink_uevent, AF_NETLINK, SOCK_RAW, 15)
SOCKET_STEP(netlink_generic, AF_NETLINK, SOCK_RAW, 16)
SOCKET_STEP(netlink_generic_high, AF_NETLINK, SOCK_RAW, 16 | HIGH)
SOCKET_STEP(ordinary_tcp, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
SOCKET_STEP(ordinary_tcp6, AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP)
SOCKET_STEP(ordinary_udp, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_IP)
SOCKET_STEP(ordinary_unix, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)
SOCKET_STEP(ordinary_netlink_route, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)

// The families that no filter refuses. The socket type does not exist: the kernel answers EINVAL for every family, even
// for those that it lacks. So a family missing from the list was refused by a filter.
static void list_families(struct answer *answer, unsigned long bits) {
    answer_word(answer, "reached");
    for (unsigned long family = 0; family < 46; family++) {
        size_t used = strlen(answer->detail);
        if (syscall(SYS_socket, family | bits, 15UL, 0UL) == -1 && errno == EAFNOSUPPORT)
            continue;
        snprintf(answer->detail + used, sizeof answer->detail - used, "%s%lu", used ? "," : "", family);
    }
}
static void families(struct answer *answer) { list_families(answer, 0); }
static void families_high(struct answer *answer) { list_families(answer, HIGH); }

// N16: options that choose another way out of the network.
static void try_option(struct answer *answer, int level, int option, const void *value, socklen_t size) {
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    answer_result(answer, fd == -1 ? -1 : setsockopt(fd, level, option, value, size));
}
static void option_mark(struct answer *answer) { try_option(answer, SOL_SOCKET, SO_MARK, &(int){7}, sizeof(int)); }
static void option_transparent(struct answer *answer) { try_option(answer, SOL_IP, IP_TRANSPARENT, &(int){1}, sizeof(int)); }
static void option_device(struct answer *answer) { try_option(answer, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5); }

// Sends one rtnetlink request. Returns the socket, or -1.
static int send_request(void *request, size_t size) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd != -1 && send(fd, request, size, 0) != (ssize_t)size)
        fd = -1;
    return fd;
}

// N17: the interfaces of this network namespace.
static void links(struct answer *answer) {
    struct {
        struct nlmsghdr header;
        struct ifinfomsg body;
    } request = {.header = {.nlmsg_len = sizeof request, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
    static char buffer[65536] __attribute__((aligned(8)));
    int fd = send_request(&request, sizeof request);
    if (fd == -1) {
        answer_result(answer, -1);
        return;
    }
    for (;;) {
        ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got <= 0) {
            answer_result(answer, -1);
            return;
        }
        unsigned int left = (unsigned int)got;
        for (struct nlmsghdr *message = (void *)buffer; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
            if (message->nlmsg_type == NLMSG_DONE) {
                answer_word(answer, "seen");
                return;
            }
            struct ifinfomsg *info = NLMSG_DATA(message);
            int length = (int)IFLA_PAYLOAD(message);
            for (struct rtattr *field = IFLA_RTA(info); RTA_OK(field, length); field = RTA_NEXT(field, length))
                if (field->rta_type == IFLA_IFNAME) {
                    size_t used = strlen(answer->detail);
                    snprintf(answer->detail + used, sizeof answer->detail - used, "%s%s", used ? "," : "",
                             (char *)RTA_DATA(field));
                }
        }
    }
}

static void await_acknowledgement(struct answer *answer, int fd) {
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[512];
    } reply;
    if (fd == -1 || recv(fd, &reply, sizeof reply, 0) < (ssize_t)(sizeof reply.header + sizeof reply.error.error)) {
        answer_result(answer, -1);
        return;
    }
    errno = -reply.error.error;
    answer_result(answer, errno ? -1 : 0);
}

// N17: adds a route: 203.0.113.0/24 through lo.
static void add_route(struct answer *answer) {
    struct {
        struct nlmsghdr header;
        struct rtmsg body;
        struct rtattr destination;
        uint32_t address;
        struct rtattr device;
        uint32_t index;
    } request = {
        .header = {.nlmsg_len = sizeof request, .nlmsg_type = RTM_NEWROUTE, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE},
        .body = {.rtm_family = AF_INET, .rtm_dst_len = 24, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC,
                 .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST},
        .destination = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_DST},
        .address = htonl(0xcb007100),
        .device = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_OIF},
        .index = 1,
    };
    await_acknowledgement(answer, send_request(&request, sizeof request));
}

// N17: sets lo's MTU to its usual value.
static void change_link(struct answer *answer) {
    struct {
        struct nlmsghdr header;
        struct ifinfomsg body;
        struct rtattr field;
        uint32_t mtu;
    } request = {
        .header = {.nlmsg_len = sizeof request, .nlmsg_type = RTM_NEWLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
        .body = {.ifi_family = AF_UNSPEC, .ifi_index = 1},
        .field = {.rta_len = RTA_LENGTH(4), .rta_type = IFLA_MTU},
        .mtu = 65536,
    };
    await_acknowledgement(answer, send_request(&request, sizeof request));
}

// F19: the interfaces in sysfs.
static void sysfs_links(struct answer *answer) {
    DIR *directory = opendir("/sys/class/net");
    struct dirent *entry;
    if (!directory) {
        answer_result(answer, -1);
        return;
    }
    answer_word(answer, "seen");
    while ((entry = readdir(directory))) {
        size_t used = strlen(answer->detail);
        if (entry->d_name[0] != '.')
            snprintf(answer->detail + used, sizeof answer->detail - used, "%s%s", used ? "," : "", entry->d_name);
    }
}

static socklen_t parse_address(const char *text, const char *port, struct sockaddr_storage *address) {
    struct sockaddr_in *four = (void *)address;
    struct sockaddr_in6 *six = (void *)address;
    memset(address, 0, sizeof *address);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)atoi(port));
        return sizeof *four;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)atoi(port));
        return sizeof *six;
    }
    return 0;
}

// N01, N13, N15: sends "probe\n" to an address and waits two seconds for a byte: "answered", "silent" or an errno.
static void reach(struct answer *answer, int type, const char *text, const char *port) {
    struct sockaddr_storage address;
    socklen_t size = parse_address(text, port, &address);
    char byte;
    int error = 0;
    if (!size) {
        answer_word(answer, "bad-address");
        return;
    }
    int fd = socket(address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1) {
        answer_result(answer, -1);
        return;
    }
    if (connect(fd, (struct sockaddr *)&address, size) != 0 && errno != EINPROGRESS) {
        answer_result(answer, -1);
        return;
    }
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (poll(&ready, 1, 2000) != 1) {
        answer_word(answer, "silent");
        return;
    }
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
    if (error) {
        errno = error;
        answer_result(answer, -1);
        return;
    }
    if (send(fd, "probe\n", 6, MSG_NOSIGNAL) != 6) {
        answer_result(answer, -1);
        return;
    }
    ready.events = POLLIN;
    if (poll(&ready, 1, 2000) != 1) {
        answer_word(answer, "silent");
        return;
    }
    ssize_t got = recv(fd, &byte, 1, 0);
    if (got == -1)
        answer_result(answer, -1);
    else
        answer_word(answer, got ? "answered" : "closed");
}

// Requests a host with the C library's resolver and plain HTTP: the answer's status, "no-name", "no-answer" or an
// errno.
static void fetch(struct answer *answer, const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char text[512];
    if (getaddrinfo(host, port, &hints, &found) != 0) {
        answer_word(answer, "no-name");
        return;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (fd == -1 || connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        answer_result(answer, -1);
        return;
    }
    int length = snprintf(text, sizeof text, "GET /probe HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host);
    if (length >= (int)sizeof text || send(fd, text, (size_t)length, MSG_NOSIGNAL) != length) {
        answer_result(answer, -1);
        return;
    }
    ssize_t got = recv(fd, text, 12, MSG_WAITALL);
    if (got == -1) {
        answer_result(answer, -1);
        return;
    }
    text[got] = 0;
    answer_word(answer, got == 12 ? text + 9 : "no-answer");
}

bool reach_with_arguments(int argc, char **argv, struct answer *answer) {
    if (argc != 3)
        return false;
    if (strcmp(argv[0], "tcp") == 0)
        reach(answer, SOCK_STREAM, argv[1], argv[2]);
    else if (strcmp(argv[0], "udp") == 0)
        reach(answer, SOCK_DGRAM, argv[1], argv[2]);
    else if (strcmp(argv[0], "fetch") == 0)
        fetch(answer, argv[1], argv[2]);
    else
        return false;
    return true;
}

const struct step NETWORK_STEPS[] = {
    {"socket-alg", alg},
    {"socket-alg-high", alg_high},
    {"socket-alg-all-high", alg_all_high},
    {"socket-packet", packet},
    {"socket-packet-cloexec", packet_cloexec},
    {"socket-packet-old", packet_old},
    {"socket-vsock", vsock},
    {"socket-raw", raw_inet},
    {"socket-raw-cloexec", raw_inet_cloexec},
    {"socket-raw-nonblock", raw_inet_nonblock},
    {"socket-raw-high", raw_inet_high},
    {"socket-raw-protocol", raw_inet_protocol},
    {"socket-raw6", raw_inet6},
    {"socket-ping", ping},
    {"socket-ping6", ping6},
    {"socket-sctp", sctp},
    {"socket-sctp-seqpacket", sctp_seqpacket},
    {"socket-dccp", dccp},
    {"socket-udplite", udplite},
    {"socket-mptcp", mptcp},
    {"netlink-diag", netlink_diag},
    {"netlink-audit", netlink_audit},
    {"netlink-netfilter", netlink_netfilter},
    {"netlink-uevent", netlink_uevent},
    {"netlink-generic", netlink_generic},
    {"netlink-generic-high", netlink_generic_high},
    {"families", families},
    {"families-high", families_high},
    {"option-mark", option_mark},
    {"option-transparent", option_transparent},
    {"option-device", option_device},
    {"links", links},
    {"add-route", add_route},
    {"change-link", change_link},
    {"sysfs-links", sysfs_links},
    {"ordinary-tcp", ordinary_tcp},
    {"ordinary-tcp6", ordinary_tcp6},
    {"ordinary-udp", ordinary_udp},
    {"ordinary-unix", ordinary_unix},
    {"ordinary-netlink-route", ordinary_netlink_route},
    {0},
};
