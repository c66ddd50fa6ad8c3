"""sites.py - the small faults that scripts/mutate plants: where in a C file they can stand, and what each changes.

A site is a change of one file that keeps the number of its lines. Kinds:

  compare    < and <=, > and >=, == and !=, also lt() and le(), eq() and ne() of a kernel
  arithmetic + and -, * and /, << and >>, & and |, += and -=, ++ and --, min and max, add() and sub() ...
  logic      && and ||, ! left out
  condition  the condition of an if or a while negated
  constant   an integer one more or one less, a float one more, true and false
  statement  an assignment or a call left out, break and continue too
  row        two neighbouring rows of a table exchanged: their values, the keys stay; not "in any order", as a comment says

Not touched: comments, strings, includes and conditions of the preprocessor, asserts, the arguments of FAIL (the
wording of a message is no behaviour), the numbers of hashes, and the lengths of buffers for text. An array is not made
longer than it must be.
"""
import re
from collections import namedtuple

# before and after are the text replaced; line counts from 1; function is '' outside of functions.
Site = namedtuple('Site', 'file kind offset before after line function')

TOKEN = re.compile(r'''
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<directive>(?<=\n)\#\s*(?:include|if|ifdef|ifndef|elif|else|endif|undef|pragma|error)(?:\\\n|[^\n])*)
  | (?P<define>(?<=\n)\#\s*define\s+\w+(?:\([^)]*\))?)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)[uUlLfF]*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<operator><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*/%<>=!&|^~?:;,.(){}\[\]])
  | (?P<space>\s+|\\\n|.)''', re.X | re.S)
TEXT_LENGTH = re.compile(r'\bchar \w+\[\d+\]|(?:enum \{|#define) \w*(?:TEXT|WORD|NAME|SENTENCE|WHERE|PLACE)\w*(?:_MAX|_BYTES)\b')
HASH_NUMBERS = {'0xcbf29ce484222325', '0x100000001b3', '0x9e3779b97f4a7c15'}  # others hash as well
COMMENT_REACH = 250  # characters before a table's first brace, in which a comment speaks of it
ARRAY = re.compile(r'\s*(?:static |const )*\w+ \*?\w+\[')  # the line declares one
Token = namedtuple('Token', 'kind text at end')

PAIRS = {
    'compare': ['< <=', '> >=', '== !='],
    'arithmetic': ['+ -', '* /', '<< >>', '& |', '+= -=', '*= /=', '|= &=', '<<= >>=', '++ --'],
    'logic': ['&& ||'],
}
CALLS = {
    'compare': ['lt le', 'gt ge', 'eq ne'],
    'arithmetic': ['add sub', 'min max', 'min_i64 max_i64', 'shift_left shift_right', 'bit_and bit_or', 'max_nan min_nan',
                   'fminf fmaxf', 'fmin fmax'],
    'logic': ['logical_and logical_or'],
}
BINARY_ONLY = {'+', '-', '*', '/', '&', '|', '<', '>', '<<', '>>'}  # between spaces: a pointer or a sign is not


def both_ways(pairs):
    table = {}
    for kind, rows in pairs.items():
        for row in rows:
            one, other = row.split()
            table[one], table[other] = (kind, other), (kind, one)
    table.update({'%': ('arithmetic', '/'), '^': ('arithmetic', '&')} if '+' in table else {'mul': ('arithmetic', 'add')})
    return table


SWAPS, CALL_SWAPS = both_ways(PAIRS), both_ways(CALLS)
WORD_SWAPS = {'true': 'false', 'false': 'true'}
QUIET_CALLS = {'FAIL', 'assert', '_Static_assert', '__attribute__', 'sizeof'}
NOT_STATEMENTS = {'return', 'goto', 'case', 'default', 'if', 'else', 'for', 'while', 'do', 'switch', 'sizeof', 'assert',
                  '_Static_assert', 'typedef', 'static', 'const'}
ASSIGNS = {'=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='}


def tokens_of(text):
    """Every token but comments, spaces and directives."""
    found = []
    for m in TOKEN.finditer('\n' + text):
        if m.lastgroup not in ('comment', 'space', 'directive', 'define'):
            found.append(Token(m.lastgroup, m.group(), m.start() - 1, m.end() - 1))
    return found


def functions_of(text):
    """(first offset, last offset, name) of each body: its braces stand in the first column."""
    bodies, begin, header = [], None, ''
    at = 0
    for line in text.splitlines(keepends=True):
        if line.rstrip() == '{':
            name = re.findall(r'(\w+)\s*\(', header)
            begin = (at, name[0] if name else '')
        elif line.rstrip() == '}' and begin:
            bodies.append((begin[0], at + 1, begin[1]))
            begin = None
        if not line[:1].isspace() and line.strip() and line[0] not in '{}/*#':
            header = line
        at += len(line)
    return bodies


def closing(tokens, i):
    """The index of the bracket that closes the one at i, or the last token's."""
    depth = 0
    for j in range(i, len(tokens)):
        if tokens[j].text in '([{' and tokens[j].kind == 'operator':
            depth += 1
        elif tokens[j].text in ')]}' and tokens[j].kind == 'operator':
            depth -= 1
            if depth == 0:
                return j
    return len(tokens) - 1


def quiet_tokens(tokens):
    """Indices inside the arguments of FAIL, assert, sizeof."""
    quiet = set()
    for i, t in enumerate(tokens[:-1]):
        if t.text in QUIET_CALLS and tokens[i + 1].text == '(':
            quiet.update(range(i, closing(tokens, i + 1) + 1))
    return quiet


def operators(text, tokens, i):
    t = tokens[i]
    if t.kind == 'operator' and t.text in SWAPS:
        spaced = text[t.at - 1:t.at].isspace() and text[t.end:t.end + 1].isspace()
        if spaced or t.text not in BINARY_ONLY:
            kind, other = SWAPS[t.text]
            yield kind, t.at, t.text, other
    elif t.text == '!':
        yield 'logic', t.at, '!', ' '
    elif t.kind == 'word' and t.text in CALL_SWAPS and i + 1 < len(tokens) and tokens[i + 1].text == '(':
        kind, other = CALL_SWAPS[t.text]
        yield kind, t.at, t.text, other


def constants(text, tokens, i):
    t = tokens[i]
    if t.text in WORD_SWAPS:
        yield 'constant', t.at, t.text, WORD_SWAPS[t.text]
    if t.kind != 'number' or t.text in HASH_NUMBERS:
        return
    digits = re.match(r'0[xX][0-9a-fA-F]+|[0-9.]+(?:[eE][+-]?\d+)?', t.text).group()
    suffix = t.text[len(digits):]
    if re.search(r'[.eE]', digits) and not digits.lower().startswith('0x'):
        yield 'constant', t.at, t.text, repr(float(digits) + 1) + suffix
        return
    value = int(digits, 0) if not re.fullmatch(r'0\d+', digits) else int(digits, 8)
    for other in (value + 1, value - 1):
        if other >= 0:
            yield 'constant', t.at, t.text, (hex(other) if digits[:2].lower() == '0x' else str(other)) + suffix


def conditions(text, tokens, i):
    if tokens[i].text in ('if', 'while') and i + 1 < len(tokens) and tokens[i + 1].text == '(':
        last = closing(tokens, i + 1)
        begin, end = tokens[i + 1].end, tokens[last].at
        yield 'condition', begin, text[begin:end], '!(' + text[begin:end] + ')'


def enclosing_brackets(tokens):
    """Of each token the bracket around it, '' at the top."""
    found, open_ones = [], ['']
    for t in tokens:
        if t.kind == 'operator' and t.text in ')]}' and len(open_ones) > 1:
            open_ones.pop()
        found.append(open_ones[-1])
        if t.kind == 'operator' and t.text in '([{':
            open_ones.append(t.text)
    return found


def begins_statement(tokens, i):
    before = tokens[i - 1]
    if before.text in ('{', '}', ';', 'else'):
        return True
    if before.text != ')':
        return False
    depth = 0
    for j in range(i - 1, -1, -1):
        depth += (tokens[j].text == ')') - (tokens[j].text == '(')
        if depth == 0:
            return j > 0 and (tokens[j - 1].text in ('if', 'for', 'while') or tokens[j - 1].text.isupper())
    return False


def end_of_statement(tokens, i):
    """The index of its semicolon; None for a block or a declaration."""
    depth, assigned = 0, False
    for j in range(i, len(tokens)):
        text = tokens[j].text if tokens[j].kind == 'operator' else ''
        if depth == 0 and text == ';':
            return j
        if depth == 0 and (text == '}' or text == '{' and not assigned):
            return None
        assigned |= text in ASSIGNS
        depth += (text in ('(', '[', '{')) - (text in (')', ']', '}'))
    return None


def statements(text, tokens, i):
    t = tokens[i]
    if i == 0 or i + 1 >= len(tokens) or not begins_statement(tokens, i) or t.text in NOT_STATEMENTS:
        return
    following = tokens[i + 1].text
    plain = t.kind == 'word' and (following in ASSIGNS | {'(', '[', '.', '->', '++', '--'})
    if not (plain or t.text in ('*', '++', '--') or t.text in ('break', 'continue')):
        return
    last = end_of_statement(tokens, i)
    if last is not None and tokens[last].end - t.at > 2:
        before = text[t.at:tokens[last].end]
        yield 'statement', t.at, before, ';' + '\n' * before.count('\n')


def cells(tokens, begin, end):
    """Token ranges of what commas separate between two brackets."""
    found, first, depth = [], begin + 1, 0
    for j in range(begin + 1, end + 1):
        text = tokens[j].text if tokens[j].kind == 'operator' else ''
        if depth == 0 and (text == ',' or j == end):
            if j > first:
                found.append((first, j))
            first = j + 1
        depth += (text in ('(', '[', '{')) - (text in (')', ']', '}'))
    return found


def value_of(text, tokens, cell):
    """(begin, end) in the text of a row's values without its key: a designator, or a name that comes first."""
    first, last = cell
    if tokens[first].text == '[':
        close = closing(tokens, first)
        if tokens[close + 1].text == '=':
            first = close + 2
    begin, end = tokens[first].at, tokens[last - 1].end
    if tokens[first].text == '{':
        inner = cells(tokens, first, closing(tokens, first))
        begin, end = tokens[first].end, tokens[closing(tokens, first)].at
        if len(inner) > 1 and tokens[inner[0][0]].kind == 'string':
            begin = tokens[inner[1][0]].at
    return begin, end


def rows(text, tokens, i):
    """Neighbours of the table that begins at i; rows that differ in texts alone are none."""
    if tokens[i].text != '{' or i == 0 or tokens[i - 1].text != '=':
        return
    if 'in any order' in text[max(0, tokens[i].at - COMMENT_REACH):tokens[i].at].lower():
        return
    table = [c for c in cells(tokens, i, closing(tokens, i)) if tokens[c[0]].text in ('{', '[')]
    for one, other in zip(table, table[1:]):
        (a, b), (c, d) = value_of(text, tokens, one), value_of(text, tokens, other)
        bare = [re.sub(r'"(?:\\.|[^"\\])*"|\s', '', text[x:y]) for x, y in ((a, b), (c, d))]
        if a < b <= c < d and bare[0] != bare[1] and text[a:b].count('\n') == text[c:d].count('\n'):
            yield 'row', a, text[a:d], text[c:d] + text[b:c] + text[a:b]


def int_of(literal):
    return int(re.match(r'0[xX][0-9a-fA-F]+|\d+', literal).group(), 0)


def sites_of(file, text):
    tokens, bodies = tokens_of(text), functions_of(text)
    quiet, around = quiet_tokens(tokens), enclosing_brackets(tokens)
    for i, t in enumerate(tokens):
        function = next((name for begin, end, name in bodies if begin <= t.at < end), '')
        found = list(rows(text, tokens, i))
        if i not in quiet:
            found += [*operators(text, tokens, i), *constants(text, tokens, i), *conditions(text, tokens, i)]
        if function and around[i] == '{':
            found += statements(text, tokens, i)
        for kind, offset, before, after in found:
            line = text.count('\n', 0, offset) + 1
            row = text.splitlines()[line - 1]
            if kind == 'constant' and (TEXT_LENGTH.search(row) or around[i] == '[' and ARRAY.match(row) and int_of(after) > int_of(before)):
                continue
            yield Site(file, kind, offset, before, after, line, function)
