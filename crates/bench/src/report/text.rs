//! The report as a table for a terminal.

use super::{Figures, PhaseCost, Report, per_second};
use crate::{cli::Operation, units::show_bytes};

/// Share of their time from which on threads have hardly any left.
const SATURATED: f64 = 0.9;
/// Share of a rate that was asked for from which on it counts as kept.
const KEPT_UP: f64 = 0.95;

impl Report {
    /// The report as a table.
    pub(crate) fn text(&self) -> String {
        let processes = if self.processes > 1 { format!(" in {} processes", self.processes) } else { String::new() };
        let mut out = format!(
            "{} of {} with {} workers{processes} against {}, {:.1} s\n",
            self.load, self.size, self.concurrency, self.endpoint, self.seconds
        );
        if self.interrupted {
            out += "interrupted: figures are of what was measured until then\n";
        }
        let width = self.results.iter().map(|row| row.name().len()).max().unwrap_or(0).max(9);
        out += &format!(
            "{:<width$}      ops/s       bytes/s    p50 µs    p90 µs    p99 µs  p99.9 µs    max µs  errors\n",
            "operation"
        );
        for row in &self.results {
            let latency = &row.latency_us;
            out += &format!(
                "{:<width$} {:>10.1} {:>11}/s {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {:>7}\n",
                row.name(),
                row.ops_per_s,
                show_bytes(row.bytes_per_s),
                latency.p50,
                latency.p90,
                latency.p99,
                latency.p999,
                latency.max,
                row.error_count,
            );
            if let Some(entries) = row.entries_per_s {
                out += &format!("{:width$} {entries:>10.0} keys/s\n", "");
            }
            for (kind, count) in &row.errors {
                out += &format!("{:width$} {count} × {kind}\n", "");
            }
            if let Some(outlasted) = row.outlasted() {
                out += &format!("{:width$} {outlasted}\n", "");
            }
            if row.retries > 0 {
                out += &format!("{:width$} {} × sent again: the server had closed the connection\n", "", row.retries);
            }
        }
        for line in self.given_up() {
            out += &format!("{line}\n");
        }
        for line in self.missed_rates() {
            out += &format!("{line}\n");
        }
        out += &format!("CPU per request: client {:.1} µs", self.client_cpu_us_per_op);
        if let Some(server) = self.server_cpu_us_per_op {
            out += &format!(", server {server:.1} µs");
        }
        out += "\n";
        if let Some(line) = self.saturation() {
            out += &format!("{line}\n");
        }
        out
    }

    /// That the client itself may be what limits the rates.
    pub(crate) fn saturation(&self) -> Option<String> {
        let busy_seconds: f64 = self.phases.iter().map(|phase| phase.client_cpu_seconds).sum();
        let share = busy_seconds / (self.seconds * f64::from(self.threads));
        (share >= SATURATED).then(|| {
            format!(
                "the client's threads ({}) were busy for {:.0} % of the time: what is measured may be their limit; see --threads and --processes",
                self.threads,
                share * 100.0
            )
        })
    }

    /// That fewer operations were done than were asked for, a line for each phase in which that was so.
    pub(crate) fn missed_rates(&self) -> Vec<String> {
        let Some(asked) = self.asked.as_ref().and_then(|asked| asked.rate) else { return Vec::new() };
        // An upload in parts is one.
        let is_whole = |row: &&Figures| self.load != Operation::Multipart.name() || row.operation == self.load;
        let line = |phase: &PhaseCost| {
            let rows = self.results.iter().filter(|row| row.phase == phase.phase).filter(is_whole);
            let done: f64 = rows.map(|row| row.ops_per_s + per_second(row.error_count, row.seconds)).sum();
            let name = if phase.phase.is_empty() { &self.load } else { &phase.phase };
            (done < KEPT_UP * asked).then(|| {
                format!("{name}: {done:.1} operations a second, where {asked} were to be: latencies are from when each was due")
            })
        };
        self.phases.iter().filter_map(line).collect()
    }

    /// How many workers gave a phase up, a line for each phase in which some did.
    pub(crate) fn given_up(&self) -> Vec<String> {
        let phases = self.phases.iter().filter(|phase| phase.given_up > 0);
        let line = |phase: &PhaseCost| {
            let name = if phase.phase.is_empty() { &self.load } else { &phase.phase };
            let workers =
                if phase.given_up == 1 { "1 worker".to_owned() } else { format!("{} workers", phase.given_up) };
            format!("{name}: {workers} gave up after too many failures in a row")
        };
        phases.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        cli::{Operation, Settings},
        report::{Asked, Report, tests::sample},
    };

    #[test]
    fn an_interrupted_run_says_so() {
        assert!(!sample().text().contains("interrupted"));
        assert!(Report { interrupted: true, ..sample() }.text().contains("\ninterrupted: "));
    }

    #[test]
    fn workers_that_gave_up_are_counted() {
        let mut report = sample();
        assert!(report.given_up().is_empty());
        report.phases.extend_from_within(..);
        (report.phases[0].given_up, report.phases[1].given_up) = (1, 3);
        report.phases[1].phase = "read".to_owned();
        let told = [
            "put: 1 worker gave up after too many failures in a row",
            "read: 3 workers gave up after too many failures in a row",
        ];
        assert_eq!(report.given_up(), told);
        assert!(report.text().contains(&told.join("\n")));
    }

    #[test]
    fn a_client_that_is_at_its_limit_says_so() {
        let mut report = sample();
        assert_eq!(report.saturation(), None);
        report.phases[0].client_cpu_seconds = 0.95 * report.seconds * f64::from(report.threads);
        assert!(report.text().contains(" busy for 95 % of the time"), "{}", report.text());
    }

    #[test]
    fn a_rate_that_was_not_kept_is_told() {
        let mut report = sample();
        assert!(report.missed_rates().is_empty(), "none was asked for");
        let done = report.results.iter().map(|row| row.ops_per_s + row.error_count as f64 / row.seconds).sum::<f64>();
        let mut asked = Asked::new(&Settings::for_tests(Operation::Put, &[]));
        for (share, is_missed) in [(1.0, false), (0.96, false), (0.5, true)] {
            asked.rate = Some(done / share);
            report.asked = Some(asked.clone());
            assert_eq!(report.missed_rates().len(), usize::from(is_missed), "{share}");
        }
        assert!(report.text().contains(" operations a second, where "), "{}", report.text());
    }

    #[test]
    fn errors_and_costs_are_told() {
        let text = sample().text();
        assert!(text.contains("3 × sent again"), "{text}");
        assert!(text.contains("1 × 503 SlowDown") && text.contains("client 20.0 µs, server 60.0 µs"), "{text}");
    }
}
