/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Both blobs: magic of 4 bytes, version, fields, sum of 4 bytes. Numbers are little-endian; strings follow a byte with
 * their length. The sum finds damage, not forgery: the agents' channel must be trusted, as the blobs contain tokens.
 */
#include "wire.h"

#include <peerlane/peerlane.h>

namespace peerlane_nixl
{
namespace
{

constexpr char AGENT_MAGIC[] = "PLNA";
constexpr char MEMORY_MAGIC[] = "PLNM";
constexpr uint8_t VERSION = 1;
constexpr size_t ADDRESSES_MAX = 16;
constexpr size_t SUM_SIZE = 4;

/* FNV-1a. */
uint32_t sum_bytes(const std::string &bytes, size_t count)
{
	uint32_t sum = 2166136261u;

	for (size_t i = 0; i < count; i++)
		sum = (sum ^ (uint8_t)bytes[i]) * 16777619u;
	return sum;
}

class writer
{
	std::string bytes;

public:
	explicit writer(const char *magic) : bytes(magic) { number(VERSION, 1); }

	void number(uint64_t value, int size)
	{
		for (int i = 0; i < size; i++)
			bytes.push_back((char)(value >> 8 * i));
	}

	void text(const std::string &value)
	{
		number(value.size(), 1);
		bytes += value;
	}

	std::string finish()
	{
		number(sum_bytes(bytes, bytes.size()), SUM_SIZE);
		return std::move(bytes);
	}
};

class reader
{
	const std::string &bytes;
	size_t at = 0;
	size_t end = 0;

public:
	bool good;

	reader(const std::string &all, const std::string &magic) : bytes(all), good(false)
	{
		if (all.size() < magic.size() + 1 + SUM_SIZE || all.compare(0, magic.size(), magic) != 0)
			return;
		good = true;
		at = all.size() - SUM_SIZE;
		end = all.size();
		if (number(SUM_SIZE) != sum_bytes(all, all.size() - SUM_SIZE))
			good = false;
		at = magic.size();
		end = all.size() - SUM_SIZE;
		if (number(1) != VERSION)
			good = false;
	}

	uint64_t number(size_t size)
	{
		uint64_t value = 0;

		if (!good || end - at < size) {
			good = false;
			return 0;
		}
		for (size_t i = 0; i < size; i++)
			value |= (uint64_t)(uint8_t)bytes[at++] << 8 * i;
		return value;
	}

	std::string text()
	{
		size_t length = number(1);
		std::string value;

		if (!good || end - at < length) {
			good = false;
			return value;
		}
		value = bytes.substr(at, length);
		at += length;
		return value;
	}

	bool finished() const { return good && at == end; }
};

bool token_is_valid(const std::string &token, uint64_t length)
{
	pl_token_info info;

	return pl_token_inspect(token.data(), token.size(), &info, nullptr) == 0 && info.region_length == length;
}

} // namespace

std::string encode(const agent_card &card)
{
	writer out(AGENT_MAGIC);

	out.number(card.addresses.size(), 1);
	for (const std::string &address : card.addresses)
		out.text(address);
	out.text(card.token);
	return out.finish();
}

bool decode(const std::string &bytes, agent_card &card)
{
	reader in(bytes, AGENT_MAGIC);
	size_t count = in.number(1);

	if (count < 1 || count > ADDRESSES_MAX)
		return false;
	card.addresses.clear();
	for (size_t i = 0; i < count; i++)
		card.addresses.push_back(in.text());
	card.token = in.text();
	pl_token_info info;
	return in.finished() && pl_token_inspect(card.token.data(), card.token.size(), &info, nullptr) == 0;
}

std::string encode(const memory_card &card)
{
	writer out(MEMORY_MAGIC);

	out.number(card.gpu, 1);
	out.number(card.address, 8);
	out.number(card.length, 8);
	out.text(card.token);
	return out.finish();
}

bool decode(const std::string &bytes, memory_card &card)
{
	reader in(bytes, MEMORY_MAGIC);

	card.gpu = in.number(1) != 0;
	card.address = in.number(8);
	card.length = in.number(8);
	card.token = in.text();
	return in.finished() && card.address + card.length >= card.address && token_is_valid(card.token, card.length);
}

} // namespace peerlane_nixl
