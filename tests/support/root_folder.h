/* SPDX-License-Identifier: BSD-2-Clause */
/* Folder that stands for "/", with files that the kernel would show. */
#ifndef TEST_ROOT_FOLDER_H
#define TEST_ROOT_FOLDER_H

/* Writes a file below the folder `root`, and makes the folders above the file. */
void root_folder_write(const char *root, const char *name, const char *text);

#endif
