#!/usr/bin/python3
# SPDX-License-Identifier: BSD-2-Clause
"""check_links.py BUILD: installs the documents, and checks that their links lead to installed files and to headings."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def headings(text):
    """Anchors of a document, as GitHub makes them."""
    titles = re.findall(r'^#+ (.*)$', text, re.MULTILINE)
    return {re.sub(r'[^\w\- ]', '', title.strip().lower()).replace(' ', '-') for title in titles}


def dead_links(page):
    text = page.read_text()
    for link in re.findall(r'\]\(([^)\s]+)\)', text):
        path, _, anchor = link.partition('#')
        if re.match('[a-z]+:', link):
            continue
        target = pathlib.Path(os.path.normpath(page.parent / path)) if path else page
        if not target.exists() or (anchor and anchor not in headings(target.read_text())):
            yield link


def main():
    meson = shutil.which('meson')
    if not meson:
        print('meson is missing')
        return 77
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([meson, 'install', '-C', sys.argv[1], '--no-rebuild', '--quiet', '--tags', 'doc', '--destdir', folder],
                       check=True, stdout=subprocess.DEVNULL)
        pages = sorted(pathlib.Path(folder).rglob('*.md'))
        dead = [(page.name, link) for page in pages for link in dead_links(page)]
    for name, link in dead:
        print(f'{name}: {link}: not installed, or without such a heading')
    if len(pages) < 10:
        print(f'{len(pages)} documents were installed')
    return 1 if dead or len(pages) < 10 else 0


sys.exit(main())
