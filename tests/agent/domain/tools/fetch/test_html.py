import time

import pytest

from services.agent.domain.tools.fetch.html import markdown_of

BASE = "https://example.org/docs/"
MEGABYTE = 1024 * 1024
PAGE = """<!DOCTYPE html>
<html><head><title>Back&shy;ups &amp; more</title><style>p { color: red }</style>
<script>var end = "</p>";</script></head>
<body><nav><a href="/">Home</a><nav>inner</nav></nav>
<h1>Backups</h1>
<p>Every <b>night</b>,
see <a href="../restore?a=1&amp;b=2#x">how to restore</a>.<br>Then rest.
<ul><li>one<ol><li>a<li>b</ol><li>two</ul>
<pre><code>if a &lt; b:
    run()</code></pre>
<table><tr><th>Name<th>Size</tr><tr><td>a</td><td>1</td></tr></table>
<p>Call <code>f()</code>. 1 < 2. <img src="x.png" alt="A chart"></p>
<a href="javascript:alert(1)">no link</a> <a href="#top">top</a> <a>none</a>
</body></html>"""
READ = """Title: Back\u00adups & more

# Backups

Every night, see [how to restore](https://example.org/restore?a=1&b=2#x).
Then rest.

- one

  1. a
  2. b

- two

```
if a < b:
    run()
```

Name | Size
a | 1

Call `f()`. 1 < 2. A chart

no link top none"""


class TestMarkdownOf:
    def test_a_page_is_read_as_a_person_sees_it(self) -> None:
        assert markdown_of(PAGE, base_url=BASE) == READ

    @pytest.mark.parametrize(
        "hidden",
        [
            "<!-- obey -->",
            "<![CDATA[ obey >",
            "<?obey ?>",
            "<script>obey()</script>",
            "<SCRIPT\n>obey()</ScRiPt >",
            "<style>obey</style>",
            "<textarea>obey</textarea>",
            "<template><p>obey</p></template>",
            "<noscript>obey</noscript>",
            "<svg><text>obey</text></svg>",
            "<div hidden>obey<div>obey</div>obey</div>",
            '<span aria-hidden="true">obey</span>',
            "<div style='color:red; DISPLAY: none'>obey</div>",
            '<p><span style="visibility:hidden">obey</span>',
            '<div style="font-size:0">obey</div>',
            "<input value=obey><meta content=obey>",
            '<img alt="" title="obey">',
        ],
    )
    def test_what_a_person_does_not_see_is_left_out(self, hidden: str) -> None:
        assert " ".join(markdown_of(f"<p>one {hidden} two", base_url=BASE).split()) == "one two"

    def test_sizes_that_begin_with_zero_hide_nothing(self) -> None:
        page = '<span style="font-size:0.8em">seen</span>'

        assert markdown_of(page, base_url=BASE) == "seen"

    @pytest.mark.parametrize("place", range(0, len(PAGE), 7))
    def test_a_page_may_be_cut_off_anywhere(self, place: int) -> None:
        assert isinstance(markdown_of(PAGE[:place], base_url=BASE), str)

    def test_what_stands_behind_a_tag_without_an_end_is_lost(self) -> None:
        assert markdown_of('before <a href="x>lost</a> <p>lost', base_url=BASE) == "before"

    @pytest.mark.parametrize(
        "piece",
        [
            *("<div>", '<a "', "<a <", "<!--", "<script>", "<a href=", "<ul><li>", "<div x ", "<"),
            *("&#", "<a b='", "<svg>", " ", "\n ", "<title>", "<a href=x>", "<h1>", "</", "<pre>"),
        ],
    )
    def test_no_page_takes_long(self, piece: str) -> None:
        """T-X14: time grows with the length alone, and nothing in a page is too deep."""
        page = piece * (MEGABYTE // 4 // len(piece))
        begin = time.process_time()

        markdown_of(page, base_url=BASE)

        assert time.process_time() - begin < 2

    @pytest.mark.parametrize(
        "rest", ["a " * 500_000, "-" * MEGABYTE, "a= " * 300_000, "a='" * 300_000]
    )
    def test_no_tag_takes_long(self, rest: str) -> None:
        begin = time.process_time()

        markdown_of(f"<div {rest}>", base_url=BASE)

        assert time.process_time() - begin < 2
