# SPDX-License-Identifier: BSD-2-Clause
"""Places in C text at which tools/mutants changes a check, and the changes."""
import collections
import re

HIDDEN = re.compile(r'/\*.*?\*/|//[^\n]*|^[ \t]*#(?:\\\n|[^\n])*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S | re.M)
LIMIT = re.compile(r'(?<![<>-])(<=|>=|<|>)(?![<>=])')
OTHER_LIMIT = {'<': '<=', '<=': '<', '>': '>=', '>=': '>'}
SIGN = re.compile(r'(\w+|\))\s*$')  # left of `< 0`: the sign of a result, no limit
# Returned errors of checks; -ENOMEM and -EIO tell of this machine's own resources.
ERROR = r'-E(?!NOMEM|IO\b)[A-Z]+|NULL|false'

# One change of a source: (start, end, replacement) for each changed range.
Mutant = collections.namedtuple('Mutant', 'path function line kind edits name')


def mask(text):
    """Returns C text of the same length, with blanks for comments and directives, and letters for literals."""
    def hide(match):
        blank = 'x' if match[0][0] in '"\'' else ' '
        return re.sub(r'[^\n]', blank, match[0])
    return HIDDEN.sub(hide, text)


def closing(masked, at):
    """Returns the place of the bracket that closes the bracket at a place."""
    depth = 0
    for place in range(at, len(masked)):
        depth += (masked[place] in '([{') - (masked[place] in ')]}')
        if not depth:
            return place
    return len(masked) - 1


def functions(masked):
    """Yields the name, the start and the end of each function's body."""
    for opened in re.finditer(r'^\{$', masked, re.M):
        head = re.split(r'[;}]', masked[:opened.start()])[-1]
        names = re.findall(r'(\w+)\s*\(', re.sub(r'__attribute__\s*\(\(.*?\)\)\s*', '', head))
        if names:
            yield names[0], opened.start(), closing(masked, opened.start())


def split(masked, start, end, operator):
    """Returns the ranges of the operands of an operator that stands outside brackets."""
    depth, begin, ranges = 0, start, []
    for place in range(start, end):
        depth += (masked[place] in '([{') - (masked[place] in ')]}')
        if not depth and masked.startswith(operator, place) and place >= begin:
            ranges.append((begin, place))
            begin = place + len(operator)
    return ranges + [(begin, end)]


def trim(masked, start, end):
    while start < end and masked[start].isspace():
        start += 1
    while end > start and masked[end - 1].isspace():
        end -= 1
    return start, end


def dropped_operands(masked, start, end):
    """Yields the edits that drop one operand of && or ||, also in brackets."""
    start, end = trim(masked, start, end)
    inner = start + (masked[start:start + 1] == '!')
    if masked[inner:inner + 1] == '(' and closing(masked, inner) == end - 1:
        yield from dropped_operands(masked, inner + 1, end - 1)
        return
    for operator in ('||', '&&'):
        ranges = [trim(masked, *one) for one in split(masked, start, end, operator)]
        if len(ranges) < 2:
            continue
        yield ranges[0][0], ranges[1][0], ''
        for before, this in zip(ranges, ranges[1:]):
            yield before[1], this[1], ''
        for one in ranges:
            yield from dropped_operands(masked, *one)
        return


def limit_edits(masked, start, end):
    for match in LIMIT.finditer(masked, start, end):
        after = masked[match.end():end].lstrip()
        if re.match(r'0\b(?!x)', after) and not re.search(r'->\w+\s*$', masked[start:match.start()]) and \
                SIGN.search(masked[start:match.start()]):
            continue
        yield match.start(), match.end(), OTHER_LIMIT[match[1]]


def conditions(masked, start, end):
    """Yields the keyword and the range of each condition: in brackets, and of returned truth values."""
    for match in re.finditer(r'\b(if|while)\s*\(', masked[start:end]):
        opened = start + match.end() - 1
        yield match[1], opened + 1, closing(masked, opened)
    for match in re.finditer(r'\breturn\b', masked[start:end]):
        begin = start + match.end()
        finish = masked.index(';', begin)
        yield 'return', begin, split(masked, begin, finish, '?')[0][1]


def check_edits(masked, start, end):
    """Yields the kind and the edits of each mutant of a function's checks."""
    for word, begin, finish in conditions(masked, start, end):
        begin, finish = trim(masked, begin, finish)
        if word == 'if' or (word == 'return' and masked[finish:].lstrip().startswith('?')):
            yield 'negate', [(begin, begin, '!('), (finish, finish, ')')]
        for edit in dropped_operands(masked, begin, finish):
            yield 'operand', [edit]
        for edit in limit_edits(masked, begin, finish):
            yield 'limit', [edit]
    for match in re.finditer(rf'\breturn (?:{ERROR});', masked[start:end]):
        at = start + match.start()
        before = masked[start:at]
        if not masked[start + match.end():end].strip(' \t\n}'):
            continue  # the function would end without a value
        if before.count('{') - before.count('}') > 1 or before.rstrip().endswith(')'):
            yield 'error', [(at, start + match.end(), ';')]
    for match in re.finditer(r'[\w>.*-]+ = (?:-E(?!NOMEM|IO\b)[A-Z]+);|[\w>.*-]+\bbad = true;', masked[start:end]):
        at = start + match.start()
        line = masked[masked.rindex('\n', 0, at) + 1:at]
        if not line.strip():
            yield 'error', [(at, start + match.end(), ';')]
    for match in re.finditer(r'\b(?:CRYPTO_)?memcmp\s*\(', masked[start:end]):
        at, opened = start + match.start(), start + match.end() - 1
        yield 'compare', [(at, at, '((void)'), (closing(masked, opened) + 1,) * 2 + (', 0)',)]


def order_edits(masked, start, end):
    """Yields the mutants of a function's memory orders and locks."""
    for match in re.finditer(r'\bmemory_order_(?:acquire|release|acq_rel|seq_cst)\b', masked[start:end]):
        yield 'memory order', [(start + match.start(), start + match.end(), 'memory_order_relaxed')]
    body = masked[start:end]
    for match in re.finditer(r'\b(\w+_)lock(\([^;]*\));', body):
        # Of a function that takes the same lock again, each mutant drops one of its pairs.
        again = body.find(match[0], match.end())
        unlocks = re.finditer(re.escape(match[1] + 'unlock' + match[2]) + ';', body[:again if again >= 0 else None])
        pair = [match] + [one for one in unlocks if one.start() > match.start()]
        if len(pair) > 1:
            yield 'lock', [(start + one.start(), start + one.end(), ';') for one in pair]


def apply(text, edits):
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text


def around(text, edits):
    """Returns the range of the lines with a mutant's changes, or of its first change if they are far apart."""
    start = text.rindex('\n', 0, edits[0][0]) + 1
    end = text.index('\n', edits[-1][1])
    if text.count('\n', start, end) > 4:
        end = text.index('\n', edits[0][1])
    return start, end


def find_sites(path, text, order=False):
    """Returns all mutants of a source.  The name of a mutant stays when other lines change."""
    masked = mask(text)
    found, names = [], collections.Counter()
    for function, start, end in functions(masked):
        for kind, edits in (order_edits if order else check_edits)(masked, start, end):
            first, last = around(text, edits)
            inside = [(a - first, b - first, to) for a, b, to in edits if first <= a and b <= last]
            shown = text[first:last]
            before, after = (' '.join(one.split()) for one in (shown, apply(shown, inside)))
            name = f'{path} {function}: {kind}: {before} -> {after}'
            names[name] += 1
            if names[name] > 1:
                name += f' ({names[name]})'
            found.append(Mutant(path, function, text.count('\n', 0, edits[0][0]) + 1, kind, edits, name))
    return found
