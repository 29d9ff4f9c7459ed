/* SPDX-License-Identifier: BSD-2-Clause */
/* Contexts of subcommands: options of the library, addresses. */
#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/common/cli.h"

/* Fills the path of a file in the folder of the user's settings.  Returns 0, -ENOENT without a home, -ENAMETOOLONG. */
static int find_settings_file(const char *name, char *path, size_t size)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int length;

	if (config && config[0] == '/')
		length = snprintf(path, size, "%s/peerlane/%s", config, name);
	else if (home && home[0] == '/')
		length = snprintf(path, size, "%s/.config/peerlane/%s", home, name);
	else
		return -ENOENT;
	return (size_t)length < size ? 0 : -ENAMETOOLONG;
}

/* The default file of known hosts. */
static int find_known_hosts(char *path, size_t size, struct pl_error *error)
{
	int rc = find_settings_file("known_hosts", path, size);

	if (rc == -ENOENT)
		return cli_fail(error, rc, "KNOWN-HOSTS-FILE", NULL, "name the file with --known-hosts",
				"neither XDG_CONFIG_HOME nor HOME is set");
	return rc < 0 ? cli_fail_errno(error, rc, "open", "known_hosts") : 0;
}

int cli_make_folders(const char *path, struct pl_error *error)
{
	char folder[PATH_MAX];

	snprintf(folder, sizeof(folder), "%s", path);
	for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(folder, 0700) < 0 && errno != EEXIST)
			return cli_fail_errno(error, -errno, "mkdir", folder);
		*slash = '/';
	}
	return 0;
}

int cli_make_settings_folders(const char *path, struct pl_error *error)
{
	char folder[PATH_MAX];

	if (find_settings_file("", folder, sizeof(folder)) < 0 || strncmp(path, folder, strlen(folder)) != 0)
		return 0;
	return cli_make_folders(path, error);
}

/* Fills the options about identities.  `known_hosts` has room for the default path. */
static int fill_identity_options(const struct cli_options *options, struct pl_options *library,
				 char known_hosts[PATH_MAX], struct pl_error *error)
{
	bool wanted = options->known_hosts || options->trust_new ||
		      (options->identity && !options->peer && !options->authority && !options->authorized);
	int rc = 0;

	library->identity = options->identity;
	library->expected = options->peer;
	library->authority = options->authority;
	library->authorized = options->authorized;
	library->authorize = options->authorize;
	library->refused = options->refused;
	library->authorize_user = library->refused_user = options->trust_user;
	library->trust_new = options->trust_new ? PL_ON : PL_DEFAULT;
	if (wanted && options->known_hosts)
		snprintf(known_hosts, PATH_MAX, "%s", options->known_hosts);
	else if (wanted)
		rc = find_known_hosts(known_hosts, PATH_MAX, error);
	if (wanted && rc == 0) {
		library->known_hosts = known_hosts;
		if (options->trust_new)
			rc = cli_make_folders(known_hosts, error);
	}
	return rc;
}

/* Keys of --key and --old-key. */
struct key_files {
	uint8_t key[PL_KEY_MAX], old_key[PL_KEY_MAX];
	size_t key_length, old_key_length; /* 0: none */
};

static int read_key_files(const struct cli_options *options, struct key_files *files, struct pl_error *error)
{
	int rc;

	files->key_length = files->old_key_length = 0;
	if (options->old_key_file && !options->key_file)
		return cli_fail(error, -EINVAL, "OLD-KEY-ALONE", "--old-key", "add --key FILE with the new key",
				"an old key needs a new one");
	if (options->key_file) {
		rc = pl_key_file_read(options->key_file, files->key, error);
		if (rc < 0)
			return rc;
		files->key_length = (size_t)rc;
	}
	if (options->old_key_file) {
		rc = pl_key_file_read(options->old_key_file, files->old_key, error);
		if (rc < 0)
			return rc;
		files->old_key_length = (size_t)rc;
	}
	return 0;
}

bool cli_authenticates(const struct cli_options *options)
{
	return options->key_file || options->authorized || options->authority;
}

int cli_open(struct pl_context **context, const struct cli_options *options, enum pl_progress progress,
	     struct pl_error *error)
{
	struct pl_options library = PL_OPTIONS_INIT;
	char known_hosts[PATH_MAX];
	struct key_files keys;
	int rc = read_key_files(options, &keys, error);

	if (rc == 0)
		rc = fill_identity_options(options, &library, known_hosts, error);
	if (rc == 0 && options->encrypt == PL_ON && !keys.key_length && !options->identity && !options->peer &&
	    !library.known_hosts && !cli_authenticates(options))
		rc = cli_fail(error, -EINVAL, "ENCRYPT-NO-KEY", "--encrypt",
			      "add --key FILE, with the same key at both ends", "encryption needs a key or an identity");
	if (rc < 0)
		goto out;
	library.key = keys.key_length ? keys.key : NULL;
	library.key_length = keys.key_length;
	library.old_key = keys.old_key_length ? keys.old_key : NULL;
	library.old_key_length = keys.old_key_length;
	library.progress = progress;
	library.lanes = options->lanes;
	library.fabric = options->fabric;
	library.rails = options->rails;
	library.topology = options->topology;
	library.narrow_grants = options->narrow;
	library.traffic_class = options->traffic_class;
	library.service_level = options->service_level;
	library.gid_index = options->gid_index;
	library.pkey = options->pkey;
	library.ack_timeout = options->ack_timeout;
	library.retries = options->retries;
	library.rnr_timer = options->rnr_timer;
	library.gpu_multiprocessors = options->gpu_multiprocessors;
	library.peers_max = options->peers_max;
	library.peers_rate = options->peers_rate;
	library.program = options->program;
	library.devices = options->devices;
	library.encrypt_data = options->encrypt;
	library.insecure = options->insecure ? PL_ON : PL_DEFAULT;
	library.keep_bytes = options->keep;
	library.keep_host = options->keep > 0 ? PL_ON : PL_DEFAULT;
	library.keepalive = options->keepalive;
	library.staging_bytes = options->staging;
	library.operation_timeout = library.connect_timeout = options->timeout;
	rc = pl_open(context, &library, error);
out:
	explicit_bzero(&keys, sizeof(keys));
	return rc;
}

int cli_reload(struct pl_context *context, const struct cli_options *options, struct pl_error *error)
{
	struct pl_credentials credentials = PL_CREDENTIALS_INIT;
	struct key_files keys;
	int rc = read_key_files(options, &keys, error);

	if (rc == 0) {
		credentials.key = keys.key_length ? keys.key : NULL;
		credentials.key_length = keys.key_length;
		credentials.old_key = keys.old_key_length ? keys.old_key : NULL;
		credentials.old_key_length = keys.old_key_length;
		rc = pl_context_reload(context, &credentials, error);
	}
	explicit_bzero(&keys, sizeof(keys));
	return rc;
}

/* True if the text ends in a port.  A colon inside brackets, or one of several colons, belongs to an IPv6 address. */
static bool address_has_port(const char *text)
{
	const char *colon = strrchr(text, ':'), *bracket = strrchr(text, ']');

	if (bracket)
		return colon && colon > bracket;
	return colon && colon == strchr(text, ':');
}

/*
 * True if the text is an IPv6 address and a port without brackets; copies the address.  A text that is an address as a whole,
 * such as fe80::1:7902, is one, except behind ::1, the loopback: no host has ::1:7902.
 */
static bool address_lacks_brackets(const char *text, char host[INET6_ADDRSTRLEN])
{
	const char *colon = strrchr(text, ':');
	size_t length = colon ? (size_t)(colon - text) : 0, digits = colon ? strspn(colon + 1, "0123456789") : 0;
	struct in6_addr address;

	if (!digits || digits > 5 || colon[1 + digits] || length >= INET6_ADDRSTRLEN)
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	return inet_pton(AF_INET6, host, &address) == 1 &&
	       (IN6_IS_ADDR_LOOPBACK(&address) || inet_pton(AF_INET6, text, &address) != 1);
}

int cli_address(const char *text, char *buffer, size_t size, struct pl_error *error)
{
	bool ipv6_without_port = text[0] != '[' && strchr(text, ':') != strrchr(text, ':');
	char host[INET6_ADDRSTRLEN];
	int length;

	if (address_lacks_brackets(text, host)) {
		cli_fail(error, -EINVAL, "ADDRESS-SYNTAX", text, NULL,
			 "an IPv6 address needs brackets before its port");
		snprintf(error->hint, sizeof(error->hint), "write [%s]%s", host, strrchr(text, ':'));
		return -EINVAL;
	}
	if (ipv6_without_port)
		length = snprintf(buffer, size, "[%s]:" CLI_DEFAULT_PORT, text);
	else
		length = snprintf(buffer, size, address_has_port(text) ? "%s" : "%s:" CLI_DEFAULT_PORT, text);
	if ((size_t)length >= size)
		return cli_fail(error, -EINVAL, "ADDRESS-SYNTAX", text, "write HOST:PORT", "the address is too long");
	return 0;
}

int cli_expect_program(struct pl_peer *peer, const char *program, const char *address, struct pl_error *error)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc = pl_peer_query(peer, &info);

	if (rc < 0 || !strcmp(info.program, program))
		return rc < 0 ? cli_fail_errno(error, rc, "pl_peer_query", address) : 0;
	rc = cli_fail(error, -EPROTO, "OTHER-PROGRAM", address, NULL, "%s%s%s listens there, not `%s`",
		      info.program[0] ? "`" : "another program", info.program, info.program[0] ? "`" : "", program);
	snprintf(error->hint, sizeof(error->hint), "start `%s` at another port, and give its address", program);
	return rc;
}
