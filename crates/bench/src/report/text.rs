//! The report as a table for a terminal.

use super::{PhaseCost, Report};
use crate::units::show_bytes;

/// Share of their time from which on threads have hardly any left.
const SATURATED: f64 = 0.9;

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
        for line in self.faults() {
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
        let seconds: f64 = self.phases.iter().map(|phase| phase.metered_seconds.unwrap_or(phase.seconds)).sum();
        let share = busy_seconds / (seconds * f64::from(self.threads));
        (seconds > 0.0 && share >= SATURATED).then(|| {
            format!(
                "the client's threads ({}) were busy for {:.0} % of the time: what is measured may be their limit; see --threads and --processes",
                self.threads,
                share * 100.0
            )
        })
    }

    /// What went wrong besides errors, a line each: workers that gave a phase up, and operations of a rate that nobody was free for.
    pub(crate) fn faults(&self) -> Vec<String> {
        let of_phase = |phase: &PhaseCost| {
            let name = if phase.phase.is_empty() { &self.load } else { &phase.phase };
            let workers =
                if phase.given_up == 1 { "1 worker".to_owned() } else { format!("{} workers", phase.given_up) };
            let given_up =
                (phase.given_up > 0).then(|| format!("{name}: {workers} gave up after too many failures in a row"));
            let late = (phase.late_starts > 0).then(|| {
                let (count, ms) = (phase.late_starts, phase.latest_start_us / 1000.0);
                format!(
                    "{name}: nobody was free for {count} operations when they were due; the latest began after {ms:.0} ms, which are in the latencies"
                )
            });
            [given_up, late].into_iter().flatten()
        };
        self.phases.iter().flat_map(of_phase).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::report::{Report, tests::sample};

    #[test]
    fn an_interrupted_run_says_so() {
        assert!(!sample().text().contains("interrupted"));
        assert!(Report { interrupted: true, ..sample() }.text().contains("\ninterrupted: "));
    }

    #[test]
    fn workers_that_gave_up_are_counted() {
        let mut report = sample();
        assert!(report.faults().is_empty());
        report.phases.extend_from_within(..);
        (report.phases[0].given_up, report.phases[1].given_up) = (1, 3);
        report.phases[1].phase = "read".to_owned();
        let told = [
            "put: 1 worker gave up after too many failures in a row",
            "read: 3 workers gave up after too many failures in a row",
        ];
        assert_eq!(report.faults(), told);
        assert!(report.text().contains(&told.join("\n")));
    }

    #[test]
    fn a_client_that_is_at_its_limit_says_so() {
        let mut report = sample();
        assert_eq!(report.saturation(), None);
        report.phases[0].client_cpu_seconds = 0.95 * report.seconds * f64::from(report.threads);
        assert!(report.text().contains(" busy for 95 % of the time"), "{}", report.text());
        // CPU time is of all of a phase, also of what came after its last success.
        report.phases[0].metered_seconds = Some(2.0 * report.seconds);
        assert_eq!(report.saturation(), None);
        // Older reports do not say how long that was.
        report.phases[0].metered_seconds = None;
        assert!(report.saturation().is_some());
        // Of no time there is no share.
        for within in [Some(0.0), None] {
            (report.seconds, report.phases[0].seconds, report.phases[0].metered_seconds) = (0.0, 0.0, within);
            assert_eq!(report.saturation(), None);
        }
    }

    #[test]
    fn operations_that_began_late_are_told() {
        let mut report = sample();
        (report.phases[0].late_starts, report.phases[0].latest_start_us) = (7, 512_345.0);
        let told = "put: nobody was free for 7 operations when they were due; the latest began after 512 ms, which are in the latencies";
        assert_eq!(report.faults(), [told]);
        assert!(report.text().contains(told));
    }

    #[test]
    fn errors_and_costs_are_told() {
        let text = sample().text();
        assert!(text.contains("3 × sent again"), "{text}");
        assert!(text.contains("1 × 503 SlowDown") && text.contains("client 20.0 µs, server 60.0 µs"), "{text}");
    }
}
