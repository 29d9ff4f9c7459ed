/* SPDX-License-Identifier: BSD-2-Clause */
/* Cells and scale of heat maps: parts of the usual value, or changes beyond the noise. */
#include <stdlib.h>

#include "report/host_map.h"

#define LEVELS 61u      /* colours of the scale */
#define SCALE_WORST 0.5 /* of the usual value; slower pairs have the colour of this */
#define SCALE_BEST 1.05
#define NOISE_FACTOR 4  /* standard deviations that are no change of a cell */
#define CHANGE_MIN 1.03 /* smaller changes do not count */
#define CHANGE_MOST 2.0 /* larger changes have the colour of this */

static const struct report_colour scale_colours[] = {
	{ 0x8c, 0x1d, 0x40 }, { 0xb0, 0x41, 0x3a }, { 0xcb, 0x63, 0x38 }, { 0xdd, 0x88, 0x43 }, { 0xe8, 0xac, 0x5c },
	{ 0xd9, 0xc7, 0x7a }, { 0xb5, 0xd0, 0x8f }, { 0x97, 0xd3, 0xa1 }, { 0xa7, 0xe0, 0xbd }, { 0xc4, 0xee, 0xd6 },
};

/* Worse, no change beyond the noise, better: not red and green alone, which some people cannot tell apart. */
static const struct report_colour change_colours[] = {
	{ 0x8c, 0x1d, 0x40 }, { 0xcb, 0x63, 0x38 }, { 0xee, 0xee, 0xea }, { 0x5b, 0x9b, 0xd5 }, { 0x1c, 0x4e, 0x9c },
};

static struct report_colour blend_colours(const struct host_map *map, double at)
{
	const struct report_colour *scale = map->before ? change_colours : scale_colours;
	size_t last = (map->before ? CLI_ARRAY_SIZE(change_colours) : CLI_ARRAY_SIZE(scale_colours)) - 1;
	size_t low = (size_t)(at * (double)last);
	double part = at * (double)last - (double)CLI_MIN(low, last - 1);
	const struct report_colour *a = &scale[CLI_MIN(low, last - 1)], *b = a + 1;

	return (struct report_colour){ (uint8_t)(a->red + part * (b->red - a->red)),
				       (uint8_t)(a->green + part * (b->green - a->green)),
				       (uint8_t)(a->blue + part * (b->blue - a->blue)) };
}

double host_map_part(const struct host_map *map, double value)
{
	double usual;

	/* Factors are larger if they are better, also those of latencies. */
	if (map->before)
		return value / exp(map->effects->usual);
	usual = map->unit == EFFECTS_LATENCY ? exp(-map->effects->usual) : exp(map->effects->usual);

	return map->unit == EFFECTS_LATENCY ? usual / value : value / usual;
}

const char *host_map_unit_name(const struct host_map *map)
{
	static const char *const names[][EFFECTS_UNITS] = { { "Bandwidth", "Latency" }, { "bandwidth", "latency" } };

	return names[map->before != NULL][map->unit];
}

/* Returns the logarithm beyond which a change is no noise. */
static double change_limit(const struct host_map *map)
{
	return fmax(NOISE_FACTOR * map->effects->noise, log(CHANGE_MIN));
}

/* Returns a colour from the worst (0) to the best (1), 0.5 within the noise. */
static double change_position(const struct host_map *map, double part)
{
	double change = log(part), limit = change_limit(map), most = log(CHANGE_MOST), beyond = fabs(change) - limit;

	if (beyond <= 0)
		return 0.5;
	/* The first colour beyond the noise differs from the middle one. */
	beyond = 0.15 + 0.35 * fmin(1, beyond / fmax(most - limit, 0.01));
	return change < 0 ? 0.5 - beyond : 0.5 + beyond;
}

static uint8_t cell_colour(const struct host_map *map, size_t row, size_t column)
{
	size_t from = map->judgement->order[row], to = map->judgement->order[column];
	double value = map->values[from * map->count + to], at;

	if (!(value > 0) || from == to)
		return 0;
	at = host_map_part(map, value);
	at = map->before ? change_position(map, at) : (at - SCALE_WORST) / (SCALE_BEST - SCALE_WORST);
	at = fmin(fmax(at, 0), 1);
	return (uint8_t)(1 + (unsigned)(at * (LEVELS - 1)));
}

int host_map_write_cells(const struct host_map *map, FILE *file)
{
	uint8_t *pixels = calloc(map->count, map->count);
	struct report_colour palette[LEVELS + 1] = { { 0, 0, 0 } };
	int rc;

	if (!pixels)
		return -ENOMEM;
	for (unsigned i = 0; i < LEVELS; i++)
		palette[i + 1] = blend_colours(map, (double)i / (LEVELS - 1));
	for (size_t i = 0; i < map->count * map->count; i++)
		pixels[i] = cell_colour(map, i / map->count, i % map->count);
	fprintf(file,
		"<rect x=\"%.0f\" y=\"%.0f\" width=\"%.1f\" height=\"%.1f\" class=\"n\"/><image x=\"%.0f\" y=\"%.0f\" "
		"width=\"%.1f\" height=\"%.1f\" preserveAspectRatio=\"none\" style=\"image-rendering:pixelated\" "
		"href=\"data:image/png;base64,",
		map->left, map->top, map->side, map->side, map->left, map->top, map->side, map->side);
	rc = report_write_png(file, pixels, (uint32_t)map->count, (uint32_t)map->count, palette, LEVELS + 1);
	fputs("\"/>\n", file);
	free(pixels);
	return rc;
}

static void write_change_scale(const struct host_map *map, double width, double y, FILE *file)
{
	static const char *const names[] = { "half or less", "as before", "twice or more" };
	char noise[32];

	for (size_t i = 0; i < CLI_ARRAY_SIZE(names); i++)
		fprintf(file, "<text class=\"m\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", map->left + width * (double)i / 2,
			y + 28, names[i]);
	fprintf(file,
		"<text x=\"%.1f\" y=\"%.1f\">beside the change of all; changes of less than %s count as noise; "
		"grey: no result</text>\n",
		map->left + width + 60, y + 10, effects_percent_text(exp(change_limit(map)) - 1, noise));
}

void host_map_write_scale(const struct host_map *map, double y, FILE *file)
{
	static const double parts[] = { 0.5, 0.75, 1 };
	double width = 300, step = width / LEVELS;

	for (unsigned i = 0; i < LEVELS; i++) {
		struct report_colour colour = blend_colours(map, (double)i / (LEVELS - 1));

		fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" fill=\"#%02x%02x%02x\"/>",
			map->left + i * step, y, step + 0.3, colour.red, colour.green, colour.blue);
	}
	if (map->before) {
		write_change_scale(map, width, y, file);
		return;
	}
	for (size_t i = 0; i < CLI_ARRAY_SIZE(parts); i++) {
		char text[32];

		/* Effects are logarithms of which larger ones are better. */
		effects_value_text(map->effects->usual + log(parts[i]), map->unit, text);
		fprintf(file, "<text class=\"m\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			map->left + width * (parts[i] - SCALE_WORST) / (SCALE_BEST - SCALE_WORST), y + 28, text);
	}
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\">usual at the right; grey: no result</text>\n",
		map->left + width + 60, y + 10);
}
