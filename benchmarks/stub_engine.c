/* The server of stub_engine.py once more, for machines with a C compiler: at 64 at once it is not what limits a client.
 *
 * Speaks as much of Docker's API as a timing needs and takes a known time for each request. Says in each answer how long
 * it really took from the request's last byte to just before its answer's first, and when that was (CLOCK_MONOTONIC); and
 * of the answer before, on the same connection, when that was and when it had left. All in nanoseconds.
 *
 *     stub_engine SOCKET|PORT SECONDS
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MOST 65536

static struct timespec service;

static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

/* Returns how many bytes the request in `text` has, 0 while it is not all there. */
static size_t whole(char *text, size_t have) {
    char *body, *line;
    size_t length = 0;
    text[have] = 0;
    body = strstr(text, "\r\n\r\n");
    if (!body) return 0;
    body += 4;
    for (line = strstr(text, "\r\n"); line + 2 < body; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, "content-length:", 15)) length = strtoul(line + 17, NULL, 10);
    length += (size_t) (body - text);
    return have >= length ? length : 0;
}

static void *serve(void *argument) {
    int peer = (int) (long) argument;
    char *text = malloc(MOST), answer[256], body[128];
    size_t have = 0, length;
    long long last_ended = 0, last_sent = 0;
    ssize_t got;
    prctl(PR_SET_TIMERSLACK, 1UL);
    while (text && have < MOST - 1 && (got = read(peer, text + have, MOST - 1 - have)) > 0) {
        have += (size_t) got;
        while ((length = whole(text, have)) > 0) {
            long long heard = now();
            char *end_of_path = strstr(text, " HTTP/");
            if (end_of_path && end_of_path - text >= 8 && !strncmp(end_of_path - 8, "/version", 8)) {
                snprintf(body, sizeof body, "{\"ApiVersion\": \"1.41\", \"Version\": \"stub\"}");
            } else {
                nanosleep(&service, NULL);
                long long ended = now();
                snprintf(body, sizeof body, "[%lld, %lld, %lld, %lld]", ended - heard, ended, last_ended, last_sent);
                last_ended = ended;
            }
            int size = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
            if (write(peer, answer, (size_t) size) != size) goto end;
            last_sent = now();
            have -= length;
            memmove(text, text + length, have);
        }
    }
end:
    free(text);
    close(peer);
    return NULL;
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener, peer, on = 1, failed;
    pthread_attr_t attributes;
    pthread_t thread;
    double seconds;
    if (argc != 3 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
    strcpy(address.sun_path, argv[1]);
    place.sin_port = htons((unsigned short) atoi(argv[1]));
    seconds = atof(argv[2]);
    service.tv_sec = (time_t) seconds;
    service.tv_nsec = (long) ((seconds - (double) service.tv_sec) * 1e9);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    if (place.sin_port) {
        listener = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        failed = bind(listener, (struct sockaddr *) &place, sizeof place);
    } else {
        listener = socket(AF_UNIX, SOCK_STREAM, 0);
        failed = bind(listener, (struct sockaddr *) &address, sizeof address);
    }
    if (failed || listen(listener, 256)) return 1;
    while ((peer = accept(listener, NULL, NULL)) >= 0) {
        if (place.sin_port) setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (pthread_create(&thread, &attributes, serve, (void *) (long) peer)) close(peer);
    }
    return 1;
}
