//! The report as one page that needs nothing else: no scripts, no fonts, nothing to be fetched.

mod chart;
pub(crate) mod plots;
mod scale;

use chart::{Chart, Line};
use scale::Scale;

use crate::{
    compare::{Verdict, cautions, compare, interval, show_ratio},
    report::{Asked, Figures, PerSecond, Report},
    units::{show_bytes, show_count, show_round_count, show_us},
    xml::escape,
};

/// The page of one report, or of two side by side.
pub(crate) fn page(reports: &[&Report]) -> String {
    let [first, ..] = reports else { return String::new() };
    let title = match reports {
        [_, second] if (&second.load, &second.size) != (&first.load, &first.size) => {
            format!("{} of {} and {} of {}", first.load, first.size, second.load, second.size)
        }
        [_, _] => format!("{} of {}, compared", first.load, first.size),
        _ => format!("{} of {}", first.load, first.size),
    };
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>gabion bench: {0}</title>\n\
         <style>{1}{2}</style></head>\n<body><main><h1>gabion bench: {0}</h1>\n",
        escape(&title),
        chart::STYLE,
        include_str!("style.css")
    );
    for (letter, report) in letters(reports) {
        out += &parameters(letter, report);
    }
    out += "<h2>Figures</h2><div class=\"tables\">\n";
    if let [a, b] = reports {
        out += &comparison(a, b);
    }
    out += &figures(reports);
    out += "</div>\n";
    for name in names(reports) {
        out += &plots(&name, reports);
    }
    out + "</main></body></html>\n"
}

/// The reports with the letters that tell them apart; a lone one has none.
fn letters<'a>(reports: &'a [&'a Report]) -> impl Iterator<Item = (&'static str, &'a Report)> {
    let letters = if reports.len() > 1 { ["A", "B"] } else { ["", ""] };
    letters.into_iter().zip(reports.iter().copied())
}

/// Every operation that a report has, once.
fn names(reports: &[&Report]) -> Vec<String> {
    let mut names = Vec::new();
    for figures in reports.iter().flat_map(|report| &report.results) {
        let name = figures.name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn parameters(letter: &str, report: &Report) -> String {
    let server = report.server_cpu_us_per_op.map_or_else(|| "not measured".to_owned(), |us| format!("{us:.1} µs"));
    let rows = [
        ("load", report.load.clone()),
        ("size", report.size.clone()),
        (
            "workers / processes / threads",
            format!("{} / {} / {}", report.concurrency, report.processes, report.threads),
        ),
        ("endpoint", report.endpoint.clone()),
        ("begun", report.started.clone()),
        (
            "measured",
            format!("{:.1} s{}", report.seconds, if report.interrupted { ", interrupted before its end" } else { "" }),
        ),
        ("payload", format!("{}, reads {}", report.payload, if report.verified { "verified" } else { "not verified" })),
        ("client CPU per request", format!("{:.1} µs", report.client_cpu_us_per_op)),
        ("server CPU per request", server),
        ("client's machine", report.machine.to_string()),
        ("gabion bench", report.version.clone()),
    ];
    let asked = report.asked.iter().flat_map(Asked::words).filter_map(|(name, value)| Some((name, value?)));
    let rows = rows.into_iter().chain(asked);
    let rows = rows.map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value)));
    let heading = if letter.is_empty() { String::new() } else { format!("<p><b>{letter}</b></p>") };
    let cautions = report.cautions().into_iter().map(|line| format!("<p class=\"bad\">{}</p>\n", escape(&line)));
    format!("{heading}<dl>{}</dl>\n{}", rows.collect::<String>(), cautions.collect::<String>())
}

fn figures(reports: &[&Report]) -> String {
    let mut out = String::from(
        "<table><thead><tr><th>operation</th><th>operations</th><th>per second</th><th>keys per second</th><th>throughput</th><th>mean</th><th>p50</th>\
         <th>p90</th><th>p99</th><th>p99.9</th><th>max</th><th>errors</th></tr></thead><tbody>\n",
    );
    for (letter, report) in letters(reports) {
        for row in &report.results {
            let latency = &row.latency_us;
            let cells = [
                format!("{letter} {}", row.name()),
                show_count(row.operations as f64),
                show_count(row.ops_per_s),
                row.entries_per_s.map_or_else(|| "–".to_owned(), show_count),
                if row.bytes_per_s > 0.0 { format!("{}/s", show_bytes(row.bytes_per_s)) } else { "–".to_owned() },
                show_us(latency.mean),
                show_us(latency.p50),
                show_us(latency.p90),
                show_us(latency.p99),
                show_us(latency.p999),
                show_us(latency.max),
            ];
            out += &format!("<tr>{}", cells.map(|cell| format!("<td>{}</td>", escape(cell.trim()))).concat());
            let bad = if row.error_count > 0 { " class=\"bad\"" } else { "" };
            out += &format!("<td{bad}>{}</td></tr>\n", row.error_count);
            for (kind, count) in row.errors.iter().filter(|_| !row.is_sum()) {
                out += &format!("<tr><td class=\"bad\">{count} × {}</td></tr>\n", escape(kind));
            }
            if let Some(outlasted) = row.outlasted() {
                out += &format!("<tr><td>{outlasted}</td></tr>\n");
            }
            if row.retries > 0 && !row.is_sum() {
                out +=
                    &format!("<tr><td>{} × sent again: the server had closed the connection</td></tr>\n", row.retries);
            }
        }
    }
    out + "</tbody></table>\n"
}

fn comparison(a: &Report, b: &Report) -> String {
    let mut out = String::from(
        "<table><thead><tr><th>operation</th><th>A per second</th><th>B per second</th><th>B/A</th><th>95 % interval</th>\
         <th>p50 B/A</th><th>p99 B/A</th><th>meaning</th></tr></thead><tbody>\n",
    );
    let comparisons = compare(a, b);
    for row in &comparisons {
        let half_width = row.half_width.map_or_else(|| "?".to_owned(), |half| format!("± {half:.3}"));
        let class = match row.verdict {
            Verdict::Faster => "good",
            Verdict::Slower => "bad",
            Verdict::WithinNoise | Verdict::TooShort | Verdict::TooFew | Verdict::Given | Verdict::Nothing { .. } => "",
        };
        out += &format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{half_width}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{}</td></tr>\n",
            escape(&row.a.name()),
            show_count(row.a.ops_per_s),
            show_count(row.b.ops_per_s),
            show_ratio(row.ratio),
            show_ratio(row.latency_ratio(|latency| latency.p50)),
            show_ratio(row.latency_ratio(|latency| latency.p99)),
            row.verdict.words(),
        );
        if let Some((a, b, ratio)) = row.entries() {
            let (name, a, b) = (escape(&row.a.name()), show_count(a), show_count(b));
            out += &format!("<tr><td>{name}, keys</td><td>{a}</td><td>{b}</td><td>{}</td></tr>\n", show_ratio(ratio));
        }
    }
    out += &format!("</tbody></table><p>{}</p>\n", escape(interval(&comparisons)));
    out + &cautions(a, b)
        .iter()
        .map(|caution| format!("<p class=\"bad\">{}</p>\n", escape(caution)))
        .collect::<String>()
}

/// The charts of one operation.
fn plots(name: &str, reports: &[&Report]) -> String {
    let of = |report: &'_ Report| report.results.iter().position(|row| row.name() == name);
    let rows: Vec<(&str, &Figures)> =
        letters(reports).filter_map(|(letter, report)| Some((letter, &report.results[of(report)?]))).collect();
    let (short, long): (Vec<_>, Vec<_>) = rows.iter().partition(|(_, figures)| figures.whole_seconds().is_empty());
    let sentences = short.iter().map(|(letter, _)| {
        let what = if letter.is_empty() { "It" } else { letter };
        format!("<p>{what} lasted less than a second: there is nothing to be shown over time.</p>\n")
    });
    let over_time = if long.is_empty() { Vec::new() } else { charts_over_time(&rows) };
    let charts: String = over_time.iter().chain([&distributions(&rows)]).map(Chart::figure).collect();
    let sentences: String = sentences.collect();
    format!("<h2>{}</h2>{sentences}<div class=\"plots\">\n{charts}</div>\n", escape(name))
}

fn legend(letter: &str, what: &str) -> String {
    if letter.is_empty() { what.to_owned() } else { format!("{letter} {what}").trim_end().to_owned() }
}

/// Most points of a line: of a run of hours several seconds are one.
const POINTS_MAX: usize = 1000;

/// What a point stands for where it is of several seconds.
#[derive(Clone, Copy)]
enum Of {
    Mean,
    /// Of the seconds in which there was anything.
    MeanOfAny,
    Highest,
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn over_time(figures: &Figures, of: Of, value: impl Fn(&PerSecond) -> f64) -> Vec<(f64, f64)> {
    let seconds = figures.whole_seconds();
    let points = seconds.chunks(seconds.len().div_ceil(POINTS_MAX).max(1)).map(|seconds| {
        let count = seconds.len() as f64;
        let values = seconds.iter().map(&value);
        let any = values.clone().filter(|value| *value > 0.0);
        let value = match of {
            Of::Mean => values.sum::<f64>() / count,
            Of::MeanOfAny => any.clone().sum::<f64>() / any.count().max(1) as f64,
            Of::Highest => values.fold(0.0, f64::max),
        };
        (seconds[0].second as f64 + count / 2.0, value)
    });
    points.collect()
}

fn seconds_scale(rows: &[(&str, &Figures)]) -> Scale {
    let seconds = rows.iter().filter_map(|(_, figures)| Some(figures.whole_seconds().last()?.second + 1)).max();
    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    Scale::Linear(seconds.unwrap_or(0).max(1) as f64)
}

fn show_seconds(seconds: f64) -> String {
    format!("{seconds} s")
}

/// Rates and latencies; errors where there are any, and bytes where they do not follow from the operations.
#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn charts_over_time(rows: &[(&str, &Figures)]) -> Vec<Chart> {
    let operations = |second: &PerSecond| second.ops as f64;
    let mebibytes = |second: &PerSecond| second.bytes as f64 / f64::from(1 << 20);
    let errors = |second: &PerSecond| second.errors as f64;
    let mut charts = vec![rates(rows, "Throughput", "operations per second", show_round_count, operations)];
    if rows.iter().any(|(_, figures)| has_several_sizes(figures)) {
        charts.push(rates(rows, "Bytes", "MiB per second", show_short, mebibytes));
    }
    if rows.iter().any(|(_, figures)| figures.whole_seconds().iter().any(|second| second.errors > 0)) {
        charts.push(rates(rows, "Errors", "errors per second", show_round_count, errors));
    }
    charts.push(latencies(rows));
    charts
}

/// Whether the operations of one second had other sizes, on average, than those of another.
fn has_several_sizes(figures: &Figures) -> bool {
    let seconds = figures.whole_seconds().iter().filter(|second| second.ops > 0);
    let mut sizes = seconds.map(|second| (second.bytes, second.ops));
    let first = sizes.next();
    sizes.any(|(bytes, ops)| {
        first.is_some_and(|first| u128::from(bytes) * u128::from(first.1) != u128::from(first.0) * u128::from(ops))
    })
}

/// A number along an axis, with as many digits as tell it from its neighbours.
fn show_short(number: f64) -> String {
    format!("{number:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn rates(
    rows: &[(&str, &Figures)],
    title: &'static str,
    what: &str,
    show_y: fn(f64) -> String,
    count: fn(&PerSecond) -> f64,
) -> Chart {
    let lines: Vec<Line> = rows
        .iter()
        .enumerate()
        .map(|(colour, (letter, figures))| Line {
            name: legend(letter, what),
            colour,
            dashed: false,
            points: over_time(figures, Of::Mean, count),
        })
        .collect();
    let max = lines.iter().flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    Chart {
        title,
        x_title: "since the start",
        x: seconds_scale(rows),
        y: Scale::linear(max),
        x_marks: Vec::new(),
        show_x: show_seconds,
        show_y,
        filled: rows.len() == 1,
        lines,
    }
}

fn latencies(rows: &[(&str, &Figures)]) -> Chart {
    type Pick = fn(&PerSecond) -> f64;
    let picks: [(&str, Of, Pick, usize); 3] = [
        ("p50", Of::MeanOfAny, |second| second.p50_us, 0),
        ("p99", Of::MeanOfAny, |second| second.p99_us, 1),
        ("max", Of::Highest, |second| second.max_us, 3),
    ];
    let lines: Vec<Line> = rows
        .iter()
        .enumerate()
        .flat_map(|(index, (letter, figures))| {
            picks.iter().map(move |(name, of, pick, colour)| Line {
                name: legend(letter, name),
                colour: *colour,
                dashed: index == 0 && rows.len() > 1,
                // Of seconds in which nothing ended there is none.
                points: over_time(figures, *of, pick)
                    .into_iter()
                    .map(|(x, us)| (x, if us > 0.0 { us } else { f64::NAN }))
                    .collect(),
            })
        })
        .collect();
    Chart {
        title: "Latency",
        x_title: "since the start",
        x: seconds_scale(rows),
        y: Scale::log(lines.iter().flat_map(Line::measured).map(|point| point.1)),
        x_marks: Vec::new(),
        show_x: show_seconds,
        show_y: show_us,
        filled: false,
        lines,
    }
}

#[expect(clippy::cast_precision_loss, reason = "pixels")]
fn distributions(rows: &[(&str, &Figures)]) -> Chart {
    let lines: Vec<Line> = rows
        .iter()
        .enumerate()
        .map(|(colour, (letter, figures))| {
            let all = figures.latency_distribution.iter().map(|step| step.count).sum::<u64>().max(1) as f64;
            Line {
                name: legend(letter, "share of operations"),
                colour,
                dashed: false,
                points: figures.latency_steps().map(|(us, count)| (us, count as f64 / all * 100.0)).collect(),
            }
        })
        .collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    Chart {
        title: "Distribution of latency",
        x_title: "latency",
        x: Scale::log(points().map(|point| point.0)),
        y: Scale::linear(points().map(|point| point.1).fold(0.0, f64::max)),
        x_marks: Vec::new(),
        show_x: show_us,
        show_y: |percent| show_short(percent) + " %",
        filled: true,
        lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    /// Every element that is opened is closed, in order.
    pub(super) fn assert_well_formed(page: &str) {
        let mut open = Vec::new();
        let mut rest = page;
        while let Some(begin) = rest.find('<') {
            let end = begin + rest[begin..].find('>').expect("a tag ends");
            let tag = &rest[begin + 1..end];
            rest = &rest[end + 1..];
            let name = tag.split([' ', '\n']).next().unwrap();
            match name.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "near {}", &rest[..rest.len().min(80)]),
                None if tag.ends_with('/') || ["!doctype", "meta"].contains(&name) => {}
                None => open.push(name),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn the_page_is_whole_and_asks_for_nothing() {
        let mut report = sample();
        report.endpoint = "http://<script>&".to_owned();
        for page in [page(&[&report]), page(&[&report, &report])] {
            assert_well_formed(&page);
            for foreign in ["<script", "src=", "href=", "@import", "url("] {
                assert!(!page.contains(foreign), "{foreign}");
            }
            assert!(page.contains("503 SlowDown") && !page.contains("NaN") && !page.contains("inf"));
        }
    }

    #[test]
    fn keys_of_listings_and_workers_that_gave_up_are_shown() {
        let mut report = sample();
        assert!(!page(&[&report]).contains("gave up"));
        report.results[0].entries_per_s = Some(7654.0);
        report.phases[0].given_up = 2;
        let other = report.clone();
        for page in [page(&[&report]), page(&[&report, &other])] {
            assert_well_formed(&page);
            assert!(page.contains("<td>7654</td>") && page.contains("put: 2 workers gave up"), "{page}");
        }
        let compared = page(&[&report, &other]);
        assert!(compared.contains("<td>put, keys</td><td>7654</td><td>7654</td><td>1.000</td>"), "{compared}");
    }

    #[test]
    fn a_run_of_less_than_a_second_is_said_to_be_one() {
        let long = sample();
        let mut short = sample();
        short.results[0].seconds = 0.5;
        let (sentence, over_time) = ("lasted less than a second", "<b>Throughput</b>");
        for (reports, expected) in [
            (&[&long][..], (None, true)),
            (&[&short], (Some("<p>It lasted"), false)),
            (&[&long, &short], (Some("<p>B lasted"), true)),
            (&[&short, &short], (Some("<p>A lasted"), false)),
        ] {
            let page = page(reports);
            assert_well_formed(&page);
            assert_eq!(page.contains(over_time), expected.1);
            assert!(page.contains("<b>Distribution of latency</b>"));
            assert_eq!(page.contains(sentence), expected.0.is_some());
            assert!(expected.0.is_none_or(|begin| page.contains(&format!("{begin} less than a second"))), "{page}");
        }
    }

    #[test]
    fn what_was_asked_for_is_shown() {
        let page = page(&[&sample()]);
        assert!(page.contains("<dt>warm-up</dt><dd>1 s</dd>") && page.contains("<dt>seed</dt><dd>1</dd>"), "{page}");
    }

    #[test]
    fn a_run_that_did_nothing_has_a_page_too() {
        let mut report = sample();
        report.results[0].per_second.clear();
        report.results[0].latency_distribution.clear();
        report.results[0].operations = 0;
        assert_well_formed(&page(&[&report]));
        report.results.clear();
        assert_well_formed(&page(&[&report]));
    }
}
