//! What a run was asked to do, beyond load, size and workers: without it two reports can not be told apart that should not be compared.

use serde::{Deserialize, Serialize};

use crate::{
    cli::{Operation, Settings},
    driver::is_warmed_up,
    units::show_exact_bytes,
};

/// What was asked for. What does not concern the load is absent.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub(crate) struct Asked {
    /// How long to measure, unless operations are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration_seconds: Option<f64>,
    /// Operations after which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) count: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) warmup_seconds: Option<f64>,
    /// Operations that were to begin in a second, if not as many as possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rate_per_s: Option<f64>,
    /// Longest time of a request.
    pub(crate) timeout_seconds: f64,
    pub(crate) seed: u64,
    /// Objects that were there before; absent where all that an earlier run left are listed, and it was not said how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) objects: Option<u64>,
    /// Of these, in each folder, if they lie in several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) per_folder: Option<u64>,
    /// Whether names begin with a hash. Absent from reports that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scattered: Option<bool>,
    /// Whether they were written for this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prepared: Option<bool>,
    /// What ends the name of a folder, where these are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) delimiter: Option<String>,
    /// Keys of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_keys: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) part_bytes: Option<u64>,
    /// Prefixes of each worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) data_sets: Option<u32>,
    /// Objects of each of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) precreate: Option<u64>,
}

impl Asked {
    pub(crate) fn new(settings: &Settings) -> Self {
        let args = &settings.load;
        let operation = settings.operation;
        let only = |concerned| operation == concerned;
        let has_objects = operation.has_prepared_objects();
        // Whatever an earlier run left is listed.
        let is_known = !only(Operation::List) || !args.no_prepare || args.objects.is_some();
        Self {
            duration_seconds: args.count.is_none().then_some(args.duration.as_secs_f64()),
            count: args.count,
            warmup_seconds: is_warmed_up(operation).then_some(args.warmup.as_secs_f64()),
            rate_per_s: args.rate,
            timeout_seconds: args.access.timeout.as_secs_f64(),
            seed: args.seed,
            objects: (has_objects && is_known).then(|| settings.prepared_objects()),
            per_folder: args.per_folder,
            scattered: Some(args.scatter),
            prepared: has_objects.then_some(!args.no_prepare),
            delimiter: settings.delimiter.clone().filter(|_| only(Operation::List)),
            max_keys: only(Operation::List).then_some(settings.max_keys),
            part_bytes: only(Operation::Multipart).then_some(settings.part_bytes),
            data_sets: only(Operation::MdWorkbench).then_some(settings.sets),
            precreate: only(Operation::MdWorkbench).then_some(settings.set_objects),
        }
    }

    /// All that it says, each with what it is called; nothing where there is nothing to be said.
    pub(crate) fn words(&self) -> [(&'static str, Option<String>); 14] {
        let seconds = |seconds: f64| format!("{seconds} s");
        let length = match (self.count, self.duration_seconds) {
            (Some(count), _) => Some(format!("{count} operations")),
            (None, duration) => duration.map(seconds),
        };
        let objects_come_from = |prepared| if prepared { "this run" } else { "an earlier run" }.to_owned();
        let order = |scattered| if scattered { "scattered" } else { "ascending" }.to_owned();
        let per_folder = || self.per_folder.map_or_else(|| "all".to_owned(), |count| count.to_string());
        let delimiter = || self.delimiter.as_ref().map_or_else(|| "none".to_owned(), |text| format!("{text:?}"));
        [
            ("length", length),
            ("warm-up", self.warmup_seconds.map(seconds)),
            (
                "rate",
                Some(self.rate_per_s.map_or_else(|| "as many as they can".to_owned(), |rate| format!("{rate} /s"))),
            ),
            ("longest request", Some(seconds(self.timeout_seconds))),
            ("seed", Some(self.seed.to_string())),
            ("keys", self.scattered.map(order)),
            ("objects", self.objects.map(|count| count.to_string())),
            ("objects of", self.prepared.map(objects_come_from)),
            ("objects in a folder", self.prepared.map(|_| per_folder())),
            ("delimiter", self.max_keys.map(|_| delimiter())),
            ("keys of a page", self.max_keys.map(|count| count.to_string())),
            ("parts of", self.part_bytes.map(show_exact_bytes)),
            ("data sets of a worker", self.data_sets.map(|count| count.to_string())),
            ("objects of a data set", self.precreate.map(|count| count.to_string())),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(operation: Operation, flags: &[&str]) -> Vec<String> {
        let settings = Settings::for_tests(operation, flags);
        let words = Asked::new(&settings).words().into_iter();
        words.filter_map(|(name, value)| Some(format!("{name}: {}", value?))).collect()
    }

    /// What all say, with what is said before and after it.
    fn with(before: &[&'static str], after: &[&'static str]) -> Vec<&'static str> {
        [before, &["rate: as many as they can", "longest request: 60 s", "seed: 1", "keys: ascending"], after].concat()
    }

    #[test]
    fn a_report_has_what_concerns_its_load() {
        let rows: [(Operation, &[&str], Vec<&str>); 10] = [
            (
                Operation::Put,
                &["--rate", "2.5"],
                vec![
                    "length: 10 s",
                    "warm-up: 1 s",
                    "rate: 2.5 /s",
                    "longest request: 60 s",
                    "seed: 1",
                    "keys: ascending",
                ],
            ),
            (Operation::Put, &[], with(&["length: 10 s", "warm-up: 1 s"], &[])),
            (
                Operation::Get,
                &["-d", "500ms", "--warmup", "0s", "--per-folder", "10"],
                with(
                    &["length: 0.5 s", "warm-up: 0 s"],
                    &["objects: 1000", "objects of: this run", "objects in a folder: 10"],
                ),
            ),
            (
                Operation::Stat,
                &["-n", "7", "--no-prepare"],
                with(
                    &["length: 7 operations", "warm-up: 1 s"],
                    &["objects: 1000", "objects of: an earlier run", "objects in a folder: all"],
                ),
            ),
            (
                Operation::List,
                &["--max-keys", "7", "--no-prepare"],
                with(
                    &["length: 10 s", "warm-up: 1 s"],
                    &["objects of: an earlier run", "objects in a folder: all", "delimiter: none", "keys of a page: 7"],
                ),
            ),
            (
                Operation::List,
                &["--objects", "5", "--delimiter", "/", "--no-prepare"],
                with(
                    &["length: 10 s", "warm-up: 1 s"],
                    &[
                        "objects: 5",
                        "objects of: an earlier run",
                        "objects in a folder: all",
                        "delimiter: \"/\"",
                        "keys of a page: 1000",
                    ],
                ),
            ),
            (
                Operation::Delete,
                &[],
                with(&["length: 10 s"], &["objects: 16000", "objects of: this run", "objects in a folder: all"]),
            ),
            (
                Operation::Multipart,
                &["--part-size", "5MiB"],
                with(&["length: 10 s", "warm-up: 1 s"], &["parts of: 5.0 MiB"]),
            ),
            (Operation::IorHard, &[], with(&["length: 10 s"], &[])),
            (
                Operation::MdWorkbench,
                &["--precreate", "5"],
                with(&["length: 10 s"], &["data sets of a worker: 10", "objects of a data set: 5"]),
            ),
        ];
        for (operation, flags, expected) in rows {
            assert_eq!(said(operation, flags), expected, "{operation:?}");
        }
    }
}
