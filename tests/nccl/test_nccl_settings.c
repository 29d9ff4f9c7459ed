/* SPDX-License-Identifier: BSD-2-Clause */
/* Settings from the environment, and what the plugin says about them. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "end_buffer.h"
#include "support/cases.h"
#include "support/check.h"

static void case_settings(void *argument)
{
	struct driver driver;
	void *context;

	(void)argument;
	driver_open(&driver, 11);
	driver_close(&driver);
	check_number(setenv("PEERLANE_LANES", "many", 1), 0);
	check(driver_init(&driver, &context) != NET_SUCCESS);
	check(!context);
	check(strstr(driver_warning(), "PEERLANE_LANES=many"));
	check_number(setenv("PEERLANE_LANES", "2", 1), 0);
	check_number(setenv("PEERLANE_ENCRYPT", "1", 1), 0);
	check(driver_init(&driver, &context) != NET_SUCCESS);
	check(strstr(driver_warning(), "PEERLANE_KEY_FILE"));
	check_number(setenv("PEERLANE_KEY_FILE", "/nonexistent", 1), 0);
	check(driver_init(&driver, &context) != NET_SUCCESS);
	check(strstr(driver_warning(), "/nonexistent"));
}

/* Without a key the plugin warns once, however many communicators the process has; with a key it does not. */
static void case_key_warning(void *argument)
{
	struct driver driver;
	void *contexts[2];

	(void)argument;
	check_number(unsetenv("PEERLANE_KEY_FILE"), 0);
	driver_open(&driver, 12);
	check_number(driver_warnings(), 1);
	check(strstr(driver_warning(), "any process"));
	check(strstr(driver_warning(), "set PEERLANE_KEY_FILE"));
	for (int i = 0; i < 2; i++)
		check_number(driver_init(&driver, &contexts[i]), NET_SUCCESS);
	check_number(driver_warnings(), 1);
	for (int i = 0; i < 2; i++)
		check_number(driver_finalize(&driver, contexts[i]), NET_SUCCESS);
	driver_close(&driver);
	use_key("kQ7vX2pL9mR4tY8wB3nZ6cF1");
	driver_open(&driver, 12);
	driver_close(&driver);
	check_number(driver_warnings(), 1);
}

/* Begins with a key file of these rights. */
static void expect_key(struct driver *driver, const char *path, unsigned mode, const char *refusal)
{
	void *context;

	check_number(chmod(path, mode), 0);
	check_number(driver_init(driver, &context), refusal ? NET_SYSTEM_ERROR : NET_SUCCESS);
	if (refusal)
		check(strstr(driver_warning(), refusal) && strstr(driver_warning(), "[KEY-FILE-OPEN]"));
	else
		check_number(driver_finalize(driver, context), NET_SUCCESS);
}

/* A key file is refused where the command refuses it. */
static void case_key_rights(void *argument)
{
	const char key[] = "kQ7vX2pL9mR4tY8wB3nZ6cF1";
	char path[] = "/tmp/peerlane-key-XXXXXX";
	const uid_t nobody = 65534;
	struct driver driver;
	int fd = mkstemp(path);

	(void)argument;
	check(fd >= 0);
	check_number(write(fd, key, strlen(key)), strlen(key));
	check_number(setenv("PEERLANE_KEY_FILE", path, 1), 0);
	driver_open(&driver, 11);
	check_number(driver_finalize(&driver, driver.context), NET_SUCCESS);
	expect_key(&driver, path, 0600, NULL);
	expect_key(&driver, path, 0604, "run `chmod o= /tmp/peerlane-key-");
	expect_key(&driver, path, 0620, "run `chmod g= /tmp/peerlane-key-");
	/* Services get their keys in files of root, which a group may read. */
	expect_key(&driver, path, 0640, geteuid() ? "run `chmod g= /tmp/peerlane-key-" : NULL);
	if (geteuid() == 0) {
		check_number(fchown(fd, nobody, (gid_t)-1), 0);
		expect_key(&driver, path, 0600, "belongs to another user, 65534");
		check_number(seteuid(nobody), 0);
		expect_key(&driver, path, 0600, NULL);
		expect_key(&driver, path, 0640, "run `chmod g= /tmp/peerlane-key-");
		/* LeakSanitizer traces the process at its end. */
		check_number(seteuid(0), 0);
	}
	unlink(path);
	close(fd);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "settings", case_settings, NULL, 20 },
		{ "key_warning", case_key_warning, NULL, 20 },
		{ "key_rights", case_key_rights, NULL, 20 },
	};

	return cases_run("nccl_settings", cases, sizeof(cases) / sizeof(cases[0]));
}
