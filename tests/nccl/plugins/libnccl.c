/* SPDX-License-Identifier: BSD-2-Clause */
/* Library that tells the release RELEASE as NCCL does, for tests of `peerlane check`. */
int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
	*version = RELEASE;
	return 0;
}
