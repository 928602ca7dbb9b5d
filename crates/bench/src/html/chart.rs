//! One chart as SVG, in a page or as a drawing of its own: lines, or a distribution.

use super::scale::Scale;
use crate::xml::escape;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
/// Height of a line of the legend in a drawing.
const LEGEND_LINE: f64 = 18.0;
/// Width of a letter there, roughly.
const LEGEND_LETTER: f64 = 6.6;

/// What charts look like.
pub(super) const STYLE: &str = include_str!("chart.css");

/// The same for viewers that know no custom properties (librsvg, and what is built on it): before each colour by name stands the light one.
fn with_plain_colours(style: &str) -> String {
    let light = style.split('}').next().unwrap_or_default();
    let colours = light.split(['{', ';']).filter_map(|declaration| declaration.trim().split_once(": "));
    let colours = colours.filter(|(name, _)| name.starts_with("--"));
    colours.fold(style.to_owned(), |style, (name, colour)| {
        ["fill", "stroke"].into_iter().fold(style, |style, property| {
            let by_name = format!("{property}: var({name});");
            style.replace(&by_name, &format!("{property}: {colour}; {by_name}"))
        })
    })
}

/// One line, or one filled outline.
pub(super) struct Line {
    pub(super) name: String,
    /// Its colour on the page: `c0` to `c5`.
    pub(super) colour: usize,
    pub(super) dashed: bool,
    /// In the order of their x. Where y is no number the line is broken.
    pub(super) points: Vec<(f64, f64)>,
}

impl Line {
    /// Those that are there.
    pub(super) fn measured(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().copied().filter(|point| !point.1.is_nan())
    }
}

/// Each x at which a line has a point, in order.
pub(super) fn measured_at(lines: &[Line]) -> Vec<f64> {
    let mut xs: Vec<f64> = lines.iter().flat_map(|line| line.measured().map(|(x, _)| x)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

/// A chart.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) x_title: &'static str,
    pub(super) x: Scale,
    pub(super) y: Scale,
    /// What is written along x; what the scale says if that is nothing.
    pub(super) x_marks: Vec<f64>,
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
        self.content(&mut out);
        out + "</svg></figure>\n"
    }

    fn content(&self, out: &mut String) {
        self.axes(out);
        for line in &self.lines {
            self.line(out, line);
        }
        self.readings(out);
    }

    /// The chart as a drawing that stands alone.
    pub(super) fn drawing(&self) -> String {
        let (mut x, mut y) = (LEFT, 2.0 * LEGEND_LINE);
        let mut legend = String::new();
        for line in &self.lines {
            #[expect(clippy::cast_precision_loss, reason = "pixels")]
            let width = 26.0 + line.name.chars().count() as f64 * LEGEND_LETTER + 14.0;
            if x + width > WIDTH && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_LINE);
            }
            let dash = if line.dashed { " dashed" } else { "" };
            let (to, at, name) = (x + 20.0, y - 4.0, x + 26.0);
            legend += &format!(
                "<line class=\"legend c{}{dash}\" x1=\"{x:.1}\" x2=\"{to:.1}\" y1=\"{at}\" y2=\"{at}\"/>\
                 <text x=\"{name:.1}\" y=\"{y}\">{}</text>\n",
                line.colour,
                escape(&line.name),
            );
            x += width;
        }
        let top = y + 4.0;
        let height = top + HEIGHT;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
             <style>{}</style>\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"title\" x=\"{LEFT}\" y=\"16\">{}</text>\n{legend}<g transform=\"translate(0 {top})\">\n",
            with_plain_colours(STYLE),
            escape(self.title),
        );
        self.content(&mut out);
        out + "</g></svg>\n"
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
        let marks = if self.x_marks.is_empty() { &self.x.ticks() } else { &self.x_marks };
        for &value in marks {
            let x = self.x_of(value);
            *out += &format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
            let y = bottom + 16.0;
            *out += &format!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", (self.show_x)(value));
        }
        let (x, y) = ((LEFT + right) / 2.0, HEIGHT - 6.0);
        *out += &format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", self.x_title);
    }

    fn line(&self, out: &mut String, line: &Line) {
        for points in line.points.split(|point| point.1.is_nan()) {
            self.stroke(out, line, points);
        }
    }

    /// What lies between two breaks of a line.
    fn stroke(&self, out: &mut String, line: &Line, points: &[(f64, f64)]) {
        let corners = points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.x_of(*x), self.y_of(*y)));
        let corners: Vec<String> = corners.collect();
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
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
        let xs = measured_at(&self.lines);
        for (index, x) in xs.iter().enumerate() {
            let here = self.x_of(*x);
            let from = if index == 0 { LEFT } else { f64::midpoint(self.x_of(xs[index - 1]), here) };
            let to = xs.get(index + 1).map_or(WIDTH - RIGHT, |next| f64::midpoint(here, self.x_of(*next)));
            let readings = self.lines.iter().filter_map(|line| {
                let at = line.points.binary_search_by(|(at, _)| at.total_cmp(x)).ok()?;
                let value = line.points[at].1;
                (!value.is_nan()).then(|| format!("\n{}: {}", line.name, (self.show_y)(value)))
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
