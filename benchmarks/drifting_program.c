/* A program that computes for a while, longer by a known share, on a machine that becomes slower by a known share.
 *
 * drifting_program COUNTER ITERATIONS DRIFT: appends a byte to the file COUNTER and computes ITERATIONS steps, longer
 * by DRIFT (a share, such as 0.001) for each byte that was there. Whoever executes it, in whatever order, the
 * "machine" is slower by the same share at the n-th execution.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words) {
    struct stat counter;
    if (count != 4) return 2;
    int file = open(words[1], O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0 || fstat(file, &counter) != 0 || write(file, "x", 1) != 1) return 3;
    double steps = atof(words[2]) * (1.0 + atof(words[3]) * (double)counter.st_size);
    volatile uint64_t state = 1;
    for (uint64_t step = 0; step < (uint64_t)steps; step++) state = state * 6364136223846793005u + 1442695040888963407u;
    return 0;
}
