/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/fleet/launch.h"

#include <stdlib.h>
#include <string.h>

#define HOST "{host}"
#define COMMAND "{command}"
#define LAUNCH_HINT "write a command such as 'ssh {host}' or 'srun --nodelist {host} --nodes 1'"

static int fail_launch(struct pl_error *error, const char *line, const char *fact)
{
	return cli_fail(error, -EINVAL, "FLEET-LAUNCH", line, LAUNCH_HINT, "%s", fact);
}

/* Appends a copy of a word; the words end with NULL. */
static int add_launch_word(struct launch *launch, const char *word)
{
	char **grown = realloc(launch->words, (launch->count + 2) * sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	launch->words = grown;
	launch->words[launch->count] = strdup(word);
	launch->words[launch->count + 1] = NULL;
	return launch->words[launch->count] ? (launch->count++, 0) : -ENOMEM;
}

/* Copies a word up to an unquoted blank, without its quotes.  Returns the text behind it; NULL if a quote has no end. */
static const char *copy_launch_word(const char *at, char *word)
{
	char quote = '\0';

	for (; *at && (quote || !strchr(" \t\n", *at)); at++) {
		if (*at == quote)
			quote = '\0';
		else if (!quote && (*at == '\'' || *at == '"'))
			quote = *at;
		else if (*at == '\\' && quote != '\'' && at[1])
			*word++ = *++at;
		else
			*word++ = *at;
	}
	*word = '\0';
	return quote ? NULL : at;
}

static int split_launch_line(struct launch *launch, const char *line, struct pl_error *error)
{
	char *word = malloc(strlen(line) + 1);
	const char *at = line;
	int rc = word ? 0 : -ENOMEM;

	while (rc == 0 && *(at += strspn(at, " \t\n"))) {
		at = copy_launch_word(at, word);
		if (!at) {
			free(word);
			return fail_launch(error, line, "a quote has no end");
		}
		rc = add_launch_word(launch, word);
	}
	free(word);
	return rc < 0 ? cli_fail_errno(error, rc, "malloc", NULL) : 0;
}

static bool has_launch_text(const struct launch *launch, const char *text)
{
	for (size_t i = 0; i < launch->count; i++)
		if (strstr(launch->words[i], text))
			return true;
	return false;
}

/* True if a word sets this option of ssh, whose names have no case. */
static bool has_ssh_option(const struct launch *launch, const char *name)
{
	for (size_t i = 0; i < launch->count; i++)
		if (strcasestr(launch->words[i], name))
			return true;
	return false;
}

static bool is_ssh(const struct launch *launch)
{
	const char *slash = strrchr(launch->words[0], '/');

	return !strcmp(slash ? slash + 1 : launch->words[0], "ssh");
}

/* Inserts the options behind "ssh". */
static int add_ssh_options(struct launch *launch)
{
	static const char *const switches[] = { "-n", "-T", "-x", "-a" };
	static const struct {
		const char *name, *value;
	} options[] = {
		{ "BatchMode", "yes" },         { "ConnectTimeout", "10" }, { "ServerAliveInterval", "5" },
		{ "ServerAliveCountMax", "3" }, { "LogLevel", "ERROR" },
	};
	struct launch longer = { .words = NULL };
	char text[64];
	int rc = add_launch_word(&longer, launch->words[0]);

	for (size_t i = 0; rc == 0 && i < CLI_ARRAY_SIZE(switches); i++)
		rc = add_launch_word(&longer, switches[i]);
	for (size_t i = 0; rc == 0 && i < CLI_ARRAY_SIZE(options); i++) {
		/* ssh takes the first value of an option: that of the user must be the only one. */
		if (has_ssh_option(launch, options[i].name))
			continue;
		snprintf(text, sizeof(text), "%s=%s", options[i].name, options[i].value);
		rc = add_launch_word(&longer, "-o");
		rc = rc < 0 ? rc : add_launch_word(&longer, text);
	}
	for (size_t i = 1; rc == 0 && i < launch->count; i++)
		rc = add_launch_word(&longer, launch->words[i]);
	longer.shell = true;
	if (rc < 0) {
		launch_free(&longer);
		return rc;
	}
	launch_free(launch);
	*launch = longer;
	return 0;
}

int launch_parse(struct launch *launch, const char *line, struct pl_error *error)
{
	int rc;

	*launch = (struct launch){ .words = NULL };
	rc = split_launch_line(launch, line, error);
	if (rc == 0 && !launch->count)
		rc = fail_launch(error, NULL, "the launcher is empty");
	if (rc == 0 && !has_launch_text(launch, HOST))
		rc = fail_launch(error, line, "the launcher has no " HOST);
	if (rc == 0) {
		launch->shell = has_launch_text(launch, COMMAND);
		if (is_ssh(launch) && add_ssh_options(launch) < 0)
			rc = cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	}
	if (rc < 0)
		launch_free(launch);
	return rc;
}

/* Writes a word for a shell, quoted unless it consists of harmless characters. */
static void write_quoted_word(FILE *file, const char *word)
{
	if (*word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@%+,-")]) {
		fputs(word, file);
		return;
	}
	fputc('\'', file);
	for (; *word; word++) {
		if (*word == '\'')
			fputs("'\\''", file);
		else
			fputc(*word, file);
	}
	fputc('\'', file);
}

/* Returns the command as one text for a shell. */
static char *quote_command(const char *const *command)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return NULL;
	for (size_t i = 0; command[i]; i++) {
		fputs(i ? " " : "", file);
		write_quoted_word(file, command[i]);
	}
	if (fclose(file)) {
		free(text);
		return NULL;
	}
	return text;
}

/* Returns a word with the host and the command in it. */
static char *fill_launch_word(const char *word, const char *host, const char *command)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	if (!file)
		return NULL;
	while (*word) {
		bool is_host = !strncmp(word, HOST, strlen(HOST)),
		     is_command = !strncmp(word, COMMAND, strlen(COMMAND));

		if (is_host || is_command) {
			fputs(is_host ? host : command, file);
			word += strlen(is_host ? HOST : COMMAND);
		} else {
			fputc(*word++, file);
		}
	}
	if (fclose(file)) {
		free(text);
		return NULL;
	}
	return text;
}

char **launch_make_words(const struct launch *launch, const char *host, const char *const *command)
{
	char *line = quote_command(command), **words = NULL;
	size_t length = 0, count = launch->count;
	bool placed = has_launch_text(launch, COMMAND), complete = line != NULL;

	while (command[length])
		length++;
	words = complete ? calloc(count + length + 1, sizeof(*words)) : NULL;
	for (size_t i = 0; words && i < count; i++)
		complete = (words[i] = fill_launch_word(launch->words[i], host, line)) && complete;
	if (words && !placed && launch->shell)
		complete = (words[count] = strdup(line)) && complete;
	for (size_t i = 0; words && !launch->shell && i < length; i++)
		complete = (words[count + i] = strdup(command[i])) && complete;
	free(line);
	if (words && complete)
		return words;
	/* Without memory a word in the middle may be NULL. */
	for (size_t i = 0; words && i < count + length; i++)
		free(words[i]);
	free(words);
	return NULL;
}

void launch_free_words(char **words)
{
	for (size_t i = 0; words && words[i]; i++)
		free(words[i]);
	free(words);
}

void launch_free(struct launch *launch)
{
	launch_free_words(launch->words);
	*launch = (struct launch){ .words = NULL };
}
