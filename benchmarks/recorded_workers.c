/* Plays the load processes of many workers with recorded frames: what is left of their CPU is next to nothing.
 *
 * Reads lines from standard input, and ends with it:
 *
 *     frame BEFORE AFTER ROW EPOCH SEQUENCE TREATMENT TRIAL TAKEN TICKET TIME...
 *     worker EPOCH TOKEN LANE_PORT RESULTS_PORT
 *
 * BEFORE and AFTER are a recorded frame of results without its rows, ROW is one row, all in hexadecimal. The numbers say
 * where in BEFORE (TAKEN: in AFTER) a 64-bit number is to be patched, TICKET and TIME where in ROW. Each worker connects to
 * its lane and to the results socket (ZMTP 3.0 with PLAIN on the loopback), and answers every job at once, in batches of the
 * size that the master asks for, as a load process does whose jobs take no time. Prints at its end, as JSON, what it did.
 *
 *     recorded_workers
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM (1 << 22) /* bytes of the largest messages */
#define MOST_TIMES 8

typedef struct {
    int lane, results;
    uint64_t epoch, taken, sequence;
    unsigned char *held; /* what was read of the lane and is not a whole frame yet */
    size_t have, room;
} Worker;

typedef struct {
    const unsigned char *at, *end;
    int bad;
} Reader;

static unsigned char before[4096], after[4096], row[4096], *out;
static size_t before_size, after_size, row_size, filled;
static unsigned at_epoch, at_sequence, at_treatment, at_trial, at_taken, at_ticket, at_time[MOST_TIMES], times;
static unsigned long long jobs, orders, batches, acknowledged;
static int poller;

static void fail(const char *what) {
    fprintf(stderr, "recorded_workers: %s: %s\n", what, errno ? strerror(errno) : "unexpected bytes");
    exit(1);
}

static uint64_t big(const unsigned char *at, size_t size) {
    uint64_t value = 0;
    while (size--) value = value << 8 | *at++;
    return value;
}

static void put_big(unsigned char *at, uint64_t value, size_t size) {
    while (size--) {
        at[size] = (unsigned char) value;
        value >>= 8;
    }
}

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t) at.tv_sec * 1000000000ULL + (uint64_t) at.tv_nsec;
}

/* -- MessagePack ------------------------------------------------------------------------------------------------ */

static uint64_t take(Reader *in, size_t size) {
    if (in->end - in->at < (ptrdiff_t) size) {
        in->bad = 1;
        return 0;
    }
    in->at += size;
    return big(in->at - size, size);
}

/* Reads one value. Returns its number, its length (text, bytes; `in` is after its head then) or how many it contains. */
static uint64_t head(Reader *in, int *kind) {
    static const unsigned char sizes[] = {1, 2, 4, 8};
    unsigned char first = (unsigned char) take(in, 1);
    if (first < 0x80) return *kind = 'n', first;
    if (first < 0x90) return *kind = 'm', first & 15;
    if (first < 0xa0) return *kind = 'a', first & 15;
    if (first < 0xc0) return *kind = 'b', first & 31;
    if (first >= 0xe0 || first == 0xc0 || first == 0xc2 || first == 0xc3) return *kind = 'n', 0;
    if (first >= 0xc4 && first <= 0xc6) return *kind = 'b', take(in, sizes[first - 0xc4]);
    if (first == 0xca || first == 0xcb) return *kind = 'n', take(in, first == 0xca ? 4 : 8);
    if (first >= 0xcc && first <= 0xcf) return *kind = 'n', take(in, sizes[first - 0xcc]);
    if (first >= 0xd0 && first <= 0xd3) return *kind = 'n', take(in, sizes[first - 0xd0]);
    if (first >= 0xd9 && first <= 0xdb) return *kind = 'b', take(in, sizes[first - 0xd9]);
    if (first == 0xdc || first == 0xdd) return *kind = 'a', take(in, first == 0xdc ? 2 : 4);
    if (first == 0xde || first == 0xdf) return *kind = 'm', take(in, first == 0xde ? 2 : 4);
    in->bad = 1;
    return 0;
}

static void skip(Reader *in) {
    int kind = 'n';
    uint64_t size = head(in, &kind);
    if (kind == 'b') in->at += size;
    if (kind == 'm') size *= 2;
    if (kind == 'm' || kind == 'a')
        while (size-- && !in->bad) skip(in);
}

/* -- the work of a worker --------------------------------------------------------------------------------------- */

static void send_all(int to, const unsigned char *from, size_t size) {
    while (size) {
        ssize_t sent = send(to, from, size, MSG_NOSIGNAL);
        if (sent <= 0) return; /* the run is over */
        from += sent;
        size -= (size_t) sent;
    }
}

static void answer(Worker *worker, uint64_t treatment, uint64_t trial, const unsigned char *tickets, size_t count) {
    size_t rows = count * row_size, size = before_size + 5 + rows + after_size;
    uint64_t instant = now();
    if (filled + 9 + size > ROOM) {
        send_all(worker->results, out, filled);
        filled = 0;
    }
    unsigned char *at = out + filled;
    filled += 9 + size;
    *at++ = 2; /* a long frame, the last of its message */
    put_big(at, size, 8);
    at += 8;
    put_big(before + at_epoch, worker->epoch, 8);
    put_big(before + at_sequence, worker->sequence++, 8);
    put_big(before + at_treatment, treatment, 8);
    put_big(before + at_trial, trial, 8);
    put_big(after + at_taken, worker->taken, 8);
    at = (unsigned char *) memcpy(at, before, before_size) + before_size;
    *at++ = 0xc6;
    put_big(at, rows, 4);
    at += 4;
    for (size_t one = 0; one < count; one++, at += row_size) {
        memcpy(at, row, row_size);
        memcpy(at + at_ticket, tickets + 24 * one, 8); /* an order has three words: ticket, seed, arrival */
        for (unsigned time = 0; time < times; time++) memcpy(at + at_time[time], &instant, 8);
    }
    memcpy(at, after, after_size);
    jobs += count;
    batches++;
}

static void obey(Worker *worker, const unsigned char *frame, size_t size) {
    Reader in = {frame, frame + size, 0};
    int kind = 'n';
    uint64_t fields, number = 0, treatment = 0, trial = 0, batch = 1, rows_size = 0;
    const unsigned char *rows = NULL, *type = NULL;
    size_t type_size = 0;
    head(&in, &kind);
    skip(&in); /* the version */
    for (fields = head(&in, &kind); fields && !in.bad; fields--) {
        uint64_t length = head(&in, &kind);
        const unsigned char *name = in.at;
        in.at += length;
#define IS(text) (length == sizeof text - 1 && !memcmp(name, text, length))
        if (IS("number")) number = head(&in, &kind);
        else if (IS("treatment") && type_size == 4) treatment = head(&in, &kind);
        else if (IS("trial")) trial = head(&in, &kind);
        else if (IS("batch")) batch = head(&in, &kind);
        else if (IS("rows")) rows_size = head(&in, &kind), rows = in.at, in.at += rows_size;
        else if (IS("type")) type_size = head(&in, &kind), type = in.at, in.at += type_size;
        else skip(&in);
    }
    if (in.bad || in.at != in.end || !type) errno = 0, fail("a message of the lane");
    if (number != worker->taken + 1) return; /* a repeat */
    worker->taken = number;
    if (type_size == 11) acknowledged++;
    if (type_size != 4 || !rows) return; /* not "jobs" */
    orders++;
    for (size_t left = rows_size / 24; left;) {
        size_t count = left < batch ? left : batch;
        answer(worker, treatment, trial, rows, count);
        rows += 24 * count;
        left -= count;
    }
}

static void serve(Worker *worker) {
    size_t start = 0;
    ssize_t got;
    if (worker->room - worker->have < 65536) worker->held = realloc(worker->held, worker->room += 1 << 17);
    got = recv(worker->lane, worker->held + worker->have, worker->room - worker->have, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
        close(worker->lane);
        close(worker->results);
        return;
    }
    worker->have += (size_t) got;
    for (;;) {
        const unsigned char *at = worker->held + start;
        size_t left = worker->have - start, prefix = left && (at[0] & 2) ? 9 : 2;
        if (left < prefix) break;
        uint64_t size = big(at + 1, prefix - 1);
        if (left - prefix < size) break;
        if (!(at[0] & 4)) obey(worker, at + prefix, size);
        start += prefix + size;
    }
    memmove(worker->held, worker->held + start, worker->have -= start);
    send_all(worker->results, out, filled);
    filled = 0;
}

/* -- connections (ZMTP 3.0, RFC 23 and 24) ------------------------------------------------------------------------ */

static int receive(int from, unsigned char *to, size_t size) {
    return recv(from, to, size, MSG_WAITALL) == (ssize_t) size;
}

static int replies(int from, const char *command) {
    unsigned char reply[512];
    if (!receive(from, reply, 2) || !receive(from, reply + 2, reply[1])) return 0;
    return reply[2] == strlen(command) && !memcmp(reply + 3, command, reply[2]);
}

static int shakes_hands(int with, uint64_t epoch, const char *token, const char *type) {
    static const unsigned char signature[] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'P', 'L', 'A', 'I', 'N'};
    unsigned char text[512] = {0}, theirs[64];
    char user[32];
    int size;
    memcpy(text, signature, sizeof signature);
    send_all(with, text, 64);
    if (!receive(with, theirs, 64)) return 0;
    snprintf(user, sizeof user, "%llu", (unsigned long long) epoch);
    size = snprintf((char *) text + 2, 500, "\5HELLO%c%s%c%s", (int) strlen(user), user, (int) strlen(token), token);
    text[0] = 4, text[1] = (unsigned char) size;
    send_all(with, text, (size_t) size + 2);
    if (!replies(with, "WELCOME")) return 0;
    size = snprintf((char *) text + 2, 500, "\x08INITIATE\x0bSocket-Type");
    put_big(text + 2 + size, 4, 4);
    memcpy(text + 6 + size, type, 4);
    text[1] = (unsigned char) (size + 8);
    send_all(with, text, (size_t) size + 10);
    return replies(with, "READY");
}

/* Returns a connection. A busy master may end a handshake that takes it too long; then it is tried again, as zmq does. */
static int connected(int port, uint64_t epoch, const char *token, const char *type) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t) port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int attempt = 0; attempt < 50; attempt++, usleep(100000)) {
        int one = 1, made = socket(AF_INET, SOCK_STREAM, 0);
        if (made < 0) break;
        if (!connect(made, (struct sockaddr *) &address, sizeof address)) {
            setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            if (shakes_hands(made, epoch, token, type)) return made;
        }
        close(made);
    }
    fail("connecting to the master");
    return -1;
}

static void join(const char *line) {
    Worker *worker = calloc(1, sizeof *worker);
    unsigned long long epoch;
    int lane, results;
    char token[128];
    if (!worker || sscanf(line, "worker %llu %127s %d %d", &epoch, token, &lane, &results) != 4) fail(line);
    worker->epoch = epoch;
    worker->results = connected(results, epoch, token, "PUSH");
    worker->lane = connected(lane, epoch, token, "PULL");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = worker};
    epoll_ctl(poller, EPOLL_CTL_ADD, worker->lane, &event);
}

static size_t unhex(const char *text, unsigned char *to) {
    size_t size = strlen(text) / 2;
    for (size_t at = 0; at < size; at++) sscanf(text + 2 * at, "%2hhx", to + at);
    return size;
}

static void record(char *line) {
    unsigned *places[] = {&at_epoch, &at_sequence, &at_treatment, &at_trial, &at_taken, &at_ticket};
    char *word;
    strtok(line, " \n");
    before_size = unhex(strtok(NULL, " \n"), before);
    after_size = unhex(strtok(NULL, " \n"), after);
    row_size = unhex(strtok(NULL, " \n"), row);
    for (unsigned place = 0; place < 6; place++) *places[place] = (unsigned) atoi(strtok(NULL, " \n"));
    while (times < MOST_TIMES && (word = strtok(NULL, " \n"))) at_time[times++] = (unsigned) atoi(word);
}

int main(void) {
    static char line[1 << 15];
    struct epoll_event input = {.events = EPOLLIN, .data.ptr = NULL}, events[256];
    struct rusage used;
    int open = 1;
    out = malloc(ROOM + 65536);
    poller = epoll_create1(0);
    setvbuf(stdin, NULL, _IONBF, 0); /* or a line would wait in a buffer that no poll sees */
    epoll_ctl(poller, EPOLL_CTL_ADD, 0, &input);
    while (open) {
        int count = epoll_wait(poller, events, 256, -1);
        for (int one = 0; one < count; one++) {
            if (events[one].data.ptr) {
                serve(events[one].data.ptr);
            } else if (!fgets(line, sizeof line, stdin)) {
                open = 0;
            } else if (line[0] == 'f') {
                record(line);
            } else {
                join(line);
            }
        }
    }
    getrusage(RUSAGE_SELF, &used);
    printf("{\"jobs\": %llu, \"orders\": %llu, \"batches\": %llu, \"acknowledgements\": %llu, \"cpu_s\": %.6f}\n", jobs, orders,
           batches, acknowledged,
           (double) (used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double) (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
    return 0;
}
