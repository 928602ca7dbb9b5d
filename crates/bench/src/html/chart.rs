//! One chart as inline SVG: lines over time, or a distribution. Colours are the page's.

use super::scale::Scale;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// One line, or one filled outline.
pub(super) struct Line {
    pub(super) name: String,
    /// Its colour on the page: `c0` to `c5`.
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// A chart.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) x_title: &'static str,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) show_x: fn(f64) -> String,
    pub(super) show_y: fn(f64) -> String,
    /// The area below the lines is filled.
    pub(super) filled: bool,
    pub(super) lines: Vec<Line>,
}

impl Chart {
    /// The chart as a figure with its legend.
    pub(super) fn figure(&self) -> String {
        let mut out = format!("<figure><figcaption><b>{}</b>", self.title);
        for line in &self.lines {
            let dash = if line.dashed { " dashed" } else { "" };
            out += &format!(" <span class=\"key\"><i class=\"b{}{dash}\"></i>{}</span>", line.colour, line.name);
        }
        out +=
            &format!("</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", self.title);
        self.axes(&mut out);
        for line in &self.lines {
            self.line(&mut out, line);
        }
        self.readings(&mut out);
        out + "</svg></figure>\n"
    }

    fn x_of(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y_of(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self, out: &mut String) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in self.y.ticks() {
            let y = self.y_of(value);
            *out += &format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let (x, y) = (LEFT - 8.0, y + 4.0);
            *out += &format!("<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", (self.show_y)(value));
        }
        for value in self.x.ticks() {
            let x = self.x_of(value);
            *out += &format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
            let y = bottom + 16.0;
            *out += &format!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", (self.show_x)(value));
        }
        let (x, y) = ((LEFT + right) / 2.0, HEIGHT - 6.0);
        *out += &format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", self.x_title);
    }

    fn line(&self, out: &mut String, line: &Line) {
        let corners = line.points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.x_of(*x), self.y_of(*y)));
        let corners: Vec<String> = corners.collect();
        let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else { return };
        let colour = line.colour;
        if self.filled {
            let bottom = HEIGHT - BOTTOM;
            let (from, to) = (self.x_of(first.0), self.x_of(last.0));
            let outline = corners.join(" ");
            *out += &format!("<polygon class=\"f{colour}\" points=\"{from:.1},{bottom} {outline} {to:.1},{bottom}\"/>");
        }
        if let [only] = &corners[..] {
            let (x, y) = only.split_once(',').unwrap_or_default();
            *out += &format!("<circle class=\"b{colour} dot\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>");
        }
        let dash = if line.dashed { " dashed" } else { "" };
        *out += &format!("<polyline class=\"c{colour}{dash}\" points=\"{}\"/>", corners.join(" "));
    }

    /// What the lines say at each x, shown when the pointer is there.
    fn readings(&self, out: &mut String) {
        let mut xs: Vec<f64> = self.lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        for (index, x) in xs.iter().enumerate() {
            let here = self.x_of(*x);
            let from = if index == 0 { LEFT } else { f64::midpoint(self.x_of(xs[index - 1]), here) };
            let to = xs.get(index + 1).map_or(WIDTH - RIGHT, |next| f64::midpoint(here, self.x_of(*next)));
            let readings = self.lines.iter().filter_map(|line| {
                let (_, y) = line.points.iter().find(|(at, _)| at == x)?;
                Some(format!("\n{}: {}", line.name, (self.show_y)(*y)))
            });
            *out += &format!(
                "<g class=\"at\"><rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{}\"/>\
                 <line x1=\"{here:.1}\" x2=\"{here:.1}\" y1=\"{TOP}\" y2=\"{}\"/><title>{}{}</title></g>",
                (to - from).max(0.1),
                HEIGHT - TOP - BOTTOM,
                HEIGHT - BOTTOM,
                (self.show_x)(*x),
                readings.collect::<String>(),
            );
        }
    }
}
