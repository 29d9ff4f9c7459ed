/* SPDX-License-Identifier: BSD-2-Clause */
/* Files below a root: links stay inside, no read blocks, limits hold, with and without openat2(2). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "topology/sysroot.h"

/* Folder with a secret beside the root, which no path may reach. */
static char folder[] = "/tmp/peerlane-sysroot-XXXXXX";

static void write_root_bytes(const char *path, const void *data, size_t length)
{
	char full[256];
	FILE *file;

	snprintf(full, sizeof(full), "%s/%s", folder, path);
	file = fopen(full, "wb");
	assert_non_null(file);
	assert_int_equal(fwrite(data, 1, length, file), length);
	assert_int_equal(fclose(file), 0);
}

static void write_root_text(const char *path, const char *text)
{
	write_root_bytes(path, text, strlen(text));
}

static void make_folder(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", folder, path);
	assert_int_equal(mkdir(full, 0755), 0);
}

static void make_link(const char *path, const char *target)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", folder, path);
	assert_int_equal(symlink(target, full), 0);
}

static int set_up(void **state)
{
	static char large[100000];
	char full[256];

	(void)state;
	assert_non_null(mkdtemp(folder));
	write_root_text("secret", "secret\n");
	for (const char *const *path =
		     (const char *const[]){ "root", "root/sys", "root/sys/devices", "root/sys/devices/a",
					    "root/sys/bus", "root/many", "root/secret-not", NULL };
	     *path; path++)
		make_folder(*path);
	write_root_text("root/sys/devices/a/vendor", "0x10de\n");
	write_root_text("root/sys/devices/a/numa_node", "-1\n");
	write_root_text("root/sys/devices/a/width", "16");
	write_root_text("root/sys/devices/a/class", "020000 and more\n");
	write_root_text("root/sys/devices/a/words", "not a number\n");
	write_root_text("root/sys/devices/a/minus", " -5\n");
	write_root_text("root/sys/devices/a/large", "99999999999999999999999\n");
	write_root_text("root/sys/devices/a/empty", "");
	write_root_bytes("root/sys/devices/a/dirty", "a\033[31mb\tc\nd\0e  \n\n", 16);
	memset(large, 'x', sizeof(large));
	write_root_bytes("root/sys/devices/a/config", large, sizeof(large));
	make_link("root/sys/devices/a/driver", "../../bus/pci/drivers/mlx5_core");
	make_link("root/sys/bus/device", "/sys/devices/a");
	make_link("root/sys/bus/chain", "device");
	make_link("root/sys/bus/escape", "../../../../../../secret");
	make_link("root/sys/bus/absolute", "/secret");
	make_link("root/sys/bus/out", "../../..");
	make_link("root/sys/bus/loop", "loop2");
	make_link("root/sys/bus/loop2", "loop");
	make_link("root/sys/bus/null", "/dev/null");
	snprintf(full, sizeof(full), "%s/root/fifo", folder);
	assert_int_equal(mkfifo(full, 0644), 0);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(full, sizeof(full), "root/many/%u", i);
		write_root_text(full, "");
	}
	return 0;
}

static int tear_down(void **state)
{
	char command[256];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf '%s'", folder);
	return system(command);
}

static struct pl_sysroot *open_root(void **state)
{
	struct pl_sysroot *root;
	char path[256];

	snprintf(path, sizeof(path), "%s/root", folder);
	assert_int_equal(pl_sysroot_open_folder(&root, path, *(const bool *)*state, NULL), 0);
	assert_false(pl_sysroot_is_live(root));
	return root;
}

static void test_text(void **state)
{
	struct pl_sysroot *root = open_root(state);
	char text[64];

	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "/sys/devices/%s/vendor", "a"), 6);
	assert_string_equal(text, "0x10de");
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys//devices/./a/empty"), 0);
	assert_string_equal(text, "");
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/devices/a/dirty"), 13);
	assert_memory_equal(text, "a?[31mb\tc\nd?e", 14);
	assert_int_equal(pl_sysroot_text(root, text, 6, "sys/devices/a/vendor"), -EFBIG);
	assert_string_equal(text, "");
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/devices/a/none"), -ENOENT);
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/devices/a"), -EISDIR);
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/devices/a/vendor/x"), -ENOTDIR);
	pl_sysroot_close(root);
}

static void test_limits(void **state)
{
	struct pl_sysroot *root = open_root(state);
	char bytes[256], *data;
	size_t length;

	assert_int_equal(pl_sysroot_bytes(root, bytes, sizeof(bytes), "sys/devices/a/config"), sizeof(bytes));
	assert_int_equal(pl_sysroot_bytes(root, bytes, sizeof(bytes), "sys/devices/a/width"), 2);
	assert_int_equal(pl_sysroot_load(root, 99999, &data, &length, "sys/devices/a/config"), -EFBIG);
	assert_null(data);
	for (size_t limit = 100000; limit < 100003; limit++) {
		assert_int_equal(pl_sysroot_load(root, limit, &data, &length, "sys/devices/a/config"), 0);
		assert_int_equal(length, 100000);
		assert_int_equal(strlen(data), length);
		free(data);
	}
	assert_int_equal(pl_sysroot_load(root, 0, &data, &length, "sys/devices/a/empty"), 0);
	assert_int_equal(length, 0);
	free(data);
	assert_int_equal(pl_sysroot_text(root, bytes, sizeof(bytes), "%*s", PL_SYSROOT_PATH_MAX, "x"), -ENAMETOOLONG);
	pl_sysroot_close(root);
}

static void test_root_numbers(void **state)
{
	struct pl_sysroot *root = open_root(state);
	uint64_t value = 0;
	int64_t number = 0;

	assert_int_equal(pl_sysroot_number(root, 10, &value, "sys/devices/a/vendor"), 0);
	assert_int_equal(value, 0x10de);
	assert_int_equal(pl_sysroot_number(root, 16, &value, "sys/devices/a/width"), 0);
	assert_int_equal(value, 0x16);
	assert_int_equal(pl_sysroot_number(root, 10, &value, "sys/devices/a/class"), 0);
	assert_int_equal(value, 20000);
	for (const char *const *name = (const char *const[]){ "words", "minus", "empty", NULL }; *name; name++)
		assert_int_equal(pl_sysroot_number(root, 10, &value, "sys/devices/a/%s", *name), -EINVAL);
	assert_int_equal(pl_sysroot_number(root, 10, &value, "sys/devices/a/large"), -ERANGE);
	assert_int_equal(pl_sysroot_signed(root, &number, "sys/devices/a/numa_node"), 0);
	assert_int_equal(number, -1);
	assert_int_equal(pl_sysroot_signed(root, &number, "sys/devices/a/words"), -EINVAL);
	pl_sysroot_close(root);
}

static void test_links(void **state)
{
	struct pl_sysroot *root = open_root(state);
	char text[64];

	assert_true(pl_sysroot_link(root, text, sizeof(text), "sys/devices/a/driver") > 0);
	assert_string_equal(text, "../../bus/pci/drivers/mlx5_core");
	assert_true(pl_sysroot_link_name(root, text, sizeof(text), "sys/bus/chain/driver") > 0);
	assert_string_equal(text, "mlx5_core");
	assert_int_equal(pl_sysroot_link(root, text, 8, "sys/devices/a/driver"), -ENAMETOOLONG);
	assert_int_equal(pl_sysroot_link(root, text, sizeof(text), "sys/devices/a/vendor"), -EINVAL);
	assert_int_equal(pl_sysroot_resolve(root, text, sizeof(text), "sys/bus/chain/vendor"), 0);
	assert_string_equal(text, "sys/devices/a/vendor");
	assert_int_equal(pl_sysroot_resolve(root, text, sizeof(text), "/"), 0);
	assert_string_equal(text, "");
	assert_int_equal(pl_sysroot_resolve(root, text, sizeof(text), "sys/devices/a/driver"), -ENOENT);
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/bus/chain/vendor"), 6);
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/bus/chain/../a/vendor"), 6);
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "sys/bus/loop"), -ELOOP);
	assert_int_equal(pl_sysroot_resolve(root, text, sizeof(text), "sys/bus/loop"), -ELOOP);
	assert_int_equal(pl_sysroot_kind(root, "sys/bus/chain"), PL_SYSROOT_FOLDER);
	assert_int_equal(pl_sysroot_kind(root, "sys/bus/chain/vendor"), PL_SYSROOT_FILE);
	assert_false(pl_sysroot_exists(root, "sys/devices/a/driver"));
	assert_true(pl_sysroot_exists(root, "sys/bus/chain"));
	pl_sysroot_close(root);
}

/* Checks that every path out of the root ends at the root, as under chroot(2). */
static void test_nothing_outside(void **state)
{
	static const char *const paths[] = { "sys/bus/escape",     "sys/bus/absolute",   "../secret",
					     "sys/../../secret",   "sys/bus/out/secret", "sys/bus/out/../../secret",
					     "../../../etc/passwd" };
	struct pl_sysroot *root = open_root(state);
	char text[64];

	for (size_t i = 0; i < PL_ARRAY_SIZE(paths); i++)
		assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "%s", paths[i]), -ENOENT);
	assert_true(pl_sysroot_exists(root, "sys/bus/out/many"));
	assert_true(pl_sysroot_exists(root, "../../secret-not"));
	pl_sysroot_close(root);
}

static void test_nothing_blocks(void **state)
{
	struct pl_sysroot *root = open_root(state), *machine;
	char text[64];

	assert_int_equal(pl_sysroot_kind(root, "fifo"), PL_SYSROOT_OTHER);
	assert_int_equal(pl_sysroot_text(root, text, sizeof(text), "fifo"), -EINVAL);
	pl_sysroot_close(root);
	assert_int_equal(pl_sysroot_open(&machine, NULL, NULL), 0);
	assert_true(pl_sysroot_is_live(machine));
	assert_int_equal(pl_sysroot_text(machine, text, sizeof(text), "dev/zero"), -EINVAL);
	/* The mode of this file says regular, but a read waits for the next kernel message. */
	if (pl_sysroot_exists(machine, "proc/kmsg"))
		assert_true(pl_sysroot_text(machine, text, sizeof(text), "proc/kmsg") < 0);
	pl_sysroot_close(machine);
}

static void test_list(void **state)
{
	struct pl_sysroot *root = open_root(state);
	struct pl_sysroot_list list;

	assert_int_equal(pl_sysroot_list(root, &list, "sys/bus"), 0);
	assert_int_equal(list.count, 8);
	assert_string_equal(list.names[0], "absolute");
	assert_string_equal(list.names[7], "out");
	assert_false(list.cut);
	pl_sysroot_list_free(&list);
	assert_int_equal(pl_sysroot_list(root, &list, "many"), 0);
	assert_int_equal(list.count, 1000);
	for (size_t i = 1; i < list.count; i++)
		assert_true(strcmp(list.names[i - 1], list.names[i]) < 0);
	pl_sysroot_list_free(&list);
	assert_int_equal(pl_sysroot_list(root, &list, "sys/bus/none"), -ENOENT);
	assert_int_equal(pl_sysroot_list(root, &list, "sys/devices/a/vendor"), -ENOTDIR);
	assert_int_equal(list.count, 0);
	pl_sysroot_close(root);
}

static void test_no_root(void **state)
{
	struct pl_sysroot *root;
	struct pl_error error;

	(void)state;
	assert_int_equal(pl_sysroot_open(&root, "/no/such/folder", &error), -ENOENT);
	assert_string_equal(error.id, "SYSROOT-OPEN");
	assert_string_equal(error.object, "/no/such/folder");
}

#define BOTH(test) \
	{ #test ", kernel", test, NULL, NULL, &with_kernel }, \
	{ \
#test ", walked", test, NULL, NULL, &without_kernel \
	}

int main(void)
{
	static bool with_kernel = true, without_kernel = false;
	const struct CMUnitTest tests[] = {
		BOTH(test_text),
		BOTH(test_limits),
		BOTH(test_root_numbers),
		BOTH(test_links),
		BOTH(test_nothing_outside),
		BOTH(test_nothing_blocks),
		BOTH(test_list),
		cmocka_unit_test(test_no_root),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
