/* SPDX-License-Identifier: BSD-2-Clause */
/* Counts and functions of the stand-in card, which the program has loaded as libibverbs. */
#include <dlfcn.h>
#include <string.h>

#include "card/card.h"
#include "support/check.h"

void *card_function(const char *name)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *found = library ? dlsym(library, name) : NULL;

	check(found);
	dlclose(library);
	return found;
}

struct card_counts card_counts_now(void)
{
	void *found = card_function("standin_card_counts");
	struct card_counts (*read)(void);

	memcpy(&read, &found, sizeof(read));
	return read();
}

/* Copies the address of a function of the card. */
static void find_function(const char *name, void *function)
{
	void *found = card_function(name);

	memcpy(function, &found, sizeof(found));
}

void card_faults_next(enum card_fault fault, unsigned count)
{
	void (*next)(enum card_fault fault, unsigned count);

	find_function("standin_card_faults", &next);
	next(fault, count);
}

void card_fault_next(enum card_fault fault)
{
	card_faults_next(fault, 1);
}

void card_hold_received(struct ibv_cq *cq)
{
	void (*hold)(struct ibv_cq * cq);

	find_function("standin_card_hold_received", &hold);
	hold(cq);
}

void card_hold_requests(struct ibv_cq *cq)
{
	void (*hold)(struct ibv_cq * cq);

	find_function("standin_card_hold_requests", &hold);
	hold(cq);
}

void card_crowd(struct ibv_cq *cq, unsigned before)
{
	void (*crowd)(struct ibv_cq * cq, unsigned before);

	find_function("standin_card_crowd", &crowd);
	crowd(cq, before);
}

void card_hold_on(unsigned devices, size_t least)
{
	void (*hold)(unsigned devices, size_t least);

	find_function("standin_card_hold", &hold);
	hold(devices, least);
}

void card_hold(size_t least)
{
	card_hold_on(~0u, least);
}

void card_port(unsigned number, bool up)
{
	void (*set)(unsigned number, bool up);

	find_function("standin_card_port", &set);
	set(number, up);
}

void card_move_pkey(void)
{
	void (*move)(void);

	find_function("standin_card_move_pkey", &move);
	move();
}

void card_rename(unsigned number)
{
	void (*rename)(unsigned number);

	find_function("standin_card_rename", &rename);
	rename(number);
}

void card_refuse(unsigned devices, size_t least)
{
	void (*refuse)(unsigned devices, size_t least);

	find_function("standin_card_refuse", &refuse);
	refuse(devices, least);
}

unsigned card_held(void)
{
	unsigned (*count)(void);

	find_function("standin_card_held", &count);
	return count();
}

void card_hold_looks(bool held)
{
	void (*hold)(bool held);

	find_function("standin_card_hold_looks", &hold);
	hold(held);
}

void card_hold_opens(unsigned devices)
{
	void (*hold)(unsigned devices);

	find_function("standin_card_hold_opens", &hold);
	hold(devices);
}

void card_hold_calls(const char *function)
{
	void (*hold)(const char *function);

	find_function("standin_card_hold_calls", &hold);
	hold(function);
}

void card_fail_calls(const char *function)
{
	void (*fail)(const char *function);

	find_function("standin_card_fail_calls", &fail);
	fail(function);
}

unsigned card_looks_held(void)
{
	unsigned (*count)(void);

	find_function("standin_card_looks_held", &count);
	return count();
}

void card_remove(void)
{
	void (*remove)(bool returns);

	find_function("standin_card_remove", &remove);
	remove(true);
}

void card_show(unsigned count)
{
	void (*show)(unsigned count);

	find_function("standin_card_show", &show);
	show(count);
}

void card_hide(void)
{
	void (*remove)(bool returns);

	find_function("standin_card_remove", &remove);
	remove(false);
}
