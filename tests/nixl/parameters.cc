/* SPDX-License-Identifier: BSD-2-Clause */
#include "parameters.h"

#include <cstdlib>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stand_in.h"
#include "wire.h"

/* Folder with key files, in which the case runs. */
class key_folder
{
	char path[32] = "/tmp/test_nixl.XXXXXX";

public:
	key_folder()
	{
		check(mkdtemp(path) && chdir(path) == 0);
		write("good", "kQ7vX2pL9mR4tY8wB3nZ6cF1\n");
		write("same", "kQ7vX2pL9mR4tY8wB3nZ6cF1");
		write("other", "hT5sD8jW2gK6yN4xV9bM3qP7\n");
		write("short", "kQ7vX2pL9mR4tY8\n");
		write("weak", "a text of people\n");
		write("public", "kQ7vX2pL9mR4tY8wB3nZ6cF1\n");
		check_number(chmod("public", 0644), 0);
	}
	~key_folder()
	{
		for (const char *name : { "good", "same", "other", "short", "weak", "public" })
			unlink(name);
		check(chdir("/") == 0 && rmdir(path) == 0);
	}

private:
	static void write(const char *name, const char *text)
	{
		std::ofstream(name) << text;
		check_number(chmod(name, 0600), 0);
	}
};

static std::string first_address(const stand_in &agent)
{
	peerlane_nixl::agent_card card;

	check(peerlane_nixl::decode(agent.info(), card));
	return card.addresses.at(0);
}

/* Notifies the other agent, and checks its answer and if the notification arrives. */
static void check_notify(stand_in &agent, stand_in &other, nixl_status_t expected)
{
	check_number(agent.engine->loadRemoteConnInfo(other.name, other.info()), NIXL_SUCCESS);
	check_number(agent.engine->genNotif(other.name, "from " + agent.name), expected);
	if (expected == NIXL_SUCCESS)
		check(other.notice().second == "from " + agent.name);
	check(!other.has_notice());
}

/* Writes the key to a pipe in two parts. The second one comes when the first one has been read. */
static void write_parts()
{
	int fd = open("parts", O_WRONLY), left = 1;

	check(fd >= 0 && write(fd, "kQ7vX2pL9", 9) == 9);
	while (left) {
		usleep(1000);
		check_number(ioctl(fd, FIONREAD, &left), 0);
	}
	check_number(write(fd, "mR4tY8wB3nZ6cF1\n", 16), 16);
	close(fd);
}

/* Text that an engine with wrong parameters writes to standard error. */
static std::string refusal(const nixl_b_params_t &wrong)
{
	int log = open("log", O_RDWR | O_CREAT | O_TRUNC, 0600), saved = dup(STDERR_FILENO);

	check(log >= 0 && saved >= 0 && dup2(log, STDERR_FILENO) >= 0);
	bool refused = stand_in("bad", wrong).engine->getInitErr();
	check(dup2(saved, STDERR_FILENO) >= 0 && refused);
	close(saved);
	close(log);
	std::ifstream written("log");
	std::string text{ std::istreambuf_iterator<char>(written), {} };
	unlink("log");
	return text;
}

/* The parameter key_file: agents with the same key connect, those with another key or none are refused. */
void test_keys(void *)
{
	key_folder folder;
	auto with = [](const char *file) {
		return parameters_of((std::string("fabric=tcp address=127.0.0.1:0 key_file=") + file).c_str());
	};
	{
		stand_in two("two", with("good")), same("same", with("same")), other("other", with("other"));
		stand_in none("none", parameters_of("fabric=tcp"));
		check_notify(same, two, NIXL_SUCCESS);
		check_notify(other, two, NIXL_ERR_REMOTE_DISCONNECT);
		check_notify(none, two, NIXL_ERR_REMOTE_DISCONNECT);
		check_notify(two, other, NIXL_ERR_REMOTE_DISCONNECT);
		check_number(mkfifo("parts", 0600), 0);
		std::thread writer(write_parts);
		stand_in parts("parts", with("parts"));
		writer.join();
		unlink("parts");
		check_notify(parts, two, NIXL_SUCCESS);
	}
	check(refusal(with("short")).find("[KEY-FILE-LENGTH]") != std::string::npos);
	check(refusal(with("weak")).find("[KEY-FILE-WEAK]") != std::string::npos);
	check(refusal(with("nowhere")).find("[KEY-FILE-MISSING]") != std::string::npos);
	check(refusal(with("public")).find("`chmod o= public`") != std::string::npos);
	/* A group may read a file of root only. Root can give files away, which then belong to another user. */
	check_number(chmod("same", 0640), 0);
	check_number(stand_in("group", with("same")).engine->getInitErr(), geteuid() != 0);
	if (geteuid() == 0) {
		check_number(chown("same", 65534, (gid_t)-1), 0);
		check(stand_in("bad", with("same")).engine->getInitErr());
	}
}

/* The variables of the key and of the address act as the parameters do, which win over them. */
void test_variables(void *)
{
	key_folder folder;
	nixl_b_params_t none = parameters_of("fabric=tcp"), given = none;

	given["address"] = "127.0.0.3:0";
	given["key_file"] = "good";
	stand_in two("two", given);
	check(first_address(two).rfind("127.0.0.3:", 0) == 0);
	setenv("PEERLANE_NIXL_ADDRESS", "127.0.0.2:0", 1);
	setenv("PEERLANE_KEY_FILE", "same", 1);
	{
		stand_in same("same", none);
		check(first_address(same).rfind("127.0.0.2:", 0) == 0);
		check_notify(same, two, NIXL_SUCCESS);
		check_notify(two, same, NIXL_SUCCESS);
	}
	setenv("PEERLANE_KEY_FILE", "other", 1);
	{
		stand_in other("other", none), both("both", given);
		check_notify(other, two, NIXL_ERR_REMOTE_DISCONNECT);
		check(first_address(both).rfind("127.0.0.3:", 0) == 0);
		check_notify(both, two, NIXL_SUCCESS);
	}
	setenv("PEERLANE_KEY_FILE", "public", 1);
	check(stand_in("bad", none).engine->getInitErr());
	setenv("PEERLANE_KEY_FILE", "good", 1);
	setenv("PEERLANE_NIXL_ADDRESS", "nowhere.invalid:0", 1);
	check(stand_in("bad", none).engine->getInitErr());
}
