/* SPDX-License-Identifier: BSD-2-Clause */
/* Counters of cards' ports, read from folders in place of /sys: before and after a measurement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "bench/counters/counters.h"
#include "topology/sysroot.h"

#define ROOT_MAX 64
#define PORT "ports/1"

/* Writes a file of a device, such as "ports/1/counters/symbol_error", and the folders above it. */
static void write_device_file(const char *root, const char *device, const char *name, const char *text)
{
	char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/sys/class/infiniband/%s/%s", root, device, name);
	for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		mkdir(path, 0700);
		*at = '/';
	}
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void remove_device_path(const char *root, const char *name)
{
	char command[300];

	snprintf(command, sizeof(command), "rm -rf '%s/sys/class/infiniband/%s'", root, name);
	assert_int_equal(system(command), 0);
}

static int make_counter_root(void **state)
{
	char *root = strdup("/tmp/bench_counters.XXXXXX");

	*state = root;
	return root && mkdtemp(root) ? 0 : -1;
}

static int remove_counter_root(void **state)
{
	char command[ROOT_MAX + 16];

	snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
	free(*state);
	return system(command);
}

static struct card_ports ports_of(const char *root, const char *const *names)
{
	struct card_ports ports = { .count = 0 };
	struct pl_sysroot *opened;

	assert_int_equal(pl_sysroot_open(&opened, root, NULL), 0);
	for (; *names; names++)
		card_ports_add(&ports, opened, *names);
	pl_sysroot_close(opened);
	return ports;
}

static void begin_watch(struct card_watch *watch, const char *root, const char *name)
{
	struct card_ports ports = ports_of(root, (const char *const[]){ name, NULL });

	card_watch_open(watch, root);
	assert_string_equal(watch->unreadable, "");
	card_watch_begin(watch, &ports);
}

/* Ends the watch; returns the changes as JSON on one line. */
static char *end_watch(struct card_watch *watch)
{
	struct card_counters *changes = card_watch_end(watch);
	struct json_object *object = card_counters_json(changes);
	char *text = object ? strdup(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN)) : NULL;

	json_object_put(object);
	card_counters_free(changes);
	card_watch_close(watch);
	return text;
}

static void check_changes(struct card_watch *watch, const char *expected)
{
	char *text = end_watch(watch);

	assert_non_null(text);
	assert_string_equal(text, expected);
	free(text);
}

static void test_changes_are_differences_by_folder(void **state)
{
	struct card_watch watch;

	write_device_file(*state, "mlx5_0", PORT "/hw_counters/out_of_sequence", "7\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/packet_seq_err", "3\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/lifespan", "10\n");
	write_device_file(*state, "mlx5_0", PORT "/counters/port_xmit_packets", "18446744073709551610\n");
	write_device_file(*state, "mlx5_0", "ports/2/hw_counters/out_of_sequence", "1\n");
	begin_watch(&watch, *state, "mlx5_0:1");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/out_of_sequence", "12\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/lifespan", "20\n");
	write_device_file(*state, "mlx5_0", PORT "/counters/port_xmit_packets", "18446744073709551615\n");
	write_device_file(*state, "mlx5_0", "ports/2/hw_counters/out_of_sequence", "100\n");
	check_changes(&watch, "[{\"device\":\"mlx5_0\",\"port\":1,\"hw_counters\":{\"out_of_sequence\":5},"
			      "\"counters\":{\"port_xmit_packets\":5},\"fell\":[]}]");
}

static void test_data_counters_become_bytes(void **state)
{
	struct card_watch watch;

	write_device_file(*state, "mlx5_0", PORT "/counters/port_xmit_data", "100\n");
	write_device_file(*state, "mlx5_0", PORT "/counters/port_rcv_data", "0\n");
	/* Only the specification's counters are in units of 4 bytes. */
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/port_rcv_data", "0\n");
	begin_watch(&watch, *state, "mlx5_0:1");
	write_device_file(*state, "mlx5_0", PORT "/counters/port_xmit_data", "350\n");
	write_device_file(*state, "mlx5_0", PORT "/counters/port_rcv_data", "18446744073709551615\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/port_rcv_data", "9\n");
	check_changes(&watch, "[{\"device\":\"mlx5_0\",\"port\":1,\"hw_counters\":{\"port_rcv_data\":9},"
			      "\"counters\":{\"port_rcv_bytes\":18446744073709551612,\"port_xmit_bytes\":1000},"
			      "\"fell\":[]}]");
}

static void test_a_counter_that_fell_has_no_difference(void **state)
{
	struct card_watch watch;

	write_device_file(*state, "mlx5_0", PORT "/counters/port_rcv_data", "18446744073709551615\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/active_qps", "5\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/rx_pkts", "5\n");
	begin_watch(&watch, *state, "mlx5_0:1");
	write_device_file(*state, "mlx5_0", PORT "/counters/port_rcv_data", "4\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/active_qps", "4\n");
	write_device_file(*state, "mlx5_0", PORT "/hw_counters/rx_pkts", "6\n");
	check_changes(&watch, "[{\"device\":\"mlx5_0\",\"port\":1,\"hw_counters\":{\"rx_pkts\":1},\"counters\":{},"
			      "\"fell\":[\"active_qps\",\"port_rcv_bytes\"]}]");
}

static void test_files_without_a_number_are_left_out(void **state)
{
	static const char *const junk[] = {
		"", "\n", "N/A (no PMA)\n", "-3\n", "12 and more\n", "0x10\n", "18446744073709551616\n", " \xff\xfe\n"
	};
	struct card_watch watch;
	char name[64], deep[300];

	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		snprintf(name, sizeof(name), PORT "/hw_counters/junk%zu", i);
		write_device_file(*state, "rxe0", name, junk[i]);
	}
	write_device_file(*state, "rxe0", PORT "/hw_counters/folder/sent_pkts", "1\n");
	snprintf(deep, sizeof(deep), PORT "/hw_counters/%0*d", CARD_NAME_MAX, 1);
	write_device_file(*state, "rxe0", deep, "1\n");
	write_device_file(*state, "rxe0", PORT "/hw_counters/gone", "1\n");
	write_device_file(*state, "rxe0", PORT "/hw_counters/sent_pkts", "1\n");
	write_device_file(*state, "rxe0", PORT "/hw_counters/turns_junk", "1\n");
	begin_watch(&watch, *state, "rxe0:1");
	for (size_t i = 0; i < sizeof(junk) / sizeof(junk[0]); i++) {
		snprintf(name, sizeof(name), PORT "/hw_counters/junk%zu", i);
		write_device_file(*state, "rxe0", name, "99\n");
	}
	write_device_file(*state, "rxe0", deep, "2\n");
	remove_device_path(*state, "rxe0/" PORT "/hw_counters/gone");
	write_device_file(*state, "rxe0", PORT "/hw_counters/new", "5\n");
	write_device_file(*state, "rxe0", PORT "/hw_counters/sent_pkts", "4\n");
	write_device_file(*state, "rxe0", PORT "/hw_counters/turns_junk", "junk\n");
	check_changes(&watch, "[{\"device\":\"rxe0\",\"port\":1,\"hw_counters\":{\"sent_pkts\":3},\"counters\":{},"
			      "\"fell\":[]}]");
}

static void test_missing_folders_give_the_reason(void **state)
{
	struct card_watch watch;

	write_device_file(*state, "rxe0", PORT "/state", "4: ACTIVE\n");
	begin_watch(&watch, *state, "rxe0:1");
	assert_null(card_watch_end(&watch));
	assert_string_equal(watch.unreadable, "/sys/class/infiniband/rxe0/ports/1 has no readable counters");
	card_watch_close(&watch);

	begin_watch(&watch, *state, "none:1");
	assert_null(end_watch(&watch));
	assert_string_equal(watch.unreadable, "/sys/class/infiniband/none/ports/1 has no readable counters");

	/* The device goes during the measurement. */
	write_device_file(*state, "rxe0", PORT "/hw_counters/sent_pkts", "1\n");
	begin_watch(&watch, *state, "rxe0:1");
	remove_device_path(*state, "rxe0");
	assert_null(end_watch(&watch));
	assert_string_not_equal(watch.unreadable, "");

	card_watch_open(&watch, "/nonexistent");
	assert_string_not_equal(watch.unreadable, "");
	card_watch_begin(&watch, &(struct card_ports){ .list = { { "rxe0", 1 } }, .count = 1 });
	assert_null(end_watch(&watch));
}

/* A connection over tcp has no ports, and is no reason for UNKNOWN. */
static void test_no_ports_have_no_counters(void **state)
{
	struct card_watch watch;

	card_watch_open(&watch, *state);
	card_watch_begin(&watch, &(struct card_ports){ .count = 0 });
	assert_null(card_watch_end(&watch));
	assert_string_equal(watch.unreadable, "");
	card_watch_close(&watch);
}

static void test_names_of_ports(void **state)
{
	static const char *const names[] = { "mlx5_1:2", "rxe0:1", "mlx5_1:2", "rxe0", "rxe0:",
					     "rxe0:x",   "rxe0:0", "rxe0:256", ":1",   "",
					     "../x:1",   "a/b:1",  ".:1",      "none", NULL };
	struct card_ports ports;

	write_device_file(*state, "rxe0", "ports/1/state", "4: ACTIVE\n");
	write_device_file(*state, "rxe0", "ports/3/state", "4: ACTIVE\n");
	write_device_file(*state, "rxe0", "ports/no-number/state", "4: ACTIVE\n");
	ports = ports_of(*state, names);
	assert_int_equal(ports.count, 3);
	assert_string_equal(ports.list[0].device, "mlx5_1");
	assert_int_equal(ports.list[0].number, 2);
	assert_string_equal(ports.list[1].device, "rxe0");
	assert_int_equal(ports.list[1].number, 1);
	assert_string_equal(ports.list[2].device, "rxe0");
	assert_int_equal(ports.list[2].number, 3);
}

static void test_more_ports_than_there_is_room(void **state)
{
	struct card_ports ports = { .count = 0 };
	char name[32];

	(void)state;
	for (unsigned i = 0; i < CARD_PORTS_MAX + 3; i++) {
		snprintf(name, sizeof(name), "mlx5_%u:1", i);
		card_ports_add(&ports, NULL, name);
	}
	assert_int_equal(ports.count, CARD_PORTS_MAX);
}

/* The kernel returns the same values again for the time in `lifespan`. */
static void test_the_end_waits_for_new_values(void **state)
{
	struct card_watch watch;
	struct card_counters *changes;
	uint64_t begun;

	write_device_file(*state, "rxe0", PORT "/hw_counters/sent_pkts", "1\n");
	write_device_file(*state, "rxe0", PORT "/hw_counters/lifespan", "50\n");
	begin_watch(&watch, *state, "rxe0:1");
	begun = watch.before->time;
	assert_int_equal(watch.before->lifespan, 50000000);
	write_device_file(*state, "rxe0", PORT "/hw_counters/lifespan", "0\n");
	changes = card_watch_end(&watch);
	assert_non_null(changes);
	assert_true(changes->time - begun >= 50000000);
	card_counters_free(changes);
	card_watch_close(&watch);
}

static char *troubles_of(const struct card_counters *const *results, unsigned count)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	assert_non_null(file);
	card_troubles_print(file, results, count);
	assert_int_equal(fclose(file), 0);
	return text;
}

/* Returns the changes at a port from a text to another text of one counter, beside one that tells of no trouble. */
static struct card_counters *changes_of(const char *root, const char *device, const char *name, const char *from,
					const char *to)
{
	struct card_watch watch;
	struct card_counters *changes;
	char port[CARD_NAME_MAX], path[128];

	snprintf(port, sizeof(port), "%.32s:1", device);
	snprintf(path, sizeof(path), PORT "/%s", name);
	write_device_file(root, device, path, from);
	write_device_file(root, device, PORT "/hw_counters/sent_pkts", "1\n");
	begin_watch(&watch, root, port);
	write_device_file(root, device, path, to);
	write_device_file(root, device, PORT "/hw_counters/sent_pkts", "9\n");
	changes = card_watch_end(&watch);
	card_watch_close(&watch);
	assert_non_null(changes);
	return changes;
}

static void test_a_line_for_each_port_with_trouble(void **state)
{
	struct card_counters *results[] = {
		changes_of(*state, "mlx5_0", "hw_counters/out_of_sequence", "1\n", "6\n"),
		NULL,
		changes_of(*state, "mlx5_0", "counters/symbol_error", "0\n", "2\n"),
		changes_of(*state, "mlx5_0", "hw_counters/out_of_sequence", "6\n", "7\n"),
		changes_of(*state, "mlx5_1", "hw_counters/rp_cnp_handled", "0\n", "4\n"),
		changes_of(*state, "rxe0", "hw_counters/out_of_seq_request", "3\n", "3\n"),
		changes_of(*state, "rxe0", "hw_counters/rcvd_seq_err", "3\n", "1\n"),
	};
	char *text = troubles_of((const struct card_counters *const *)results, 7);

	assert_string_equal(text, "trouble at mlx5_0:1: out_of_sequence 6 (packets arrived out of order), "
				  "symbol_error 2 (minor errors on the link)\n"
				  "trouble at mlx5_1:1: rp_cnp_handled 4 (this end slowed down: congestion)\n");
	free(text);
	for (size_t i = 0; i < 7; i++)
		card_counters_free(results[i]);
}

static void test_each_trouble_has_a_meaning_and_stands_once(void **state)
{
	(void)state;
	for (const struct card_trouble *one = card_troubles; one->name; one++) {
		assert_true(strlen(one->meaning) > 10);
		for (const struct card_trouble *other = one + 1; other->name; other++)
			assert_string_not_equal(one->name, other->name);
	}
}

#define WITH_ROOT(test) cmocka_unit_test_setup_teardown(test, make_counter_root, remove_counter_root)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_ROOT(test_changes_are_differences_by_folder),
		WITH_ROOT(test_data_counters_become_bytes),
		WITH_ROOT(test_a_counter_that_fell_has_no_difference),
		WITH_ROOT(test_files_without_a_number_are_left_out),
		WITH_ROOT(test_missing_folders_give_the_reason),
		WITH_ROOT(test_no_ports_have_no_counters),
		WITH_ROOT(test_names_of_ports),
		cmocka_unit_test(test_more_ports_than_there_is_room),
		WITH_ROOT(test_the_end_waits_for_new_values),
		WITH_ROOT(test_a_line_for_each_port_with_trouble),
		cmocka_unit_test(test_each_trouble_has_a_meaning_and_stands_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
