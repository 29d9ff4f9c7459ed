/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings from environment variables, which docs/nccl.md lists. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/processors.h"
#include "state.h"

/* A silent host is lost after this time. A stopped process must not be, so it is longer than the library's default. */
#define KEEPALIVE_S 60
#define ACCEPT_S 300
#define CONNECT_S 30
/* Imports wait for a process that may be stopped for long; its loss ends them before. */
#define OPERATION_S 86400
#define COPY_THREADS_LEAST 4ul
#define COPY_THREADS_USUAL 8ul
/* From this number of cores on, threads may poll for work. */
#define POLLING_CORES 8
#define POLL_US 100

static void refuse_settings(struct plugin_settings *settings, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void refuse_settings(struct plugin_settings *settings, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(settings->wrong, sizeof(settings->wrong), format, arguments);
	va_end(arguments);
}

/* Returns a variable; NULL if it is unset or empty. */
static const char *read_text(const char *name)
{
	const char *text = getenv(name);

	return text && *text ? text : NULL;
}

/* Reads a number from a variable; an unset or empty one has the default. Refuses a wrong number. */
static bool read_number(struct plugin_settings *settings, const char *name, unsigned long least, unsigned long most,
			unsigned long standard, unsigned long *value)
{
	const char *text = read_text(name);
	char *end;

	*value = standard;
	if (!text)
		return true;
	errno = 0;
	*value = strtoul(text, &end, 10);
	if (errno == 0 && *end == '\0' && text[0] != '-' && *value >= least && *value <= most)
		return true;
	refuse_settings(settings, "%s=%s is no number from %lu to %lu", name, text, least, most);
	return false;
}

static bool read_key(struct plugin_settings *settings)
{
	const char *path = read_text("PEERLANE_KEY_FILE");
	char text[sizeof(settings->wrong) - 24];
	struct pl_error error;
	int length;

	if (!path) {
		settings->options.insecure = PL_ON;
		return true;
	}
	length = pl_key_file_read(path, settings->key, &error);
	if (length < 0) {
		plugin_format_error(&error, text, sizeof(text));
		refuse_settings(settings, "PEERLANE_KEY_FILE: %s", text);
		return false;
	}
	settings->options.key = settings->key;
	settings->options.key_length = (size_t)length;
	return true;
}

/* Reads 0 or 1 from a variable; false if it is unset or empty. Refuses another value. */
static bool read_switch(struct plugin_settings *settings, const char *name, bool *value)
{
	const char *text = read_text(name);

	*value = text && !strcmp(text, "1");
	if (!text || !strcmp(text, "0") || *value)
		return true;
	refuse_settings(settings, "%s=%s is neither 0 nor 1", name, text);
	return false;
}

static bool read_encryption(struct plugin_settings *settings)
{
	struct pl_options *options = &settings->options;
	bool encrypt;

	if (!read_text("PEERLANE_ENCRYPT"))
		return true;
	if (!read_switch(settings, "PEERLANE_ENCRYPT", &encrypt))
		return false;
	options->encrypt_data = encrypt ? PL_ON : PL_OFF;
	if (encrypt && !options->key) {
		refuse_settings(settings, "PEERLANE_ENCRYPT=1 needs a key: set PEERLANE_KEY_FILE");
		return false;
	}
	return true;
}

static bool read_fabric(struct plugin_settings *settings)
{
	static const char *const names[] = { "auto", "verbs", "tcp", "local" };
	const char *name = settings->options.fabric = read_text("PEERLANE_FABRIC");
	bool known = !name;

	for (size_t i = 0; i < PL_ARRAY_SIZE(names); i++)
		known = known || !strcmp(name, names[i]);
	if (!known)
		refuse_settings(settings, "PEERLANE_FABRIC=%s is no fabric: use auto, verbs, tcp or local", name);
	return known;
}

/* A thread copies 4 to 7 GB/s, so that 8 of them exceed what NCCL's shared memory moves. */
static unsigned long copy_threads_for(unsigned cores)
{
	return PL_MAX(COPY_THREADS_LEAST, PL_MIN(cores / 4ul, COPY_THREADS_USUAL));
}

bool settings_read(struct plugin_settings *settings)
{
	struct pl_options *options = &settings->options;
	unsigned cores = pl_processors();
	bool many = cores >= POLLING_CORES;
	unsigned long workers, lanes, poll_us, threads, speed, keepalive, connect, accept;

	memset(settings, 0, sizeof(*settings));
	*options = (struct pl_options)PL_OPTIONS_INIT;
	if (!read_number(settings, "PEERLANE_WORKERS", 1, 64, 0, &workers) ||
	    !read_number(settings, "PEERLANE_LANES", 1, 16, 0, &lanes) ||
	    !read_number(settings, "PEERLANE_POLL_US", 0, 1000000, many ? POLL_US : 0, &poll_us) ||
	    !read_number(settings, "PEERLANE_COPY_THREADS", 1, COPY_THREADS_MAX, copy_threads_for(cores), &threads) ||
	    !read_number(settings, "PEERLANE_SPEED", 1, 10000000, 0, &speed) ||
	    !read_number(settings, "PEERLANE_KEEPALIVE", 1, 86400, KEEPALIVE_S, &keepalive) ||
	    !read_number(settings, "PEERLANE_CONNECT_TIMEOUT", 1, 86400, CONNECT_S, &connect) ||
	    !read_number(settings, "PEERLANE_ACCEPT_TIMEOUT", 1, 86400, ACCEPT_S, &accept) || !read_key(settings) ||
	    !read_encryption(settings) || !read_switch(settings, "PEERLANE_GPU_MEMORY", &settings->gpu_memory) ||
	    !read_fabric(settings))
		return false;
	options->workers = (unsigned)workers;
	options->lanes = (unsigned)lanes;
	/* NCCL's kernels run while memory is registered, which would wait for them to load a kernel. */
	options->gpu_multiprocessors = PL_NO_GPU_KERNEL;
	options->devices = read_text("PEERLANE_DEVICES");
	options->poll_time = poll_us ? poll_us * 1000 : PL_NO_POLLING;
	options->keepalive = keepalive * PL_NS_PER_S;
	options->connect_timeout = connect * PL_NS_PER_S;
	options->operation_timeout = OPERATION_S * PL_NS_PER_S;
	settings->copy_threads = (unsigned)threads;
	settings->speed = (int)speed;
	settings->accept_timeout = accept * PL_NS_PER_S;
	return true;
}

bool peerlane_nccl_settings(char *wrong, size_t size)
{
	struct plugin_settings settings;
	bool accepted = settings_read(&settings);

	explicit_bzero(settings.key, sizeof(settings.key));
	snprintf(wrong, size, "%s", settings.wrong);
	return accepted;
}
