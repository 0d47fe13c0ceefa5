"""Draw the completion curves of recorded runs: `python docs/make_picture.py NAME=RUN.jsonl … --out docs/demo.svg`.

A curve shows which share of the batch had ended when (`agentbatch.trace.completion_curve`). The first run is the one
that the others are compared with. The SVG is written by hand: no plotting library, and text that follows the reader's
light or dark theme.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from agentbatch.trace import CompletionCurve, completion_curve, read_run

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 62, 44
COLOURS = ("#d9601a", "#3b82d6", "#1a9d6e", "#a052c8")
"""One a run; each has a contrast of at least 3 to 1 on white and on GitHub's dark grey."""

STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .small { font-size: 12px; fill: #57606a; }
  .end { text-anchor: end; } .middle { text-anchor: middle; }
  .grid { stroke: #8c959f; stroke-opacity: .35; }
  .curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .small { fill: #9da7b1; } }
"""


def step_s(longest_s: float) -> float:
    """Return a round distance between ticks, 1, 2 or 5 times a power of ten, that gives at most ten of them."""
    power = 10.0 ** math.floor(math.log10(longest_s / 10))
    return next(factor * power for factor in (1, 2, 5, 10) if longest_s <= 10 * factor * power)


def steps(curve: CompletionCurve, x_of: float) -> str:
    """Return the SVG path of a curve that rises by one trajectory at each end; `x_of` is the width of a second."""
    base = HEIGHT - BOTTOM
    rise = (base - TOP) / curve.trajectories
    return f"M{LEFT} {base}" + "".join(
        f"H{LEFT + at_s * x_of:.1f}V{base - (n + 1) * rise:.1f}" for n, at_s in enumerate(curve.ended_s)
    )


def draw(runs: Sequence[tuple[str, CompletionCurve]]) -> str:
    """Return the picture of `runs`, each a name and the curve of a batch that ended."""
    longest_s = max(curve.ended_s[-1] for _, curve in runs)
    right, base = WIDTH - RIGHT, HEIGHT - BOTTOM
    x_of = (right - LEFT) / longest_s
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t">']
    said = "; ".join(f"{name}: all ended after {curve.ended_s[-1]:,.0f} s" for name, curve in runs)
    out.append(f'<title id="t">{escape(f"Share of the batch that has ended, over time. {said}")}</title>')
    out.append(f"<style>{STYLE}</style>")

    for share in (0, 25, 50, 75, 100):
        y = base - share / 100 * (base - TOP)
        out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
        out.append(f'<text class="small end" x="{LEFT - 8}" y="{y + 4:.1f}">{share} %</text>')
    step = step_s(longest_s)
    for tick in range(int(longest_s / step) + 1):
        x = LEFT + tick * step * x_of
        out.append(f'<text class="small middle" x="{x:.1f}" y="{base + 18}">{tick * step:,.0f}</text>')
    out.append(f'<text class="small end" x="{right}" y="{HEIGHT - 8}">trace seconds since the first admission</text>')

    first_s = runs[0][1].ended_s[-1]
    columns = (right - LEFT) / len(runs)
    for place, ((name, curve), colour) in enumerate(zip(runs, COLOURS, strict=False)):
        out.append(f'<path class="curve" stroke="{colour}" d="{steps(curve, x_of)}"/>')
        x, end_s = LEFT + place * columns, curve.ended_s[-1]
        against = f" ({100 * (end_s / first_s - 1):+.1f} %)".replace("-", "−") if place else ""
        out.append(f'<path class="curve" stroke="{colour}" d="M{x:.1f} 17h22"/>')
        out.append(f'<text x="{x + 28:.1f}" y="21">{escape(name)}</text>')
        out.append(f'<text class="small" x="{x + 28:.1f}" y="39">{end_s:,.0f} s{against}</text>')
    return "\n".join([*out, "</svg>", ""])


def main() -> None:
    """Read the runs, write the picture, say what is in it."""
    parser = argparse.ArgumentParser(description="Draw the completion curves of recorded runs as one SVG.")
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN.jsonl", help=f"one to {len(COLOURS)} names with records")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("demo.svg"))
    asked = parser.parse_args()
    if len(asked.runs) > len(COLOURS):
        parser.error(f"at most {len(COLOURS)} runs fit into one picture")
    curves = []
    for pair in asked.runs:
        name, _, file = pair.rpartition("=")
        curve = completion_curve(read_run(file).events)
        if len(curve.ended_s) < max(1, curve.trajectories):
            parser.error(f"{file}: {len(curve.ended_s)} of {curve.trajectories} trajectories ended; draw whole runs")
        curves.append((name or Path(file).stem, curve))
    asked.out.write_text(draw(curves), encoding="utf-8")
    print(f"{asked.out}: {', '.join(f'{name} {curve.ended_s[-1]:,.0f} s' for name, curve in curves)}")


if __name__ == "__main__":
    main()
