/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ceiling of the tcp fabric: sockets over loopback between two processes, with a thread for each socket at each end, and
 * nothing else.  raw_sockets SOCKETS SIZE BUFFER SECONDS: each thread sends SIZE bytes at a time from its part of a buffer
 * of BUFFER bytes; the other end receives into a buffer as large.  raw_sockets cipher SECONDS: AES-128-GCM on one core, in
 * pieces of 16 KiB.  Prints JSON.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SOCKETS_MAX 64
#define PIECE 16384

struct lane {
	pthread_t thread;
	int fd;
	char *buffer;
	size_t size, length;
	atomic_ullong bytes;
};

static struct lane lanes[SOCKETS_MAX];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *send_all(void *argument)
{
	struct lane *lane = argument;

	for (size_t at = 0;; at = at + lane->size > lane->length - lane->size ? 0 : at + lane->size) {
		size_t done = 0;

		while (done < lane->size) {
			ssize_t sent = send(lane->fd, lane->buffer + at + done, lane->size - done, MSG_NOSIGNAL);

			if (sent <= 0)
				return NULL;
			done += (size_t)sent;
		}
	}
}

static void *receive_all(void *argument)
{
	struct lane *lane = argument;
	size_t at = 0;

	for (;;) {
		ssize_t got = recv(lane->fd, lane->buffer + at, lane->length - at, 0);

		if (got <= 0)
			return NULL;
		at = (at + (size_t)got) % lane->length;
		atomic_fetch_add_explicit(&lane->bytes, (unsigned long long)got, memory_order_relaxed);
	}
}

static void start(int count, void *(*run)(void *), size_t size, size_t buffer)
{
	for (int i = 0; i < count; i++) {
		lanes[i].size = size;
		lanes[i].length = buffer / (size_t)count / size * size;
		if (lanes[i].length < size)
			lanes[i].length = size;
		lanes[i].buffer = mmap(NULL, lanes[i].length, PROT_READ | PROT_WRITE,
				       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		if (lanes[i].buffer == MAP_FAILED)
			die("mmap");
		if (pthread_create(&lanes[i].thread, NULL, run, &lanes[i]))
			die("pthread_create");
	}
}

static unsigned long long received(int count)
{
	unsigned long long total = 0;

	for (int i = 0; i < count; i++)
		total += atomic_load(&lanes[i].bytes);
	return total;
}

/* Takes an algorithm of congestion control without pacing, as the fabric does between processes of one host. */
static void stop_pacing(int fd)
{
	char name[16] = "";
	socklen_t length = sizeof(name) - 1;

	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length) == 0 && !strncmp(name, "bbr", 3))
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static void measure_sockets(int count, size_t size, size_t buffer, double seconds)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	unsigned long long bytes;
	double begin, time;
	pid_t child;

	stop_pacing(listener);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, SOCKETS_MAX) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		die("listen");
	child = fork();
	if (child == 0) {
		for (int i = 0; i < count; i++) {
			lanes[i].fd = socket(AF_INET, SOCK_STREAM, 0);
			stop_pacing(lanes[i].fd);
			if (connect(lanes[i].fd, (struct sockaddr *)&address, sizeof(address)))
				die("connect");
		}
		start(count, send_all, size, buffer);
		for (int i = 0; i < count; i++)
			pthread_join(lanes[i].thread, NULL);
		_exit(0);
	}
	for (int i = 0; i < count; i++)
		if ((lanes[i].fd = accept(listener, NULL, NULL)) < 0)
			die("accept");
	start(count, receive_all, size, buffer);
	usleep(200000); /* until the windows are open */
	bytes = received(count);
	begin = now();
	usleep((useconds_t)(seconds * 1e6));
	bytes = received(count) - bytes;
	time = now() - begin;
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	printf("{\"sockets\": %d, \"size\": %zu, \"bytes_per_second\": %.0f}\n", count, size, (double)bytes / time);
}

static void measure_cipher(double seconds)
{
	static unsigned char from[PIECE], to[PIECE + 16], key[16], nonce[12];
	EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
	double begin = now(), time;
	unsigned long long pieces = 0;
	int length;

	EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, key, nonce);
	do {
		memcpy(nonce, &pieces, sizeof(pieces));
		EVP_EncryptInit_ex(cipher, NULL, NULL, NULL, nonce);
		EVP_EncryptUpdate(cipher, to, &length, from, PIECE);
		EVP_EncryptFinal_ex(cipher, to + PIECE, &length);
		pieces++;
		time = now() - begin;
	} while (time < seconds);
	EVP_CIPHER_CTX_free(cipher);
	printf("{\"bytes_per_second\": %.0f}\n", (double)pieces * PIECE / time);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "cipher")) {
		measure_cipher(atof(argv[2]));
		return 0;
	}
	if (argc != 5 || atoi(argv[1]) < 1 || atoi(argv[1]) > SOCKETS_MAX) {
		fprintf(stderr, "usage: raw_sockets SOCKETS SIZE BUFFER SECONDS | raw_sockets cipher SECONDS\n");
		return 1;
	}
	measure_sockets(atoi(argv[1]), strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10), atof(argv[4]));
	return 0;
}
