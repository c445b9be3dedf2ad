"""One HTML file with a Comparison: the answer, the chart, the tables; it asks for nothing else."""

from __future__ import annotations

from html import escape

from plotly.offline import get_plotlyjs

from ..sim.compare import Comparison
from ..sim.compare.words import Table, answer, basis, best, everything, left_out, question
from .comparison import chart
from .comparison_labels import NARROW
from .look import MONO, SANS
from .paint.svg import face_rule
from .theme import FONTS, PALETTES

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{fonts}
{css}
</style>
<script>{plotly}</script>
</head>
<body>
<main>
<h1>{answer}</h1>
<p class="muted">{question}</p>
<section><div id="chart"></div></section>
<section>{best}</section>
{everything}
{left_out}
<footer>{basis}</footer>
</main>
<script type="application/json" id="figure">{figure}</script>
<script>
{script}
</script>
</body>
</html>
"""

_CSS = """
:root {{ color-scheme: {theme}; }}
body {{ margin: 0; background: {bg}; color: {text}; font: 13px/1.5 {sans}; }}
main {{ max-width: 1280px; min-width: {narrow}px; margin: 0 auto; padding: 24px;
        box-sizing: border-box; }}
h1 {{ margin: 0; font-size: 24px; line-height: 1.3; font-weight: 600; color: {ink};
      text-wrap: balance; letter-spacing: -0.01em; }}
.muted, footer {{ margin: 4px 0 16px; color: {muted}; }}
section {{ background: {panel}; border: 1px solid {line}; border-radius: 10px; padding: 16px;
           margin-bottom: 16px; }}
table {{ border-collapse: collapse; width: 100%; }}
th {{ font-weight: 500; color: {muted}; text-align: left; }}
th, td {{ padding: 5px 12px 5px 0; border-bottom: 1px solid {line}; white-space: nowrap; }}
tr:last-child td {{ border-bottom: 0; }}
.n {{ text-align: right; }}
td.n {{ font-family: {mono}; font-size: 12px; }}
td:nth-child(2):not(.n) {{ font-weight: 600; color: {ink}; }}
.wide {{ overflow-x: auto; }}
summary {{ cursor: pointer; font-weight: 600; color: {ink}; }}
"""

# Under the pointer an algorithm's line comes forward, in both panels.
_SCRIPT = """
const figure = JSON.parse(document.getElementById("figure").textContent);
const chart = document.getElementById("chart");
const looks = figure.data.map((trace) => ({...trace.line}));
let shown = null;
function bringForward(name) {
  if (name === shown) return;
  shown = name;
  const lines = figure.data.map((trace, k) => k).filter((k) => figure.data[k].meta);
  const fore = (k) => figure.data[k].meta === name;
  Plotly.restyle(chart, {
    "line.color": lines.map((k) => (fore(k) ? INK : looks[k].color)),
    "line.width": lines.map((k) => (fore(k) ? 2.4 : looks[k].width)),
  }, lines);
}
document.fonts.ready.then(() =>
  Plotly.newPlot(chart, figure.data, figure.layout, {displayModeBar: false, responsive: true})
).then(() => {
  chart.on("plotly_hover", (event) => bringForward(event.points[0].data.meta || null));
  chart.on("plotly_unhover", () => bringForward(null));
});
"""


def page(found: Comparison, theme: str = "light") -> str:
    """Return a comparison as a page that needs no network.

    Args:
        found: What was compared.
        theme: light or dark.
    """
    palette = PALETTES[theme]
    lines = left_out(found)
    texts = (answer(found), question(found), basis(found), *lines, *found.algorithms)
    signs = "".join(chr(code) for code in range(32, 127)) + "".join(texts) + "·×µ→–="
    css = _CSS.format(theme=theme, narrow=NARROW, sans=SANS, mono=MONO, **palette)
    return _PAGE.format(
        title=escape(f"{question(found)} · chunkscope"),
        fonts="\n".join(face_rule(font, family, signs) for font, family in FONTS.items()),
        css=css,
        plotly=get_plotlyjs(),
        answer=escape(answer(found)),
        question=escape(question(found)),
        best=_html(best(found)),
        everything=_everything(found),
        left_out="".join(f'<p class="muted">Left out {escape(line)}</p>' for line in lines),
        basis=escape(basis(found)),
        # No text of a figure may end the script that holds it.
        figure=chart(found, theme).to_json().replace("</", "<\\/"),
        script=_SCRIPT.replace("INK", f'"{palette["ink"]}"'),
    )


def _everything(found: Comparison) -> str:
    """Return the times of all algorithms at all sizes, folded away."""
    if len(found.size_bytes) == 1:
        return ""  # the table above has them
    table = _html(everything(found, len(found.size_bytes))[0])
    summary = "<summary>Every algorithm</summary>"
    return f'<section><details>{summary}<div class="wide">{table}</div></details></section>'


def _html(table: Table) -> str:
    def line(cells: tuple[str, ...], tag: str) -> str:
        marks = [' class="n"' if numeric else "" for numeric in table.numeric]
        return "".join(
            f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True)
        )

    head = f"<thead><tr>{line(table.header, 'th')}</tr></thead>"
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in table.rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"
