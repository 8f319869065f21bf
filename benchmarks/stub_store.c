/* An object store for tests and benchmarks: keeps objects in memory, says when it sent what, and fails on request.

   stub_store [PORT]    listens on 127.0.0.1 and ::1 (a free port without PORT), prints the port; ends with its stdin.

   Swift: GET /auth/v1.0 gives X-Storage-Url and X-Auth-Token; /v1/AUTH_stub[/CONTAINER[/OBJECT]] is the store, with
   listings (prefix, marker, limit) as JSON. The same without /v1/AUTH_stub needs no token: enough of S3 for an object.
   /fixed/SIZE/ANYTHING is an object of SIZE bytes that nobody made; what is PUT there is dropped.
   ?first_us=N waits before the answer, ?last_us=N between the two halves of its body. Each answer says in X-Sent-Ns
   when (CLOCK_MONOTONIC) it was sent; with last_us the last 20 bytes of a fixed object are when those were.

   Faults: ?fault=KIND in a request, or PUT /_fault?kind=KIND[&count=N][&method=GET][&match=TEXT] for the next N
   requests (without count: all) whose path has TEXT in it; DELETE /_fault ends them. KIND is a status (503), or
     reset         resets the connection instead of answering     close      closes it
     reset-body    the same after half of the body                half       closes it there
     stall         never answers                                  stall-body sends no more after half of the body
     dribble       sends the answer byte by byte                  wrong      one byte of the body is another
     goodbye       answers, says so, and closes                   idle       answers, and closes without a word
     early         answers 413 before it has read the body, and closes
   PUT /_expire makes every token of before invalid. GET /_counts tells what was asked for, as JSON. The token "control"
   is always good, and what is asked with it is neither counted nor does it fail. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, BUCKETS = 1 << 14, PIECE = 1 << 20, LISTED = 10000 };
#define ACCOUNT "/v1/AUTH_stub"

struct object {
    char *path;
    char *data;
    long size;
    int is_container;
    atomic_int users;
    struct object *next;
};
struct fault {
    char kind[24], method[8], match[256];
    long count;
};
struct request {
    char method[8], path[2048], query[2048], token[64];
    long length, from, to;
    int closes, expects;
};
struct connection {
    int fd, have;
    char data[BUFFER + 1];
};

static struct object *buckets[BUCKETS];
static struct fault faults[32];
static int fault_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_long token_number, connections, requests, answered[600], gets, puts_, deletes, heads;
static char *filler;

static long long now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void nap_us(long us) {
    long long end = now_ns() + us * 1000LL;
    struct timespec at = {end / 1000000000LL, end % 1000000000LL};
    if (us > 0) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static int send_all(int fd, const char *data, long size) {
    while (size > 0) {
        long sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) return -1;
        data += sent;
        size -= sent;
    }
    return 0;
}

static void decode(char *text) {
    char *to = text;
    for (; *text; text++, to++) {
        char digits[3] = {0};
        if (*text == '%' && text[1] && text[2]) {
            memcpy(digits, text + 1, 2);
            *to = (char)strtol(digits, NULL, 16);
            text += 2;
        } else {
            *to = *text;
        }
    }
    *to = 0;
}

/* Copies the value of a query's key to `into`, decoded; empty where there is none. */
static char *query_value(const char *query, const char *key, char *into, size_t room) {
    size_t size = strlen(key);
    *into = 0;
    for (const char *at = query; at && *at; at = strchr(at, '&'), at += at != NULL) {
        if (!strncmp(at, key, size) && at[size] == '=') {
            snprintf(into, room, "%.*s", (int)strcspn(at + size + 1, "&"), at + size + 1);
            decode(into);
            break;
        }
    }
    return into;
}

static long query_number(const char *query, const char *key, long otherwise) {
    char text[64];
    return *query_value(query, key, text, sizeof text) ? atol(text) : otherwise;
}

static unsigned bucket_of(const char *path) {
    unsigned hash = 2166136261u;
    while (*path) hash = (hash ^ (unsigned char)*path++) * 16777619u;
    return hash % BUCKETS;
}

static void release(struct object *object) {
    if (object && atomic_fetch_sub(&object->users, 1) == 1) {
        free(object->path);
        free(object->data);
        free(object);
    }
}

/* Returns the place in its bucket that points to the object of a path; the lock is held. */
static struct object **place_of(const char *path) {
    struct object **at = &buckets[bucket_of(path)];
    while (*at && strcmp((*at)->path, path)) at = &(*at)->next;
    return at;
}

static struct object *find(const char *path) {
    pthread_mutex_lock(&lock);
    struct object *found = *place_of(path);
    if (found) found->users++;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Takes an object out; says whether it was there. */
static int forget(const char *path) {
    pthread_mutex_lock(&lock);
    struct object **at = place_of(path), *found = *at;
    if (found) *at = found->next;
    pthread_mutex_unlock(&lock);
    release(found);
    return found != NULL;
}

static void keep(const char *path, char *data, long size, int is_container) {
    struct object *made = calloc(1, sizeof *made);
    made->path = strdup(path);
    made->data = data;
    made->size = size;
    made->is_container = is_container;
    made->users = 1;
    forget(path);
    pthread_mutex_lock(&lock);
    struct object **first = &buckets[bucket_of(path)];
    made->next = *first;
    *first = made;
    pthread_mutex_unlock(&lock);
}

static int by_text(const void *left, const void *right) {
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Returns the names below a path, with a prefix and after a marker, sorted: `count` of them. */
static char **names_below(const char *path, const char *prefix, const char *marker, int *count) {
    char **names = malloc(sizeof *names), *name;
    size_t length = strlen(path);
    *count = 0;
    pthread_mutex_lock(&lock);
    for (int bucket = 0; bucket < BUCKETS; bucket++)
        for (struct object *each = buckets[bucket]; each; each = each->next) {
            if (strncmp(each->path, path, length) || each->path[length] != '/') continue;
            name = each->path + length + 1;
            if (each->is_container != (strcmp(path, ACCOUNT) == 0)) continue;
            if (strncmp(name, prefix, strlen(prefix)) || strcmp(name, marker) <= 0) continue;
            names = realloc(names, (*count + 1) * sizeof *names);
            names[(*count)++] = strdup(name);
        }
    pthread_mutex_unlock(&lock);
    qsort(names, *count, sizeof *names, by_text);
    return names;
}

/* Returns a listing as JSON. */
static char *listing(const char *path, const char *query, int *found) {
    char prefix[1024], marker[1024], *text;
    size_t size;
    int limit = (int)query_number(query, "limit", LISTED);
    query_value(query, "prefix", prefix, sizeof prefix);
    query_value(query, "marker", marker, sizeof marker);
    char **names = names_below(path, prefix, marker, found);
    FILE *out = open_memstream(&text, &size);
    fputc('[', out);
    for (int index = 0; index < *found; index++) {
        char whole[4096];
        snprintf(whole, sizeof whole, "%s/%s", path, names[index]);
        struct object *object = index < limit ? find(whole) : NULL;
        if (object) {
            fprintf(out, "%s{\"name\": \"", index ? ", " : "");
            for (char *at = names[index]; *at; at++) fprintf(out, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
            fprintf(out, "\", \"bytes\": %ld, \"count\": 0, \"hash\": \"\"}", object->size);
            release(object);
        }
        free(names[index]);
    }
    fputc(']', out);
    fclose(out);
    free(names);
    return text;
}

static char *counts(void) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    fprintf(out, "{\"connections\": %ld, \"requests\": %ld, \"GET\": %ld, \"PUT\": %ld, \"DELETE\": %ld, \"HEAD\": %ld",
            connections, requests, gets, puts_, deletes, heads);
    for (int status = 100; status < 600; status++)
        if (answered[status]) fprintf(out, ", \"%d\": %ld", status, answered[status]);
    fputc('}', out);
    fclose(out);
    return text;
}

static void add_fault(const char *query) {
    pthread_mutex_lock(&lock);
    struct fault *made = &faults[fault_count < 31 ? fault_count++ : 31];
    query_value(query, "kind", made->kind, sizeof made->kind);
    query_value(query, "method", made->method, sizeof made->method);
    query_value(query, "match", made->match, sizeof made->match);
    made->count = query_number(query, "count", -1);
    pthread_mutex_unlock(&lock);
}

/* Writes the kind of the fault that a request meets to `kind`. */
static void fault_of(const struct request *asked, char *kind, size_t room) {
    if (*query_value(asked->query, "fault", kind, room)) return;
    pthread_mutex_lock(&lock);
    for (int index = 0; index < fault_count; index++) {
        struct fault *each = &faults[index];
        if (!each->count || !strstr(asked->path, each->match)) continue;
        if (*each->method && strcmp(each->method, asked->method)) continue;
        if (each->count > 0) each->count--;
        snprintf(kind, room, "%s", each->kind);
        break;
    }
    pthread_mutex_unlock(&lock);
}

/* Reads until `data` has a whole head; returns its length, -1 at the end of the connection. */
static int read_head(struct connection *c) {
    for (;;) {
        char *end = memmem(c->data, c->have, "\r\n\r\n", 4);
        if (end) return (int)(end - c->data) + 4;
        if (c->have == BUFFER) return -1;
        long count = recv(c->fd, c->data + c->have, BUFFER - c->have, 0);
        if (count <= 0) return -1;
        c->have += count;
    }
}

static const char *header(const char *head, const char *name) {
    const char *found = strcasestr(head, name);
    return found ? found + strlen(name) + strspn(found + strlen(name), " ") : NULL;
}

/* Reads the head of a request; returns 0, -1 where it is none. */
static int parse(char *head, struct request *asked) {
    asked->query[0] = asked->token[0] = 0;
    asked->length = asked->from = asked->to = -1;
    if (sscanf(head, "%7s %2047[^ ?]", asked->method, asked->path) != 2) return -1;
    char *line = strstr(head, "\r\n"), *query = strchr(head, '?');
    if (query && query < line) sscanf(query + 1, "%2047[^ ]", asked->query);
    decode(asked->path);
    const char *value = header(line, "\r\ncontent-length:");
    asked->length = value ? atol(value) : 0;
    value = header(line, "\r\nx-auth-token:");
    if (value) sscanf(value, "%63[^\r]", asked->token);
    value = header(line, "\r\nrange: bytes=");
    if (value) sscanf(value, "%ld-%ld", &asked->from, &asked->to);
    value = header(line, "\r\nconnection:");
    asked->closes = value && !strncasecmp(value, "close", 5);
    asked->expects = header(line, "\r\nexpect:") != NULL;
    return 0;
}

/* Reads a body, into memory of its own with `keep_it`; returns -1 where it does not come whole. */
static int read_body(struct connection *c, int head, long length, char **kept, int keep_it) {
    static _Thread_local char dropped[BUFFER];
    long there = c->have - head < length ? c->have - head : length;
    *kept = keep_it ? malloc(length + 1) : NULL;
    if (*kept) memcpy(*kept, c->data + head, there);
    memmove(c->data, c->data + head + there, c->have - head - there);
    c->have -= head + there;
    while (there < length) {
        long wanted = length - there, room = *kept || wanted < BUFFER ? wanted : BUFFER;
        long count = recv(c->fd, *kept ? *kept + there : dropped, room, 0);
        if (count <= 0) {
            free(*kept);
            return -1;
        }
        there += count;
    }
    return 0;
}

static const char *reason(int status) {
    return status == 200 ? "OK" : status == 201 ? "Created" : status == 204 ? "No Content" : status == 404 ? "Not Found" : "Status";
}

struct answer {
    int status;
    const char *data;
    long size, said;
    char extra[512];
};

/* Ends a connection as a server does that means no harm: a close alone may become a reset, and take the answer along. */
static void hang_up(int fd) {
    struct timeval patience = {2, 0};
    char rest[4096];
    shutdown(fd, SHUT_WR);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (recv(fd, rest, sizeof rest, 0) > 0) {
    }
}

/* Sends an answer, with its fault; returns -1 where the connection is over. */
static int send_answer(int fd, const struct request *asked, struct answer *answer, const char *fault) {
    char head[2048], stamp[32];
    long first_us = query_number(asked->query, "first_us", 0), last_us = query_number(asked->query, "last_us", 0);
    int bodiless = !strcmp(asked->method, "HEAD") || answer->status == 204, broken = 0;
    long size = bodiless ? 0 : answer->size, half = size / 2;
    int goodbye = asked->closes || !strcmp(fault, "goodbye");
    char *copy = NULL;
    if (!strcmp(fault, "stall")) nap_us(3600000000L);
    nap_us(first_us);
    answered[answer->status] += strcmp(asked->token, "control") != 0;
    int length = snprintf(
        head, sizeof head,
        "HTTP/1.1 %d %s\r\nContent-Length: %ld\r\nContent-Type: application/octet-stream\r\n"
        "Last-Modified: Wed, 21 Oct 2026 07:28:00 GMT\r\nX-Timestamp: 1792567680.00000\r\n"
        "X-Trans-Id: tx0123456789abcdef01234-%010ld\r\n%s%sX-Sent-Ns: %lld\r\n\r\n",
        answer->status, reason(answer->status), answer->said, requests, answer->extra,
        goodbye ? "Connection: close\r\n" : "", now_ns());
    if (!strcmp(fault, "wrong") && size) {
        copy = malloc(size);
        memcpy(copy, answer->data, size);
        copy[half] ^= 1;
        answer->data = copy;
    }
    if (!strcmp(fault, "dribble")) {
        for (int at = 0; at < length && !broken; at++, nap_us(200)) broken = send_all(fd, head + at, 1);
        for (long at = 0; at < size && !broken; at++, nap_us(200)) broken = send_all(fd, answer->data + at, 1);
    } else if (strstr(fault, "half") || strstr(fault, "-body")) {
        broken = send_all(fd, head, length) || send_all(fd, answer->data, half);
        if (!strcmp(fault, "stall-body")) nap_us(3600000000L);
        if (!strcmp(fault, "half")) hang_up(fd);
        nap_us(2000); /* a reset must not overtake what was sent */
        if (!strcmp(fault, "reset-body")) setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        broken = 1;
    } else if (last_us && size >= 40) {
        broken = send_all(fd, head, length) || send_all(fd, answer->data, half);
        nap_us(last_us);
        copy = realloc(copy, size);
        memcpy(copy, answer->data, size);
        snprintf(stamp, sizeof stamp, "%020lld", now_ns());
        memcpy(copy + size - 20, stamp, 20);
        broken = broken || send_all(fd, copy + half, size - half);
    } else {
        struct iovec parts[2] = {{head, length}, {(void *)answer->data, size}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = size ? 2 : 1};
        long sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent < length) broken = 1;
        else broken = send_all(fd, answer->data + (sent - length), size - (sent - length));
    }
    free(copy);
    return broken || goodbye || !strcmp(fault, "idle") || !strcmp(fault, "early") ? -1 : 0;
}

/* An object of any size that nobody made: the same piece over and over. */
static int send_fixed(int fd, const struct request *asked, long size, struct answer *answer, const char *fault) {
    answer->status = 200;
    answer->said = answer->size = size;
    answer->data = filler;
    if (size <= PIECE || !strcmp(asked->method, "HEAD")) return send_answer(fd, asked, answer, fault);
    answer->size = PIECE;
    if (send_answer(fd, asked, answer, fault)) return -1;
    for (long left = size - PIECE; left > 0; left -= PIECE)
        if (send_all(fd, filler, left < PIECE ? left : PIECE)) return -1;
    return 0;
}

static void range_of(const struct request *asked, struct answer *answer, long size) {
    if (asked->from < 0 || asked->from >= size) return;
    long last = asked->to < 0 || asked->to >= size ? size - 1 : asked->to;
    answer->status = 206;
    answer->data += asked->from;
    answer->said = answer->size = last - asked->from + 1;
    snprintf(answer->extra, sizeof answer->extra, "Content-Range: bytes %ld-%ld/%ld\r\n", asked->from, last, size);
}

/* Whether a request carries a token that is not the present one. */
static int refused(const struct request *asked) {
    char token[64];
    snprintf(token, sizeof token, "AUTH_tk%ld", token_number);
    return !strncmp(asked->path, ACCOUNT, strlen(ACCOUNT)) && strcmp(asked->token, token) && strcmp(asked->token, "control");
}

/* Does what is asked of the store; `made` is what the answer's data belongs to, `text` is freed. */
static void serve(struct request *asked, char *body, struct answer *answer, struct object **made, char **text) {
    char container[2048];
    int swift = !strncmp(asked->path, ACCOUNT, strlen(ACCOUNT)), found = 0;
    const char *rest = asked->path + (swift ? strlen(ACCOUNT) : 0), *name = *rest ? strchr(rest + 1, '/') : NULL;
    *answer = (struct answer){.status = 404, .data = "", .size = 0};
    if (refused(asked)) {
        answer->status = 401;
    } else if (!*rest || (!name && asked->method[0] == 'G')) {
        *made = *rest ? find(asked->path) : NULL;
        if (*rest && !*made) return;
        answer->data = *text = listing(asked->path, asked->query, &found);
        answer->said = answer->size = strlen(*text);
        answer->status = 200;
    } else if (!strcmp(asked->method, "PUT")) {
        snprintf(container, sizeof container, "%.*s", (int)(name ? name - asked->path : 2047), asked->path);
        *made = find(container);
        answer->status = !name && *made ? 202 : name && !*made ? 404 : 201;
        if (answer->status == 201) keep(asked->path, body, asked->length, !name);
        else free(body);
    } else if (!strcmp(asked->method, "DELETE")) {
        if (!name) {
            char **names = names_below(asked->path, "", "", &found);
            for (int index = 0; index < found; index++) free(names[index]);
            free(names);
        }
        answer->status = found ? 409 : forget(asked->path) ? 204 : 404;
    } else if ((*made = find(asked->path))) {
        answer->status = 200;
        answer->data = (*made)->data ? (*made)->data : "";
        answer->said = answer->size = (*made)->size;
        range_of(asked, answer, (*made)->size);
    }
}

static int handle(struct connection *c, struct request *asked, int head) {
    struct answer answer = {.status = 200, .data = ""};
    struct object *made = NULL;
    char fault[24] = "", *body = NULL, *text = NULL;
    long size;
    int over, fixed = sscanf(asked->path, "/fixed/%ld", &size) == 1;
    int control = asked->path[1] == '_' || !strcmp(asked->token, "control");
    if (!control) {
        char first = asked->method[0];
        requests++;
        *(first == 'G' ? &gets : first == 'P' ? &puts_ : first == 'D' ? &deletes : &heads) += 1;
        /* The refusal of an old token is an answer in itself, without a body that could be cut: the next request would
           find the connection closed. */
        if (!refused(asked)) fault_of(asked, fault, sizeof fault);
    }
    if (!strcmp(fault, "early")) {
        answer.status = 413;
        return send_answer(c->fd, asked, &answer, "goodbye");
    }
    if (asked->expects) send_all(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    if (read_body(c, head, asked->length, &body, !fixed && asked->path[1] != '_')) return -1;
    if (!strcmp(fault, "reset")) setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    if (!strcmp(fault, "reset") || !strcmp(fault, "close")) {
        free(body);
        return -1;
    }
    if (atoi(fault) >= 400 && atoi(fault) < 600) {
        free(body);
        answer = (struct answer){.status = atoi(fault), .data = "fault", .size = 5, .said = 5};
        return send_answer(c->fd, asked, &answer, "");
    }
    if (!strcmp(asked->path, "/_fault")) {
        if (asked->method[0] == 'D') fault_count = 0;
        else add_fault(asked->query);
    } else if (!strcmp(asked->path, "/_expire")) {
        token_number++;
    } else if (!strcmp(asked->path, "/_counts")) {
        answer.data = text = counts();
        answer.said = answer.size = strlen(text);
    } else if (!strcmp(asked->path, "/auth/v1.0")) {
        struct sockaddr_storage at;
        socklen_t room = sizeof at;
        getsockname(c->fd, (void *)&at, &room);
        snprintf(answer.extra, sizeof answer.extra, "X-Storage-Url: http://%s:%d" ACCOUNT "\r\nX-Auth-Token: AUTH_tk%ld\r\n",
                 at.ss_family == AF_INET6 ? "[::1]" : "127.0.0.1", ntohs(((struct sockaddr_in *)&at)->sin_port), token_number);
    } else if (fixed && asked->method[0] != 'P' && asked->method[0] != 'D') {
        return send_fixed(c->fd, asked, size, &answer, fault);
    } else if (fixed) {
        answer.status = asked->method[0] == 'P' ? 201 : 204;
    } else {
        serve(asked, body, &answer, &made, &text);
    }
    over = send_answer(c->fd, asked, &answer, fault);
    release(made);
    free(text);
    return over;
}

static void *run(void *argument) {
    struct connection *c = argument;
    struct request asked;
    int one = 1, head;
    prctl(PR_SET_TIMERSLACK, 1);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    while ((head = read_head(c)) >= 0) {
        char last = c->data[head];
        c->data[head] = 0;
        int bad = parse(c->data, &asked);
        c->data[head] = last;
        if (bad || handle(c, &asked, head)) break;
    }
    close(c->fd);
    free(c);
    return NULL;
}

static int listener(int family, int port) {
    int fd = socket(family, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    int bad = family == AF_INET ? bind(fd, (void *)&v4, sizeof v4) : bind(fd, (void *)&v6, sizeof v6);
    return fd < 0 || bad || listen(fd, 1024) ? -1 : fd;
}

static void *accept_all(void *argument) {
    int fd = (int)(long)argument;
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 512 * 1024);
    for (;;) {
        struct connection *c = malloc(sizeof *c);
        c->have = 0;
        c->fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        connections += c->fd >= 0;
        if (c->fd < 0 || pthread_create(&thread, &attributes, run, c)) free(c);
    }
    return NULL;
}

int main(int count, char **words) {
    char byte;
    struct sockaddr_in at;
    socklen_t room = sizeof at;
    pthread_t thread;
    signal(SIGPIPE, SIG_IGN);
    filler = malloc(PIECE);
    for (int index = 0; index < PIECE; index++) filler[index] = "weighbridge"[index % 11];
    int fd = listener(AF_INET, count > 1 ? atoi(words[1]) : 0);
    if (fd < 0 || getsockname(fd, (void *)&at, &room)) {
        perror("stub_store");
        return 1;
    }
    int other = listener(AF_INET6, ntohs(at.sin_port));
    pthread_create(&thread, NULL, accept_all, (void *)(long)fd);
    if (other >= 0) pthread_create(&thread, NULL, accept_all, (void *)(long)other);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    while (read(0, &byte, 1) > 0) {
    }
    return 0;
}
