//! The report as a table for a terminal.

use super::{EndpointCounts, PhaseCost, Report};
use crate::units::show_bytes;

/// Share of their time from which on threads have hardly any left.
pub(crate) const SATURATED: f64 = 0.9;
/// Share of the time that was asked for below which a measurement is told to have been short.
const SHORT: f64 = 0.9;

/// How much of the time that the client's threads could have in `seconds` they took, if it was any. Threads beyond the processors have no more than these.
pub(crate) fn busy_share(cpu_seconds: f64, seconds: f64, threads: u32, cpus: u32) -> Option<f64> {
    let most = seconds * f64::from(threads.min(cpus));
    (most > 0.0).then(|| cpu_seconds / most)
}

/// Endpoints of a phase, by its name, that did nothing of what they were asked for, and what they said first.
fn dead_endpoints(name: &str, phase: &PhaseCost) -> Vec<String> {
    let dead = phase.endpoints.iter().filter(|counts| counts.succeeded == 0 && counts.failed > 0);
    let line = |counts: &EndpointCounts| {
        let reason = counts.first_failure.as_deref().unwrap_or("it is not known why");
        format!("{name}: no operation succeeded at {}: {reason}", counts.endpoint)
    };
    dead.map(line).collect()
}

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
            for (kind, count) in row.errors.iter().filter(|_| !row.is_sum()) {
                out += &format!("{:width$} {count} × {kind}\n", "");
            }
            if let Some(outlasted) = row.outlasted() {
                out += &format!("{:width$} {outlasted}\n", "");
            }
            if row.retries > 0 && !row.is_sum() {
                out += &format!("{:width$} {} × sent again: the server had closed the connection\n", "", row.retries);
            }
        }
        for line in self.cautions() {
            out += &format!("{line}\n");
        }
        out += &format!("CPU per request: client {:.1} µs", self.client_cpu_us_per_op);
        if let Some(server) = self.server_cpu_us_per_op {
            out += &format!(", server {server:.1} µs");
        }
        out + "\n"
    }

    /// All that is to be known before its figures are believed, a line each.
    pub(crate) fn cautions(&self) -> Vec<String> {
        [self.faults(), self.hints(), self.saturation(), self.of_other_runs.clone()].concat()
    }

    /// What a phase is called where several stand side by side.
    fn name_of<'a>(&'a self, phase: &'a PhaseCost) -> &'a str {
        if phase.phase.is_empty() { &self.load } else { &phase.phase }
    }

    /// That the client itself may be what limits the rates, a line for each phase in which that is so.
    fn saturation(&self) -> Vec<String> {
        let (threads, cpus) = (self.threads, self.machine.cpus.max(1));
        let of_phase = |phase: &PhaseCost| {
            let seconds = phase.metered_seconds.unwrap_or(phase.seconds);
            let share = busy_share(phase.client_cpu_seconds, seconds, threads, cpus)?;
            let advice = if threads < cpus { "see --threads and --processes" } else { "it has no more processors" };
            (share >= SATURATED).then(|| {
                format!(
                    "{}: the client's threads ({threads}, on {cpus} CPUs) were busy for {:.0} % of the time that they can have: what is measured may be their limit; {advice}",
                    self.name_of(phase),
                    share * 100.0
                )
            })
        };
        self.phases.iter().filter_map(of_phase).collect()
    }

    /// What went wrong besides errors, a line each: endpoints that did nothing, workers that gave a phase up, and operations of a rate that nobody was free for.
    pub(crate) fn faults(&self) -> Vec<String> {
        let of_phase = |phase: &PhaseCost| {
            let name = self.name_of(phase);
            let workers =
                if phase.given_up == 1 { "1 worker".to_owned() } else { format!("{} workers", phase.given_up) };
            let given_up =
                (phase.given_up > 0).then(|| format!("{name}: {workers} gave up after too many failures in a row"));
            let lost = (phase.lost_processes > 0).then(|| {
                format!(
                    "{name}: {} client processes were lost with what they measured; figures are of the others",
                    phase.lost_processes
                )
            });
            let abandoned = (phase.abandoned > 0).then(|| {
                format!(
                    "{name}: {} operations were under way when the run was stopped, and are in no figure",
                    phase.abandoned
                )
            });
            let late = (phase.late_starts > 0).then(|| {
                let (count, ms) = (phase.late_starts, phase.latest_start_us / 1000.0);
                format!(
                    "{name}: nobody was free for {count} operations when they were due; the latest began after {ms:.0} ms, which are in the latencies"
                )
            });
            let missed = (phase.missed_starts > 0).then(|| {
                let (count, ms) = (phase.missed_starts, phase.longest_missed_us / 1000.0);
                format!(
                    "{name}: {count} operations were due and had not begun when the time was over, the first of them for {ms:.0} ms; they are in no latency, so that percentiles are too low"
                )
            });
            let mut faults = dead_endpoints(name, phase);
            faults.extend([lost, given_up, abandoned, late, missed].into_iter().flatten());
            faults
        };
        self.phases.iter().flat_map(of_phase).collect()
    }

    /// Endpoints that did nothing of what they were asked for, where there are several, a line each.
    pub(crate) fn dead_endpoints(&self) -> Vec<String> {
        let several = self.phases.iter().filter(|phase| phase.endpoints.len() > 1);
        several.flat_map(|phase| dead_endpoints(self.name_of(phase), phase)).collect()
    }

    /// What makes a report of less worth than it may seem, and is no fault, a line each.
    fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        let asked = self.asked.as_ref().and_then(|asked| Some((asked.duration_seconds?, asked.objects?)));
        if let (Some((duration, objects)), "delete") = (asked, &*self.load)
            && self.seconds < SHORT * duration
            && !self.interrupted
            && self.results.iter().all(|row| row.error_count == 0)
        {
            hints.push(format!(
                "all of the {objects} objects were deleted after {:.1} of {duration} s: give more --objects to measure for longer",
                self.seconds
            ));
        }
        hints
    }
}

#[cfg(test)]
mod tests {
    use super::EndpointCounts;
    use crate::{
        cli::{Operation, Settings},
        report::{Report, tests::sample},
    };

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
        (report.threads, report.machine.cpus) = (2, 4);
        let is_told = |report: &Report| !report.saturation().is_empty();
        assert!(!is_told(&report));
        report.phases[0].client_cpu_seconds = 0.95 * report.seconds * 2.0;
        let told = "put: the client's threads (2, on 4 CPUs) were busy for 95 % of the time that they can have";
        assert!(report.text().contains(told) && report.text().contains("see --threads"), "{}", report.text());
        // More threads than there are processors can not be busier than these.
        report.threads = 16;
        assert!(!is_told(&report));
        report.phases[0].client_cpu_seconds = 0.95 * report.seconds * 4.0;
        assert!(is_told(&report) && !report.text().contains("see --threads"), "{}", report.text());
        // One phase does not hide another.
        report.phases.extend_from_within(..);
        report.phases[1].phase = "read".to_owned();
        report.phases[0].client_cpu_seconds = 0.0;
        let told = report.saturation();
        assert!(told.len() == 1 && told[0].starts_with("read: "), "{told:?}");
        report.phases.remove(0);
        // CPU time is of all of a phase, also of what came after its last success.
        report.phases[0].metered_seconds = Some(2.0 * report.seconds);
        assert!(!is_told(&report));
        // Older reports do not say how long that was.
        report.phases[0].metered_seconds = None;
        assert!(is_told(&report));
        // Of no time there is no share.
        for within in [Some(0.0), None] {
            (report.seconds, report.phases[0].seconds, report.phases[0].metered_seconds) = (0.0, 0.0, within);
            assert!(!is_told(&report));
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
    fn operations_that_did_not_begin_are_told() {
        let mut report = sample();
        (report.phases[0].missed_starts, report.phases[0].longest_missed_us) = (6000, 2_990_000.0);
        let told = "put: 6000 operations were due and had not begun when the time was over, the first of them for 2990 ms; they are in no latency, so that percentiles are too low";
        assert_eq!(report.faults(), [told]);
    }

    #[test]
    fn an_endpoint_that_does_nothing_is_named() {
        let mut report = sample();
        let counts = |endpoint: &str, succeeded, first: Option<&str>| EndpointCounts {
            endpoint: endpoint.to_owned(),
            succeeded,
            failed: u64::from(first.is_some()),
            first_failure: first.map(str::to_owned),
        };
        report.phases[0].endpoints =
            vec![counts("http://a", 7, Some("timeout")), counts("http://b", 0, Some("no such host"))];
        let told = "put: no operation succeeded at http://b: no such host";
        assert_eq!((report.faults(), report.dead_endpoints()), (vec![told.to_owned()], vec![told.to_owned()]));
        // That nothing at all succeeded is told already.
        report.phases[0].endpoints.remove(0);
        assert_eq!((report.faults(), report.dead_endpoints()), (vec![told.to_owned()], vec![]));
    }

    #[test]
    fn deletions_that_came_to_their_end_too_early_are_told() {
        let settings = Settings::for_tests(Operation::Delete, &["-c", "4"]);
        let mut report = Report { seconds: 0.3, ..Report::new(&settings, 1, 0, &[]) };
        let told =
            "all of the 4000 objects were deleted after 0.3 of 10 s: give more --objects to measure for longer\n";
        assert!(report.text().contains(told), "{}", report.text());
        report.results = sample().results;
        assert!(!report.text().contains(" --objects"), "some of them were not");
        report.results.clear();
        report.seconds = 9.99;
        assert!(!report.text().contains(" --objects"));
        let counted = Settings::for_tests(Operation::Delete, &["-n", "7"]);
        assert!(!Report { seconds: 0.3, ..Report::new(&counted, 1, 0, &[]) }.text().contains(" --objects"));
    }

    #[test]
    fn errors_and_costs_are_told() {
        let text = sample().text();
        assert!(text.contains("3 × sent again"), "{text}");
        assert!(text.contains("1 × 503 SlowDown") && text.contains("client 20.0 µs, server 60.0 µs"), "{text}");
    }
}
