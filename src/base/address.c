/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#define HINT_FORMS "write host:port, [IPv6 address]:port or :port"
#define HINT_BRACKETS "write an IPv6 address in brackets, as in [::1]:7471"
#define HINT_PORT "the port is a number from 0 to 65535"

static int fail_address(struct pl_error *error, const char *text, const char *hint, const char *fact)
{
	return pl_fail(error, -EINVAL, "ADDRESS-SYNTAX", "parse address", text, hint, "%s", fact);
}

static bool parse_port(const char *text, char *port, size_t size)
{
	unsigned value = 0;
	size_t length = strspn(text, "0123456789");

	if (length == 0 || length > 5 || text[length])
		return false;
	for (size_t i = 0; i < length; i++)
		value = value * 10 + (unsigned)(text[i] - '0');
	if (value > UINT16_MAX)
		return false;
	snprintf(port, size, "%u", value);
	return true;
}

/* Accepts the characters of host names and IPv4 addresses. The resolver tells whether the host exists. */
static bool is_host(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '.' &&
		    c != '-' && c != '_')
			return false;
	}
	return true;
}

/* Accepts an IPv6 address, possibly with %scope: the name or number of an interface. */
static bool is_v6(const char *host)
{
	char address[INET6_ADDRSTRLEN];
	struct in6_addr binary;
	size_t length = strcspn(host, "%");
	const char *scope = host + length;

	if (length >= sizeof(address))
		return false;
	memcpy(address, host, length);
	address[length] = '\0';
	if (inet_pton(AF_INET6, address, &binary) != 1)
		return false;
	if (!*scope)
		return true;
	for (const char *c = ++scope; *c; c++)
		if (*c <= ' ' || *c > '~' || *c == '%' || *c == '[' || *c == '/')
			return false;
	return *scope != '\0';
}

/*
 * Copies the host and points *rest behind it. Returns false if the closing bracket is missing or the host is too long.
 */
static bool split_host(const char *text, struct pl_address_text *out, const char **rest)
{
	const char *begin = *text == '[' ? text + 1 : text;
	size_t length = strcspn(begin, *text == '[' ? "]" : ":");

	if (length >= sizeof(out->host) || (*text == '[' && !begin[length]))
		return false;
	memcpy(out->host, begin, length);
	out->host[length] = '\0';
	*rest = begin + length + (*text == '[');
	return true;
}

int pl_address_parse(const char *text, const char *default_port, struct pl_address_text *out, struct pl_error *error)
{
	const char *rest;

	if (!text || !*text)
		return fail_address(error, text, HINT_FORMS, "the address is empty");
	if (!split_host(text, out, &rest))
		return fail_address(error, text, HINT_FORMS, "the host is too long or lacks its closing bracket");
	if (*text == '[' ? !is_v6(out->host) : !is_host(out->host, strlen(out->host)))
		return fail_address(error, text, HINT_FORMS, "this is neither a host name nor an address");
	if (*text != '[' && *rest && strchr(rest + 1, ':'))
		return fail_address(error, text, HINT_BRACKETS, "there is more than one colon");
	if (*rest == ':') {
		if (!parse_port(rest + 1, out->port, sizeof(out->port)))
			return fail_address(error, text, HINT_PORT, "the port is not valid");
		return 0;
	}
	if (*rest)
		return fail_address(error, text, HINT_FORMS, "something other than a port follows the bracket");
	if (!default_port)
		return fail_address(error, text, HINT_FORMS, "there is no port");
	if (!parse_port(default_port, out->port, sizeof(out->port)))
		return fail_address(error, default_port, HINT_PORT, "the default port is not valid");
	return 0;
}

static int format_v6(const struct sockaddr_in6 *v6, char *buffer, size_t size)
{
	char host[INET6_ADDRSTRLEN], scope[16] = "";

	inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
	if (v6->sin6_scope_id)
		snprintf(scope, sizeof(scope), "%%%u", v6->sin6_scope_id);
	return snprintf(buffer, size, "[%s%s]:%u", host, scope, ntohs(v6->sin6_port));
}

int pl_address_format(const struct sockaddr *addr, char *buffer, size_t size)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
	char host[INET_ADDRSTRLEN];
	int length;

	/* Copies, because the storage behind a struct sockaddr need not have the alignment of the other types. */
	switch (addr->sa_family) {
	case AF_INET:
		memcpy(&v4, addr, sizeof(v4));
		inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
		length = snprintf(buffer, size, "%s:%u", host, ntohs(v4.sin_port));
		break;
	case AF_INET6:
		memcpy(&v6, addr, sizeof(v6));
		if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
			inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], host, sizeof(host));
			length = snprintf(buffer, size, "%s:%u", host, ntohs(v6.sin6_port));
		} else {
			length = format_v6(&v6, buffer, size);
		}
		break;
	default:
		if (size)
			buffer[0] = '\0';
		return -EAFNOSUPPORT;
	}
	return (size_t)length < size ? 0 : -ENOBUFS;
}

bool pl_address_is_loopback(const struct sockaddr *addr)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	switch (addr->sa_family) {
	case AF_INET:
		memcpy(&v4, addr, sizeof(v4));
		return ntohl(v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	case AF_INET6:
		memcpy(&v6, addr, sizeof(v6));
		if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
			return v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
		return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
	default:
		return false;
	}
}
