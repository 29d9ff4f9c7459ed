# SPDX-License-Identifier: BSD-2-Clause
"""Prints the folder of packages below PREFIX in which this interpreter looks, or nothing if it looks in none.

Interpreters of Debian look in /usr/local/lib/python3.11/dist-packages and in /usr/lib/python3/dist-packages, and Meson knows
the second form only.
"""
import os
import site
import sys


def folder_below(prefix, folders):
    """Return the first of the folders in PREFIX/lib, PREFIX/lib64 and so on; None if there is none."""
    return next((folder for folder in folders if folder.startswith(os.path.join(prefix, 'lib'))), None)


if __name__ == '__main__':
    print(folder_below(sys.argv[1], site.getsitepackages()) or '')
