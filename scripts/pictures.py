"""What the pictures of the documentation have in common: one look, light and dark, and text that is safe in an SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

# a page's stylesheet does not reach into a picture, the reader's choice of light or dark does
STYLE = """\
text{font-family:"DejaVu Sans","Noto Sans",Helvetica,Arial,sans-serif;fill:var(--text);font-size:13px}
svg{--card:#fff;--edge:#cfd8dc;--text:#263238;--faint:#546e7a;--grid:#e4e9eb;
--a:#00796b;--b:#b45309;--c:#1d5fbf;--d:#8e3b8e;--e:#5f6f0a}
@media (prefers-color-scheme:dark){svg{--card:#1e2129;--edge:#3c4350;--text:#e6e9ee;--faint:#a9b4c2;--grid:#323843;
--a:#4db6ac;--b:#f5b041;--c:#82b1ff;--d:#dd9fe0;--e:#c0ca33}}
.card{fill:var(--card);stroke:var(--edge)}.faint{fill:var(--faint);font-size:12px}.bold{font-weight:bold}
.grid{stroke:var(--grid)}.axis{stroke:var(--faint)}.end{text-anchor:end}.mid{text-anchor:middle}
.a{--k:var(--a)}.b{--k:var(--b)}.c{--k:var(--c)}.d{--k:var(--d)}.e{--k:var(--e)}
.line{stroke:var(--k);fill:none;stroke-width:2.5}.fill{fill:var(--k)}.word{fill:var(--k);font-weight:bold}
"""


def text(x: float, y: float, words: str, style: str = "") -> str:
    """A line of text whose start, middle or end is at x."""
    return f'<text x="{x:g}" y="{y:g}" class="{style}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line."""
    return f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="{style}"/>'


def image(title: str, description: str, width: int, height: int, parts: list[str], style: str = "") -> str:
    """A whole SVG on a card of its own, so that it reads on every page."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="t d">',
            f'<title id="t">{escape(title)}</title><desc id="d">{escape(description)}</desc>',
            f"<style>\n{STYLE}{style}</style>",
            f'<rect class="card" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="10"/>',
            *parts,
            "</svg>\n",
        ]
    )
