/* SPDX-License-Identifier: BSD-2-Clause */
/* XML by expat, loaded on first use. */
#include "topology/build.h"

#ifdef PL_HAVE_EXPAT

#include <expat.h>

#include "base/dynamic_library.h"

#define EXPAT "libexpat.so.1"
#define DEPTH_MAX 64

#define EXPAT_FUNCTIONS(F) \
	F(XML_ParserCreate) \
	F(XML_ParserFree) \
	F(XML_SetUserData) \
	F(XML_SetElementHandler) \
	F(XML_SetStartDoctypeDeclHandler) \
	F(XML_Parse) \
	F(XML_StopParser) \
	F(XML_GetErrorCode) \
	F(XML_ErrorString) \
	F(XML_GetCurrentLineNumber)

#define MEMBER(function) __typeof__(&(function)) function;
struct expat {
	EXPAT_FUNCTIONS(MEMBER)
};
#undef MEMBER

struct reader {
	struct expat expat;
	XML_Parser parser;
	struct topology_xml *xml;
	unsigned depth;
	const char *reason; /* reason why this code stopped the parser */
	int rc;
};

static void stop(struct reader *reader, int rc, const char *reason)
{
	reader->rc = rc;
	reader->reason = reason;
	reader->expat.XML_StopParser(reader->parser, XML_FALSE);
}

static void XMLCALL begin_xml_element(void *data, const char *element, const char **attributes)
{
	struct reader *reader = data;
	int rc;

	if (reader->rc < 0)
		return;
	if (++reader->depth > DEPTH_MAX) {
		stop(reader, -EINVAL, "its elements are nested too deeply");
		return;
	}
	rc = reader->xml->begin(reader->xml, element, (const char *const *)attributes);
	if (rc < 0)
		stop(reader, rc, NULL);
}

static void XMLCALL end_xml_element(void *data, const char *element)
{
	struct reader *reader = data;

	if (reader->rc < 0)
		return;
	reader->depth--;
	reader->xml->end(reader->xml, element);
}

/* Entities could expand a small file without limit. */
static void XMLCALL doctype(void *data, const char *name, const char *system, const char *public, int internal)
{
	(void)system;
	(void)public;
	(void)internal;
	stop(data, -EINVAL,
	     strcmp(name, "topology") ? "it has a document type, which no topology file needs"
				      : "it is a topology of hwloc (lstopo), not of NCCL");
}

static int load_expat(struct expat *expat, const char *name, struct pl_error *error)
{
	static const struct pl_symbol functions[] = {
#define ENTRY(function) { #function, offsetof(struct expat, function) },
		EXPAT_FUNCTIONS(ENTRY)
#undef ENTRY
	};
	const char *trouble = pl_library_load(EXPAT, functions, PL_ARRAY_SIZE(functions), expat);

	if (trouble)
		return pl_fail(error, -ELIBACC, "NCCL-FILE-READER", "dlopen", name,
			       "install it, on Debian and Ubuntu: libexpat1",
			       "topology files are read by " EXPAT ", which %s", trouble);
	return 0;
}

static int parse(struct reader *reader, const char *name, const char *data, size_t length, struct pl_error *error)
{
	struct expat *expat = &reader->expat;
	unsigned long line;

	expat->XML_SetUserData(reader->parser, reader);
	expat->XML_SetElementHandler(reader->parser, begin_xml_element, end_xml_element);
	expat->XML_SetStartDoctypeDeclHandler(reader->parser, doctype);
	if (expat->XML_Parse(reader->parser, data, (int)length, XML_TRUE) == XML_STATUS_OK)
		return 0;
	line = expat->XML_GetCurrentLineNumber(reader->parser);
	if (reader->rc == -ENOMEM || expat->XML_GetErrorCode(reader->parser) == XML_ERROR_NO_MEMORY)
		return pl_fail_memory(error, "pl_topology_read");
	if (reader->rc && !reader->reason)
		reader->reason = "it is no topology file of NCCL's, or larger than any machine";
	return pl_fail(
		error, -EINVAL, "NCCL-FILE-SYNTAX", NULL, name,
		"NCCL writes such a file of the machine it runs on with NCCL_TOPO_DUMP_FILE=FILE", "line %lu: %s", line,
		reader->reason ? reader->reason : expat->XML_ErrorString(expat->XML_GetErrorCode(reader->parser)));
}

int topology_parse_xml(struct topology_xml *xml, const char *name, const char *data, size_t length,
		       struct pl_error *error)
{
	struct reader reader = { .xml = xml };
	int rc = load_expat(&reader.expat, name, error);

	if (rc < 0)
		return rc;
	reader.parser = reader.expat.XML_ParserCreate(NULL);
	if (!reader.parser)
		return pl_fail_memory(error, "pl_topology_read");
	rc = parse(&reader, name, data, length, error);
	reader.expat.XML_ParserFree(reader.parser);
	return rc;
}

#else

int topology_parse_xml(struct topology_xml *xml, const char *name, const char *data, size_t length,
		       struct pl_error *error)
{
	(void)xml;
	(void)data;
	(void)length;
	return pl_fail(error, -ELIBACC, "NCCL-FILE-READER", NULL, name, "build it with expat: libexpat1-dev",
		       "this build cannot read topology files");
}

#endif
