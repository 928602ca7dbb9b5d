//! Two reports side by side, or several runs of each: ratios, and whether they are more than what varies from second to second, or from run to run.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::bail;

use crate::{
    failure::all_of,
    html,
    output::{Output, print},
    report::{Asked, Figures, Latency, Report, mean},
    stats::add_errors,
    units::show_exact_bytes,
};

/// Fewest whole seconds, or runs, that say something about how much a rate varies.
const RATES_MIN: usize = 3;

/// Compares the reports in the second of two lists of files with those in the first.
///
/// # Errors
/// When a file can not be read or written, or the reports have no operation in common.
pub(crate) fn run(lists: &[PathBuf], page: Option<&Path>) -> anyhow::Result<()> {
    let [first, second] = lists else { bail!("--compare takes two reports, or lists of reports: A.json B.json") };
    let (a, b) = (read(first)?, read(second)?);
    let comparisons = compare(&a, &b);
    if comparisons.is_empty() {
        bail!(
            "the reports have no operation in common: {} is of {}, {} of {}",
            first.display(),
            a.load,
            second.display(),
            b.load
        );
    }
    let heads = [(first, &a), (second, &b)].into_iter().zip(["A", "B"]).map(|((path, report), letter)| {
        let Report { load, size, concurrency, endpoint, started, .. } = report;
        format!(
            "{letter}: {}: {load} of {size} with {concurrency} workers against {endpoint}, {started}\n",
            path.display()
        )
    });
    let cautions: String = cautions(&a, &b).iter().map(|caution| format!("{caution}\n")).collect();
    let printed = print(&(heads.collect::<String>() + &table(&comparisons) + &cautions));
    let written = page.map_or(Ok(()), |path| Output::open(path)?.write(&html::page(&[&a, &b])));
    all_of([printed, written])
}

/// The report in a file, or the mean of those in several, with commas between them.
fn read(list: &Path) -> anyhow::Result<Report> {
    match list.to_str() {
        Some(names) if names.contains(',') && !list.exists() => {
            let runs = names.split(',').map(|name| Report::read(Path::new(name)));
            Ok(mean_of(&runs.collect::<anyhow::Result<Vec<_>>>()?))
        }
        _ => Report::read(list),
    }
}

/// Several runs as one: their mean rates and latencies, the sum of their operations and errors, and what is to be known of each. Seconds and distributions are those of the first, and only
/// what all have is there.
fn mean_of(runs: &[Report]) -> Report {
    let mut of_all = runs[0].clone();
    let find = |run: &'_ Report, figures: &Figures| run.results.iter().position(|row| is_same(figures, row));
    of_all.results.retain(|figures| runs.iter().all(|run| find(run, figures).is_some()));
    for figures in &mut of_all.results {
        let rows = runs.iter().filter_map(|run| Some(&run.results[find(run, figures)?]));
        let rows: Vec<&Figures> = rows.collect();
        let mut errors = BTreeMap::new();
        rows.iter().for_each(|row| add_errors(&mut errors, &row.errors));
        let entries: Option<Vec<f64>> = rows.iter().map(|row| row.entries_per_s).collect();
        let latencies: Vec<&Latency> = rows.iter().map(|row| &row.latency_us).collect();
        *figures = Figures {
            operations: rows.iter().map(|row| row.operations).sum(),
            late_operations: rows.iter().map(|row| row.late_operations).sum(),
            outlasted_operations: rows.iter().map(|row| row.outlasted_operations).sum(),
            error_count: rows.iter().map(|row| row.error_count).sum(),
            errors,
            retries: rows.iter().map(|row| row.retries).sum(),
            ops_per_s: mean(rows.iter().map(|row| row.ops_per_s)),
            run_rates: rows.iter().map(|row| row.ops_per_s).collect(),
            bytes_per_s: mean(rows.iter().map(|row| row.bytes_per_s)),
            entries_per_s: entries.map(|entries| mean(entries.into_iter())),
            latency_us: Latency::mean_of(&latencies),
            ..figures.clone()
        };
    }
    for (number, run) in runs.iter().enumerate().skip(1) {
        let mut lines = Vec::new();
        let mut differences = differences(&runs[0], run);
        let [machine, first] = [run, &runs[0]].map(|run| run.machine.to_string());
        if machine != first {
            differences.push(format!("machines {first} and {machine}"));
        }
        if !differences.is_empty() {
            lines.push(format!("not the same as run 1: {}", differences.join(", ")));
        }
        if run.interrupted {
            lines.push("interrupted before its end".to_owned());
        }
        lines.extend(run.cautions());
        of_all.of_other_runs.extend(lines.into_iter().map(|line| format!("run {}: {line}", number + 1)));
    }
    for (number, run) in runs.iter().enumerate() {
        let lone = run.results.iter().filter(|figures| runs.iter().any(|other| find(other, figures).is_none()));
        let lone: Vec<String> = lone.map(Figures::name).collect();
        let is_lone = (!lone.is_empty()).then(|| format!("not all have its {}", lone.join(", ")));
        let lines = is_lone.into_iter().chain(failing(run)).map(|line| format!("run {}: {line}", number + 1));
        of_all.of_other_runs.extend(lines);
    }
    of_all
}

/// Operations of which so many failed that their rate is not that of what was asked for, a line each.
fn failing(run: &Report) -> impl Iterator<Item = String> {
    let rows = run.results.iter().filter(|row| !row.is_sum() && failed_share(row) >= FAILED_SHARE_MIN);
    rows.map(|row| format!("{}: {:.1} % of the operations failed", row.name(), failed_share(row) * 100.0))
}

/// What a difference in rates means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Faster,
    Slower,
    WithinNoise,
    TooShort,
    /// Of several runs, which are too few to differ.
    TooFew,
    /// Both began as many in a second as they were to: what tells them apart are latencies.
    Given,
    /// One of them, or both, came to no operation: there is nothing to compare.
    Nothing {
        a: bool,
        b: bool,
    },
}

impl Verdict {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Faster => "B was faster",
            Verdict::Slower => "B was slower",
            Verdict::WithinNoise => "within noise",
            Verdict::TooShort => "too short to tell",
            Verdict::TooFew => "too few runs to tell",
            Verdict::Given => "rate was given",
            Verdict::Nothing { a: true, b: true } => "neither did anything",
            Verdict::Nothing { a: true, .. } => "A did nothing",
            Verdict::Nothing { .. } => "B did nothing",
        }
    }
}

/// One operation in both reports.
pub(crate) struct Comparison<'a> {
    pub(crate) a: &'a Figures,
    pub(crate) b: &'a Figures,
    /// Rate of B over rate of A, if both did anything.
    pub(crate) ratio: Option<f64>,
    /// Half of the 95 % interval of the ratio, if there are seconds enough.
    pub(crate) half_width: Option<f64>,
    pub(crate) verdict: Verdict,
}

impl Comparison<'_> {
    /// Entries per second of both and their ratio, of listings.
    pub(crate) fn entries(&self) -> Option<(f64, f64, Option<f64>)> {
        let (a, b) = (self.a.entries_per_s?, self.b.entries_per_s?);
        Some((a, b, ratio(a, b)))
    }

    /// B's latency over A's, if both have one.
    pub(crate) fn latency_ratio(&self, of: impl Fn(&Latency) -> f64) -> Option<f64> {
        ratio(of(&self.a.latency_us), of(&self.b.latency_us))
    }
}

/// Of nothing there is none.
fn ratio(a: f64, b: f64) -> Option<f64> {
    (a > 0.0 && b > 0.0).then(|| b / a)
}

/// A ratio for people.
pub(crate) fn show_ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.3}"))
}

/// All operations that both reports have, in the order of the first.
pub(crate) fn compare<'a>(a: &'a Report, b: &'a Report) -> Vec<Comparison<'a>> {
    let pairs = a.results.iter().filter_map(|one| {
        let other = b.results.iter().find(|other| is_same(one, other));
        Some((one, other?))
    });
    let given = |report: &Report| report.asked.as_ref().and_then(|asked| asked.rate_per_s);
    let is_kept = |report: &Report| report.phases.iter().all(|phase| phase.missed_starts == 0);
    let is_given = given(a).is_some() && given(a) == given(b) && is_kept(a) && is_kept(b);
    pairs.map(|(a, b)| judge(a, b, is_given)).collect()
}

/// Whether both are of the same operation.
fn is_same(a: &Figures, b: &Figures) -> bool {
    (&a.operation, &a.phase) == (&b.operation, &b.phase)
}

/// What the intervals of comparisons are of, and what they can not say.
pub(crate) fn interval(comparisons: &[Comparison<'_>]) -> &'static str {
    if comparisons.iter().all(|row| row.a.run_rates.len() >= RATES_MIN && row.b.run_rates.len() >= RATES_MIN) {
        "The interval is by how much rates vary from run to run. It takes runs that were measured in turn: what changes with the hour, as a disk that fills, is in none of them."
    } else {
        "By how much the rate varies from second to second within a run says nothing of how much runs of one and the same program differ: of a machine that others share, or a disk that fills, \
         that may be more. Before a small difference is believed, measure both in turn, three times or more, and compare all: --compare A1.json,A2.json,A3.json B1.json,B2.json,B3.json"
    }
}

fn judge<'a>(a: &'a Figures, b: &'a Figures, is_given: bool) -> Comparison<'a> {
    let Some(ratio) = ratio(a.ops_per_s, b.ops_per_s) else {
        let verdict = Verdict::Nothing { a: a.ops_per_s <= 0.0, b: b.ops_per_s <= 0.0 };
        return Comparison { a, b, ratio: None, half_width: None, verdict };
    };
    let half_width = match (deviation(a), deviation(b)) {
        (Some((of_a, freedom_a)), Some((of_b, freedom_b))) => {
            Some(ratio * of_a.hypot(of_b) * t_of_95_percent(freedom_a.min(freedom_b)))
        }
        _ => None,
    };
    let verdict = match half_width {
        None if [a, b].iter().any(|figures| (1..RATES_MIN).contains(&figures.run_rates.len())) => Verdict::TooFew,
        None => Verdict::TooShort,
        Some(half_width) if (ratio - 1.0).abs() <= half_width && is_given => Verdict::Given,
        Some(half_width) if (ratio - 1.0).abs() <= half_width => Verdict::WithinNoise,
        Some(_) if ratio > 1.0 => Verdict::Faster,
        Some(_) => Verdict::Slower,
    };
    let ratio = Some(ratio);
    Comparison { a, b, ratio, half_width, verdict }
}

/// Standard error of the rate relative to it, by runs, or the whole seconds of one, and its degrees of freedom.
#[expect(clippy::cast_precision_loss, reason = "operations of a second")]
fn deviation(figures: &Figures) -> Option<(f64, f64)> {
    let rates: Vec<f64> = match &figures.run_rates[..] {
        [] => figures.whole_seconds().iter().map(|second| second.ops as f64).collect(),
        runs => runs.to_vec(),
    };
    let (count, mean) = (rates.len() as f64, mean(rates.iter().copied()));
    if rates.len() < RATES_MIN || mean <= 0.0 {
        return None;
    }
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(((variance / count).sqrt() / mean, count - 1.0))
}

/// The quantile of Student's t that 95 % lie within, by the expansion of Cornish and Fisher: to 3 % from two degrees of freedom on.
fn t_of_95_percent(freedom: f64) -> f64 {
    1.96 + 2.37 / freedom + 2.82 / freedom.powi(2) + 2.56 / freedom.powi(3)
}

/// Why two reports say less of each other than they seem to, a sentence each.
pub(crate) fn cautions(a: &Report, b: &Report) -> Vec<String> {
    let mut cautions = Vec::new();
    let differences = differences(a, b);
    if !differences.is_empty() {
        cautions.push(format!("A and B did not do the same: {}.", differences.join(", ")));
    }
    // What varies of the memory's size from start to start is not to be seen in what is said of it.
    let [of_a, of_b] = [a, b].map(|report| report.machine.to_string());
    if of_a != of_b {
        cautions.push(format!("The clients' machines differ: {of_a} and {of_b}."));
    }
    for (letter, report) in [("A", a), ("B", b)] {
        if report.interrupted {
            cautions.push(format!("{letter} was interrupted before its end."));
        }
        cautions.extend(report.cautions().iter().map(|line| format!("{letter}, {line}.")));
        // Of several runs it is said above, of each.
        let is_one = report.results.iter().all(|row| row.run_rates.is_empty());
        cautions.extend(failing(report).filter(|_| is_one).map(|line| format!("{letter}, {line}.")));
    }
    for (letter, of, other) in [("A", a, b), ("B", b, a)] {
        let is_missing =
            |figures: &&Figures| !figures.is_sum() && !other.results.iter().any(|row| is_same(figures, row));
        let missing: Vec<_> = of.results.iter().filter(is_missing).map(Figures::name).collect();
        if !missing.is_empty() {
            cautions.push(format!("Only {letter} has {}.", missing.join(", ")));
        }
    }
    let counts_early = |report: &Report| report.results.iter().all(|figures| figures.early_operations.is_some());
    if counts_early(a) != counts_early(b) {
        cautions.push(
            "One report is of an older version, whose rates leave out what was under way when the measurement began: of long operations they are too low."
                .to_owned(),
        );
    }
    cautions
}

/// Share of failures from which on a rate is not that of what was asked for.
const FAILED_SHARE_MIN: f64 = 0.01;

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn failed_share(row: &Figures) -> f64 {
    row.error_count as f64 / (row.operations + row.late_operations + row.error_count).max(1) as f64
}

/// What was asked for in both, but not alike: what only one of them says may be the same in the other.
fn differences(a: &Report, b: &Report) -> Vec<String> {
    // What is rounded for people may be the same of two sizes.
    let size = |report: &Report| {
        if a.size == b.size { show_exact_bytes(report.size_bytes) } else { report.size.clone() }
    };
    let asked = |report: &Report| {
        let always = [
            ("load", report.load.clone()),
            ("size", size(report)),
            ("workers", report.concurrency.to_string()),
            ("processes", report.processes.to_string()),
            ("threads", report.threads.to_string()),
            ("payload", report.payload.clone()),
            ("reads", if report.verified { "verified" } else { "not verified" }.to_owned()),
        ];
        let always = always.map(|(what, value)| (what, Some(value)));
        always.into_iter().chain(report.asked.iter().flat_map(Asked::words)).collect::<Vec<_>>()
    };
    let pairs = asked(a).into_iter().zip(asked(b));
    let differing = pairs.filter_map(|((what, of_a), (_, of_b))| Some((what, of_a?, of_b?)));
    let differing = differing.filter(|(_, of_a, of_b)| of_a != of_b);
    differing.map(|(what, of_a, of_b)| format!("{what} {of_a} and {of_b}")).collect()
}

fn table(comparisons: &[Comparison<'_>]) -> String {
    let width = comparisons.iter().map(|row| row.a.name().len()).max().unwrap_or(0).max(9);
    let mut out =
        format!("{:<width$}    A ops/s    B ops/s    B/A         ±   p50 B/A   p99 B/A   errors A, B\n", "operation");
    for row in comparisons {
        let half_width = row.half_width.map_or_else(|| "?".to_owned(), |half_width| format!("{half_width:.3}"));
        out += &format!(
            "{:<width$} {:>10.1} {:>10.1} {:>6} {half_width:>9} {:>9} {:>9}   {}, {}   {}\n",
            row.a.name(),
            row.a.ops_per_s,
            row.b.ops_per_s,
            show_ratio(row.ratio),
            show_ratio(row.latency_ratio(|latency| latency.p50)),
            show_ratio(row.latency_ratio(|latency| latency.p99)),
            row.a.error_count,
            row.b.error_count,
            row.verdict.words(),
        );
        if let Some((a, b, ratio)) = row.entries() {
            out += &format!("{:<width$} {a:>10.0} {b:>10.0} {:>6}   keys/s\n", "", show_ratio(ratio));
        }
    }
    out + &format!("± is half of the 95 % interval of B/A. {}\n", interval(comparisons))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::{Operation, Settings},
        report::{PerSecond, tests::sample},
    };

    fn of_rates(rates: &[u64]) -> Report {
        let mut report = sample();
        let figures = &mut report.results[0];
        let row = |(second, ops)| PerSecond {
            second,
            ops,
            bytes: 0,
            errors: 0,
            errors_by_kind: BTreeMap::new(),
            p50_us: 1.0,
            p90_us: 1.5,
            p99_us: 2.0,
            p999_us: 2.5,
            max_us: 3.0,
        };
        figures.per_second = rates.iter().copied().enumerate().map(row).collect();
        (figures.error_count, figures.operations) = (0, rates.iter().sum());
        figures.seconds = rates.len() as f64;
        figures.ops_per_s = rates.iter().sum::<u64>() as f64 / figures.seconds;
        report
    }

    fn verdict(a: &[u64], b: &[u64]) -> Verdict {
        compare(&of_rates(a), &of_rates(b))[0].verdict
    }

    #[test]
    fn a_difference_counts_when_it_exceeds_the_noise() {
        let steady = [1000, 1010, 990, 1005, 995];
        assert_eq!(verdict(&steady, &steady), Verdict::WithinNoise);
        assert_eq!(verdict(&steady, &[1100, 1110, 1090, 1105, 1095]), Verdict::Faster);
        assert_eq!(verdict(&[1100, 1110, 1090, 1105, 1095], &steady), Verdict::Slower);
        assert_eq!(verdict(&steady, &[600, 1600, 900, 1800, 600]), Verdict::WithinNoise);
        assert_eq!(verdict(&steady, &[2000, 2000]), Verdict::TooShort);
    }

    #[test]
    fn runs_that_differ_tell_more_than_their_seconds() {
        let place = tempfile::tempdir().unwrap();
        let list = |name: &str, rates: &[u64]| {
            let paths = rates.iter().enumerate().map(|(number, rate)| {
                let path = place.path().join(format!("{name}{number}.json"));
                let mut report = of_rates(&[*rate; 4]);
                report.results[0].latency_us.p50 = *rate as f64;
                std::fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
                path.display().to_string()
            });
            PathBuf::from(paths.collect::<Vec<_>>().join(","))
        };
        let reports = |a: &[u64], b: &[u64]| (read(&list("a", a)).unwrap(), read(&list("b", b)).unwrap());
        for (a, b, expected) in [
            (&[100, 120, 140][..], &[110, 130, 150][..], Verdict::WithinNoise),
            (&[100, 101, 102], &[110, 111, 112], Verdict::Faster),
            (&[110, 111, 112], &[100, 101, 102], Verdict::Slower),
            (&[100, 102], &[110, 112], Verdict::TooFew),
            (&[100], &[110, 112, 114], Verdict::Faster),
        ] {
            let (a, b) = reports(a, b);
            let compared = compare(&a, &b);
            assert_eq!(compared[0].verdict, expected);
            assert!(cautions(&a, &b).is_empty());
        }
        let (a, b) = reports(&[100, 120, 140], &[110, 130, 150]);
        let row = &compare(&a, &b)[0];
        assert_eq!((row.a.ops_per_s, row.b.ops_per_s, row.a.latency_us.p50), (120.0, 130.0, 120.0));
        assert!(table(&compare(&a, &b)).contains("from run to run"));
        let (one, _) = reports(&[100], &[110]);
        assert!(!table(&compare(&one, &b)).contains("from run to run"));
        assert!(read(&list("c", &[]).join("none,neither")).is_err());
    }

    #[test]
    fn what_is_to_be_known_of_a_run_is_told_of_all() {
        let first = of_rates(&[10, 10, 10]);
        let mut second = Report { concurrency: 3, interrupted: true, ..first.clone() };
        second.phases[0].given_up = 2;
        let all = mean_of(&[first.clone(), second]);
        assert_eq!(
            cautions(&first, &all),
            [
                "B, run 2: not the same as run 1: workers 2 and 3.",
                "B, run 2: interrupted before its end.",
                "B, run 2: put: 2 workers gave up after too many failures in a row."
            ]
        );
        let mut other = first.clone();
        other.machine.cpus += 1;
        other.results[0].error_count = 10;
        other.results[0].errors = [("503".to_owned(), 10)].into();
        let mut get = other.results[0].clone();
        (get.operation, get.error_count) = ("get".to_owned(), 0);
        other.results.push(get);
        let all = mean_of(&[other, first.clone(), first.clone()]);
        assert_eq!((all.results.len(), all.results[0].errors["503"]), (1, 10));
        let told = cautions(&all, &all);
        let lines = ["run 1: not all have its get.", "run 1: put: 25.0 % of the operations failed."];
        assert!(lines.iter().all(|line| told.contains(&format!("A, {line}"))), "{told:?}");
        assert!(told.iter().filter(|line| line.contains("machines")).count() == 4, "{told:?}");
    }

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Half-width of the mean of 9, 10, 11 is 4.303 / √3 of its deviation 1.
        let steady = of_rates(&[10_000_000, 10_000_000, 10_000_000]);
        let noisy = of_rates(&[9_000_000, 10_000_000, 11_000_000]);
        let half_width = compare(&steady, &noisy)[0].half_width.unwrap();
        assert!((half_width - 0.2484).abs() < 0.01, "{half_width}");
    }

    #[test]
    fn the_table_names_the_verdict() {
        let (a, b) = (of_rates(&[10, 10, 10]), of_rates(&[20, 20, 20]));
        let text = table(&compare(&a, &b));
        assert!(text.contains("B was faster") && text.contains("2.000"), "{text}");
        assert!(cautions(&a, &b).is_empty());
        let mut old = serde_json::to_value(&a).unwrap();
        old["results"][0].as_object_mut().unwrap().remove("early_operations").unwrap();
        old.as_object_mut().unwrap().remove("asked").unwrap();
        let old: Report = serde_json::from_value(old).unwrap();
        let old: String = cautions(&old, &b).concat();
        assert!(old.contains("too low"), "{old}");
    }

    #[test]
    fn keys_of_listings_are_compared_as_well() {
        let (mut a, mut b) = (of_rates(&[10, 10, 10]), of_rates(&[20, 20, 20]));
        assert!(!table(&compare(&a, &b)).contains("keys/s"));
        a.results[0].entries_per_s = Some(10_000.0);
        b.results[0].entries_per_s = Some(5000.0);
        let text = table(&compare(&a, &b));
        assert!(text.contains("      10000       5000  0.500   keys/s\n"), "{text}");
    }

    #[test]
    fn of_nothing_there_is_no_ratio() {
        let (dead, alive) = (of_rates(&[0, 0, 0]), of_rates(&[10, 10, 10]));
        for (a, b, words) in
            [(&dead, &alive, "A did nothing"), (&alive, &dead, "B did nothing"), (&dead, &dead, "neither did anything")]
        {
            let text = table(&compare(a, b));
            assert!(text.contains(words) && text.contains('–'), "{text}");
            assert!(!text.contains("inf") && !text.contains("NaN") && !text.contains("0.000"), "{text}");
        }
    }

    #[test]
    fn a_rate_is_not_what_workers_can() {
        let asked = |flags: &[&str]| {
            let asked = Asked::new(&Settings::for_tests(Operation::Put, flags));
            Report { asked: Some(asked), ..of_rates(&[10, 10, 10]) }
        };
        let (closed, paced) = (asked(&[]), asked(&["--rate", "7"]));
        let told = "A and B did not do the same: rate as many as they can and 7 /s.";
        assert_eq!(cautions(&closed, &paced), [told]);
        let verdict = |a: &Report, b: &Report| compare(a, b)[0].verdict;
        assert_eq!(verdict(&closed, &paced), Verdict::WithinNoise);
        assert_eq!(verdict(&paced, &paced), Verdict::Given);
        let slower = Report { asked: paced.asked.clone(), ..of_rates(&[5, 5, 5]) };
        assert_eq!(verdict(&paced, &slower), Verdict::Slower, "it did not keep the rate");
        let mut late = paced.clone();
        late.phases[0].missed_starts = 1;
        assert_eq!(verdict(&late, &late), Verdict::WithinNoise, "neither did");
        assert!(cautions(&paced, &paced).is_empty());
    }

    #[test]
    fn a_rate_beside_failures_is_told() {
        let a = of_rates(&[10, 10, 10]);
        let mut b = a.clone();
        b.results[0].error_count = 10;
        assert_eq!(cautions(&a, &b), ["B, put: 25.0 % of the operations failed."]);
        b.results[0].operations = 1000;
        assert!(cautions(&a, &b).is_empty());
    }

    #[test]
    fn what_only_one_report_has_is_named() {
        let (a, mut b) = (of_rates(&[10, 10, 10]), of_rates(&[10, 10, 10]));
        b.results.extend_from_within(..);
        b.results[1].operation = "get".to_owned();
        assert_eq!(cautions(&a, &b), ["Only B has get."]);
        assert_eq!(cautions(&b, &a), ["Only A has get."]);
    }

    #[test]
    fn what_did_not_do_the_same_is_told() {
        let a = of_rates(&[10, 10, 10]);
        let size = Report { size: "1.0 MiB".to_owned(), payload: "signed".to_owned(), ..a.clone() };
        assert_eq!(
            cautions(&a, &size),
            ["A and B did not do the same: size 4.0 KiB and 1.0 MiB, payload unsigned and signed."]
        );
        let rounded = Report { size_bytes: a.size_bytes + 1, ..a.clone() };
        assert_eq!(cautions(&a, &rounded), ["A and B did not do the same: size 4.0 KiB and 4097 B."]);
        let mut other =
            Report { load: "mixed".to_owned(), concurrency: 3, verified: false, interrupted: true, ..a.clone() };
        other.phases[0].given_up = 2;
        assert_eq!(
            cautions(&a, &other),
            [
                "A and B did not do the same: load put and mixed, workers 2 and 3, reads verified and not verified.",
                "B was interrupted before its end.",
                "B, mixed: 2 workers gave up after too many failures in a row."
            ]
        );
    }

    #[test]
    fn what_was_asked_for_otherwise_is_told_where_both_say_it() {
        let of = |flags: &[&str]| {
            let settings = Settings::for_tests(Operation::Get, flags);
            let Report { asked, .. } = Report::new(&settings, 1, 0, &[]);
            Report { asked, ..of_rates(&[10, 10, 10]) }
        };
        let a = of(&[]);
        for (flags, expected) in [
            (&["-d", "20s"][..], "length 10 s and 20 s"),
            (&["-n", "20"], "length 10 s and 20 operations"),
            (&["--warmup", "2s"], "warm-up 1 s and 2 s"),
            (&["--timeout", "1s"], "longest request 60 s and 1 s"),
            (&["--seed", "2"], "seed 1 and 2"),
            (&["--objects", "2000"], "objects 1000 and 2000"),
            (&["--no-prepare"], "objects of this run and an earlier run"),
            (&["--per-folder", "10"], "objects in a folder all and 10"),
        ] {
            assert_eq!(cautions(&a, &of(flags)), [format!("A and B did not do the same: {expected}.")]);
        }
        let parts_of = |size: &str| {
            let settings = Settings::for_tests(Operation::Multipart, &["--part-size", size]);
            let Report { asked, .. } = Report::new(&settings, 1, 0, &[]);
            Report { asked, ..a.clone() }
        };
        let expected = "A and B did not do the same: parts of 5.0 MiB and 5242881 B.";
        assert_eq!(cautions(&parts_of("5MiB"), &parts_of("5242881")), [expected]);
        let older = Report { asked: None, ..a.clone() };
        assert!(cautions(&a, &older).is_empty() && cautions(&older, &a).is_empty());
        let list = Settings::for_tests(Operation::List, &["--delimiter", "/"]);
        let Report { asked, .. } = Report::new(&list, 1, 0, &[]);
        assert!(cautions(&a, &Report { asked, ..a.clone() }).is_empty(), "gets have no delimiter");
    }

    #[test]
    fn clients_of_another_kind_are_told() {
        let a = of_rates(&[10, 10, 10]);
        let mut b = Report { processes: 2, threads: 8, ..a.clone() };
        b.machine.cpus += 1;
        let cautions = cautions(&a, &b);
        assert_eq!(cautions[0], "A and B did not do the same: processes 1 and 2, threads 2 and 8.");
        assert!(cautions.len() == 2 && cautions[1].starts_with("The clients' machines differ: "), "{cautions:?}");
    }
}
