/* SPDX-License-Identifier: BSD-2-Clause */
/* Installed builds of MPI, NCCL and UCX, and their support of GPU memory. */
#include <stdio.h>

#include "diag/check/row.h"

#define GROUP "Software"

/* Search for installations, and its result. */
struct hunt {
	struct pl_check_result *result;
	char seen[12][160];
	size_t seen_count, aware;
};

/* True if the path was not found before, also under another name: /usr/local/cuda is a link. */
static bool new_to(const struct pl_check_machine *machine, struct hunt *hunt, const char *name)
{
	char path[PL_SYSROOT_PATH_MAX];

	if (pl_sysroot_resolve(machine->root, path, sizeof(path), "%s", name) < 0)
		snprintf(path, sizeof(path), "%s", name);
	for (size_t i = 0; i < hunt->seen_count; i++)
		if (!strcmp(hunt->seen[i], path))
			return false;
	if (hunt->seen_count == PL_ARRAY_SIZE(hunt->seen))
		return false;
	snprintf(hunt->seen[hunt->seen_count++], sizeof(hunt->seen[0]), "%.159s", path);
	return true;
}

static void found(struct hunt *hunt, const char *path, bool aware, const char *what, const char *why)
{
	hunt->aware += aware;
	pl_check_note(hunt->result, PL_CHECK_OK, what, "/%s: %s", path, why);
}

/* True if a path exists below an installation: PREFIX, or one of its library folders. */
static bool has(const struct pl_check_machine *machine, const char *prefix, const char *rest)
{
	static const char *const folders[] = { "lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "." };

	for (size_t i = 0; i < PL_ARRAY_SIZE(folders); i++)
		if (check_exists(machine, "%s/%s/%s", prefix, folders[i], rest))
			return true;
	return false;
}

/* -- Open MPI and its derivatives ------------------------------------------------------------------ */

static bool ompi_has_component(const struct pl_check_machine *machine, const char *prefix, const char *component)
{
	static const char *const folders[] = { "lib/openmpi", "lib64/openmpi", "openmpi/lib/openmpi3", "lib/openmpi3",
					       "lib/openmpi5" };

	for (size_t i = 0; i < PL_ARRAY_SIZE(folders); i++)
		if (check_exists(machine, "%s/%s/%s", prefix, folders[i], component))
			return true;
	return false;
}

static const char *ompi_name(const char *prefix)
{
	if (strstr(prefix, "hpcx"))
		return "NVIDIA HPC-X";
	return "Open MPI";
}

/* Its own library intercepts calls of CUDA, and must be requested by name. */
static void visit_spectrum(const struct pl_check_machine *machine, const char *path, void *user)
{
	bool cuda = has(machine, path, "libpami_cudahook.so");

	if (new_to(machine, user, path))
		found(user, path, cuda, "Spectrum MPI",
		      cuda ? "takes pointers of a GPU when it is told to: mpirun -gpu" : "without libpami_cudahook.so");
}

static void judge_ompi(const struct pl_check_machine *machine, const char *prefix, struct hunt *hunt)
{
	/* Each component is built only with CUDA: up to 4.x, from 5.0 on. */
	bool cuda = ompi_has_component(machine, prefix, "mca_btl_smcuda.so") ||
		    ompi_has_component(machine, prefix, "mca_coll_cuda.so") ||
		    ompi_has_component(machine, prefix, "mca_accelerator_cuda.so") ||
		    has(machine, prefix, "libmca_common_cuda.so");
	bool ucx = ompi_has_component(machine, prefix, "mca_pml_ucx.so");

	if (!new_to(machine, hunt, prefix))
		return;
	found(hunt, prefix, cuda, ompi_name(prefix),
	      cuda ? ucx ? "built with CUDA, uses UCX" : "built with CUDA, without UCX"
		   : "built without CUDA: it cannot take pointers of a GPU");
}

static void visit_ompi(const struct pl_check_machine *machine, const char *path, void *user)
{
	judge_ompi(machine, path, user);
}

static void visit_mvapich(const struct pl_check_machine *machine, const char *path, void *user)
{
	bool gdr = strstr(path, "gdr") || strstr(path, "GDR") || strstr(path, "plus");

	if (new_to(machine, user, path))
		found(user, path, gdr, gdr ? "MVAPICH2-GDR" : "MVAPICH2",
		      gdr ? "made for GPUs" : "it cannot take pointers of a GPU; the GDR build can");
}

static void visit_cray(const struct pl_check_machine *machine, const char *path, void *user)
{
	bool gtl = check_any(machine, "opt/cray/pe/lib64/libmpi_gtl_cuda.so*") ||
		   check_any(machine, "opt/cray/pe/mpich/*/gtl/lib/libmpi_gtl_cuda.so*");

	if (new_to(machine, user, path))
		found(user, path, gtl, "Cray MPICH",
		      gtl ? "has libmpi_gtl_cuda; needs MPICH_GPU_SUPPORT_ENABLED=1" : "without libmpi_gtl_cuda");
}

static void visit_mpich(const struct pl_check_machine *machine, const char *path, void *user)
{
	if (new_to(machine, user, path))
		found(user, path, false, "MPICH", "distributions build it without CUDA; `mpichversion` tells");
}

/* Folders of PATH and similar variables are PREFIX/bin or PREFIX/lib.  Visits PREFIX/END where PREFIX/BELOW exists. */
static void search_paths(const struct pl_check_machine *machine, const char *below, const char *tail, check_visit visit,
			 void *user)
{
	char found_at[PL_FACT_VALUE_MAX + 64];
	const char *path = pl_facts_get(machine->facts, "search.path");
	char copy[PL_FACT_VALUE_MAX], *one, *rest;

	if (!path)
		return;
	snprintf(copy, sizeof(copy), "%s", path);
	for (one = strtok_r(copy, ":", &rest); one; one = strtok_r(NULL, ":", &rest)) {
		char *end = strrchr(one, '/');

		one += strspn(one, "/");
		if (end && end > one && (!strcmp(end, "/bin") || !strcmp(end, "/lib") || !strcmp(end, "/lib64")))
			*end = '\0';
		if (!*one || !check_exists(machine, "%s/%s", one, below))
			continue;
		snprintf(found_at, sizeof(found_at), "%s%s%s", one, *tail ? "/" : "", tail);
		visit(machine, found_at, user);
	}
}

static void probe_mpi(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	static const char *const ompi[] = {
		"usr/lib/*/openmpi", "usr/lib64/openmpi",  "usr/mpi/gcc/openmpi-*",
		"opt/hpcx*/ompi",    "opt/*/hpcx*/ompi",   "opt/nvidia/hpc_sdk/*/*/comm_libs/*/hpcx/hpcx-*/ompi",
		"opt/openmpi*",      "usr/local/openmpi*", "opt/amazon/openmpi*"
	};
	static const char *const mvapich[] = { "opt/mvapich2/gdr/*", "opt/mvapich2-gdr*", "opt/mvapich*",
					       "usr/mpi/gcc/mvapich2-*", "usr/local/mvapich*" };
	struct hunt hunt = { .result = result };

	for (size_t i = 0; i < PL_ARRAY_SIZE(ompi); i++)
		check_glob(machine, ompi[i], visit_ompi, &hunt);
	search_paths(machine, "lib/openmpi", "", visit_ompi, &hunt);
	for (size_t i = 0; i < PL_ARRAY_SIZE(mvapich); i++)
		check_glob(machine, mvapich[i], visit_mvapich, &hunt);
	check_glob(machine, "opt/ibm/spectrum_mpi", visit_spectrum, &hunt);
	check_glob(machine, "opt/cray/pe/mpich", visit_cray, &hunt);
	check_glob(machine, "usr/lib/*/libmpich.so.12", visit_mpich, &hunt);
	if (!hunt.seen_count)
		pl_check_note(result, PL_CHECK_NONE, NULL, "no MPI was found");
	else if (!hunt.aware && machine->gpu_count)
		pl_check_note(result, PL_CHECK_WARN, NULL, "no MPI here takes pointers of a GPU");
}

/* -- NCCL ------------------------------------------------------------------------------------------ */

/* Returns the release that the library itself told; 0: unknown. */
static unsigned nccl_release_of(const struct pl_check_machine *machine, const char *path)
{
	const struct pl_nccl *nccl = &machine->nccl;
	char file[PL_SYSROOT_PATH_MAX], other[PL_SYSROOT_PATH_MAX];

	if (pl_sysroot_resolve(machine->root, file, sizeof(file), "%s", path) < 0)
		return 0;
	for (size_t i = 0; i < nccl->library_count; i++)
		if (pl_sysroot_resolve(pl_snapshot_unrecorded(machine->root), other, sizeof(other), "%s",
				       nccl->libraries[i].file) >= 0 &&
		    !strcmp(file, other))
			return nccl->libraries[i].release;
	return 0;
}

static void visit_nccl(const struct pl_check_machine *machine, const char *path, void *user)
{
	unsigned release = nccl_release_of(machine, path);
	char target[128], told[24];
	const char *version;

	if (pl_sysroot_link_name(machine->root, target, sizeof(target), "%s", path) < 0)
		snprintf(target, sizeof(target), "%s", strrchr(path, '/') + 1);
	version = strstr(target, ".so.");
	version = version && strchr(version + 4, '.') ? version + 4 : "of unknown release";
	if (release) {
		pl_nccl_format_release(release, told);
		version = told;
	}
	if (new_to(machine, user, path))
		found(user, path, true, "NCCL", version);
}

static void visit_plugin(const struct pl_check_machine *machine, const char *path, void *user)
{
	if (new_to(machine, user, path))
		found(user, path, true, "NCCL plugin", strstr(path, "ofi") ? "for libfabric (EFA)" : "for the network");
}

static void probe_nccl(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	static const char *const plugins[] = { "usr/lib/*/libnccl-net*.so",
					       "usr/local/lib/libnccl-net*.so",
					       "opt/amazon/*ofi*/lib*/libnccl-net*.so",
					       "opt/aws-ofi-nccl/lib/libnccl-net*.so",
					       "opt/hpcx*/nccl_rdma_sharp_plugin/lib/libnccl-net.so",
					       "opt/*/hpcx*/nccl_rdma_sharp_plugin/lib/libnccl-net.so" };
	struct hunt hunt = { .result = result };

	for (size_t i = 0; pl_nccl_library_places[i]; i++)
		check_glob(machine, pl_nccl_library_places[i], visit_nccl, &hunt);
	search_paths(machine, "lib/libnccl.so.2", "lib/libnccl.so.2", visit_nccl, &hunt);
	/* Those of the loader and of Python's environments. Paths here have no leading slash. */
	for (size_t i = 0; i < machine->nccl.library_count; i++)
		if (check_exists(machine, "%s", machine->nccl.libraries[i].file))
			visit_nccl(machine, machine->nccl.libraries[i].file + 1, &hunt);
	if (!hunt.seen_count) {
		pl_check_note(result, PL_CHECK_NONE, NULL, "no NCCL was found");
		return;
	}
	for (size_t i = 0; i < PL_ARRAY_SIZE(plugins); i++)
		check_glob(machine, plugins[i], visit_plugin, &hunt);
	/* NCCL's own transport loads libibverbs by name. */
	if (machine->device_count && !check_any(machine, "usr/lib/*/libibverbs.so.1") &&
	    !check_any(machine, "usr/lib64/libibverbs.so.1"))
		pl_check_note(result, PL_CHECK_WARN, NULL, "libibverbs.so.1 is missing: NCCL falls back to sockets");
}

/* -- UCX ------------------------------------------------------------------------------------------- */

static void judge_ucx(const struct pl_check_machine *machine, const char *folder, struct hunt *hunt)
{
	char where[300];
	bool cuda, ib;

	/* FOLDER/libucp.so.0 has its modules in FOLDER/ucx. */
	snprintf(where, sizeof(where), "%.*s", (int)(strrchr(folder, '/') - folder), folder);
	cuda = check_exists(machine, "%s/ucx/libuct_cuda.so", where) ||
	       check_exists(machine, "%s/ucx/libuct_cuda.so.0", where);
	ib = check_exists(machine, "%s/ucx/libuct_ib.so", where) ||
	     check_exists(machine, "%s/ucx/libuct_ib.so.0", where);
	if (new_to(machine, hunt, where))
		found(hunt, where, cuda && ib, "UCX",
		      cuda ? ib ? "with CUDA and RDMA" : "with CUDA, without RDMA (libuct_ib)"
			   : "without CUDA (libuct_cuda): GPU memory goes through the host");
}

static void visit_ucx(const struct pl_check_machine *machine, const char *path, void *user)
{
	judge_ucx(machine, path, user);
}

static void probe_ucx(const struct pl_check_machine *machine, struct pl_check_result *result)
{
	static const char *const places[] = { "usr/lib/*/libucp.so.0",          "usr/lib64/libucp.so.0",
					      "usr/local/lib/libucp.so.0",      "usr/local/ucx*/lib/libucp.so.0",
					      "opt/ucx*/lib/libucp.so.0",       "opt/hpcx*/ucx/lib/libucp.so.0",
					      "opt/*/hpcx*/ucx/lib/libucp.so.0" };
	struct hunt hunt = { .result = result };

	for (size_t i = 0; i < PL_ARRAY_SIZE(places); i++)
		check_glob(machine, places[i], visit_ucx, &hunt);
	if (!hunt.seen_count)
		pl_check_note(result, PL_CHECK_NONE, NULL, "no UCX was found");
	else if (!hunt.aware && machine->gpu_count)
		pl_check_note(result, PL_CHECK_WARN, NULL, "no UCX here moves GPU memory by RDMA");
}

const struct pl_check_row pl_check_rows_software[] = {
	{
		.id = "soft-mpi",
		.group = GROUP,
		.title = "MPI with GPU memory support",
		.requirement =
			"The MPI that is used takes pointers of a GPU: Open MPI built with CUDA, HPC-X, MVAPICH2-GDR, "
			"Spectrum MPI, Cray MPICH with its GTL.",
		.how = "ompi_info --parsable --all | grep mpi_built_with_cuda_support:value; mpichversion; the "
		       "library's parts",
		.reason = "An MPI without that support crashes on GPU pointers, or the program must copy all data "
			  "through the host.",
		.remedy =
			"use HPC-X (source hpcx-init.sh; hpcx_load), or Open MPI: ./configure --with-cuda --with-ucx; "
			"MVAPICH2: the GDR build, MV2_USE_CUDA=1; Spectrum MPI: mpirun -gpu",
		.rank = 98,
		.probe = probe_mpi,
	},
	{
		.id = "soft-nccl",
		.group = GROUP,
		.title = "NCCL and its network plugins",
		.requirement = "NCCL finds libibverbs, or a plugin for the network.",
		.how = "libnccl.so.2, libnccl-net*.so; NCCL_DEBUG=INFO says NET/IB and GPU Direct RDMA",
		.reason = "Without libibverbs and plugins, NCCL uses sockets, and reports that only with "
			  "NCCL_DEBUG=INFO.",
		.remedy = "apt install libibverbs1 ibverbs-providers; for EFA: the plugin aws-ofi-nccl",
		.rank = 97,
		.probe = probe_nccl,
	},
	{
		.id = "soft-ucx",
		.group = GROUP,
		.title = "UCX with CUDA and RDMA",
		.requirement = "UCX, if installed, has its modules for CUDA and for RDMA.",
		.how = "ucx_info -d | grep -E 'cuda|rc_'; libuct_cuda.so and libuct_ib.so in UCX's folder",
		.reason = "Without them GPU data goes through the host, at a fraction of the rate.",
		.remedy = "use HPC-X, or libucx0 of NVIDIA's repository; or build it: ./configure --with-cuda "
			  "--with-verbs",
		.rank = 99,
		.probe = probe_ucx,
	},
	{ .id = NULL },
};
