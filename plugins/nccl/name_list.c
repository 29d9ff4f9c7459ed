/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of devices in environment variables. */
#include <stdlib.h>

#include "state.h"

/* True if an item "name" or "name:port" fits. A name without its end fits unless `whole`. */
static bool list_item_fits(const char *item, size_t length, const char *name, unsigned port, bool whole)
{
	size_t name_length = port ? strcspn(item, ":,") : length;

	name_length = PL_MIN(name_length, length);
	if (!name_length || strncmp(item, name, name_length) || (whole && name[name_length] != '\0'))
		return false;
	return name_length == length || strtoul(item + name_length + 1, NULL, 10) == port;
}

static bool list_fits(const char *list, const char *name, unsigned port, bool whole)
{
	while (*list) {
		size_t length = strcspn(list, ",");

		if (list_item_fits(list, length, name, port, whole))
			return true;
		list += length + (list[length] == ',');
	}
	return false;
}

bool name_list_selects(const char *list, const char *name, unsigned port)
{
	bool inverted = list[0] == '^', whole;

	list += inverted;
	whole = list[0] == '=';
	return list_fits(list + whole, name, port, whole) != inverted;
}

bool name_list_has(const char *list, const char *name, unsigned port)
{
	return list_fits(list, name, port, true);
}
