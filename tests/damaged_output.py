"""A tool's output that lacks something or holds something else: what a parser has to read in full, or refuse."""

from hypothesis import strategies as st

from bench_common.errors import ParseError


def cut_at_characters(text, step=1):
    """Yield the text up to every character, or every so many."""
    return (text[:length] for length in range(0, len(text), step))


def cut_after_lines(text):
    """Yield the text up to the end of each line but the last."""
    lines = text.splitlines(keepends=True)
    return ("".join(lines[:count]) for count in range(len(lines)))


def without_a_line(text):
    """Yield the text without its first line, without its second ..."""
    lines = text.splitlines(keepends=True)
    return ("".join(lines[:gone] + lines[gone + 1 :]) for gone in range(len(lines)))


def with_junk(data, text, letters):
    """Return the text with up to 60 characters replaced by anything, often by `letters`, as hypothesis draws it."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 60)))
    junk = data.draw(st.one_of(st.text(max_size=30), st.text(letters, max_size=30)))
    return text[:start] + junk + text[end:]


def assert_whole_or_refused(parse, text, pieces):
    """Hold a parser to the metrics of the whole text, or a refusal, of each piece; return how many it refused."""
    whole, refused = parse(text), 0
    for piece in pieces:
        try:
            assert parse(piece) == whole
        except ParseError:
            refused += 1
    return refused
